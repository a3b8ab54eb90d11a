"""Tool rules in a run: a call that they forbid is denied, and the model is told what to do instead."""

from asyncio import CancelledError
from collections.abc import Mapping
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ConfigError
from flyball.event import RequiredToolsUnavailable
from flyball.outcome import Denied
from flyball.person import Question
from flyball.progress import Complete, Progress
from flyball.result import Result
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say, together
from flyball.tool_rules import RequirePriorTool


@tool(effects="read", poll=True)
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


@tool(effects="read", approve=True)
def peek() -> str:
    return "seen"


@tool(effects="read", max_calls=1)
def once() -> str:
    return "once"


LIMITED = {"after_tool": "search", "limited_tools": ["search"], "max_calls": 2, "then_require_one_of": ["report"]}
TOOLS = [search, report, review, publish, peek, once]
SEARCH, REPORT = call("search"), call("report")


def run(*lines: Any, rules: Any, **options: Any) -> Result:
    agent = Agent(model=ScriptedModel(*lines), tools=TOOLS, tool_rules=rules, **options)
    result = ScriptDriver(agent).run("x")
    assert_honest(result)
    return result


def nobody(question: Question) -> bool:
    return False


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


def test_a_call_that_others_deny_takes_no_place_from_those_beside_it() -> None:
    rule = {"limited_tools": ["search", "peek"], "max_calls": 2, "then_require_one_of": ["report"]}
    result = run(together(SEARCH, call("peek"), call("peek"), SEARCH), say("x"), rules=[rule], approver=nobody)
    assert reasons(result) == ["ok", "approval", "approval", "ok"]


def test_the_end_of_all_calls_is_not_hidden_by_a_rule() -> None:
    rule = {"limited_tools": ["search"], "max_calls": 2, "then_require_one_of": ["report"]}
    spent, more = together(SEARCH), together(SEARCH, SEARCH, SEARCH)
    result = run(spent, more, rules=[rule], limits=Limits(tool_calls=1), grace=False)
    assert (result.stop, reasons(result)) == ("budget", ["ok", "budget", "budget", "budget"])


def test_what_is_denied_behind_others_does_not_change_what_they_count_for() -> None:
    rule = {"after_tool": "once", "limited_tools": ["search"], "max_calls": 1, "then_require_one_of": ["report"]}
    once = call("once")
    result = run(together(once, SEARCH, once, SEARCH), say("x"), rules=[rule])
    assert reasons(result) == ["ok", "ok", "budget", "rule"]


def test_a_tool_that_changes_what_it_was_given_proves_nothing_by_it() -> None:
    @tool
    def comment(options: dict[str, str]) -> str:
        options["action"] = "comment"
        return "x"

    asked = {"name": "reply", "tools": [{"name": "comment", "required_parameters": {"options.action": "comment"}}]}
    prior = {"tool": "publish", "require_prior_tool": "comment", "with_parameters": {"options.action": "comment"}}
    closing = call("comment", options={"action": "close"})
    agent = Agent(
        model=ScriptedModel(closing, call("publish"), say("done")),
        tools=[comment, publish],
        completion={"complete_when_any": [asked]},
        tool_rules=[prior],
        limits=Limits(nudges=0),
    )
    script = ScriptDriver(agent)
    result = script.run("x")
    assert (result.stop, reasons(result)) == ("unfinished", ["ok", "rule"])
    assert script.replay().to_dict()["messages"] == result.to_dict()["messages"]


def test_rules_may_be_given_as_objects() -> None:
    rules = [RequirePriorTool(tool="publish", require_prior_tool="report"), {"block_until_tool": "search"}]
    agent = Agent(model=ScriptedModel(call("publish"), say("x")), tools=TOOLS, tool_rules=rules)
    assert reasons(ScriptDriver(agent).run("x")) == ["rule"]


