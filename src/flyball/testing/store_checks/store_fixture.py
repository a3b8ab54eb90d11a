"""Helpers of the store checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import Any, TypeVar

from ...errors import FlyballError
from ...message import Message, MessageType, Role
from ...store import Guard, Start, Store
from ..clock import ManualClock

T = TypeVar("T")
E = TypeVar("E", bound=FlyballError)


class StoreFixture:
    """Store with a manual clock, and shortcuts for common steps of checks."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    def acquire_lease(self, session: str = "s", owner: str = "one", seconds: float = 60.0) -> Guard:
        """Acquire a lease, which must be free."""
        guard = self.store.lease.acquire(session, owner, seconds)
        assert isinstance(guard, Guard), f"the lease of {session!r} is free, but acquire gave {guard}"
        return guard

    def start_run(self, run_id: str = "r", session: str | None = None, parent: str | None = None) -> str:
        """Start a run now, and return its id."""
        self.store.runs.start(run_id, Start(at=self.clock.wall(), session=session, parent=parent))
        return run_id


def build_messages(*texts: str, run: str = "r", first: int = 0) -> list[Message]:
    """Return messages of a run."""
    return [Message(run, first + n, 1.5 + n, MessageType.TEXT, Role.USER, text) for n, text in enumerate(texts)]


def build_events(*numbers: int) -> list[dict[str, Any]]:
    """Return events with these sequence numbers."""
    return [{"event": "turn_started", "seq": number, "at": number / 8} for number in numbers]


def assert_raises(kind: type[E], action: Callable[[], object]) -> E:
    """Check that an action raises this kind of error, and return the error."""
    try:
        value = action()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, but the call returned {value!r}")


def run_in_threads(actions: Sequence[Callable[[], T]], seconds: float = 60.0) -> list[T]:
    """Run actions at once in threads, and return their values.

    The first error of a thread is raised here.
    """
    gate, values, errors = Barrier(len(actions)), dict[int, T](), list[BaseException]()

    def work(index: int, action: Callable[[], T]) -> None:
        try:
            gate.wait(seconds)
            values[index] = action()
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=work, args=pair, daemon=True) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"a thread did not end within {seconds:g} seconds"
    if errors:
        raise errors[0]
    return [values[index] for index in range(len(actions))]
