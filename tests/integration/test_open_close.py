"""Many agents, threads and processes that open and close one file at random, while others write to it."""

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from flyball import Agent
from flyball.store import Guard, Query, SqliteStore, Start, Step
from flyball.testing import ScriptedModel, say

SECONDS = float(os.environ.get("OPEN_CLOSE_SECONDS", "1"))
"""More in `make soak`."""
PROCESSES, THREADS = 3, 4
BOUND = 60.0


class Worker:
    """One process that works on the file until its time is over, and prints what the store has acknowledged."""

    def __init__(self, path: str, seed: int) -> None:
        self.path = path
        self.random = random.Random(seed)
        self.name = f"p{os.getpid()}"
        self.runs: list[str] = []
        self.fences: list[int] = []
        self.held: list[SqliteStore] = []
        """Stores that stay open for a while, and are then closed or only forgotten."""

    def work(self, until: float) -> dict[str, list[object]]:
        threads = [Thread(target=self._loop, args=(until, n)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"runs": list(self.runs), "fences": list(self.fences)}

    def _loop(self, until: float, thread: int) -> None:
        n = 0
        while time.time() < until:
            n += 1
            self.random.choice((self._run_agent, self._write, self._write, self._hold))(f"{self.name}-{thread}-{n}")

    def _run_agent(self, _name: str) -> None:
        """Run an agent of its own, whose store is left to the garbage collector."""
        result = Agent(model=ScriptedModel(say("done")), store=f"sqlite:///{self.path}").run("Do it.")
        assert result.stop == "completed", result.explain()
        self.runs.append(result.run_id)

    def _write(self, name: str) -> None:
        """Open the file, write a run under a lease, and close it."""
        with SqliteStore(self.path) as store:
            guard = store.lease.acquire(name, name, 600.0)
            assert isinstance(guard, Guard)
            self.fences.append(guard.fence)
            store.keep(Step(run_id=name, guard=guard, start=Start(at=time.time(), session=name)))
            self.runs.append(name)

    def _hold(self, _name: str) -> None:
        """Keep a store open, and close or drop an older one."""
        self.held.append(SqliteStore(self.path))
        if len(self.held) > 5:
            old = self.held.pop(self.random.randrange(3))
            if self.random.random() < 0.5:
                old.close()


def commands(path: Path, until: float) -> Iterator[subprocess.CompletedProcess[str]]:
    """Run `flyball runs` and `flyball prune` by turns."""
    store = ["--store", f"sqlite:///{path}"]
    while time.time() < until:
        for command in (["runs"], ["prune", "--older-than", "52w", "--yes"]):
            yield subprocess.run(
                [sys.executable, "-m", "flyball", *command, *store], capture_output=True, text=True, timeout=BOUND
            )


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    seeds = [str(random.randrange(1_000_000)) for _ in range(PROCESSES)]
    sys.stdout.write(f"seeds: {' '.join(seeds)}\n")
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "error", __file__, str(tmp_path / "runs.db"), seed, str(SECONDS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in seeds
    ]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_runs_acknowledged_by_many_processes_are_in_the_file_and_no_fence_comes_twice(
    workers: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    path = tmp_path / "runs.db"
    with SqliteStore(path):
        until = time.time() + SECONDS
    for done in commands(path, until):
        assert done.returncode == 0, done.stderr
    runs: set[str] = set()
    fences: list[int] = []
    for process in workers:
        printed, complaints = process.communicate(timeout=BOUND)
        assert (process.returncode, complaints) == (0, "")
        told = json.loads(printed)
        assert told["runs"]
        runs.update(told["runs"])
        fences += told["fences"]
    with SqliteStore(path) as store:
        found = {entry.run_id for entry in store.runs.list(Query(limit=1_000_000))}
    sys.stdout.write(f"{len(runs):,} runs acknowledged, {len(found):,} in the file, {len(fences):,} fences\n")
    assert runs - found == set()
    assert len(set(fences)) == len(fences)


if __name__ == "__main__":
    PATH, SEED, FOR = sys.argv[1:]
    sys.stdout.write("ready\n")
    sys.stdout.flush()  # its time begins when all is imported, however busy the machine is
    sys.stdout.write(json.dumps(Worker(PATH, int(SEED)).work(time.time() + float(FOR))))