@pytest.mark.parametrize("raised", [ValueError("x"), SystemExit(3), CancelledError()])
@pytest.mark.parametrize("where", ["begin", "denial", "note"])
def test_a_rule_that_raises_whatever_it_is_denies_and_changes_no_outcome(where: str, raised: BaseException) -> None:
    class Broken:
        name, message = "broken", None
        tools_named: Mapping[str, str] = {}

        def waits_for(self, tool: str) -> None:
            return None

        def begin(self) -> Any:
            return self.reach("begin", self)

        def denial(self, *about: Any) -> None:
            return self.reach("denial", None)

        def note(self, done: object) -> None:
            self.reach("note", None)

        def reach(self, place: str, value: Any) -> Any:
            if place == where:
                raise raised
            return value

    result = run(REPORT, REPORT, say("x"), rules=[Broken()])
    assert (result.stop, reasons(result)) == ("completed", ["ok" if where == "note" else "rule", "rule"])
    assert "broken failed" in result.tool_results[1].text


class TestCompletion:
    def test_a_run_without_a_tool_call_is_nudged_to_make_one(self) -> None:
        model = ScriptedModel(say("Done."), call("report"), say("Now."))
        agent = Agent(model=model, tools=[report], tool_rules=[{"require_tool_use": True}])
        result = assert_honest(ScriptDriver(agent).run("Go."))
        assert (result.stop, result.text, result.completion["nudge_count"]) == ("completed", "Now.", 1)
        assert (result.completion["complete"], result.completion["satisfied"]) == (True, ["tool rules"])

    def test_a_run_that_never_meets_its_rules_ends_as_unfinished(self) -> None:
        model = ScriptedModel.looping(say("Done."))
        gate = {"block_until_tool": "report", "blocks_completion": True}
        agent = Agent(model=model, tools=[report, search], tool_rules=[gate], limits=Limits(nudges=2))
        result = assert_honest(ScriptDriver(agent).run("Go."))
        assert (result.stop, result.requests, result.completion["missing"]) == ("unfinished", 3, ["tool rules"])

    def test_a_policy_does_not_complete_a_run_against_its_rules_after_tool_results(self) -> None:
        def done(progress: Progress) -> Complete:
            return Complete(text="I am done.")

        model = ScriptedModel(call("search"), call("report"))
        rules = [{"require_tool_use": ["report"]}]
        agent = Agent(model=model, tools=[report, search], tool_rules=rules, completion=done)
        result = assert_honest(ScriptDriver(agent).run("Go."))
        assert (result.stop, result.requests) == ("completed", 2)

    def test_a_final_result_does_not_complete_a_run_against_its_rules(self) -> None:
        @tool(ends_run=True)
        def submit() -> str:
            """Submit."""
            return "It is done."

        model = ScriptedModel(call("submit"), call("report"), call("submit"))
        agent = Agent(model=model, tools=[report, submit], tool_rules=[{"require_tool_use": ["report"]}])
        result = assert_honest(ScriptDriver(agent).run("Go."))
        assert (result.stop, result.text, result.requests) == ("completed", "It is done.", 3)

    def test_tools_that_a_run_cannot_complete_without_are_named_in_an_event(self) -> None:
        agent = Agent(model=ScriptedModel(say("x")), tools=[search], completion={"required_tool_names": ["report"]})
        result = assert_honest(ScriptDriver(agent).run("Go."))
        found = [event for event in result.events if isinstance(event, RequiredToolsUnavailable)]
        assert [(event.tools, event.offered) for event in found] == [(("report",), ("search",))]
        assert (result.stop, result.requests) == ("failed", 0)

    def test_a_narrowed_run_that_its_rules_never_let_complete_fails_at_once(self) -> None:
        gate = {"block_until_tool": "report", "blocks_completion": True}
        helper = Agent(name="helper", model=ScriptedModel(say("x")), tools=[report, search], tool_rules=[gate])
        task = {"child": "helper", "goal": "Go.", "tools": ["search"]}
        agent = Agent(model=ScriptedModel(call("delegate", tasks=[task]), say("x")), children=[helper])
        child = assert_honest(ScriptDriver(agent).run("Go.")).children[0]
        assert (child.error or {})["unavailable_required_tool_names"] == ["report"]
