"""What the checks of a store work with."""

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
    """A store with a clock that can be moved, and words for what checks do again and again."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock

    def acquire_lease(self, session: str = "s", owner: str = "one", seconds: float = 60.0) -> Guard:
        """Take a lease that is free."""
        guard = self.store.lease.acquire(session, owner, seconds)
        assert isinstance(guard, Guard), f"the lease of {session!r} is free, but acquire gave {guard}"
        return guard

    def start_run(self, run_id: str = "r", session: str | None = None, parent: str | None = None) -> str:
        """Enter a run that begins now."""
        self.store.runs.start(run_id, Start(at=self.clock.wall(), session=session, parent=parent))
        return run_id


def build_messages(*texts: str, run: str = "r", first: int = 0) -> list[Message]:
    """Messages of a run."""
    return [Message(run, first + n, 1.5 + n, MessageType.TEXT, Role.USER, text) for n, text in enumerate(texts)]


def build_events(*numbers: int) -> list[dict[str, Any]]:
    """Events of these numbers."""
    return [{"event": "turn_started", "seq": number, "at": number / 8} for number in numbers]


def assert_raises(kind: type[E], action: Callable[[], object]) -> E:
    """The error with which something must be refused."""
    try:
        given = action()
    except kind as error:
        return error
    raise AssertionError(f"it was to be refused with {kind.__name__}, but gave {given!r}")


def run_in_threads(actions: Sequence[Callable[[], T]], seconds: float = 60.0) -> list[T]:
    """Do these at once, each in a thread of its own; what each gave. The first that raised is raised here."""
    gate, given, raised = Barrier(len(actions)), dict[int, T](), list[BaseException]()

    def work(place: int, act: Callable[[], T]) -> None:
        try:
            gate.wait(seconds)
            given[place] = act()
        except BaseException as error:
            raised.append(error)

    threads = [Thread(target=work, args=pair, daemon=True) for pair in enumerate(actions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
        assert not thread.is_alive(), f"a thread has not ended within {seconds:g} seconds"
    if raised:
        raise raised[0]
    return [given[place] for place in range(len(actions))]
