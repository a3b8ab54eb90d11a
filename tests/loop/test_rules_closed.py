"""Rules that guard fail closed, and no rule, however wrong, ends a run or hides what another one set."""

from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.event import AskedPerson, RuleEmitted
from flyball.outcome import Denied
from flyball.person import allow, deny
from flyball.progress import Order, Point, Progress
from flyball.result import Result
from flyball.testing import Line, RuleFolder, ScriptDriver, ScriptedModel, assert_honest, call, say, together

MADE: list[object] = []


@tool(effects="read")
def look(n: int = 0, words: list[str] | None = None) -> str:
    """Look."""
    MADE.append(n)
    return f"seen {n}"


@tool
def write(n: int = 0) -> str:
    """Write."""
    return f"written {n}"


class Rules(RuleFolder):
    """Rule files, and a run with them."""

    def run(self, *lines: Line, plot: dict[str, Any] | None = None, **options: Any) -> Result:
        MADE.clear()
        options.setdefault("limits", Limits(turns=20))
        model = ScriptedModel(*lines, grace=say("I report."))
        agent = Agent(model=model, tools=[look, write], rules=self.path, **options)
        assert agent.ruleset.problems == ()
        return assert_honest(ScriptDriver(agent, **(plot or {})).run("Go."))


@pytest.fixture
def rules(tmp_path: Path) -> Rules:
    return Rules(tmp_path)


def texts(result: Result) -> list[str]:
    return [outcome.text for outcome in result.tool_results]


def denials(result: Result) -> list[Denied]:
    return [outcome for outcome in result.tool_results if isinstance(outcome, Denied)]


