"""Reasons why a governed run ends, collected until its result is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..budget.lock import create_lock
from ..result import Stop


class RunEnding:
    """Stop reasons, text and error of a governed run. `cancel()` is thread-safe."""

    def __init__(self) -> None:
        self.lock = create_lock()
        """Re-entrant lock of the run; there is only one, so that threads cannot deadlock."""
        self.stops: set[Stop] = set()
        self.text = ""
        self.warning: str | None = None
        self.halts_with_grace = False
        self.is_final = False
        """True once the result is built."""
        self.is_out_of_time = False
        """True if no turn may follow but the grace turn, although some time is left."""
        self._error: BaseException | str = ""
        self._halted_by = "caller"

    def cancel(self) -> bool:
        """Cancel the run at its next turn; return False if it has already ended."""
        with self.lock:
            if not self.is_final:
                self.stops.add(Stop.CANCELLED)
            return not self.is_final

    def fail(self, error: BaseException | str) -> None:
        """End the run as failed."""
        self._error = error
        self.stops.add(Stop.FAILED)

    def run_out_of_time(self, error: BaseException) -> None:
        """End the run by its deadline before the next turn, because waiting after this error would take longer."""
        self._error, self.is_out_of_time = error, True

    def halt(self, by: str, message: str, *, grace: bool) -> None:
        """End the run when the loop asks for its next turn. The first halt counts."""
        if Stop.HALTED in self.stops:
            return
        self._halted_by, self.halts_with_grace = by, grace
        if not self.stops - {Stop.COMPLETED}:  # an earlier stop reason keeps its own warning
            self.warning = message or None
        self.stops.add(Stop.HALTED)

    def meet_limit(self, stop: Stop, warning: str) -> None:
        """Record a limit that was met. The warning is that of the stop reason that counts."""
        if not self.warning or not self.stops or _IN_ORDER.index(stop) < _IN_ORDER.index(self.stop):
            self.warning = warning
        self.stops.add(stop)

    def lift_halt(self) -> tuple[str, str] | None:
        """Undo a halt, because the run is only observed. Returns what halted it and the message, if there was one."""
        if Stop.HALTED not in self.stops:
            return None
        lifted = self._halted_by, self.warning or ""
        self.stops.discard(Stop.HALTED)
        self.warning = None
        return lifted

    @property
    def stop(self) -> Stop:
        """Stop reason of the run: the first of the collected ones in the order of Stop."""
        return next(stop for stop in _IN_ORDER if stop in self.stops)

    def origin_of(self, stop: Stop) -> str | None:
        """Return what halted the run. None for another stop reason."""
        return self._halted_by if stop is Stop.HALTED else None

    def error_of(self, stop: Stop) -> Mapping[str, Any] | None:
        """Return the failure, or the error after which no time was left, as a result carries it. Otherwise None."""
        is_cause = stop is Stop.FAILED or (stop is Stop.DEADLINE and self.is_out_of_time)
        if not is_cause:
            return None
        from .failure_hint import describe_failure  # imported here, because few runs fail

        return describe_failure(self._error)


_IN_ORDER = tuple(Stop)
