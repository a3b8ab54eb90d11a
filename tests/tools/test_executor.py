import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from threading import Event, Thread, current_thread, get_ident
from typing import Any

import anyio
import pytest

from flyball import Limits, TurnBudget, govern
from flyball._internal.workers import WorkerPool
from flyball.event import Event as RunEvent
from flyball.outcome import Denied, Failure, Outcome, Reason, Status, Success, Timeout
from flyball.request import Call
from flyball.testing import ManualClock
from flyball.tools import BoundedToolExecutor, Tool, ToolContext, tool

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
    def test_a_client_tool_is_denied_with_what_to_do(self) -> None:
        outcome = one(Tool.from_schema("open_file", "Open a file.", {"type": "object"}))
        assert isinstance(outcome, Denied)
        assert (outcome.reason, "give it a function" in outcome.message) == (Reason.APPROVAL, True)

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

        assert one(fail).text.startswith("Mute: ")

    def test_a_slow_tool_times_out_and_the_model_is_told_that_nobody_knows(self) -> None:
        release = Event()
        pool = WorkerPool()

        def slow() -> None:
            release.wait(LONG)

        async def aslow() -> None:
            await anyio.sleep(LONG)

        outcome = one(Tool(slow, timeout=SHORT), workers=pool)
        assert isinstance(outcome, Timeout)
        assert str(SHORT) in outcome.text
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
        assert "generator" in errors["generate"]
        assert "JSON" in errors["opaque"]
        assert "JSON" in errors["loop"]
        outcome = one(Tool(lazy, name="lazy"))
        assert "await" in outcome.text

    @pytest.mark.parametrize(
        ("value", "text"),
        [(None, "null"), ("x", "x"), ({"a": (1, 2)}, '{"a":[1,2]}'), (math.nan, "null"), (b"x", '"x"')],
    )
    def test_values_of_tools_become_json(self, value: object, text: str) -> None:
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


class TestTime:
    @pytest.mark.parametrize("function", ["async", "def"])
    def test_no_call_goes_past_the_end_of_the_runs_work(self, function: str) -> None:
        release = Event()

        async def aslow() -> None:
            await anyio.sleep(LONG)

        def slow() -> None:
            release.wait(LONG)

        envelope = TurnBudget.create(timeout_s=SHORT, clock=ManualClock())
        outcome = one(Tool(aslow if function == "async" else slow, timeout=LONG), envelope=envelope)
        release.set()
        assert isinstance(outcome, Timeout)
        assert outcome.cap_s == SHORT

    def test_no_call_runs_past_the_seconds_of_its_tool(self) -> None:
        async def slow() -> None:
            await anyio.sleep(LONG)

        with Limits(seconds=3_000, tool_seconds={"slow": SHORT}).open() as envelope:
            assert isinstance(one(Tool(slow, timeout=LONG), envelope=envelope), Timeout)

    @pytest.mark.parametrize(("timeout", "seconds"), [(2.0, 1.8), (30.0, 29.5), (3_000.0, 84.5)])
    def test_a_cooperative_tool_has_a_moment_left_to_return_what_it_has(self, timeout: float, seconds: float) -> None:
        def look(ctx: ToolContext) -> float:
            return ctx.token.remaining_s()

        with Limits(seconds=100).open(clock=ManualClock()) as envelope:
            outcome = one(Tool(look, timeout=timeout), envelope=envelope)
        assert isinstance(outcome, Success)
        assert outcome.value == pytest.approx(seconds)

    def test_an_async_tool_that_blocks_past_its_time_is_timed_out_when_it_returns(self) -> None:
        async def block() -> str:
            time.sleep(2 * SHORT)
            return "late"

        assert isinstance(one(Tool(block, timeout=SHORT)), Timeout)

    def test_a_busy_pool_is_waited_for(self) -> None:
        @tool(effects="read")
        def brief() -> None:
            time.sleep(0.002)

        executor = BoundedToolExecutor([brief], workers=WorkerPool(max_workers=1), parallel=8)
        outcomes = executor.execute(*[Call(str(n), "brief", "") for n in range(8)])
        assert {outcome.status for outcome in outcomes} == {Status.DONE}


class TestWhatGoesWrongElsewhere:
    def test_a_tool_that_raises_a_cancel_by_itself_failed_and_its_neighbour_did_not(self) -> None:
        @tool(effects="read")
        async def odd() -> None:
            raise asyncio.CancelledError("my own")

        @tool(effects="read")
        async def fine() -> str:
            await anyio.sleep(0)
            return "ok"

        outcomes = BoundedToolExecutor([odd, fine]).execute(Call("1", "odd", ""), Call("2", "fine", ""))
        assert [outcome.status for outcome in outcomes] == ["failed", "done"]

    def test_a_task_that_tries_to_end_the_private_loop_does_not_stop_the_others(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def leave() -> None:
            raise SystemExit

        async def start() -> None:
            task = asyncio.get_running_loop().create_task(leave())
            await asyncio.wait([task])

        one(start)
        assert one(add, '{"a": 1}').text == "2"
        assert "private event loop" in caplog.text

    def test_a_teller_that_raises_changes_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        class Broken:
            def tell(self, kind: Any, *args: Any, **kwargs: Any) -> None:
                raise ZeroDivisionError

        pool = WorkerPool(max_workers=1)
        assert [one(add, '{"a": 1}', teller=Broken(), workers=pool).ok for _ in range(3)] == [True] * 3
        assert "ZeroDivisionError" in caplog.text

    def test_a_state_that_refuses_is_a_failure_that_says_so(self) -> None:
        class Full(dict[str, Any]):
            def __setitem__(self, key: str, value: Any) -> None:
                raise OSError("no disk")

            def __bool__(self) -> bool:
                raise ZeroDivisionError

        def put(ctx: ToolContext) -> None:
            ctx.state["a"] = 1

        outcome = one(put, state=Full())
        assert isinstance(outcome, Failure)
        assert outcome.error.endswith(": no disk")

    def test_odd_results_and_ids_end_too(self) -> None:
        whole = "x" * 20_000
        [outcome] = BoundedToolExecutor([Tool(lambda: whole, name="f")]).execute(Call("i" * 12_000, "f", ""))
        assert len(outcome.text) <= 12_000
        assert one(Tool(lambda: "\ud800", name="f")).text == "?"
        assert "iterator" in one(Tool(lambda: map(str, [1]), name="f")).text


class TestDoors:
    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_the_executor_works_on_both_kinds_of_event_loop(self, backend: str) -> None:
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
        assert (outcome.kind, "aexecute" in outcome.error) == ("UsageError", True)

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
        executor = BoundedToolExecutor([unlock], envelope=run.envelope, teller=run)
        for _turn in run:
            outcomes = executor.execute(*[Call(str(n), "unlock", {"key": "hunter2"}) for n in range(2)])
            assert [outcome.status for outcome in outcomes] == ["done", "denied"]
            assert outcomes[0].text == "hunter2"
            run.complete()
    told = [event.to_dict() for event in seen if event.kind.startswith("tool_")]
    assert [event["event"] for event in told] == ["tool_started", "tool_ended", "tool_ended"]
    assert "hunter2" not in json.dumps([event.to_dict() for event in seen])
    assert run.result().flags == ("max_tool_calls_reached",)
