"""`flyball prune`: what is old goes, what is in use stays, and nothing goes unasked."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flyball import Agent
from flyball.budget.deadline import SYSTEM
from flyball.cli.commands.prune import count_prunable
from flyball.store import MemoryStore, RunFinish, SqliteStore, Start, Step
from flyball.testing import ManualClock, ScriptedModel, say

Typed = Callable[..., subprocess.CompletedProcess[str]]
DAY = 86_400.0


@pytest.fixture
def aged(stock: Any) -> Any:
    """Runs of 50, 40, 20 and 0 days ago, each in a session of its own."""
    stock.clock.move(SYSTEM.wall() - stock.clock.wall() - 50 * DAY)
    for days, run_id in ((10, "fifty"), (20, "forty"), (20, "twenty"), (0, "today")):
        agent = Agent(model=ScriptedModel(say("Fine.")), clock=stock.clock)
        stock.keep(agent.run("See to the boiler.", run_id=run_id))
        stock.clock.move(days * DAY)
    return stock


def left(stock: Any) -> list[str]:
    with stock.open() as store:
        assert {one.id for one in store.transcript.sessions()} == {one.run_id for one in store.runs.list()}
        return [one.run_id for one in store.runs.list()]


@pytest.mark.parametrize(
    ("options", "stays"),
    [
        ("", ["today", "twenty"]),
        ("--older-than=45d", ["today", "twenty", "forty"]),
        ("--older-than=6w", ["today", "twenty", "forty"]),
        ("--older-than=1h", ["today"]),
        ("--older-than=1h --keep=3", ["today", "twenty", "forty"]),
        ("--older-than=1h --keep=9", ["today", "twenty", "forty", "fifty"]),
        ("--keep=1", ["today", "twenty"]),
    ],
)
def test_runs_that_are_older_go_but_for_the_newest(
    typed: Typed, aged: Any, options: str, stays: list[str], snapshot: Callable[..., None]
) -> None:
    gone = 4 - len(stays)
    told = typed("prune", *options.split(), "--dry-run").stdout
    assert left(aged) == ["today", "twenty", "forty", "fifty"]
    done = typed("prune", *options.split(), "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert str(gone) in told.split() or not gone
    snapshot(done.stdout)
    assert left(aged) == stays


def test_nobody_is_taken_to_agree(typed: Typed, aged: Any) -> None:
    done = typed("prune", stdin="y\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--yes" in done.stderr
    assert len(left(aged)) == 4


@pytest.mark.parametrize(("answer", "gone"), [("y", 2), ("n", 0), ("", 0)])
def test_somebody_at_a_terminal_is_asked_before_anything_is_thrown_away(
    typed: Typed, aged: Any, answer: str, gone: int
) -> None:
    done = typed("prune", stdin=f"{answer}\n", terminal=True)
    assert done.returncode == 0
    assert "2 " in done.stderr, "how much would go is in the question"
    assert len(left(aged)) == 4 - gone


@pytest.mark.parametrize("age", ["", "30", "d", "-1d", "1y", "nan", "1e9d", "\u0661d"])
def test_an_age_that_is_none_is_refused(typed: Typed, age: str) -> None:
    done = typed("prune", f"--older-than={age}", "--yes")
    assert (done.returncode, done.stdout) == (2, "")
    assert "30d" in done.stderr, "an example of what would be right"


KINDS: dict[str, Callable[[Path, ManualClock], Any]] = {
    "memory": lambda _folder, clock: MemoryStore(clock),
    "sqlite": lambda folder, clock: SqliteStore(folder / "runs.db", clock=clock),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.booleans(), st.booleans()), max_size=6))
def test_what_is_told_before_is_what_is_thrown_away(
    kind: str, tmp_path_factory: pytest.TempPathFactory, runs: Sequence[tuple[int, int, bool, bool]]
) -> None:
    clock = ManualClock()
    with KINDS[kind](tmp_path_factory.mktemp("prune"), clock) as store:
        for n, (session, above, ended, held) in enumerate(runs):
            parent = f"run-{above}" if above < n else None
            start = Start(at=clock.wall(), session=None if parent else f"session-{session}", parent=parent)
            finish = RunFinish(at=clock.wall(), stop="completed") if ended else None
            store.keep(Step(run_id=f"run-{n}", start=start, finish=finish))
            store.transcript.title(f"lone-{n}", "A session without a run")
            if held:
                store.lease.acquire(f"session-{session}", "a test", 2.5)
                store.lease.acquire(f"lone-{n}", "a test", 2.5)
            clock.move(1)
        for before in range(len(runs) + 1):
            told = count_prunable(store, clock.wall() - before)
            if before == len(runs) // 2:
                assert store.prune(clock.wall() - before) == told
