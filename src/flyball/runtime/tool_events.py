"""Events that happen during an effect, outside the loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import get_ident

from ..event import Delta, Event, Header, ToolReported
from ..loop.effects import Late
from ..recorder import Fields, Recorder
from ..tools.call import ToolCallRun
from .effect_journal import EffectJournal
from .runner import SignalQueue
from .timer import RunTimer

CallSoon = Callable[[Callable[[], object]], object]
"""Schedules a callback in the event loop of the run, from any thread."""


class ToolEvents:
    """Watcher of one run's tool calls. It also receives the text that the model streams.

    Sinks receive progress reports and text at once. The loop does not need them.
    """

    __slots__ = ("_call_soon", "_journal", "_parent_signals", "_recorder", "_run_id", "_signals", "_thread", "_timer")

    def __init__(
        self,
        run_id: str,
        recorder: Recorder,
        signals: SignalQueue,
        timer: RunTimer,
        journal: EffectJournal,
        parent_signals: SignalQueue | None = None,
    ) -> None:
        self._run_id = run_id
        self._recorder = recorder
        self._signals = signals
        self._timer = timer
        self._journal = journal
        self._parent_signals = parent_signals
        self._call_soon: CallSoon | None = None
        self._thread = 0

    def bind_thread(self, call_soon: CallSoon, thread: int) -> None:
        """Deliver reports from other threads on this thread."""
        self._call_soon, self._thread = call_soon, thread

    def on_started(self, tool_call: ToolCallRun) -> None:
        """Do nothing: the loop emits the event, because it decides when the call starts."""

    def on_ended(self, tool_call: ToolCallRun) -> None:
        """Record the outcome in the journal. The loop emits the event, in the order of the calls."""
        self._recorder.at = self._timer.now()
        self._journal.record_outcome(tool_call)

    def on_report(self, tool_call: ToolCallRun, text: str) -> None:
        """Emit a report. A report from the run's own thread is emitted before this returns."""
        if get_ident() == self._thread:
            self._emit_report(tool_call, text)
        elif self._call_soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._call_soon(lambda: self._emit_report(tool_call, text))

    def on_late_result(self, tool_call: ToolCallRun) -> None:
        """Signal a call that returned after its end was decided, to the run or, if that has ended, to its parent."""
        if not self._signals.send(Late(tool_call.call.id, tool_call.tool.name)) and self._parent_signals is not None:
            self._parent_signals.send(Late(tool_call.idempotency_key(self._run_id), tool_call.tool.name, own=False))

    def on_text(self, text: str) -> None:
        """Emit a piece of text from the model."""
        self._stream(Delta, text)

    def _emit_report(self, tool_call: ToolCallRun, text: str) -> None:
        """Emit a report with its own time, which is not progress of the run."""
        progress_at = self._recorder.at
        self._stream(ToolReported, tool_call.call.id, tool_call.tool.name, text)
        self._recorder.at = progress_at

    def _stream(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        if not self._signals.ended:
            self._recorder.at = self._timer.now()
            self._recorder.stream(kind, *fields)
