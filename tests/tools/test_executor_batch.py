import asyncio
from threading import Event

import anyio

from flyball._internal.workers import WorkerPool
from flyball.outcome import Cancelled, Outcome
from flyball.request import Call
from flyball.testing import Notebook, until
from flyball.tools import BoundedToolExecutor, Tool, tool

SHORT = 0.02
LONG = 60.0


async def aadd(a: int, b: int = 1) -> int:
    return a + b


class TestBatches:
    def test_neighbouring_reads_run_side_by_side_and_outcomes_come_in_the_order_asked(self) -> None:
        meeting: list[anyio.Event] = []

        @tool(effects="read")
        async def meet(n: int) -> int:
            mine = anyio.Event()
            meeting.append(mine)
            if len(meeting) == 3:
                for event in meeting:
                    event.set()
            await mine.wait()  # nobody gets on before all three are here
            return n

        outcomes = BoundedToolExecutor([meet]).execute(*[Call(str(n), "meet", {"n": n}) for n in range(3)])
        assert [outcome.text for outcome in outcomes] == ["0", "1", "2"]

    def test_no_more_than_allowed_run_at_once(self) -> None:
        running, most = 0, 0

        @tool(effects="read")
        async def count() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await anyio.sleep(0)
            await anyio.sleep(0)
            running -= 1

        BoundedToolExecutor([count], parallel=2).execute(*[Call(str(n), "count", "") for n in range(6)])
        assert most == 2

    def test_a_write_is_a_barrier(self) -> None:
        log: list[str] = []

        async def work(name: str) -> None:
            log.append(f"{name} begins")
            await anyio.sleep(0)
            await anyio.sleep(0)
            log.append(f"{name} ends")

        read, write = Tool(work, name="read", effects="read"), Tool(work, name="write")
        names = ["read", "write", "write", "read", "read"]
        calls = [Call(str(n), kind, {"name": f"{kind}{n}"}) for n, kind in enumerate(names)]
        BoundedToolExecutor([read, write]).execute(*calls)
        assert log[:6] == [f"{name} {what}" for name in ("read0", "write1", "write2") for what in ("begins", "ends")]
        assert sorted(log[6:8]) == ["read3 begins", "read4 begins"]

    def test_nothing_begins_after_a_cancel(self) -> None:
        made: list[str] = []

        async def amake() -> None:
            made.append("async")

        def make() -> None:
            made.append("def")

        async def main() -> list[Outcome]:
            batch = BoundedToolExecutor([amake, make]).batch([Call("1", "amake", ""), Call("2", "make", "")])
            with anyio.CancelScope() as scope:
                scope.cancel()
                await batch.run()
            return batch.outcomes

        assert [outcome.status for outcome in asyncio.run(main())] == ["cancelled", "cancelled"]
        assert made == []

    def test_when_it_is_cancelled_every_call_has_its_outcome(self) -> None:
        heard, pool = Notebook(), WorkerPool()
        release = Event()

        @tool(effects="read")
        def stuck() -> None:
            release.wait(LONG)

        @tool(effects="read")
        async def astuck() -> None:
            await anyio.sleep(LONG)

        async def main() -> list[Outcome]:
            executor = BoundedToolExecutor([aadd, stuck, astuck], teller=heard, workers=pool)
            names = ["aadd", "stuck", "astuck", "aadd"]
            batch = executor.batch(
                [Call(str(n), name, '{"a": 1}' if name == "aadd" else "") for n, name in enumerate(names)]
            )
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(batch.run)
                    with anyio.fail_after(LONG):
                        while heard.kinds().count("tool_started") < 3:
                            await anyio.sleep(0)
                    scope.cancel()
            return batch.outcomes

        outcomes = asyncio.run(main())
        assert pool.hung == 1
        release.set()
        until(lambda: pool.hung == 0)
        assert [outcome.status for outcome in outcomes] == ["done", "cancelled", "cancelled", "cancelled"]
        assert heard.kinds().count("tool_started") == heard.kinds().count("tool_ended") == 3
        assert all(isinstance(outcome, Cancelled) for outcome in outcomes[1:])
