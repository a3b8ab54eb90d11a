"""What it costs to keep runs, beside raw inserts of the same texts into SQLite in the same mode.

Ratios in one process, the candidates taking turns, best of several rounds; CPU time, if it does not say otherwise.

- A step beside a raw insert (wall time). A step is what a turn leaves: two rows of a journal, two messages, six events,
  fenced by a lease. The raw insert has its texts ready, and one table with no index.
- A kept turn minus an unkept one, beside raw commits of the texts of that turn.
- 100 runs at once, kept and not (wall time): `rate` is the turns a second with a store beside those without.
- The same turn in a file with 1,000 runs beside one with 100, and in the thousandth turn of a run beside the tenth.
- The bytes that a run adds to a file, at 10, 100 and 1,000 runs of one session.

Exits with 1 when a target is missed. `aim` is where it should be some day.
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
from flyball.store import Codec, Guard, Kind, MemoryStore, Query, Row, SqliteStore, Start, Step, Store
from flyball.store.codec import to_text
from flyball.store.encoded_step import EncodedStep

STEPS, ROUNDS, THREADS = 100, 30, 100
TARGET = 3.0
TURNS, RUN_ROUNDS, FLAT = (10, 100, 1_000), 3, 1.3
KEPT_TURNS, KEPT_ROUNDS, KEPT = 100, 15, (6.0, 3.0)
RUNS, TURNS_AT_ONCE, AT_ONCE_ROUNDS, AT_ONCE = 100, 20, 3, (1 / 0.13, 1 / 0.25)
FILLED, FILLED_FLAT = (100, 1_000), 1.15
SESSION = (10, 100, 1_000)
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


def cpu(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


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


def agent_of(turns: int, store: Store | None) -> Agent:
    registry = IterationBudgetRegistry(settings={})
    registry.register("agent_iterations", default=90)
    limits = Limits(turns=turns, context_tokens=10_000_000, tool_calls=None)
    return Agent(model=Reader(turns), tools=[read], registry=registry, limits=limits, events_kept=100, store=store)


class Capturing(MemoryStore):
    """Captures the texts of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.commits: list[list[tuple[str, int, str]]] = []

    def keep(self, step: Step) -> None:
        """Keep a step, and its texts."""
        self.commits.append(rows_of(step))
        super().keep(step)


def kept_turn(folder: Path) -> float:
    """How many times as long a kept turn takes more than an unkept one, as raw commits of its texts."""
    capturing = Capturing()
    runs(agent_of(KEPT_TURNS, capturing), 1)
    kept = plain = raw = float("inf")
    by_hand = Raw(folder / "raw-turns.db", "normal")
    with SqliteStore(folder / "turns.db") as store:
        ours, bare = agent_of(KEPT_TURNS, store), agent_of(KEPT_TURNS, None)
        for _ in range(KEPT_ROUNDS):
            kept = min(kept, cpu(lambda: runs(ours, 1)))
            plain = min(plain, cpu(lambda: runs(bare, 1)))
            raw = min(raw, cpu(lambda: [by_hand.insert(commit) for commit in capturing.commits]))
    by_hand.connection.close()
    ratio = (kept - plain) / raw
    kept, plain, raw = (one / KEPT_TURNS * 1e6 for one in (kept, plain, raw))
    name = f"keeping a turn of {KEPT_TURNS}"
    print(f"{name:34} {kept - plain:6.0f} µs  {ratio:5.2f}x raw ({raw:.0f} µs; unkept {plain:.0f} µs)  {targets(KEPT)}")
    return ratio


def targets(must_and_aim: tuple[float, float]) -> str:
    return "(target {:.3g}x) (aim {:.3g}x)".format(*must_and_aim)


def growth(folder: Path) -> float:
    """How many times as long a turn takes in a long run as in a short one, all of it being kept."""
    best = dict.fromkeys(TURNS, float("inf"))
    with SqliteStore(folder / "runs.db") as store:
        for count in TURNS:
            times, kept = TURNS[-1] // count, agent_of(count, store)
            for _ in range(RUN_ROUNDS):
                best[count] = min(best[count], cpu(lambda kept=kept, times=times: runs(kept, times)) / times / count)
    for count in TURNS:
        print(f"a kept turn of a run of {count:<10} {best[count] * 1e6:6.0f} µs")
    ratio = best[TURNS[-1]] / min(best[count] for count in TURNS[:-1])
    print(f"the same in a run of {TURNS[-1]:<13} {ratio:5.2f}x shorter ones  (target {FLAT}x)")
    return ratio


