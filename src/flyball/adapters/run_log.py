"""Record of a framework's run in a store."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..budget.deadline import SYSTEM
from ..errors import FlyballError, describe_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..result import Result
    from ..store import Store
    from .adapter_options import AdapterOptions

_MAX_TASK_CHARS = 200


class RunLog:
    """Writes the start and the end of a run to its store, if it has one.

    A store that fails does not change the run: `result.store_error` has the error.
    """

    def __init__(self, options: AdapterOptions, agent: str, task: str) -> None:
        self._store = options.store
        self._options = options
        self._agent = agent
        self._task = task[:_MAX_TASK_CHARS]
        self._error: FlyballError | None = None

    def start(self) -> None:
        """Record that the run started."""
        if self._store is None:
            return
        from ..store import Start

        options = self._options
        start = Start(
            at=SYSTEM.wall(),
            agent=self._agent,
            session=options.session_id,
            task=self._task,
            metadata=options.metadata,
        )
        self._write(lambda store: store.runs.start(options.run_id, start))

    def finish(self, result: Result) -> None:
        """Record how the run ended."""
        if self._store is None:
            return
        from ..runtime.stored_record import to_stored_record
        from ..store import RunFinish, Step

        finish = RunFinish(at=SYSTEM.wall(), stop=result.stop.value, record=to_stored_record(result, 0))
        events = [event.to_dict() for event in result.events]
        self._write(lambda store: store.keep(Step(run_id=result.run_id, events=events, finish=finish)))
        if self._error is not None:
            result.store_error = describe_error(self._error)

    def _write(self, write: Callable[[Store], None]) -> None:
        from ..store import open_store

        if self._error is not None:
            return
        try:
            store = self._store
            with open_store(store) if isinstance(store, str) else nullcontext(store) as opened:
                if opened is not None:
                    write(opened)
        except FlyballError as error:
            self._error = error
