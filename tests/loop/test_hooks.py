"""Hooks: when they are asked, what they may order, and what becomes of a run when one raises, or another callback."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from flyball import Agent, Limits, tool
from flyball.event import Event, RunEnded, ToolEnded, ToolStarted
from flyball.progress import Complete, Continue, Decision, Halt, Hook, Notice, Order, Point, Progress, Raise
from flyball.request import Request
from flyball.result import Result
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say, together
from flyball.tools import Tool


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUM = call("add", a=1, b=2)
ERRORS = [ValueError("odd"), KeyError("missing"), SystemExit(3), RecursionError("deep")]


def made(*lines: Line, turns: int = 10, loops: bool = False, **options: Any) -> Agent:
    model = ScriptedModel.looping(*lines, grace=say("Reported.")) if loops else ScriptedModel(*lines)
    return Agent(model=model, tools=[add], limits=Limits(turns=turns), **options)


def run(agent: Agent, **options: Any) -> Result:
    return assert_honest(ScriptDriver(agent, **options).run("Go."))


def kinds(result: Result) -> list[str]:
    return [event.kind for event in result.events]


def raising(where: Point, error: BaseException, after: int = 0) -> Hook:
    """A hook that raises at one point, when it has been asked there so often before."""
    asked: list[Point] = []

    def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        if point is where:
            asked.append(point)
            if len(asked) > after:
                raise error
        return ()

    return hook


def hook_at(where: Point, *orders: Order) -> Hook:
    def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        return orders if point is where else ()

    return hook


class TestOrdersOfHooks:
    @pytest.mark.parametrize(
        ("where", "requests"),
        [
            (Point.RUN_STARTED, 0),
            (Point.TURN_STARTED, 0),
            (Point.TOOL_CALLED, 1),
            (Point.TOOL_ENDED, 1),
            (Point.TURN_ENDED, 1),
        ],
    )
    def test_a_halt_ends_the_run_and_names_its_author(self, where: Point, requests: int) -> None:
        result = run(made(SUM, say("3"), hooks=[hook_at(where, Halt("rule 7", "Enough."))]))
        assert (result.stop, result.stopped_by, result.warning) == ("halted", "rule 7", "Enough.")
        assert result.requests == requests

    def test_an_order_that_is_none_denies_the_call_or_fails_the_run(self, snapshot: Callable[..., None]) -> None:
        odd: Any = "veto"
        denied = run(made(SUM, say("3"), hooks=[hook_at(Point.TOOL_CALLED, odd)]))
        assert "(rule)" in denied.tool_results[0].text
        assert "(ConfigError)" in denied.tool_results[0].text
        failed = run(made(SUM, say("3"), hooks=[hook_at(Point.TURN_STARTED, odd)]))
        assert failed.error is not None
        assert failed.error["code"] == "config_invalid"
        snapshot(failed.error["message"])

    def test_a_budget_that_does_not_exist_cannot_be_raised(self) -> None:
        result = run(made(say("3"), hooks=[hook_at(Point.RUN_STARTED, Raise("turn", 5))]))
        assert result.error is not None
        assert result.error["code"] == "budget_unknown"
        assert "'turn'" in result.error["message"]

    def test_a_halt_before_anything_was_asked_gives_the_turn_back(self) -> None:
        result = run(made(say("a"), hooks=[hook_at(Point.TURN_STARTED, Halt("rule"))]))
        assert (result.budgets["turns"].used, result.turns) == (0, 0)

    def test_a_halt_when_the_model_has_just_ended_comes_before_its_completion(self) -> None:
        result = run(made(say("a"), hooks=[hook_at(Point.TURN_ENDED, Halt("rule"))]))
        assert (result.stop, result.stopped_by, result.text) == ("halted", "rule", "a")

    def test_a_halt_does_not_hide_that_a_limit_was_met(self) -> None:
        result = run(made(SUM, turns=1, loops=True, hooks=[hook_at(Point.BUDGET_REFUSED, Halt("rule"))]))
        assert (result.stop, result.text) == ("budget", "Reported.")

    def test_a_notice_is_shown_with_the_next_request_only(self) -> None:
        model = ScriptedModel(SUM, SUM, say("3"))
        hook = hook_at(Point.RUN_STARTED, Notice("Be quick.", by="rule"))
        result = run(Agent(model=model, tools=[add], hooks=[hook]))
        assert [request.notices for request in model.requests] == [("Be quick.",), (), ()]
        assert "notice_delivered" in kinds(result)
        assert all("Be quick." not in message.content for message in result.messages)

    def test_a_raised_ceiling_lets_the_run_go_on(self) -> None:
        raised = iter([Raise("turns", 2, by="rule")])

        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return list(raised) if point is Point.TURN_ENDED else ()

        result = run(made(SUM, turns=1, loops=True, hooks=[hook]))
        assert (result.turns, result.budgets["turns"].ceiling) == (3, 3)
        assert "extended" in kinds(result)

    def test_several_hooks_are_asked_in_their_order_and_the_first_halt_stands(self) -> None:
        hooks = [hook_at(Point.TURN_STARTED, Halt("one")), hook_at(Point.TURN_STARTED, Halt("two"))]
        assert run(made(say("a"), hooks=hooks)).stopped_by == "one"


class TestRaisingHooks:
    @pytest.mark.parametrize("error", ERRORS, ids=repr)
    @pytest.mark.parametrize("lines", [(SUM, say("3")), (say("3"),), (together(SUM, SUM, SUM), SUM, say("3"))])
    @pytest.mark.parametrize(
        "where", [Point.RUN_STARTED, Point.TURN_STARTED, Point.TURN_ENDED, Point.TOOL_ENDED], ids=str
    )
    def test_the_run_fails_honestly(self, where: Point, lines: tuple[Line, ...], error: BaseException) -> None:
        result = run(made(*lines, hooks=[raising(where, error)]))
        if where is Point.TOOL_ENDED and len(lines) == 1:
            assert result.stop == "completed"
        else:
            assert (result.stop, (result.error or {})["kind"]) == ("failed", type(error).__name__)

    @pytest.mark.parametrize("after", [0, 1, 2])
    @pytest.mark.parametrize("where", [Point.TURN_STARTED, Point.TURN_ENDED, Point.TOOL_ENDED], ids=str)
    def test_what_was_done_before_is_kept(self, where: Point, after: int) -> None:
        result = run(made(SUM, SUM, SUM, say("3"), hooks=[raising(where, ValueError("odd"), after)]))
        done = after if where is Point.TURN_STARTED else after + 1
        assert (result.stop, len(result.tool_results), result.turns) == ("failed", done, done)
        assert len(result.messages) == 1 + 2 * done

    @pytest.mark.parametrize("error", ERRORS, ids=repr)
    def test_a_hook_that_raises_while_it_guards_a_call_has_vetoed_it(self, error: BaseException) -> None:
        result = run(made(together(SUM, SUM), say("3"), hooks=[raising(Point.TOOL_CALLED, error, after=1)]))
        assert [outcome.status for outcome in result.tool_results] == ["done", "denied"]
        assert (result.stop, result.turns) == ("completed", 2)
        assert type(error).__name__ in result.tool_results[1].text

    @pytest.mark.parametrize(
        ("limits", "options"),
        [
            (Limits(turns=2), {}),
            (Limits(tool_calls=1), {}),
            (Limits(context_tokens=1), {}),
            (Limits(tokens=10), {}),
        ],
    )
    def test_a_hook_that_raises_when_a_budget_refuses_fails_the_run_without_a_report(
        self, limits: Limits, options: dict[str, Any]
    ) -> None:
        model = ScriptedModel.looping(SUM, grace=say("never"))
        hooks = [raising(Point.BUDGET_REFUSED, ValueError("odd"))]
        result = run(Agent(model=model, tools=[add], limits=limits, hooks=hooks, **options))
        assert (result.stop, "grace_started" in kinds(result), len(result.flags)) == ("failed", False, 1)

    def test_a_hook_that_raises_when_no_nudge_is_left_fails_the_run(self) -> None:
        def more(progress: Progress) -> Decision:
            return Continue("More.")

        hooks = [raising(Point.BUDGET_REFUSED, ValueError("odd"))]
        agent = Agent(model=ScriptedModel(say("a")), limits=Limits(nudges=0), completion=more, hooks=hooks)
        assert run(agent).stop == "failed"

    @pytest.mark.parametrize("turns", [1, 5])
    def test_after_the_end_it_changes_nothing(self, turns: int) -> None:
        result = run(made(SUM, say("3"), turns=turns, hooks=[raising(Point.RUN_ENDED, ValueError("odd"))]))
        assert result.stop == ("budget" if turns == 1 else "completed")

    @pytest.mark.parametrize("answer", [None, 3, [object()], "text"])
    def test_a_hook_that_answers_nonsense_is_told_or_ignored_but_never_breaks_the_run(self, answer: Any) -> None:
        def hook(point: Point, progress: Progress, about: object = None, /) -> Any:
            return answer

        result = run(made(SUM, say("3"), hooks=[hook]))
        assert result.stop in ("failed", "completed")

    def test_an_order_about_a_budget_that_nobody_has_fails_the_run(self) -> None:
        assert run(made(say("a"), hooks=[hook_at(Point.TURN_STARTED, Raise("odd", 1))])).stop == "failed"


class TestCtrlC:
    @pytest.mark.parametrize("lines", [(together(SUM, SUM, SUM), say("3")), (SUM, SUM)])
    @pytest.mark.parametrize("where", [point for point in Point if point not in (Point.CALL_PLANNED, Point.STALLED)])
    def test_ctrl_c_in_a_hook_closes_everything_and_is_raised_again(
        self, where: Point, lines: tuple[Line, ...]
    ) -> None:
        heard: list[Event] = []
        agent = made(*lines, turns=1, loops=True, hooks=[raising(where, KeyboardInterrupt())], sinks=[heard.append])
        with pytest.raises(KeyboardInterrupt):
            ScriptDriver(agent).run("Go.")
        told = [event.kind for event in heard]
        assert told.index("run_ended") == len(told) - 1
        for started, ended in (("turn_started", "turn_ended"), ("model_requested", "model_replied")):
            assert told.count(started) == told.count(ended)
        begun = [event.call_id for event in heard if isinstance(event, ToolStarted)]
        closed = [event.call_id for event in heard if isinstance(event, ToolEnded)]
        assert set(begun) <= set(closed)
        assert len(closed) == len(set(closed))

    @pytest.mark.parametrize("name", ["completion", "should_continue"])
    def test_ctrl_c_in_a_callback_closes_everything_and_is_raised_again(self, name: str) -> None:
        heard: list[Event] = []

        def callback(progress: Progress) -> Any:
            raise KeyboardInterrupt

        callbacks: dict[str, Any] = {name: callback}
        with pytest.raises(KeyboardInterrupt):
            ScriptDriver(made(SUM, say("3"), sinks=[heard.append], **callbacks)).run("Go.")
        ended = heard[-1]
        assert isinstance(ended, RunEnded)
        assert (ended.stop, ended.stopped_by) == ("cancelled", "closed")


class TestRaisingCallbacks:
    @pytest.mark.parametrize("error", ERRORS, ids=repr)
    @pytest.mark.parametrize("name", ["completion", "should_continue"])
    def test_a_policy_or_callback_that_raises_fails_the_run(self, name: str, error: BaseException) -> None:
        def callback(progress: Progress) -> Any:
            raise error

        callbacks: dict[str, Any] = {name: callback}
        result = run(made(SUM, say("3"), **callbacks))
        assert (result.stop, (result.error or {})["kind"]) == ("failed", type(error).__name__)
        assert len(result.tool_results) == 1

    def test_a_policy_that_answers_nonsense_does_not_complete_the_run(self) -> None:
        def odd(progress: Progress) -> Any:
            return "yes"

        assert run(made(say("a"), completion=odd)).stop in ("failed", "unfinished")

    @pytest.mark.parametrize("error", ERRORS, ids=repr)
    def test_a_counter_that_raises_fails_the_run(self, error: BaseException) -> None:
        class Counting(ScriptedModel):
            def count(self, request: Request) -> int:
                raise error

        result = run(Agent(model=Counting(say("a"))))
        assert (result.stop, result.requests) == ("failed", 0)

    @pytest.mark.parametrize("error", ERRORS, ids=repr)
    def test_a_model_that_cannot_say_whether_it_is_ready_fails_the_run(self, error: BaseException) -> None:
        class Odd(ScriptedModel):
            def ready(self) -> str | None:
                raise error

        assert run(Agent(model=Odd(say("a")))).stop == "failed"

    def test_a_model_that_is_not_ready_is_not_asked(self) -> None:
        result = run(Agent(model=ScriptedModel(say("a"), not_ready="OPENAI_API_KEY is not set")))
        assert (result.stop, result.requests, result.turns) == ("failed", 0, 0)
        assert (result.error or {})["message"] == "OPENAI_API_KEY is not set"

    @pytest.mark.parametrize("error", ERRORS, ids=repr)
    @pytest.mark.parametrize("lines", [(SUM, say("3")), (SUM, SUM)])
    def test_a_sink_that_raises_changes_nothing_and_is_counted(
        self, lines: tuple[Line, ...], error: BaseException
    ) -> None:
        def sink(event: Event) -> None:
            raise error

        quiet, noisy = run(made(*lines, turns=2)), run(made(*lines, turns=2, sinks=[sink]))
        assert kinds(noisy) == kinds(quiet)
        assert (noisy.stop, noisy.text, noisy.sink_errors) == (quiet.stop, quiet.text, len(noisy.events))

    def test_an_error_that_cannot_be_shown_is_told_all_the_same(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ValueError

        def should_continue(progress: Progress) -> bool:
            raise Mute

        result = run(made(SUM, say("3"), should_continue=should_continue))
        assert (result.stop, result.error is not None) == ("failed", True)
        error = result.error or {}
        assert (error["code"], error["kind"]) == ("exception", "Mute")
        assert error["message"].strip()
        assert error["message"] in result.explain()


class Picky(BaseModel):
    """Arguments whose check itself breaks."""

    n: int

    @field_validator("n")
    @classmethod
    def broken(cls, n: int) -> int:
        raise RuntimeError("the check is broken")


class TestRaisingTools:
    @staticmethod
    def result(function: Callable[..., Any], *lines: Line, **options: Any) -> Result:
        picky = Tool(function, name="picky", **options)
        return run(Agent(model=ScriptedModel(*lines, say("ok")), tools=[add, picky]))

    @pytest.mark.parametrize("line", [call("picky", box={"n": 1}), together(SUM, call("picky", box={"n": 1}), SUM)])
    def test_a_check_of_arguments_that_breaks_leaves_no_call_without_an_outcome(self, line: Line) -> None:
        def take(box: Picky) -> int:
            return box.n

        result = self.result(take, line)
        assert len(result.tool_results) == len(line.calls)
        assert result.stop in ("failed", "completed")

    @pytest.mark.parametrize("error", [ValueError("odd"), RuntimeError("odd")])
    def test_an_approval_that_cannot_be_judged_is_needed(self, error: Exception) -> None:
        def judge(arguments: Any) -> bool:
            raise error

        result = self.result(lambda: "done", together(SUM, call("picky"), SUM), approve=judge)
        assert (result.stop, [question.tool for question in result.questions]) == ("paused", ["picky"])

    @pytest.mark.parametrize("error", [ValueError("odd"), KeyError("x"), Exception()])
    def test_a_tool_that_raises_fails_its_call_only(self, error: Exception) -> None:
        def broken() -> None:
            raise error

        result = self.result(broken, together(SUM, call("picky"), SUM))
        assert [outcome.status for outcome in result.tool_results] == ["done", "failed", "done"]
        assert result.stop == "completed"


def test_a_completed_run_is_what_all_points_see_in_order() -> None:
    seen: list[Point] = []

    def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        seen.append(point)
        return ()

    def done(progress: Progress) -> Decision:
        return Complete()

    run(made(say("a"), hooks=[hook], completion=done))
    assert seen == [Point.RUN_STARTED, Point.TURN_STARTED, Point.TURN_ENDED, Point.RUN_ENDED]