class TestWhatGuards:
    def test_a_veto_whose_message_cannot_be_made_is_one_all_the_same(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "deny"\nmessage = "No {{ context.call.arguments.path }}."')
        result = rules.run(call("look", n=1), say("ok"))
        [denied] = denials(result)
        assert (denied.reason, MADE) == ("rule", [])
        assert "rule-1" in denied.text
        assert "{{" not in denied.text
        assert [fault["rule"] for fault in result.faults] == ["rule-1"]

    def test_a_stop_whose_message_cannot_be_made_is_one_all_the_same(self, rules: Rules) -> None:
        rules.add("on_turn_end", 'type = "stop"\nmessage = "{{ context.state.nothing }}"')
        result = rules.run(call("look", n=1), say("ok"))
        assert (result.stop, result.stopped_by, result.text) == ("halted", "rule-1", "I report.")
        assert "rule-1" in str(result.warning)
        assert "{{" not in str(result.warning)
        assert [fault["rule"] for fault in result.faults] == ["rule-1"]

    def test_a_question_whose_message_cannot_be_made_is_asked_all_the_same(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "ask"\nmessage = "{{ context.state.nothing }}"')
        result = rules.run(call("look", n=1), say("ok"))
        assert (result.stop, MADE) == ("paused", [])
        [question] = result.questions
        assert (question.about, question.tool, question.arguments["n"]) == ("call", "look", 1)
        assert "rule-1" in question.text
        assert "{{" not in question.text
        assert [fault["rule"] for fault in result.faults] == ["rule-1"]

    @pytest.mark.parametrize("condition", ["context.call.arguments.words > 3", "1 / context.call.arguments.n > 0"])
    def test_a_call_is_not_made_where_the_condition_of_a_veto_fails(self, rules: Rules, condition: str) -> None:
        rules.add("on_tool_call", 'type = "deny"\nmessage = "No."', condition)
        result = rules.run(call("look", n=0, words=["a"]), call("look", n=0, words=["b"]), say("ok"))
        assert [(denied.reason, "rule-1" in denied.text) for denied in denials(result)] == [("rule", True)] * 2
        assert MADE == []
        assert len(result.faults) == 1, "it is told once"

    def test_a_field_that_is_not_there_is_no_failure_of_a_veto(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "deny"\nmessage = "No."', "'..' in context.call.arguments.path")
        result = rules.run(call("look", n=1), say("ok"))
        assert (texts(result), result.faults) == (["seen 1"], ())

    def test_a_condition_that_fails_elsewhere_is_false_and_told_once(self, rules: Rules) -> None:
        rules.add("on_turn_start", 'type = "stop"\nmessage = "No."', "context.run.agent > 3")
        result = rules.run(call("look", n=1), say("ok"))
        assert (result.stop, len(result.faults)) == ("completed", 1)


class TestState:
    def count(self, rules: Rules, condition: str = "true") -> None:
        rules.add("on_event", 'type = "set_state"\nkey = "heard"\nincrement = 1', condition)

    def test_two_events_of_one_moment_are_counted_twice(self, rules: Rules) -> None:
        rules.add("on_query_start", 'type = "emit_event"\nname = "a"')
        rules.add("on_query_start", 'type = "emit_event"\nname = "b"')
        self.count(rules)
        assert rules.run(say("ok")).state == {"heard": 2}

    def test_who_listens_sees_what_was_set_before(self, rules: Rules) -> None:
        rules.add("on_query_start", 'type = "set_state"\nkey = "n"\nvalue = 7')
        rules.add("on_query_start", 'type = "emit_event"\nname = "a"')
        self.count(rules, "context.state.n == 7")
        assert rules.run(say("ok")).state == {"n": 7, "heard": 1}

    @pytest.mark.parametrize("where", ["context.state.n", 'context.state["n"]', "context['state']['n']"])
    def test_the_next_rule_sees_it_however_it_looks(self, rules: Rules, where: str) -> None:
        rules.add("on_query_start", 'type = "log"\nmessage = "{{ len(context.state) }}{{ context.state }}"')
        rules.add("on_query_start", 'type = "set_state"\nkey = "n"\nvalue = "{{ context.user }}"')
        rules.add("on_query_start", 'type = "set_state"\nkey = "name"\nvalue = "{{ 3 }}"', f"{where}.name == 'Ada'")
        result = rules.run(say("ok"), metadata={"user": {"name": "Ada"}})
        assert result.state == {"n": {"id": "", "settings": {}, "name": "Ada"}, "name": 3}

    def test_a_state_value_of_none_deletes_the_key(self, rules: Rules) -> None:
        rules.add("on_turn_start", 'type = "set_state"\nkey = "n"\nvalue = "{{ none }}"')
        rules.add("on_turn_start", 'type = "emit_event"\nname = "gone"', "'n' not in context.state")
        result = rules.run(say("ok"), metadata={})
        assert [event.name for event in result.events if isinstance(event, RuleEmitted)] == ["gone"]

    def test_a_key_with_a_dot_is_counted_up(self, rules: Rules) -> None:
        rules.add("on_turn_start", 'type = "set_state"\nkey = "a.b"\nincrement = 1')
        assert rules.run(call("look", n=1), say("ok")).state == {"a.b": 2}

    def test_a_text_is_not_counted_up(self, rules: Rules) -> None:
        rules.add("on_query_start", 'type = "set_state"\nkey = "n"\nvalue = "seven"')
        rules.add("on_query_start", 'type = "set_state"\nkey = "n"\nincrement = 1')
        result = rules.run(say("ok"))
        assert result.state == {"n": "seven"}
        [fault] = result.faults
        assert fault["rule"] == "rule-2"
        assert "context.state.n" in fault["reason"]


def test_parameters_are_found_by_index_too(rules: Rules) -> None:
    (rules.path / "p.toml").write_text(
        '[rule]\nid = "p"\ntrigger = "on_query_start"\n[params]\nn = 3\n'
        "[condition]\nexpression = \"params['n'] == 3\"\n"
        '[action]\ntype = "set_state"\nkey = "n"\nvalue = "{{ params[\'n\'] }}"\n'
    )
    assert rules.run(say("ok")).state == {"n": 3}


def test_an_event_may_not_pretend_to_be_the_log(tmp_path: Path) -> None:
    Rules(tmp_path).add("on_query_start", 'type = "emit_event"\nname = "log.info"')
    agent = Agent(model=ScriptedModel(say("ok")), rules=tmp_path)
    assert "log.*" in str(agent.ruleset.problems[0])


class TestCalls:
    def test_of_several_vetoes_the_one_of_the_highest_priority_is_told(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "deny"\nmessage = "Low."', more="priority = 1")
        rules.add("on_tool_call", 'type = "deny"\nmessage = "High."', more="priority = 900")
        [denied] = denials(rules.run(call("look", n=1), say("ok")))
        assert (denied.reason, MADE) == ("rule", [])
        assert denied.text.endswith(": High.")

    def test_a_stop_before_a_call_leaves_it_and_the_rest_undone(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "stop"\nmessage = "Enough."', "context.call.arguments.n == 2")
        result = rules.run(together(call("look", n=1), call("look", n=2), call("write", n=3)), say("ok"))
        assert texts(result)[0] == "seen 1"
        told = [(denied.reason, denied.text.endswith(": Enough.")) for denied in denials(result)]
        assert told == [("rule", True)] * 2
        assert (result.stop, result.stopped_by, result.text, MADE) == ("halted", "rule-1", "I report.", [1])

    def test_a_call_that_was_a_duplicate_when_nobody_was_asked_is_not_made_without_asking(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "ask"\nmessage = "Look?"', "context.call.tool_name == 'look'")
        again = together(call("write", n=1), call("look", n=1))
        result = rules.run(call("look", n=1), again, say("ok"), duplicates="reuse", plot={"verdicts": [allow()]})
        assert texts(result)[1] == "written 1"
        assert [(denied.reason, denied.tool) for denied in denials(result)] == [("approval", "look")]
        assert MADE == [1]

    def test_a_duplicate_that_needs_no_approval_is_made_again(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "ask"\nmessage = "Write?"', "context.call.arguments.n == 9")
        again = together(call("write", n=1), call("look", n=1))
        result = rules.run(call("look", n=1), again, say("ok"), duplicates="reuse")
        assert (texts(result)[1:], MADE) == (["written 1", "seen 1"], [1, 1])

    def test_a_hook_that_fails_when_a_call_is_planned_lets_none_be_made(self, rules: Rules) -> None:
        rules.add("on_tool_call", 'type = "ask"\nmessage = "Look?"', "context.call.arguments.n == 9")

        def hook(point: Point, progress: Progress, about: object = None, /) -> list[Order]:
            if point is Point.CALL_PLANNED:
                raise ValueError("odd")
            return []

        result = rules.run(call("look", n=1), say("ok"), hooks=[hook])
        assert (result.stop, MADE) == ("failed", [])

    def test_a_no_is_not_followed_by_another_question(self, rules: Rules) -> None:
        rules.add("on_turn_start", 'type = "ask"\nmessage = "One?"')
        rules.add("on_turn_start", 'type = "ask"\nmessage = "Two?"')
        result = rules.run(say("ok"), plot={"verdicts": [deny("No.")]})
        assert (result.stop, result.stopped_by) == ("halted", "rule-1")
        assert sum(isinstance(event, AskedPerson) for event in result.events) == 1
