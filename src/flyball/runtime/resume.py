"""Resuming a run: its loop receives the recorded answers again, and no recorded effect is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ..event import Event
from ..loop.effects import Act, Answer, Append, Ask, ChildDone, Effect, Grant, PauseChildren, Wait
from ..outcome import Failure, Success
from ..recorder import Recorder, Sink
from ..request import FailureKind, ModelFailure
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from .child_call import BackgroundCallRun, ChildCallRun
from .effect_journal import EffectJournal
from .history import RunHistory, StartedEffect

if TYPE_CHECKING:
    from .children import ChildRunner  # cycle: it builds drivers
    from .driver import RunDriver  # cycle: its type only; the driver calls these functions

_INTERRUPTED = ModelFailure(
    FailureKind.INTERRUPTED, "Interrupted", "interrupted", "the process ended before the reply arrived", began=True
)
_UNKNOWN = "the process ended during the call. It is not known whether the call had an effect"


def resume_run(driver: RunDriver, history: RunHistory, journal: EffectJournal) -> Effect[Any] | None:
    """Replay the recorded part of a run, and return the next effect to perform. None means that the run has ended."""
    opened_s = driver.timer.now()
    started_calls: list[tuple[BackgroundCallRun, float]] = []
    driver.effects.add_verdicts(history.later_verdicts)
    effect = _replay_answers(driver, history, journal, started_calls)
    driver.timer.set_elapsed(history.at + opened_s)
    for signal in (signal for answer in history.answers for signal in answer.signals):
        if isinstance(signal, PauseChildren):
            driver.signals.note_children(signal)
    for signal in history.signals:
        driver.signals.send(signal)
    if effect is not None:
        _launch_open_children(driver, history, started_calls)
    started = history.unanswered
    match effect:
        case Ask() if started is not None:
            journal.record_replayed(effect)
            return driver.send_answer(effect, _INTERRUPTED)
        case Append() | Wait(runs=()) if started is not None:  # messages were written in one commit with their start
            journal.record_replayed(effect)
            return driver.send_answer(effect, None)
        case Act() if started is not None:
            _reopen_calls(effect, started)
            for tool_call in cast("Sequence[ToolCallRun]", effect.acts):
                if isinstance(tool_call, BackgroundCallRun) and tool_call.outcome is not None:
                    _launch_open_children(driver, history, [(tool_call, effect.deadline)])
            return effect
        case _:
            return effect


def _launch_open_children(
    driver: RunDriver, history: RunHistory, started_calls: Sequence[tuple[BackgroundCallRun, float]]
) -> None:
    """Start child runs in the background again whose result the journal does not have. They resume themselves."""
    received = [*history.signals, *(signal for answer in history.answers for signal in answer.signals)]
    ended = {signal.run_id for signal in received if isinstance(signal, ChildDone)}
    for tool_call, deadline in started_calls:
        _fail_remote_children(tool_call.tasks)
        cast("ChildRunner", driver.effects.tool_runner).launch(tool_call, deadline, ended)


def _replay_answers(
    driver: RunDriver,
    history: RunHistory,
    journal: EffectJournal,
    started_calls: list[tuple[BackgroundCallRun, float]],
) -> Effect[Any] | None:
    """Send the recorded answers. Raises an error if an effect is not the recorded one.

    `started_calls` gets the calls that had started child runs in the background, with their deadlines.
    """
    player, started = driver.player, history.started
    muter = EventMuter(driver.recorder, history.events, journal)

    def matches(n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        if not journal.matches(started[n], effect):
            return False
        journal.record_replayed(effect)
        if isinstance(effect, Act):
            started_calls.extend(
                (call, effect.deadline)
                for call, outcome in zip(cast("Sequence[ToolCallRun]", effect.acts), answer.value, strict=True)
                if isinstance(call, BackgroundCallRun) and isinstance(outcome, Success)
            )
        if journal.is_stored and isinstance(effect, Grant) and answer.value is None:
            driver.effects.reapply_grant(effect)  # in memory, the shared budget still has it
        return True

    n = player.replay(history.answers, matches)
    if n < len(started) and (player.effect is None or not journal.matches(started[n], player.effect)):
        muter.mute()
        player.close()
        error, player.result = journal.build_divergence_error(player), None  # or it would be stored as the run's end
        journal.release()
        raise error
    driver.read_player()
    muter.unmute()
    driver.recorder.sink_errors += history.sink_errors
    return player.effect


def _reopen_calls(effect: Act, started: StartedEffect) -> None:
    """Leave the calls of a batch open that may be repeated. The others get their outcome, or fail as unknown."""
    for tool_call in cast("Sequence[ToolCallRun]", effect.acts):
        _fail_remote_children(tool_call.tasks)
        known = started.outcomes.get(tool_call.call.id)
        if known is None and not tool_call.tool.idempotent and not isinstance(tool_call, ChildCallRun):
            known = Failure(kind="Interrupted", error=_UNKNOWN, call_id=tool_call.call.id, tool=tool_call.tool.name)
        if known is not None:
            tool_call.close(known)


def _fail_remote_children(tasks: Sequence[Any]) -> None:
    """Fail child runs at other services. They have no journal here, so starting them again could repeat effects."""
    for task in tasks:
        if task.spec.make_runner is not None:
            error = {"code": "interrupted", "kind": "Interrupted", "message": _UNKNOWN}
            task.own_result = Result(stop=Stop.FAILED, error=error, run_id=task.run_id)


def _ignore(event: Event) -> None:
    pass


class EventMuter:
    """Holds back replayed events that sinks and the store have received before.

    After a crash, events that the store does not have are delivered. After a pause in this process, sinks have received
    all of them.
    """

    def __init__(self, recorder: Recorder, reported_count: int, journal: EffectJournal) -> None:
        self._recorder = recorder
        self._sinks: tuple[Sink, ...] = recorder.sinks
        self._unstored = recorder.unstored
        self._reported_count = reported_count
        self._next_event = journal.next_event
        self._has_ended = journal.has_ended
        self._is_muted = self._next_event is None or reported_count > 0 or self._has_ended
        if self._next_event is None:
            recorder.sinks = (_ignore,) if recorder.is_watched else ()  # it stays watched, so its events stay the same
        elif self._is_muted:
            recorder.sinks = (self._on_event,)
        if self._is_muted:
            recorder.unstored = None

    def _on_event(self, event: Event) -> None:
        if event.seq + 1 == self._reported_count and not self._has_ended:
            self.unmute()

    def unmute(self) -> None:
        """Deliver all further events, unless the run had ended."""
        if self._is_muted and not self._has_ended:
            if self._next_event is not None:
                self._recorder.skip_to(self._next_event)
            self._recorder.sinks, self._recorder.unstored = self._sinks, self._unstored
            self._is_muted = False

    def mute(self) -> None:
        """Deliver no further events."""
        self._recorder.sinks, self._recorder.unstored = (), None
