import asyncio
import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from threading import Event, Timer

import anyio

from flyball._internal.workers import PromptFuture, WorkerPool, run_and_wait
from flyball.testing import until

LONG = 60.0


def waiting_for(release: Event) -> Callable[[], None]:
    def work() -> None:
        release.wait(LONG)

    return work


def program(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_workers_are_reused() -> None:
    pool, threads = WorkerPool(), set[int]()
    for _ in range(5):
        done = Event()

        def work(done: Event = done) -> None:
            threads.add(threading.get_ident())
            done.set()

        worker = pool.acquire()
        assert worker is not None
        worker.start(work)
        assert done.wait(LONG)
        until(lambda: len(pool._busy) == 0)  # pyright: ignore[reportPrivateUsage]
    assert len(threads) == 1


def test_no_more_are_in_use_than_allowed() -> None:
    pool, release = WorkerPool(max_workers=2), Event()
    workers = [pool.acquire(), pool.acquire()]
    assert pool.acquire() is None
    for worker in workers:
        assert worker is not None
        worker.start(waiting_for(release))
    release.set()
    until(lambda: pool.acquire() is not None)


def test_a_worker_that_hangs_is_replaced_up_to_a_limit_and_forgiven_when_it_comes_back() -> None:
    pool, release = WorkerPool(max_workers=1, max_hung=2), Event()
    for _ in range(2):
        worker = pool.acquire()
        assert worker is not None
        worker.start(waiting_for(release))
        pool.abandon(worker)
    assert (pool.hung, pool.acquire()) == (2, None)
    release.set()
    until(lambda: pool.hung == 0)
    assert pool.acquire() is not None


def hang(pool: WorkerPool, owner: object, release: Event) -> bool:
    worker = pool.acquire(owner)
    if worker is not None:
        worker.start(waiting_for(release))
        pool.abandon(worker)
    return worker is not None


def test_the_hung_workers_of_one_owner_leave_the_workers_of_another() -> None:
    pool, release, first, second = WorkerPool(max_workers=1, max_hung=2), Event(), object(), object()
    assert [hang(pool, first, release) for _ in range(3)] == [True, True, False]
    assert (pool.is_exhausted(first), pool.is_exhausted(second)) == (True, False)
    assert pool.acquire(second) is not None
    release.set()
    until(lambda: pool.acquire(first) is not None)


def test_the_busy_workers_of_one_owner_leave_a_worker_to_another() -> None:
    pool, first, second = WorkerPool(max_workers=2), object(), object()
    assert [pool.acquire(first) is not None for _ in range(3)] == [True, True, False]
    assert pool.acquire(second) is not None


def test_a_task_continues_in_the_cycle_of_the_event_loop_in_which_its_result_comes() -> None:
    async def work() -> tuple[bool, bool]:
        loop, later = asyncio.get_running_loop(), Event()
        future = PromptFuture(loop=loop)

        def finish() -> None:
            loop.call_soon(later.set)
            future.set_result(True)

        loop.call_soon(finish)
        return await future, later.is_set()

    assert asyncio.run(work()) == (True, False)


def test_a_task_continues_once_its_time_has_passed() -> None:
    release = Event()

    async def work() -> bool:
        worker = WorkerPool().acquire()
        assert worker is not None
        return await run_and_wait(worker, waiting_for(release), 0.01)

    assert asyncio.run(work()) is False
    release.set()


def test_a_task_that_waits_for_a_worker_can_be_cancelled() -> None:
    release = Event()

    async def work() -> None:
        worker = WorkerPool().acquire()
        assert worker is not None
        with anyio.move_on_after(0.01) as scope:
            await run_and_wait(worker, waiting_for(release), math.inf)
        assert scope.cancelled_caught
        release.set()
        await anyio.sleep(0.01)  # the late result is dropped

    asyncio.run(work())


def test_when_the_workers_of_many_owners_hang_an_owner_without_a_worker_gets_a_spare_one() -> None:
    pool, release, owners = WorkerPool(max_workers=1, max_hung=1), Event(), [object() for _ in range(25)]
    assert sum(hang(pool, owner, release) for owner in owners) == 20  # at last, no more threads are made
    release.set()
    until(lambda: pool.hung == 0)
    assert pool.acquire(owners[0]) is not None


def test_a_hundred_hung_tools_do_not_keep_a_process_from_exiting() -> None:
    process = program(
        "import threading\n"
        "from flyball.tools import BoundedToolExecutor, tool\n"
        "from flyball.request import Call\n"
        "@tool(timeout=0.05, effects='read')\n"
        "def hang(): threading.Event().wait()\n"
        "executor = BoundedToolExecutor([hang], parallel=100)\n"
        "executor.workers._max_workers = 100\n"
        "outcomes = executor.execute(*[Call(str(n), 'hang', '') for n in range(100)])\n"
        "print(executor.hung, {outcome.status.value for outcome in outcomes})\n"
    )
    out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out, err) == (0, "100 {'timed_out'}\n", "")


def test_ctrl_c_ends_the_wait_and_closes_the_call() -> None:
    process = program(
        "import anyio\n"
        "from flyball.tools import BoundedToolExecutor\n"
        "from flyball.request import Call\n"
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Teller:\n"
        "    def tell(self, kind, *args, **kwargs): print(kind.kind, *args[2:3], flush=True)\n"
        "async def wait(): await anyio.sleep(60)\n"
        "try: BoundedToolExecutor([wait], teller=Teller()).execute(Call('1', 'wait', ''))\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)\n"
    )
    assert process.stdout is not None
    deadline = Timer(LONG, process.kill)
    deadline.start()
    assert process.stdout.readline() == "tool_started {}\n"
    deadline.cancel()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out, err) == (0, "tool_ended cancelled\ninterrupted\n", "")


def test_a_forked_child_makes_its_own_loop() -> None:
    process = program(
        "import os, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)  # that forking with threads is dangerous is the point\n"
        "from flyball.tools import BoundedToolExecutor\n"
        "from flyball.request import Call\n"
        "def add(a: int) -> int: return a + 1\n"
        "executor = BoundedToolExecutor([add])\n"
        "def ask(): return executor.execute(Call('1', 'add', {'a': 1}))[0].text\n"
        "assert ask() == '2'\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if ask() == '2' else 1)\n"
        "print(os.waitpid(child, 0)[1])\n"
    )
    out, err = process.communicate(timeout=LONG)
    assert (out, err) == ("0\n", "")
