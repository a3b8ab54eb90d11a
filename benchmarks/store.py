"""What it costs to keep a step beside a raw insert of the same bytes into SQLite, in the same mode.

Ratios of wall time in one process, the candidates taking turns, best of many rounds. A step is what a turn leaves: two
rows of a journal, two messages, six events, fenced by a lease. The raw insert has its texts ready, and one table with
no index. Then a turn of a whole run with a store: it must cost the same in the thousandth turn as in the tenth. Then
100 threads, each with a run and a session of its own, and 100 runs of an agent at once, write to one file: printed,
without a target. Exits with 1 when a target is missed.
"""

from __future__ import annotations

import sqlite3
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import anyio

from flyball import Agent, IterationBudgetRegistry, Limits, tool
from flyball.budget.usage import Usage
from flyball.event import Header, TurnStarted
from flyball.message import Message, MessageType, Role
from flyball.request import Call, Finish, Reply, Request
from flyball.store import Codec, Guard, Kind, Query, Row, SqliteStore, Start, Step
from flyball.store.codec import to_text
from flyball.store.encoded_step import EncodedStep

STEPS, ROUNDS, THREADS = 100, 30, 100
TARGET = 3.0
TURNS, RUN_ROUNDS, FLAT = (10, 100, 1_000), 3, 1.3
RUNS, TURNS_AT_ONCE = 100, 20
TEXT = "Let me look at the file, and see what is in it. " * 4
RESULT = "def add(a, b): return a + b\n" * 20


class Bench:
    """A run in a store, and the steps that it makes."""

    def __init__(self, store: SqliteStore, name: str) -> None:
        self.name = name
        self.store = store
        self.place = 0
        guard = store.lease.acquire(name, "benchmark", 1e6)
        assert isinstance(guard, Guard)
        self.guard = guard
        self.header = Header(name, name, 1.7e9, {"job": "benchmark"})
        store.runs.start(name, Start(at=1.7e9, session=name))

    def steps(self, count: int) -> list[Step]:
        """What the next turns leave; making it is not measured."""
        return [self._step() for _ in range(count)]

    def _step(self) -> Step:
        n, code = self.place, Codec()
        self.place += 1
        reply = Reply(TEXT, (Call(f"call-{n}", "read", {"path": "src/a.py"}),), Usage(1_000, 200))
        call = {"call_id": f"call-{n}", "name": "read", "is_error": False}
        return Step(
            run_id=self.name,
            guard=self.guard,
            rows=[Row(n, Kind.STARTED, fingerprint=n), Row(n, Kind.ANSWER, code.dumps([reply, 1.5, ()]), n)],
            messages=[
                Message(self.name, 2 * n, 1.7e9, MessageType.TEXT, Role.ASSISTANT, TEXT),
                Message(self.name, 2 * n + 1, 1.7e9, MessageType.TOOL_RESULT, Role.TOOL, RESULT, call),
            ],
            events=[TurnStarted(6 * n + place, 1.5, n, self.header).to_dict() for place in range(6)],
        )


class Raw:
    """SQLite by hand."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = wal")
        self.connection.execute(f"PRAGMA synchronous = {synchronous}")
        self.connection.execute("CREATE TABLE kept (id INTEGER PRIMARY KEY, owner TEXT, n INTEGER, data TEXT)")

    def insert(self, rows: Sequence[tuple[str, int, str]]) -> None:
        """One commit."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO kept VALUES (NULL, ?, ?, ?)", rows)
        self.connection.execute("COMMIT")


def rows_of(step: Step) -> list[tuple[str, int, str]]:
    pack = EncodedStep.of(step)
    texts = [*(row.data for row in pack.rows), *pack.lines, *map(to_text, step.events)]
    return [(step.run_id or "", n, text) for n, text in enumerate(texts)]


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def beside_raw(folder: Path, synchronous: str) -> float:
    """How many times as long a step takes as a raw insert."""
    ours = raw = float("inf")
    by_hand = Raw(folder / f"raw-{synchronous}.db", synchronous)
    with SqliteStore(folder / f"{synchronous}.db", synchronous=synchronous) as store:
        bench = Bench(store, "run-0123456789abcdef")
        for _ in range(ROUNDS):
            steps = bench.steps(STEPS)
            rows = [rows_of(step) for step in steps]
            ours = min(ours, seconds(lambda steps=steps: [store.keep(step) for step in steps]))
            raw = min(raw, seconds(lambda rows=rows: [by_hand.insert(row) for row in rows]))
    by_hand.connection.close()
    print(
        f"synchronous={synchronous:6}  a step {ours / STEPS * 1e6:5.0f} µs  raw {raw / STEPS * 1e6:5.0f} µs", end="  "
    )
    print(f"{ours / raw:4.2f}x raw  (target {TARGET}x)")
    return ours / raw


