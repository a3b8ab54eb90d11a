"""The spec that an agent builds from its options."""

from dataclasses import fields

import pytest

from flyball import Agent, ConfigError, Settings, tool
from flyball.agent.conversation import ConversationOptions
from flyball.agent.delegation import build_children_spec
from flyball.agent.keywords import AgentKeywords
from flyball.agent.options import AgentOptions
from flyball.agent.output import build_completion_spec
from flyball.agent.spec import build_behaviour
from flyball.agent.tools import AgentTools
from flyball.budget.registry import IterationBudgetRegistry
from flyball.completion.policy import AssertionPolicy
from flyball.loop.plan import Behaviour, ChildrenSpec
from flyball.steadiness import Duplicates, Reflection, Thresholds
from flyball.testing import ScriptedModel, call, say
from flyball.tools import Admission, ToolContext


@tool(cheap=True)
def look(at: str) -> str:
    """Look at something."""
    return at


@tool(approve=True)
def send(text: str) -> str:
    """Send a text."""
    return text


async def spread(ctx: ToolContext) -> str:
    """Delegate work."""
    return "done"


NO_CHILDREN = ChildrenSpec()
MODEL = ScriptedModel(say("x"))


class TestBehaviour:
    def test_default_options_give_the_default_behaviour(self) -> None:
        assert build_behaviour(AgentOptions(model=MODEL), Settings({})) == Behaviour()

    def test_options_become_the_fields_of_the_behaviour(self) -> None:
        def go_on(progress: object) -> bool:
            return True

        reflection, thresholds = Reflection(every=2), Thresholds(same=5)
        options = AgentOptions(
            model=MODEL,
            grace=False,
            single_turn=True,
            on_exhausted="ask",
            duplicates="reuse",
            repetition=thresholds,
            reflection=reflection,
            should_continue=go_on,
        )
        assert build_behaviour(options, Settings({})) == Behaviour(
            grace=False,
            single_turn=True,
            asks_for_extension=True,
            duplicates=Duplicates.REUSE,
            thresholds=thresholds,
            reflection=reflection,
            should_continue=go_on,
        )

    def test_thresholds_come_from_the_settings_unless_they_are_given(self) -> None:
        settings = Settings({"repetition.same": 7})
        assert build_behaviour(AgentOptions(model=MODEL), settings).thresholds == Thresholds(same=7)


class TestTools:
    def test_facts_about_tools_are_collected_by_name(self) -> None:
        spec = AgentTools.of([look, send], NO_CHILDREN).build_spec()
        assert (spec.names, spec.cheap, spec.need_approval) == (("look", "send"), {"look"}, {"send"})
        assert [one["name"] for one in spec.definitions] == ["look", "send"]
        assert not spec.may_delegate

    def test_an_async_tool_with_a_context_may_delegate(self) -> None:
        assert AgentTools.of([spread], NO_CHILDREN).build_spec().may_delegate

    def test_children_add_the_tool_delegate_and_its_gate(self) -> None:
        registry = IterationBudgetRegistry(settings={})
        children = build_children_spec([Agent(model=MODEL, name="helper")], registry)
        spec = AgentTools.of([look], children).build_spec()
        assert spec.names == ("look", "delegate")
        assert spec.may_delegate
        with Agent(model=MODEL).plan("Go.").spec.limits.open() as envelope:
            assert type(spec.admission(envelope)) is not Admission


class TestChildren:
    def test_settings_say_how_child_runs_are_scheduled(self) -> None:
        settings = {"delegation": {"max_concurrent_children": 7, "stall_seconds": 9, "join_duplicates": True}}
        spec = build_children_spec([], IterationBudgetRegistry(settings=settings))
        assert (spec.specs, spec.max_concurrent, spec.stall_s, spec.join_duplicates) == ((), 7, 9.0, True)

    def test_a_tool_gets_a_child_by_name_or_any_agent(self) -> None:
        helper, other = Agent(model=MODEL, name="helper"), Agent(model=MODEL, name="other")
        resolve = build_children_spec([helper], IterationBudgetRegistry(settings={})).resolve
        assert resolve is not None
        assert (resolve("helper").name, resolve(other).name) == ("helper", "other")
        with pytest.raises(ConfigError, match="helper"):
            resolve("nobody")


class TestCompletion:
    def test_an_output_type_wraps_the_policy_and_gives_its_schema(self) -> None:
        spec = build_completion_spec(None, int, ())
        assert spec.output_schema == {
            "type": "object",
            "properties": {"result": {"type": "integer"}},
            "required": ["result"],
        }
        assert spec.policy is not None

    def test_text_without_a_policy_needs_no_check(self) -> None:
        spec = build_completion_spec(None, None, ())
        assert (spec.policy, spec.assertions, spec.output_schema) == (None, None, None)

    def test_assertions_become_a_policy(self) -> None:
        spec = build_completion_spec({"required_tool_names": ["look"]}, None, ("look",))
        assert isinstance(spec.policy, AssertionPolicy)
        assert spec.assertions is spec.policy.assertions


def test_an_agent_has_no_option_beside_those_of_agent_options() -> None:
    given = {field.name for field in fields(Agent) if field.init}
    assert given == {field.name for field in fields(AgentOptions)}


def test_every_option_of_a_conversation_is_its_own_or_an_option_of_agents() -> None:
    own = {"mode", "payload", "max_turns", "session_id", "run_id", "wait_seconds"}
    assert set(ConversationOptions.__annotations__) - own <= {field.name for field in fields(AgentOptions)}


def test_a_child_keeps_the_groups_of_its_agent_and_gets_limits_of_its_own() -> None:
    child = Agent(model=ScriptedModel(call("look", at="x"), say("y")), tools=[look], name="helper")
    own, parent = child.plan("Go.").spec, Agent(model=MODEL, children=[child]).plan("Go.").spec
    [edge] = parent.children.specs
    assert (edge.agent_spec.tools, edge.agent_spec.behaviour) == (own.tools, own.behaviour)
    assert edge.agent_spec.limits is not own.limits
    assert edge.agent_spec.origin is own.origin


def test_the_keywords_that_type_checkers_know_have_the_types_of_the_options() -> None:
    declared = {name: text for name, text in AgentOptions.__annotations__.items() if name not in ("model", "output")}
    assert {name: known.__forward_arg__ for name, known in AgentKeywords.__annotations__.items()} == declared
