"""Calls of client tools: the caller makes them as soon as the run pauses, so whatever denies a call comes before."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, Result, tool
from flyball.event import AskedPerson
from flyball.person import About, allow, deny, edit
from flyball.progress import Halt, Order, Point, Progress, Veto
from flyball.request import Call
from flyball.store import MemoryStore
from flyball.testing import Line, ScriptedModel, assert_honest, call, say, together

PUBLISH: dict[str, Any] = {"description": "Publish.", "parameters": {"properties": {"n": {"type": "integer"}}}}

ASK = """
[rule]
id = "ask-first"
name = "Ask first"
trigger = "on_tool_call"

[action]
type = "ask"
message = "May it?"
"""


@tool
def write() -> str:
    """Write."""
    return "written"


def agent(*lines: Line, **options: Any) -> Agent:
    options.setdefault("tools", {"write": write, "publish": PUBLISH})
    return Agent(model=ScriptedModel(*lines, grace=say("Reported.")), **options)


def run(*lines: Line, **options: Any) -> Result:
    result = assert_honest(agent(*lines, **options).run("Go.", run_id="r"))
    asked = [event.question_id for event in result.events if isinstance(event, AskedPerson)]
    assert asked == [question.id for question in result.questions]
    return result


def veto_publish(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
    return [Veto("never")] if point is Point.TOOL_CALLED and isinstance(about, Call) and about.name == "publish" else ()


class TestGates:
    """A call that is denied is never pending: its caller would make it, and the run would say that it was not made."""

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"tool_rules": [{"tool": "publish", "prior_tools": ["write"]}]}, "rule"),
            ({"tool_rules": [{"block_until_tool": "write"}]}, "rule"),
            ({"hooks": [veto_publish]}, "rule"),
            ({"limits": Limits(tool_calls=0)}, "budget"),
            ({"limits": Limits(calls={"publish": 0})}, "budget"),
        ],
    )
    def test_a_call_that_is_denied_does_not_pause_the_run(self, options: Any, reason: str) -> None:
        result = run(call("publish"), say("done"), **options)
        assert (result.questions, [outcome.status for outcome in result.tool_results]) == ((), ["denied"])
        assert f"({reason})" in result.tool_results[0].text

    def test_a_call_that_a_shared_budget_refuses_does_not_pause_the_run(self) -> None:
        with Limits(tool_calls=0).open(grace=False) as shared:
            result = agent(call("publish"), say("done")).run("Go.", within=shared)
        assert (result.stop, result.questions) == ("budget", ())

    def test_pending_calls_are_within_the_limits_and_count(self) -> None:
        made = agent(together(call("publish", n=1), call("publish", n=2)), say("done"), limits=Limits(tool_calls=1))
        paused = made.run("Go.")
        assert ([question.id for question in paused.questions], paused.budgets["tool_calls"].used) == (["call-0"], 1)
        result = made.resume(paused, {"call-0": "ok"})
        assert [(outcome.status, outcome.text) for outcome in result.tool_results] == [
            ("done", "ok"),
            ("denied", "Not run (budget): no tool calls are left"),
        ]
        assert (result.stop, result.budgets["tool_calls"].used) == ("completed", 1)

    def test_a_gate_that_a_call_of_the_same_reply_opens_is_closed_when_the_reply_is_read(self) -> None:
        made = agent(
            together(call("write"), call("publish")), call("publish"), say("done"),
            tool_rules=[{"tool": "publish", "prior_tools": ["write"]}],
        )  # fmt: skip
        paused = made.run("Go.")
        assert [outcome.status for outcome in paused.tool_results] == ["done", "denied", "denied"]
        assert [question.id for question in paused.questions] == [paused.tool_results[-1].call_id]
        result = made.resume(paused, {paused.questions[0].id: "ok"})
        assert (result.stop, result.tool_results[-1].text) == ("completed", "ok")

    def test_hooks_are_asked_once_about_a_call(self) -> None:
        called: list[str] = []

        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            if point is Point.TOOL_CALLED:
                assert isinstance(about, Call)
                called.append(about.id)
            return ()

        made = agent(together(call("publish"), call("write")), say("done"), hooks=[hook])
        paused = made.run("Go.")
        assert called == ["call-0"]
        made.resume(paused, {"call-0": "ok"})
        assert called == ["call-0", "call-0", "call-1"], "once before the pause, and in its replay"

    def test_a_hook_that_halts_the_run_leaves_no_call_pending(self) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return [Halt("chaos")] if point is Point.TOOL_CALLED else ()

        result = run(together(call("publish"), call("publish", n=2)), hooks=[hook])
        assert (result.stop, result.questions) == ("halted", ())
        assert [outcome.status for outcome in result.tool_results] == ["denied", "denied"]

    def test_a_person_that_a_rule_asks_decides_before_the_call_is_pending(self, tmp_path: Path) -> None:
        (tmp_path / "ask.toml").write_text(ASK)
        for store in (None, MemoryStore()):
            made = agent(call("publish"), say("done"), rules=tmp_path, store=store)
            for answer, about in ((False, ()), (True, (About.CLIENT_TOOL,))):
                paused = made.run("Go.")
                assert [(question.about, question.text) for question in paused.questions] == [(About.CALL, "May it?")]
                result = made.resume(paused, {"call-0": answer})
                assert tuple(question.about for question in result.questions) == about
            result = made.resume(result, {"call-0": "ok"})
            assert (result.stop, result.tool_results[0].text) == ("completed", "ok")


class TestAnswers:
    def test_a_refused_call_is_not_counted(self) -> None:
        for store in (None, MemoryStore()):
            made = agent(call("publish"), say("done"), store=store, limits=Limits(tool_calls=2))
            result = made.resume(made.run("Go."), {"call-0": deny("the page is gone")})
            assert (result.stop, result.budgets["tool_calls"].used) == ("completed", 0)
            assert result.tool_results[0].text == "Not run (approval): the page is gone"

    @pytest.mark.parametrize("answer", [allow(), allow("no json"), edit(n=2), edit("1", n=2), object(), float("nan")])
    def test_an_answer_that_is_no_result_is_refused_and_the_call_stays_pending(self, answer: Any) -> None:
        made = agent(call("publish"), say("done"))
        paused = made.run("Go.")
        with pytest.raises(ConfigError, match="call-0"):
            made.resume(paused, {"call-0": answer})
        assert made.resume(paused, {"call-0": allow('{"ok": 1}')}).tool_results[0].text == '{"ok":1}'

    def test_an_equal_call_is_not_pending_again(self) -> None:
        made = agent(call("publish"), call("publish"), say("done"), duplicates="reuse")
        result = made.resume(made.run("Go."), {"call-0": "ok"})
        assert [outcome.same_as for outcome in result.tool_results] == [None, "call-0"]

    def test_an_equal_call_after_a_write_of_the_same_reply_is_denied_and_may_be_asked_again(self) -> None:
        lines = [call("publish"), together(call("write"), call("publish")), call("publish"), say("done")]
        made = agent(*lines, duplicates="reuse")
        paused = made.resume(made.run("Go."), {"call-0": "ok"})
        assert [outcome.status for outcome in paused.tool_results] == ["done", "done", "denied", "denied"]
        result = made.resume(paused, {paused.questions[0].id: "again"})
        assert result.tool_results[-1].text == "again"


def test_the_caller_sees_sensitive_arguments_and_the_record_does_not() -> None:
    definition = {**PUBLISH, "parameters": {"properties": {"key": {"type": "string"}}}, "sensitive": ["key"]}
    for store in (None, MemoryStore()):
        made = agent(call("publish", key="SECRET"), tools={"publish": definition}, store=store)
        result = made.run("Go.", run_id="r")
        assert result.questions[0].arguments == {"key": "SECRET"}
        assert "SECRET" not in str(result.to_dict())
        assert About.CLIENT_TOOL is result.questions[0].about
        if store is not None:
            assert made.resume("r").questions == result.questions
