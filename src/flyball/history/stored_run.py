"""Record in a store of a run that no driver of Flyball writes, such as that of a program."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..budget.deadline import SYSTEM
from ..errors import ConfigError, FlyballError

if TYPE_CHECKING:
    from ..result import Result
    from ..store import Start, Store


class StoredRun:
    """Writes the start and the end of a run to a store, if there is one. A store that fails does not change the run."""

    def __init__(self, store: Store | str | None, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self.error: FlyballError | OSError | None = None
        """Error of the store. Nothing is written after it."""

    @property
    def is_kept(self) -> bool:
        """Whether the store has the run."""
        return self._store is not None and self.error is None

    def start(self, start: Start) -> None:
        """Record that the run started. Raises ConfigError for an unknown address of a store."""
        self._write(lambda store: store.runs.start(self._run_id, start))
        if isinstance(self.error, ConfigError):
            raise self.error

    def finish(self, result: Result) -> None:
        """Record how the run ended."""
        self._write(lambda store: _write_end(store, result))

    def _write(self, write: Callable[[Store], None]) -> None:
        if self._store is None or self.error is not None:
            return
        from ..store import open_store

        try:
            with open_store(self._store) if isinstance(self._store, str) else nullcontext(self._store) as store:
                write(store)
        except (FlyballError, OSError) as error:
            self.error = error


def _write_end(store: Store, result: Result) -> None:
    from ..runtime.stored_record import to_stored_record
    from ..store import RunFinish, Step

    finish = RunFinish(at=SYSTEM.wall(), stop=result.stop.value, record=to_stored_record(result, 0))
    store.keep(Step(run_id=result.run_id, events=[event.to_dict() for event in result.events], finish=finish))
