"""Fields of the rule context, in whole runs."""

from pathlib import Path

import pytest

from flyball import Agent, Limits, tool
from flyball.budget.usage import Usage
from flyball.result import Result
from flyball.testing import Line, RuleFolder, ScriptDriver, ScriptedModel, assert_honest, call, say, together


@tool(effects="read")
def look(n: int = 0) -> str:
    """Look."""
    if n < 0:
        raise ValueError("not there")
    return f"seen {n}"


LOOKS = [call("look", n=n).using(Usage(200, 5)) for n in range(12)]


@pytest.fixture
def rules(tmp_path: Path) -> RuleFolder:
    return RuleFolder(tmp_path)


def run(rules: RuleFolder, *lines: Line, limits: Limits) -> tuple[Result, list[tuple[str, ...]]]:
    model = ScriptedModel(*lines, grace=say("I report."), max_output_tokens=10)
    agent = Agent(model=model, tools=[look], rules=rules.path, limits=limits)
    assert agent.ruleset.problems == ()
    result = assert_honest(ScriptDriver(agent).run("Go."))
    return result, [request.notices for request in model.requests if request.notices]


NOTICE = 'type = "notify_self"\nmessage = "{}"'


class TestTokenUsage:
    def test_is_a_share_of_the_token_limit(self, rules: RuleFolder) -> None:
        rules.add("on_turn_start", NOTICE.format("low"), "context.turn.token_usage > 0.95")
        _, notices = run(rules, *LOOKS[:3], say("done"), limits=Limits(tokens=1_000_000))
        assert notices == []

    def test_is_the_ratio_of_the_token_budget(self, rules: RuleFolder) -> None:
        for field in ("context.turn.token_usage", "context.budget.tokens.ratio"):
            rules.add("on_turn_end", f'type = "set_state"\nkey = "{field[8:12]}"\nvalue = "{{{{ {field} }}}}"')
        result, _ = run(rules, *LOOKS[:3], say("done"), limits=Limits(tokens=100_000))
        assert result.state["turn"] == result.state["budg"]
        assert 0 < result.state["turn"] < 1

    def test_without_a_token_limit_is_zero(self, rules: RuleFolder) -> None:
        rules.add("on_turn_start", NOTICE.format("used"), "context.turn.token_usage != 0")
        assert run(rules, *LOOKS[:3], say("done"), limits=Limits(turns=9))[1] == []

    def test_as_a_count_is_tokens(self, rules: RuleFolder) -> None:
        rules.add("on_turn_end", 'type = "set_state"\nkey = "tokens"\nvalue = "{{ context.turn.tokens }}"')
        result, _ = run(rules, *LOOKS[:2], say("done"), limits=Limits(turns=9))
        assert result.state["tokens"] == result.budgets["tokens"].used > 1

    @pytest.mark.parametrize("condition", ["context.turn.token_usage > 0.5", "context.turn.tokens >= 1200"])
    def test_fires_in_the_same_turns_whether_or_not_evaluations_are_skipped(
        self, tmp_path: Path, condition: str
    ) -> None:
        fired: list[list[int]] = []
        for name, form in (("skipped", condition), ("evaluated", f"({condition}) and len('x') == 1")):
            (tmp_path / name).mkdir()
            rules = RuleFolder(tmp_path / name).add("on_turn_start", 'type = "emit_event"\nname = "x"', form)
            result, _ = run(rules, *LOOKS, say("done"), limits=Limits(tokens=4_000))
            fired.append([event.turn for event in result.events if event.kind == "rule_emitted"])
        assert fired[0] == fired[1] != []


def test_failures_are_calls_that_failed_and_not_calls_that_were_denied(rules: RuleFolder) -> None:
    rules.add("on_tool_call", 'type = "deny"\nmessage = "No."', "context.call.arguments.n == 3")
    for key, value in {
        "list": "len(context.history.failures)",
        "tools": "context.history.failures[0].tool",
        "total": "context.history.total_failures",
        "table": "context.history['total_failures']",
        "count": "failure_count('look')",
    }.items():
        rules.add("on_turn_end", f'type = "set_state"\nkey = "{key}"\nvalue = "{{{{ {value} }}}}"')
    calls = together(call("look", n=3), call("look", n=-1), call("look", n=1))
    result, _ = run(rules, calls, say("done"), limits=Limits(turns=9))
    assert [outcome.status for outcome in result.tool_results] == ["denied", "failed", "done"]
    assert result.state == {"list": 1, "tools": "look", "total": 1, "table": 1, "count": 1}