def crowd(folder: Path) -> None:
    """Many runs on one file."""
    with SqliteStore(folder / "crowd.db") as store:
        benches = [Bench(store, f"run-{n}") for n in range(THREADS)]
        work = [(bench, bench.steps(STEPS // 5)) for bench in benches]

        def keep(steps: Sequence[Step]) -> None:
            for step in steps:
                store.keep(step)

        threads = [Thread(target=keep, args=(steps,)) for _, steps in work]
        took = seconds(lambda: [*map(Thread.start, threads), *map(Thread.join, threads)])
    steps = THREADS * (STEPS // 5)
    print(f"{THREADS} runs on one file  {steps / took:,.0f} steps a second  {took / steps * 1e6:.0f} µs a step")


@tool
async def read(page: int) -> str:
    """Read a page."""
    return RESULT


class Reader:
    """A model that reads one page in each turn, and answers in the last."""

    name, provider, price = "reader", None, None

    def __init__(self, turns: int) -> None:
        self.turns = turns

    def ready(self) -> str | None:
        """It always is."""
        return None

    async def ask(self, request: Request, tell: object, /) -> Reply:
        """Ask for the next page, or answer."""
        page = len(request.messages) // 2
        if page + 1 >= self.turns:
            return Reply("done", usage=Usage(1_000, 200))
        return Reply("", (Call(f"c{page}", "read", {"page": page}),), Usage(1_000, 200), Finish.CALLS)


def agent_of(turns: int, store: SqliteStore | None) -> Agent:
    registry = IterationBudgetRegistry(settings={})
    registry.register("agent_iterations", default=90)
    limits = Limits(turns=turns, context_tokens=10_000_000, tool_calls=None)
    return Agent(model=Reader(turns), tools=[read], registry=registry, limits=limits, events_kept=100, store=store)


def growth(folder: Path) -> float:
    """How many times as long a turn takes in a long run as in a short one, all of it being kept."""
    best = dict.fromkeys(TURNS, float("inf"))
    plain = dict.fromkeys(TURNS, float("inf"))
    with SqliteStore(folder / "runs.db") as store:
        for count in TURNS:
            times, kept, bare = TURNS[-1] // count, agent_of(count, store), agent_of(count, None)
            for _ in range(RUN_ROUNDS):
                best[count] = min(
                    best[count], seconds(lambda kept=kept, times=times: runs(kept, times)) / times / count
                )
                plain[count] = min(
                    plain[count], seconds(lambda bare=bare, times=times: runs(bare, times)) / times / count
                )
    for count in TURNS:
        print(f"{count:5} turns  {best[count] * 1e6:5.0f} µs a turn with a store  {plain[count] * 1e6:5.0f} without")
    ratio = best[TURNS[-1]] / min(best[count] for count in TURNS[:-1])
    print(f"a turn of {TURNS[-1]} beside the cheapest of shorter runs  {ratio:4.2f}x  (target {FLAT}x)")
    return ratio


def runs(agent: Agent, times: int) -> None:
    for _ in range(times):
        assert agent.run("Read it.").completed


def agents(folder: Path) -> None:
    """Many runs of agents at once, on one file."""
    with SqliteStore(folder / "agents.db") as store:
        agent = agent_of(TURNS_AT_ONCE, store)

        async def all_of_them() -> None:
            async with anyio.create_task_group() as tasks:
                for _ in range(RUNS):
                    tasks.start_soon(agent.arun, "Read it.")

        took = seconds(lambda: anyio.run(all_of_them))
        kept = store.runs.list(Query(stop="completed", limit=2 * RUNS))
    assert len(kept) == RUNS
    turns = RUNS * TURNS_AT_ONCE
    print(f"{RUNS} runs of an agent at once  {turns / took:,.0f} turns a second  {took / turns * 1e6:.0f} µs a turn")


def main() -> int:
    with TemporaryDirectory() as name:
        missed = sum(beside_raw(Path(name), mode) > TARGET for mode in ("normal", "full"))
        missed += growth(Path(name)) > FLAT
        crowd(Path(name))
        agents(Path(name))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
