"""AgentSpec and Plan: specs derived from others, and plans of runs that do not start."""

from dataclasses import replace
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.loop import converse
from flyball.loop.ending import End
from flyball.loop.plan import AgentSpec, Plan
from flyball.progress import Order, Point, Progress
from flyball.recorder import Recorder
from flyball.request import estimate_tokens
from flyball.result import Result, Stop
from flyball.rules.thresholds import StartCache
from flyball.testing import ScriptedModel, say


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def build_plan(**options: Any) -> Plan:
    model = ScriptedModel(say("x"))
    given: dict[str, Any] = {"model": model, "tools": [add, multiply], **options}
    return Agent(**given).plan("Go.", run_id="r1")


def build_spec(**options: object) -> AgentSpec:
    return build_plan(**options).spec


class TestDerivedSpecs:
    def test_added_instructions_count_in_the_base_tokens_of_every_model(self) -> None:
        spec = build_spec(instructions="Be brief.", models={"other": ScriptedModel(name="other")})
        longer = spec.add_instructions("Be exact.")
        more = estimate_tokens("Be exact.") - estimate_tokens("")
        assert longer.instructions == "Be brief.\n\nBe exact."
        assert longer.instruction_tokens == spec.instruction_tokens + more
        assert {name: card.base_tokens - more for name, card in longer.model.cards.items()} == {
            name: card.base_tokens for name, card in spec.model.cards.items()
        }

    @pytest.mark.parametrize("instructions", ["Be brief.", None])
    def test_replaced_instructions_leave_no_trace_of_the_earlier_ones(self, instructions: str | None) -> None:
        spec = build_spec(instructions=instructions)
        replaced = spec.add_instructions("First.").add_instructions("Second.", replacing="First.")
        assert replaced == spec.add_instructions("Second.")

    def test_narrowed_tools_are_all_that_the_spec_has(self) -> None:
        spec = build_spec()
        narrowed = spec.narrow_tools(frozenset({"add"}))
        assert (spec.tools.names, narrowed.tools.names) == (("add", "multiply"), ("add",))
        assert [one["name"] for one in narrowed.tools.definitions] == ["add"]
        assert narrowed.model.cards[""].base_tokens < spec.model.cards[""].base_tokens
        assert (narrowed.origin, narrowed.children) == (spec.origin, spec.children)

    def test_tools_that_cannot_be_resolved_are_not_narrowed(self) -> None:
        spec = build_spec()
        remote = replace(spec, tools=replace(spec.tools, resolve=None))
        assert remote.narrow_tools(frozenset({"add"})) is remote

    def test_other_limits_drop_the_start_cache_of_the_rules(self) -> None:
        spec = build_spec()
        spec.rules.start_cache = StartCache(spec.limits, None)
        other = spec.with_limits(build_spec(limits=Limits(turns=2)).limits)
        assert other.rules.start_cache is None
        assert other.rules.ruleset is spec.rules.ruleset
        assert spec.rules.start_cache is not None

    def test_runs_of_one_agent_share_the_start_cache(self) -> None:
        agent = Agent(model=ScriptedModel(say("x"), say("y")))
        agent.run("Go.")
        cache = agent.plan("Go.").spec.rules.start_cache
        agent.run("Go.")
        assert cache is not None
        assert agent.plan("Go.").spec.rules.start_cache is cache


class TestNotStarted:
    @pytest.mark.parametrize(
        ("end", "hooked"),
        [
            (End(Stop.CONTENDED, warning="held by another run"), ["run_ended"]),
            (End(Stop.CANCELLED, by="parent"), ["run_started", "run_ended"]),
            (End(Stop.FAILED, error={"code": "x", "kind": "X", "message": "no"}), ["run_started", "run_ended"]),
        ],
        ids=lambda value: value.stop.value if isinstance(value, End) else "",
    )
    def test_a_run_that_does_not_start_ends_with_its_reason_and_no_request(self, end: End, hooked: list[str]) -> None:
        points: list[str] = []

        def hook(point: Point, progress: Progress, about: object) -> list[Order]:
            points.append(point.value)
            return []

        result = run_to_end(replace(build_plan(hooks=[hook]), not_started=end))
        assert (result.stop, result.stopped_by, result.warning) == (end.stop, end.by, end.warning)
        assert (result.error, result.requests, points) == (end.error, 0, hooked)


def run_to_end(plan: Plan) -> Result:
    """Return the result of a run that asks for no effect."""
    with pytest.raises(StopIteration) as caught:
        next(converse(plan, Recorder(plan.header)))
    return caught.value.value