def filled(folder: Path) -> float:
    """How many times as long a kept turn takes in a file with many runs as in one with few."""
    best = dict.fromkeys(FILLED, float("inf"))
    with SqliteStore(folder / "few.db") as few, SqliteStore(folder / "many.db") as many:
        for count, store in zip(FILLED, (few, many), strict=True):
            runs(agent_of(3, store), count)
        for _ in range(KEPT_ROUNDS):
            for count, store in zip(FILLED, (few, many), strict=True):
                best[count] = min(best[count], cpu(lambda store=store: runs(agent_of(KEPT_TURNS, store), 1)))
    ratio = best[FILLED[1]] / best[FILLED[0]]
    name = f"a kept turn beside {FILLED[1]:,} runs"
    print(f"{name:34} {ratio:5.2f}x beside {FILLED[0]}  (target {FILLED_FLAT}x)")
    return ratio


def session(folder: Path) -> float:
    """How many times as many bytes a late run of a session adds as an early one."""
    sizes = [0]
    with SqliteStore(folder / "session.db") as store:
        agent = agent_of(1, store)
        for number in range(1, SESSION[-1] + 1):
            assert agent.run(TEXT, session="talk").completed
            if number in SESSION:
                store.write(lambda connection: connection.execute("SELECT 1").fetchall())
                (size,) = store.read(int, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
                sizes.append(size)
    steps = list(zip((0, *SESSION), SESSION, strict=False))
    added = [(sizes[n + 1] - sizes[n]) / (last - first) for n, (first, last) in enumerate(steps)]
    for count, size, more in zip(SESSION, sizes[1:], added, strict=True):
        print(f"a session of {count:<21,} {size / 1024:6.0f} KiB  {more / 1024:.1f} KiB a run")
    ratio = added[-1] / added[-2]
    print(f"a run of a session of {SESSION[-1]:<12,} {ratio:5.2f}x the bytes of one of {SESSION[-2]}  (target {FLAT}x)")
    return ratio


def runs(agent: Agent, times: int) -> None:
    for _ in range(times):
        assert agent.run("Read it.").completed


def at_once(folder: Path) -> float:
    """How many times as long a turn takes with a store as without, in many runs at once."""
    kept = plain = float("inf")

    async def all_of(agent: Agent) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(RUNS):
                tasks.start_soon(agent.arun, "Read it.")

    with SqliteStore(folder / "agents.db") as store:
        for _ in range(AT_ONCE_ROUNDS):
            kept = min(kept, seconds(lambda: anyio.run(all_of, agent_of(TURNS_AT_ONCE, store))))
            plain = min(plain, seconds(lambda: anyio.run(all_of, agent_of(TURNS_AT_ONCE, None))))
        assert len(store.runs.list(Query(stop="completed", limit=10 * RUNS))) == AT_ONCE_ROUNDS * RUNS
    turns, ratio = RUNS * TURNS_AT_ONCE, kept / plain
    name, rate = f"a kept turn of {RUNS} runs at once", f"{turns / kept:,.0f} turns a second, rate {1 / ratio:.2f}"
    print(f"{name:34} {kept / turns * 1e6:6.0f} µs  {ratio:5.2f}x unkept ({rate})  {targets(AT_ONCE)}")
    return ratio


def main() -> int:
    with TemporaryDirectory() as name:
        folder = Path(name)
        missed = sum(beside_raw(folder, mode) > TARGET for mode in ("normal", "full"))
        missed += kept_turn(folder) > KEPT[0]
        missed += at_once(folder) > AT_ONCE[0]
        missed += filled(folder) > FILLED_FLAT
        missed += growth(folder) > FLAT
        missed += session(folder) > FLAT
        crowd(folder)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
