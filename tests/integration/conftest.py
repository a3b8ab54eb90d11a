"""Processes that may be killed, and what must hold of what they leave."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from flyball.message import Message, MessageType
from flyball.store import Codec, Kind, Query, Store, open_store

LONG = 60.0
PAIRS = {
    "turn_started": "turn_ended",
    "model_requested": "model_replied",
    "tool_started": "tool_ended",
    "child_started": "child_ended",
}


class Nursery:
    """Where processes are forked from: one that has everything imported, and nothing begun."""

    def __init__(self) -> None:
        program = Path(__file__).with_name("program.py")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._names = 0

    def open(self) -> None:
        """Wait until all is imported."""
        assert self._said() == "ready"

    def _said(self, order: object = None) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if order is not None:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, folder: Path, work: str = "live", **options: Any) -> "Born":
        """Have a process do some work in a folder."""
        self._names += 1
        name = f"{work}-{self._names}"
        pid = int(self._said([str(folder), name, work, options]))
        return Born(self, pid, folder / f"{name}.out")

    def wait(self, pid: int) -> int:
        """How a process ended: its exit code, or the signal, below 0. A minute is the most that it may take."""
        late = Timer(LONG, os.kill, (pid, signal.SIGKILL))
        late.start()
        try:
            return int(self._said(pid))
        finally:
            late.cancel()

    def end(self) -> None:
        """Kill it and all that it has forked."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()


@dataclass
class Born:
    """One process, and what it said."""

    nursery: Nursery
    pid: int
    out: Path

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def ended(self) -> int:
        """Wait for its end."""
        return self.nursery.wait(self.pid)

    def said(self) -> Any:
        """What came of its work, when it has ended by itself."""
        code, text = self.ended(), self.out.read_text()
        assert code == 0, (code, text)
        return json.loads(text.splitlines()[-1])


@pytest.fixture(scope="session")
def program() -> Any:
    """The program itself, to look into what it leaves with the agent that it has."""
    spec = spec_from_file_location("program", Path(__file__).with_name("program.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    """One for all tests."""
    nursery = Nursery()
    try:
        nursery.open()
        yield nursery
    finally:
        nursery.end()


@dataclass
class Remains:
    """What a run has left in a folder, when it has come to its end."""

    messages: list[Message]
    record: Mapping[str, Any]
    events: dict[str, list[dict[str, Any]]]
    """By the run, of which there is one, and its children."""
    times: list[float]
    """The run's seconds with each answer, in the order they were written."""
    state: Mapping[str, Any]
    marks: list[str] = field(default_factory=list[str])
    puts: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])

    @property
    def said(self) -> list[tuple[Any, ...]]:
        """The transcript but for what may differ: times, and the results of calls of which nobody knows."""
        return [(one.run, one.n, one.type, one.role, self._content(one), _call(one)) for one in self.messages]

    def _content(self, message: Message) -> str:
        return "" if message.type is MessageType.TOOL_RESULT else message.content

    @property
    def unknown(self) -> set[str]:
        """The calls whose outcome nobody knows, as tools know them."""
        runs = {"run": self.record, **{child["run_id"]: child for child in self.record["children"]}}
        return {
            f"{run}:{row['call_id']}"
            for run, record in runs.items()
            for row in record["tool_execution_results"]
            if row.get("kind") == "Interrupted"
        }


def _call(message: Message) -> Any:
    return (message.payload or {}).get("call_id")


def lines(path: Path) -> list[str]:
    """What tools have written; nothing where none did."""
    return path.read_text().splitlines() if path.exists() else []


def remains(folder: Path) -> Remains:
    """Look at what is left; nobody may hold the session then."""
    with open_store(f"sqlite:///{folder / 'runs.db'}") as store:
        entry = store.runs.get("run")
        assert entry is not None
        assert entry.finish is not None
        assert store.lease.holder("desk") is None, "a lease is left behind"
        runs = [one.run_id for one in store.runs.list(Query(children=True))]
        return Remains(
            messages=store.transcript.read("desk"),
            record=entry.finish.record or {},
            events={run: store.runs.events(run) for run in runs},
            times=_times(store),
            state=store.state.get("desk"),
            marks=lines(folder / "marks"),
            puts=lines(folder / "puts"),
            requests=lines(folder / "requests"),
        )


