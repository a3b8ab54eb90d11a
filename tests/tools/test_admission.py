from collections.abc import Callable
from threading import Event
from typing import Any

import anyio

from flyball import Limits
from flyball._internal.workers import WorkerPool
from flyball.outcome import Denied, Outcome, Reason, Status
from flyball.request import Call
from flyball.testing import ManualClock, Notebook, until
from flyball.tools import BoundedToolExecutor, Tool, tool

SHORT = 0.02
LONG = 60.0


def add(a: int, b: int = 1) -> int:
    return a + b


async def aadd(a: int, b: int = 1) -> int:
    return a + b


def one(function: Callable[..., Any] | Tool, arguments: Any = "", **options: Any) -> Outcome:
    made = Tool.of(function)
    [outcome] = BoundedToolExecutor([made], **options).execute(Call("c1", made.name, arguments))
    return outcome


class TestDenied:
    def reason(self, outcome: Outcome) -> Reason:
        assert isinstance(outcome, Denied)
        return outcome.reason

    def test_unknown_tools_and_wrong_arguments(self) -> None:
        [unknown, wrong] = BoundedToolExecutor([add]).execute(Call("1", "ad", ""), Call("2", "add", '{"a": "x"}'))
        assert (self.reason(unknown), self.reason(wrong)) == (Reason.UNKNOWN, Reason.VALIDATION)
        assert "add" in unknown.text.replace("'ad'", "")
        assert "b: " not in wrong.text
        assert "a: Input should be a valid integer" in wrong.text

    def test_a_tool_that_timed_out_is_blocked_unless_it_may_be_tried_again(self) -> None:
        async def slow() -> None:
            await anyio.sleep(LONG)

        for effects, then in (("write", Status.DENIED), ("read", Status.TIMED_OUT)):
            executor = BoundedToolExecutor([Tool(slow, timeout=SHORT, effects=effects)])  # pyright: ignore[reportArgumentType]
            assert [executor.execute(Call("1", "slow", ""))[0].status for _ in range(2)] == [Status.TIMED_OUT, then]

    def test_the_budgets_of_the_run_and_of_the_tool(self) -> None:
        with Limits(tool_calls=2, calls={"aadd": 1}).open() as envelope:
            executor = BoundedToolExecutor([add, aadd, Tool(add, name="once", max_calls=1)], envelope=envelope)
            names = ["aadd", "aadd", "once", "once", "add"]
            outcomes = executor.execute(*[Call(str(n), name, '{"a": 1}') for n, name in enumerate(names)])
        assert [outcome.status for outcome in outcomes] == ["done", "denied", "done", "denied", "denied"]
        assert {self.reason(outcome) for outcome in outcomes if not outcome.ok} == {Reason.BUDGET}
        assert envelope.budgets["tool_calls"].used == 2
        assert "aadd" in outcomes[1].text
        assert outcomes[1].text != outcomes[4].text

    def test_a_denied_call_is_not_counted(self) -> None:
        with Limits(tool_calls=1).open() as envelope:
            executor = BoundedToolExecutor([add, Tool(add, name="guarded", approve=True)], envelope=envelope)
            outcomes = executor.execute(
                Call("1", "add", "{"),
                Call("2", "no", ""),
                Call("3", "guarded", '{"a": 1}'),
                Call("4", "add", '{"a": 1}'),
            )
        assert [outcome.status for outcome in outcomes] == ["denied", "denied", "denied", "done"]

    def test_the_deadline_of_the_run(self) -> None:
        clock = ManualClock()
        with Limits(seconds=100).open(clock=clock) as envelope:
            clock.move(86)
            assert self.reason(one(add, '{"a": 1}', envelope=envelope)) is Reason.DEADLINE
            assert envelope.flags == ("max_seconds_reached",)

    def test_approval_is_asked_for_and_a_question_that_fails_means_no(self) -> None:
        guarded = Tool(add, approve=True)

        def broken(_: Tool, __: Any) -> bool:
            raise ZeroDivisionError

        assert self.reason(one(guarded, '{"a": 1}')) is Reason.APPROVAL
        assert self.reason(one(guarded, '{"a": 1}', approved=broken)) is Reason.APPROVAL

        def small(_: Tool, values: Any) -> bool:
            return values["a"] == 1

        async def later(_: Tool, __: Any) -> bool:
            return True

        def leave(_: Tool, __: Any) -> bool:
            raise SystemExit

        assert one(guarded, '{"a": 1}', approved=small).ok
        assert self.reason(one(guarded, '{"a": 1}', approved=later)) is Reason.APPROVAL
        assert self.reason(one(guarded, '{"a": 1}', approved=leave)) is Reason.APPROVAL

    def test_too_many_hung_workers_are_an_overload(self) -> None:
        release = Event()

        @tool(timeout=SHORT, retry_on_timeout=True)
        def hang() -> None:
            release.wait(LONG)

        pool = WorkerPool(max_workers=4, max_hung=2)
        notebook = Notebook()
        executor = BoundedToolExecutor([hang], workers=pool, teller=notebook)
        statuses = [executor.execute(Call(str(n), "hang", ""))[0] for n in range(3)]
        assert notebook.kinds() == ["tool_started", "tool_ended"] * 3
        assert [outcome.status for outcome in statuses] == ["timed_out", "timed_out", "denied"]
        assert self.reason(statuses[2]) is Reason.OVERLOAD
        assert executor.hung == 2
        release.set()
        until(lambda: executor.hung == 0)
        assert pool.acquire() is not None
