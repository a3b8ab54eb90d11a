"""Tool rules in a run: a call that they forbid is denied, and the model is told what to do instead."""

from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ConfigError
from flyball.outcome import Denied
from flyball.result import Result
from flyball.testing import Script, ScriptedModel, assert_honest, call, say, together


@tool(effects="read")
def search(query: str = "x") -> str:
    if query == "bad":
        raise ValueError(query)
    return query


@tool
def report() -> str:
    return "written"


@tool
def review(verdict: str) -> str:
    return verdict


@tool(max_calls=1)
def publish() -> str:
    return "out"


LIMITED = {"after_tool": "search", "limited_tools": ["search"], "max_calls": 2, "then_require_one_of": ["report"]}
SEARCH, REPORT = call("search"), call("report")


def run(*lines: Any, rules: Any, **options: Any) -> Result:
    agent = Agent(model=ScriptedModel(*lines), tools=[search, report, review, publish], tool_rules=rules, **options)
    result = Script(agent).run("x")
    assert_honest(result)
    return result


def reasons(result: Result) -> list[str]:
    return [outcome.reason.value if isinstance(outcome, Denied) else "ok" for outcome in result.tool_results]


def test_a_limited_tool_is_denied_until_another_has_succeeded() -> None:
    result = run(SEARCH, SEARCH, SEARCH, SEARCH, REPORT, SEARCH, say("x"), rules=[LIMITED])
    assert reasons(result) == ["ok", "ok", "ok", "rule", "ok", "ok"]
    assert "report" in result.tool_results[3].text
    assert result.stop == "completed"


def test_calls_side_by_side_do_not_overrun_it() -> None:
    result = run(SEARCH, together(*[SEARCH] * 4), say("x"), rules=[LIMITED])
    assert reasons(result) == ["ok", "ok", "ok", "rule", "rule"]


def test_a_failed_call_gives_its_place_back() -> None:
    bad = call("search", query="bad")
    result = run(SEARCH, bad, bad, bad, SEARCH, SEARCH, SEARCH, say("x"), rules=[LIMITED])
    assert [outcome.status for outcome in result.tool_results] == ["done", *["failed"] * 3, "done", "done", "denied"]


def test_a_call_that_a_budget_denies_gives_its_place_back_too() -> None:
    rule = {"limited_tools": ["publish"], "max_calls": 2, "then_require_one_of": ["report"]}
    result = run(call("publish"), call("publish"), call("publish"), say("x"), rules=[rule], limits=Limits(turns=9))
    assert reasons(result) == ["ok", "budget", "budget"]


def test_a_prior_tool_must_have_had_the_right_parameters() -> None:
    rule = {"tool": "publish", "require_prior_tool": "review", "with_parameters": {"verdict": "ok"}}
    bad, good = call("review", verdict="no"), call("review", verdict="ok")
    result = run(call("publish"), bad, call("publish"), good, call("publish"), say("x"), rules=[rule])
    assert reasons(result) == ["rule", "ok", "rule", "ok", "ok"]


def test_everything_waits_for_one_tool() -> None:
    rule = {"block_until_tool": "review", "message": "Review first."}
    result = run(SEARCH, call("review", verdict="ok"), SEARCH, say("x"), rules=[rule])
    assert reasons(result) == ["rule", "ok", "ok"]
    assert "Review first." in result.tool_results[0].text


def test_a_rule_about_a_tool_that_is_not_offered_is_told_where_the_agent_is_made() -> None:
    with pytest.raises(ConfigError, match="serch"):
        run(rules=[{"block_until_tool": "serch"}])