def _times(store: Store) -> list[float]:
    code = Codec(*_answers())
    return [code.loads(row.data).at for row in store.journal.read("run") if row.kind is Kind.ANSWER]


def _answers() -> list[type]:
    from flyball.loop.effects import Answer, Cancel, Extend, Late, LeaseLost, Stalled, Steer, TimeUp

    return [Answer, Cancel, Extend, Late, LeaseLost, Stalled, Steer, TimeUp]


def whole(left: Remains, quiet: Remains) -> None:
    """What must hold of a run that was killed, beside one that nobody disturbed."""
    assert left.said == quiet.said
    assert (left.record["stop"], left.record["text"]) == ("completed", "Done.")
    lost = {"remembered"} if "run:call-200" in left.unknown else set[str]()
    assert left.state == {key: value for key, value in quiet.state.items() if key not in lost}
    _counted(left, quiet)
    _done_once(left, quiet)
    for run, events in left.events.items():
        _told_once(run, events)
    assert set(left.events) == set(quiet.events)
    assert left.times == sorted(left.times), "the time went backwards"


def _counted(left: Remains, quiet: Remains) -> None:
    children, before = ({child["run_id"]: child for child in one.record["children"]} for one in (left, quiet))
    assert list(children) == list(before)
    for run, record, undisturbed in (
        ("run", left.record, quiet.record),
        *((run, children[run], before[run]) for run in before),
    ):
        _counted_as(run, record, undisturbed)
        asked = Counter(left.requests)[run] - Counter(quiet.requests)[run]
        assert asked <= record["requests"] - undisturbed["requests"], f"{run}: a request that nobody booked"


def _counted_as(run: str, record: Mapping[str, Any], undisturbed: Mapping[str, Any]) -> None:
    """All counts are those of a run that nobody disturbed, but for the requests that were interrupted."""
    again = record["requests"] - undisturbed["requests"]
    budgets, before = record["budgets"], undisturbed["budgets"]
    for name in ("turns", "tool_calls", "children", "reflections", "nudges"):
        assert budgets[name]["used"] == before[name]["used"], f"{run}: {name}"
    assert (record["turns"], record["usage"]) == (undisturbed["turns"], undisturbed["usage"]), run
    assert (budgets["retries"]["used"], again) == (before["retries"]["used"], record["estimated_requests"]), run
    more = budgets["tokens"]["used"] - before["tokens"]["used"]
    assert more > 0 if again else more == 0, f"{run}: {again} interrupted, {more} tokens"
    assert budgets["tokens"]["held"] == 0


def _done_once(left: Remains, quiet: Remains) -> None:
    done, unknown = Counter(line.split()[0] for line in left.marks), left.unknown
    wanted = {line.split()[0] for line in quiet.marks}
    assert set(done.values()) <= {1}, f"done twice: {done}"
    assert wanted - unknown <= set(done) <= wanted
    assert set(left.puts) == set(quiet.puts), "another key, or a call that was not made"


def _told_once(run: str, events: list[dict[str, Any]]) -> None:
    numbers = [event["seq"] for event in events]
    assert numbers == sorted(set(numbers)), f"{run}: {numbers}"
    kinds = Counter(event["event"] for event in events)
    assert kinds["run_started"] == 1
    assert events[-1]["event"] == "run_ended"
    assert kinds["run_ended"] == 1 + sum(event.get("stop") == "paused" for event in events), run
    for started, ended in PAIRS.items():
        differ = kinds["run_ended"] - 1 if started == "turn_started" or started == "tool_started" else 0
        assert kinds[ended] == kinds[started] + differ, f"{run}: {kinds}"


@pytest.fixture(scope="session")
def quiet(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> Remains:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("quiet")
    nursery.start(folder).said()
    left = remains(folder)
    assert left.state == {"begun": True, "remembered": "e"}
    whole(left, left)
    return left


@pytest.fixture(scope="session")
def check_all(nursery: Nursery, quiet: Remains) -> Callable[[Iterable[Path]], None]:
    """Brings the runs of folders to their ends, in new processes side by side, and checks what they leave."""

    def check_all(folders: Iterable[Path]) -> None:
        born = {folder: nursery.start(folder) for folder in folders}
        for folder, one in born.items():
            one.said()
            try:
                whole(remains(folder), quiet)
            except AssertionError as error:
                raise AssertionError(f"in {folder}: {error}") from error

    return check_all
