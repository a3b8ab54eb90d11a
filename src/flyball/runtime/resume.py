"""A run that goes on: its loop is told again what it was told, and nothing that was done is done twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from .. import __version__
from ..errors import ResumeError, UsageError
from ..event import Event
from ..loop.effects import Act, Answer, Append, Ask, Decide, Effect, Grant, Wait
from ..outcome import Failure
from ..recorder import Recorder, Sink
from ..request import FailureKind, ModelFailure
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from .child_call import ChildCallRun
from .history import PausedRun, RunHistory, StartedEffect, is_answer_to
from .journal import RunJournal

if TYPE_CHECKING:
    from .driver import Driver  # cycle: its type only; a driver calls these functions

_INTERRUPTED = ModelFailure(
    FailureKind.INTERRUPTED, "Interrupted", "interrupted", "the process ended before the reply arrived", began=True
)
_UNKNOWN = "the process ended during the call. It is not known whether the call had an effect"


def resume_run(driver: Driver, history: RunHistory, journal: RunJournal) -> Effect[Any] | None:
    """What the loop of a run that is kept wants next; None where it had come to its end."""
    effect = _replay_answers(driver, history, journal)
    driver.timer.set_elapsed(history.at + driver.timer.now())
    for signal in history.signals:
        driver.signals.send(signal)
    begun = history.unanswered
    match effect:
        case Ask() if begun is not None:
            journal.record_replayed(effect)
            return driver.send_answer(effect, _INTERRUPTED)
        case Append() | Wait() if begun is not None:  # what is to be kept was, in one commit with its beginning
            journal.record_replayed(effect)
            return driver.send_answer(effect, None)
        case Act() if begun is not None:
            _reopen_calls(effect, begun)
            return effect
        case _:
            return effect


def _replay_answers(driver: Driver, history: RunHistory, journal: RunJournal) -> Effect[Any] | None:
    """Tell the loop all answers again; ResumeError where it wants something else than it did."""
    player, budget_client = driver.player, driver.budget_client
    muter = EventMuter(driver.recorder, history.events, journal)

    def matches(n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        if not journal.matches(history.started[n], effect):
            return False
        journal.record_replayed(effect)
        if isinstance(effect, Grant) and answer.value is None and budget_client is not None:
            budget_client.reapply(effect)
        return True

    n = player.replay(history.answers, matches)
    effect = player.effect
    if n < len(history.started) and (effect is None or not journal.matches(history.started[n], effect)):
        muter.mute()
        player.close()
        wants = "the run ends" if effect is None else f"the run wants {type(effect).__name__}"
        raise ResumeError(
            f"run {driver.recorder.header.run_id}",
            f"code, rules or tools have changed: at step {n + 1} of {len(history.started)}, {wants}, and the "
            f"journal, written by Flyball {history.version}, has another step. This is Flyball {__version__}. "
            "Resume it with the same agent and version, or pass from_messages=True to start a new run from its "
            "messages",
        )
    driver.finish_step()
    muter.unmute()
    return effect


def _reopen_calls(effect: Act, started: StartedEffect) -> None:
    """Leave those calls of a batch open that may be made again; the others have their outcome, or nobody knows it."""
    for act in cast("Sequence[ToolCallRun]", effect.acts):
        _fail_remote_children(act.tasks)
        known = started.outcomes.get(act.call.id)
        if known is None and not act.tool.idempotent and not isinstance(act, ChildCallRun):
            known = Failure(kind="Interrupted", error=_UNKNOWN, call_id=act.call.id, tool=act.tool.name)
        if known is not None:
            act.gate.close(known)


def _fail_remote_children(tasks: Sequence[Any]) -> None:
    """Children at other services have no journal here, so they are not begun anew: nobody knows what came of them."""
    for task in tasks:
        if task.spec.make_runner is not None:
            error = {"code": "interrupted", "kind": "Interrupted", "message": _UNKNOWN}
            task.own_result = Result(stop=Stop.FAILED, error=error, run_id=task.run_id)


class EventMuter:
    """Keeps quiet about events that were told before; those that were lost with the process are told."""

    def __init__(self, recorder: Recorder, reported_count: int, journal: RunJournal) -> None:
        self._recorder = recorder
        self._sinks: tuple[Sink, ...] = recorder.sinks
        self._reported_count = reported_count
        self._next = journal.next_event
        self._has_ended = journal.has_ended
        if reported_count or self._has_ended:
            recorder.sinks = (self._on_event,)

    def _on_event(self, event: Event) -> None:
        if event.seq + 1 == self._reported_count and not self._has_ended:
            self.unmute()

    def unmute(self) -> None:
        """Tell everything from now on."""
        if self._recorder.sinks != self._sinks and not self._has_ended:
            self._recorder.other_event_count += self._next - self._recorder.seq
            self._recorder.seq = self._next
            self._recorder.sinks = self._sinks

    def mute(self) -> None:
        """Tell nothing any more."""
        self._recorder.sinks = ()


def replay_pause(driver: Driver, pause: PausedRun) -> Effect[Any]:
    """Play a run that was paused in this process until it asks; who watches has seen it."""
    recorder, sinks = driver.recorder, driver.recorder.sinks
    recorder.sinks = ()
    player = driver.player
    n = player.replay(pause.answers, lambda _, effect, answer: is_answer_to(effect, answer.value))
    effect = player.effect
    arrived = n == len(pause.answers) and isinstance(effect, Decide)
    if not arrived or cast("Decide", effect).question.id != pause.question_id:
        player.close()
        pause.release()
        found = f"the run wants {type(effect).__name__}" if player.result is None else player.result.explain()
        raise UsageError(
            "the run did not reach its open question again, because a hook, a callback or the model decided otherwise "
            f"than before the pause: {found}"
        )
    recorder.sinks, recorder.sink_errors = sinks, pause.sink_errors
    for signal in pause.signals:
        driver.signals.send(signal)
    return cast("Decide", effect)
