"""A folder in which somebody types commands, run in this process: starting one for each would take most of the time."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flyball import Result, cli
from flyball.store import Guard, RunFinish, SqliteStore, Start, Step
from flyball.testing import ManualClock

Typed = Callable[..., subprocess.CompletedProcess[str]]


class Keyboard(io.StringIO):
    """Standard input of somebody who sits at a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Generator[Typed, None, None]:
    """What somebody types behind `flyball`: `typed("run", "Go.", stdin="", FLYBALL_MODEL="script:a.toml")`."""
    for name in [name for name in os.environ if name.startswith("FLYBALL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands look for modules in their folder, too
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def type_(
        *arguments: str, stdin: str = "", terminal: bool = False, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["flyball", *arguments])
            patch.setattr(sys, "stdin", Keyboard(stdin) if terminal else io.StringIO(stdin))
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capsys.readouterr()
        code = ended.value.code
        if not isinstance(code, int):  # a text is printed, and means 1
            code, err = (1, f"{err}{code}\n") if code else (0, err)
        return subprocess.CompletedProcess(arguments, code, out, err)

    yield type_
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


class Stock:
    """The store in which commands look by themselves, filled with runs that really were."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "data" / "flyball" / "runs.db"
        self.clock = ManualClock()

    @contextmanager
    def open(self) -> Generator[SqliteStore]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with SqliteStore(self.path, clock=self.clock) as store:
            yield store

    def keep(self, result: Result, session: str | None = None, killed: tuple[int, int] | None = None) -> None:
        """Keep a run and those below it; if it was killed, only so many of its events and messages."""
        with self.open() as store:
            self._keep(store, result, session, None, killed)

    def _keep(
        self, store: SqliteStore, result: Result, session: str | None, parent: str | None, killed: Any = None
    ) -> None:
        run_id, first = result.run_id, result.events[0]
        session, agent = session or run_id, getattr(first, "agent", "")
        start = Start(
            at=first.header.started_at, agent=agent, session=session, parent=parent, task=result.messages[0].content
        )
        events, messages = killed or (None, None)
        told, said = [event.to_dict() for event in result.events][:events], result.messages[:messages]
        guard = store.lease.acquire(session, "a test", 60.0)
        assert isinstance(guard, Guard)
        finish = (
            None if killed else RunFinish(at=start.at + result.seconds, stop=result.stop.value, record=result.to_dict())
        )
        step = Step(run_id=run_id, guard=guard, start=start, messages=said, events=told, finish=finish, release=True)
        store.keep(step)
        for child in result.children:
            self._keep(store, child, None, run_id)


@pytest.fixture
def stock(tmp_path: Path) -> Stock:
    """The default store."""
    return Stock(tmp_path)
