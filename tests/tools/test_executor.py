import asyncio
import json
import math
from collections.abc import Callable, Iterator
from threading import Event, Thread, current_thread, get_ident
from typing import Any

import anyio
import pytest

from flyball import Limits, govern
from flyball.errors import ConfigError
from flyball.event import Event as RunEvent
from flyball.outcome import Denied, Failure, Outcome, Reason, Status, Success, Timeout
from flyball.request import Call
from flyball.testing import ManualClock, until
from flyball.tools import BoundedToolExecutor, Tool, tool
from flyball.worker import WorkerPool

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


class TestOutcomes:
    @pytest.mark.parametrize("function", [add, aadd])
    def test_a_call_that_works_is_a_success(self, function: Callable[..., Any]) -> None:
        outcome = one(function, '{"a": 2}')
        assert isinstance(outcome, Success)
        assert (outcome.value, outcome.text, outcome.call_id, outcome.ok) == (3, "3", "c1", True)

    @pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
    def test_a_tool_that_raises_is_a_failure_whatever_it_raises(self, error: type[BaseException]) -> None:
        def fail() -> None:
            raise error("no disk")

        async def afail() -> None:
            raise error("no disk")

        for function in (fail, afail):
            outcome = one(function)
            assert isinstance(outcome, Failure)
            assert (outcome.kind, outcome.error) == (error.__name__, "no disk")

    def test_an_error_that_cannot_be_shown_is_a_failure_too(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ZeroDivisionError

        def fail() -> None:
            raise Mute

        assert one(fail).text == "Mute: an error that cannot be shown"

    def test_a_slow_tool_times_out_and_the_model_is_told_that_nobody_knows(self) -> None:
        release = Event()
        pool = WorkerPool()

        def slow() -> None:
            release.wait(LONG)

        async def aslow() -> None:
            await anyio.sleep(LONG)

        outcome = one(Tool(slow, timeout=SHORT), workers=pool)
        assert isinstance(outcome, Timeout)
        assert "not known" in outcome.text
        assert pool.hung == 1
        assert isinstance(one(Tool(aslow, timeout=SHORT)), Timeout)
        release.set()

    def test_an_async_tool_that_ignores_its_cancel_is_timed_out_all_the_same(self) -> None:
        async def stubborn() -> str:
            try:
                await anyio.sleep(LONG)
            except BaseException:
                return "partial"
            return "whole"

        assert isinstance(one(Tool(stubborn, timeout=SHORT)), Timeout)

    def test_what_json_cannot_say_is_a_clear_failure(self) -> None:
        def generate() -> Iterator[int]:
            yield 1

        def opaque() -> object:
            return object()

        def lazy() -> Any:
            return asyncio.sleep(0)

        loop: list[Any] = []
        loop.append(loop)
        made = {"generate": generate, "opaque": opaque, "loop": lambda: loop}
        errors = {name: one(Tool(function, name=name)).text for name, function in made.items()}
        assert "returned a generator" in errors["generate"]
        assert "returned a object that cannot be written as JSON" in errors["opaque"]
        assert "cannot be written as JSON" in errors["loop"]
        outcome = one(Tool(lazy, name="lazy"))
        assert "returned something to await" in outcome.text

    @pytest.mark.parametrize(
        ("value", "text"),
        [(None, "null"), ("x", "x"), ({"a": (1, 2)}, '{"a":[1,2]}'), (math.nan, "null"), (b"x", '"x"')],
    )
    def test_values_become_json(self, value: object, text: str) -> None:
        assert one(Tool(lambda: value, name="f")).text == text

    def test_a_large_output_is_an_excerpt_and_the_whole_stays_in_the_result(self) -> None:
        whole = '"\n' * 20_000
        outcome = one(Tool(lambda: whole, name="f"))
        assert isinstance(outcome, Success)
        assert len(outcome.content) <= 12_000
        shown = json.loads(outcome.content)
        assert (shown["characters"], whole.startswith(shown["excerpt"])) == (40_000, True)
        assert shown["shown"] == len(shown["excerpt"]) > 4_000
        assert outcome.value == whole
        assert outcome.artifact is not None
        assert outcome.artifact.size == 40_000


class TestDenied:
    def reason(self, outcome: Outcome) -> Reason:
        assert isinstance(outcome, Denied)
        return outcome.reason

    def test_unknown_tools_and_wrong_arguments(self) -> None:
        [unknown, wrong] = BoundedToolExecutor([add]).execute(Call("1", "ad", ""), Call("2", "add", '{"a": "x"}'))
        assert (self.reason(unknown), self.reason(wrong)) == (Reason.UNKNOWN, Reason.VALIDATION)
        assert "did you mean add" in unknown.text
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

        assert one(guarded, '{"a": 1}', approved=small).ok

    def test_too_many_hung_workers_are_an_overload(self) -> None:
        release = Event()

        @tool(timeout=SHORT, retry_on_timeout=True)
        def hang() -> None:
            release.wait(LONG)

        pool = WorkerPool(workers=4, most_hung=2)
        executor = BoundedToolExecutor([hang], workers=pool)
        statuses = [executor.execute(Call(str(n), "hang", ""))[0] for n in range(3)]
        assert [outcome.status for outcome in statuses] == ["timed_out", "timed_out", "denied"]
        assert self.reason(statuses[2]) is Reason.OVERLOAD
        assert executor.hung == 2
        release.set()
        until(lambda: not (executor.hung))
        assert executor.execute(Call("9", "hang", ""))[0].ok


class TestDoors:
    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_it_works_on_both_kinds_of_event_loop(self, backend: str) -> None:
        release = Event()

        @tool(timeout=SHORT, effects="read")
        def slow() -> None:
            release.wait(LONG)

        async def main() -> list[Outcome]:
            executor = BoundedToolExecutor([add, aadd, slow])
            return await executor.aexecute(
                Call("1", "add", '{"a": 1}'), Call("2", "aadd", '{"a": 1}'), Call("3", "slow", "")
            )

        outcomes = anyio.run(main, backend=backend)
        release.set()
        assert [outcome.status for outcome in outcomes] == ["done", "done", "timed_out"]

    def test_the_sync_door_works_beside_a_running_loop(self) -> None:
        async def main() -> str:
            return one(add, '{"a": 1}').text

        assert asyncio.run(main()) == "2"

    def test_on_the_private_loops_own_thread_the_sync_door_says_what_to_do(self) -> None:
        async def inner() -> str:
            return one(add, '{"a": 1}').text

        outcome = one(inner)
        assert isinstance(outcome, Failure)
        assert (outcome.kind, "await aexecute" in outcome.error) == (ConfigError.__name__, True)

    def test_def_tools_run_in_daemon_threads_and_async_ones_in_the_loop(self) -> None:
        def where() -> list[Any]:
            return [current_thread().daemon, get_ident()]

        first = one(where)
        assert isinstance(first, Success)
        daemon, thread = first.value  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        assert daemon is True
        assert thread != get_ident()

    def test_many_threads_may_use_one_executor(self) -> None:
        executor = BoundedToolExecutor([add])
        answers: list[str] = []

        def work(n: int) -> None:
            answers.extend(outcome.text for outcome in executor.execute(Call(str(n), "add", {"a": n})))

        threads = [Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONG)
        assert sorted(answers) == sorted(str(n + 1) for n in range(8))


def test_a_governed_loop_uses_it_with_its_own_limits_and_events() -> None:
    seen: list[RunEvent] = []

    @tool(sensitive=["key"])
    def unlock(key: str) -> str:
        return key

    with govern(Limits(turns=2, tool_calls=1), sinks=[seen.append]) as run:
        for turn in run:
            executor = BoundedToolExecutor([unlock], envelope=turn.envelope, teller=run)
            outcomes = executor.execute(*[Call(str(n), "unlock", {"key": "hunter2"}) for n in range(2)])
            assert [outcome.status for outcome in outcomes] == ["done", "denied"]
            assert outcomes[0].text == "hunter2"
            run.complete()
    told = [event.to_dict() for event in seen if event.kind.startswith("tool_")]
    assert [event["event"] for event in told] == ["tool_started", "tool_ended", "tool_ended"]
    assert "hunter2" not in json.dumps([event.to_dict() for event in seen])
    assert run.result().flags == ("max_tool_calls_reached",)
