"""The store in which commands look, filled by tests. Commands run by the fixture `typed` of tests/conftest.py."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flyball import Result
from flyball.history.record import COMMAND_METADATA
from flyball.store import Guard, RunFinish, SqliteStore, Start, Step
from flyball.testing import ManualClock


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
            at=first.header.started_at,
            agent=agent,
            session=session,
            parent=parent,
            task=result.messages[0].content,
            metadata={COMMAND_METADATA: {}},
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
