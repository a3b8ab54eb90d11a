"""Record of a program under `flyball exec`, in the store and for `flyball why`."""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING

from ..budget.deadline import SYSTEM
from ..errors import format_with_code
from ..history.record import save_last_record
from .output import USER_ERRORS, print_line

if TYPE_CHECKING:
    from ..event import Event
    from ..gateway.execution import Execution
    from ..runtime.lease import SessionLease
    from ..store import Store

AGENT = "exec"
"""Name of all programs in lists."""
_LEASE_S = 30.0
"""Seconds after the last write during which other processes list the program as running."""
_JOIN_S = 30.0


class ProgramRecord:
    """Sink that stores the events of a program's run while it is in progress, on a thread of its own.

    So a `flyball exec` that is killed leaves what it has spent so far.
    """

    def __init__(self, store: Store | None, run_id: str, command: str) -> None:
        self._store = store
        self._run_id = run_id
        self._command = command
        self._lease: SessionLease | None = None
        self._queue: SimpleQueue[Event | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_broken = store is None

    def __call__(self, event: Event) -> None:
        """Queue an event for the store."""
        if not self._is_broken:
            self._queue.put(event)

    def start(self) -> None:
        """Record that the run started, and store its events from now on."""
        self._keep(self._write_start)
        if not self._is_broken:
            self._thread = Thread(target=self._work, name="flyball-program-record", daemon=True)
            self._thread.start()

    def finish(self, execution: Execution) -> None:
        """Record how the run ended."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(_JOIN_S)
        self._keep(lambda store: self._write_end(store, execution))
        if self._lease is not None:
            self._lease.release()
        try:
            save_last_record(execution.result, not self._is_broken)
        except OSError as error:
            print_line(f"this run is not saved for flyball why: {error}", head="flyball: ", err=True)

    def _work(self) -> None:
        """Store events as they come, those that wait in one step."""
        from ..store import Step

        has_ended = False
        while not has_ended:
            events = [self._queue.get(), *self._take_waiting()]
            has_ended = events[-1] is None
            rows = [event.to_dict() for event in events if event is not None]
            self._keep(lambda store, rows=rows: store.keep(Step(run_id=self._run_id, events=rows)))

    def _take_waiting(self) -> list[Event | None]:
        waiting: list[Event | None] = []
        while True:
            try:
                waiting.append(self._queue.get_nowait())
            except Empty:
                return waiting

    def _write_start(self, store: Store) -> None:
        from ..runtime.lease import SessionLease
        from ..store import Start

        metadata = {"exec_command": self._command}
        store.runs.start(self._run_id, Start(at=SYSTEM.wall(), agent=AGENT, task=self._command, metadata=metadata))
        self._lease = SessionLease(store, self._run_id, _LEASE_S)
        self._lease.acquire()

    def _write_end(self, store: Store, execution: Execution) -> None:
        from ..runtime.stored_record import to_stored_record
        from ..store import RunFinish, Step

        result = execution.result
        finish = RunFinish(at=SYSTEM.wall(), stop=result.stop.value, record=to_stored_record(result, 0))
        events = [event.to_dict() for event in result.events]
        store.keep(Step(run_id=self._run_id, events=events, finish=finish))

    def _keep(self, write: Callable[[Store], None]) -> None:
        """Write to the store. The first failure is printed and ends the recording, not the program."""
        if self._store is None or self._is_broken:
            return
        try:
            write(self._store)
        except USER_ERRORS as error:
            self._is_broken = True
            print_line(f"this run is not stored: {format_with_code(error)}", head="flyball: ", err=True)
