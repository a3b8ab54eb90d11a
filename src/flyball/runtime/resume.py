"""A run that goes on: its loop is told again what it was told, and nothing that was done is done twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError, ResumeError
from ..event import Event
from ..loop.effects import Act, Answer, Append, Ask, Decide, Effect, Grant, Wait
from ..outcome import Failure
from ..recorder import Recorder, Sink
from ..request import FailureKind, ModelFailure
from ..result import Result, Stop
from ..tools.call import ToolCallRun
from .child_call import ChildAct
from .history import PausedRun, RunHistory, StartedEffect, came_from
from .journal import RunJournal

if TYPE_CHECKING:
    from .driver import Driver

_INTERRUPTED = ModelFailure(
    FailureKind.INTERRUPTED, "Interrupted", "interrupted", "the process ended while the reply was awaited", began=True
)
_UNKNOWN = "the process ended while this was under way. Whether it had an effect is not known"


def resumed(driver: Driver, past: RunHistory, keeper: RunJournal) -> Effect[Any] | None:
    """What the loop of a run that is kept wants next; None where it had come to its end."""
    effect = _replayed(driver, past, keeper)
    driver.pace.begin_at(past.at + driver.pace.now())
    for letter in past.letters:
        driver.mailbox.post(letter)
    begun = past.unanswered
    match effect:
        case Ask() if begun is not None:
            keeper.passed(effect)
            return driver.answer(effect, _INTERRUPTED)
        case Append() | Wait() if begun is not None:  # what is to be kept was, in one commit with its beginning
            keeper.passed(effect)
            return driver.answer(effect, None)
        case Act() if begun is not None:
            _take_up(effect, begun)
            return effect
        case _:
            return effect


def _replayed(driver: Driver, past: RunHistory, keeper: RunJournal) -> Effect[Any] | None:
    """Tell the loop all answers again; ResumeError where it wants something else than it did."""
    hush = EventMuter(driver.recorder, past.events, keeper)
    effect = driver.advance(None)
    for n, begun in enumerate(past.begun):
        if effect is None or not keeper.fits(begun, effect):
            hush.for_good()
            driver.abandon()
            wants = "the end" if effect is None else f"the effect {type(effect).__name__}"
            found = f"{wants} as step {n + 1} of {len(past.begun)}, which was another: code, rules or tools changed"
            where = f"run {driver.recorder.header.run_id}"
            raise ResumeError(where, found, "the same agent; or from_messages=True")
        if n < len(past.answers):
            keeper.passed(effect)
            effect = _told_again(driver, effect, past.answers[n])
    hush.end()
    return effect


def _told_again(driver: Driver, effect: Effect[Any], answer: Answer[Any]) -> Effect[Any] | None:
    if isinstance(effect, Grant) and answer.value is None and driver.lender is not None:
        driver.lender.again(effect)
    driver.answers.append(answer)
    return driver.advance(answer)


def _take_up(effect: Act, begun: StartedEffect) -> None:
    """Leave those calls of a batch open that may be made again; the others have their outcome, or nobody knows it."""
    for act in cast("Sequence[ToolCallRun]", effect.acts):
        _give_up_those_elsewhere(act.tasks)
        known = begun.outcomes.get(act.call.id)
        if known is None and not act.tool.idempotent and not isinstance(act, ChildAct):
            known = Failure(kind="Interrupted", error=_UNKNOWN, call_id=act.call.id, tool=act.tool.name)
        if known is not None:
            act.gate.close(known)


def _give_up_those_elsewhere(tasks: Sequence[Any]) -> None:
    """Children at other services have no journal here, so they are not begun anew: nobody knows what came of them."""
    for task in tasks:
        if task.edge.runner is not None:
            error = {"code": "interrupted", "kind": "Interrupted", "message": _UNKNOWN}
            task.ended = Result(stop=Stop.FAILED, error=error, run_id=task.run_id)


class EventMuter:
    """Keeps quiet about events that were told before; those that were lost with the process are told."""

    def __init__(self, recorder: Recorder, told: int, keeper: RunJournal) -> None:
        self._recorder = recorder
        self._sinks: tuple[Sink, ...] = recorder.sinks
        self._told = told
        self._next = keeper.next_event
        self._over = keeper.over
        if told or self._over:
            recorder.sinks = (self._heard,)

    def _heard(self, event: Event) -> None:
        if event.seq + 1 == self._told and not self._over:
            self.end()

    def end(self) -> None:
        """Tell everything from now on."""
        if self._recorder.sinks != self._sinks and not self._over:
            self._recorder.aside += self._next - self._recorder.seq
            self._recorder.seq = self._next
            self._recorder.sinks = self._sinks

    def for_good(self) -> None:
        """Tell nothing any more."""
        self._recorder.sinks = ()


def played(driver: Driver, pause: PausedRun) -> Effect[Any]:
    """Play a run that was paused in this process until it asks; who watches has seen it."""
    recorder, sinks = driver.recorder, driver.recorder.sinks
    recorder.sinks = ()
    effect = driver.advance(None)
    for answer in pause.answers:
        if not came_from(effect, answer.value):
            break
        driver.answers.append(answer)
        effect = driver.advance(answer)
    arrived = len(driver.answers) == len(pause.answers) and isinstance(effect, Decide)
    if not arrived or cast("Decide", effect).question.id != pause.question_id:
        driver.abandon()
        pause.give_back()
        found = f"a {type(effect).__name__}" if driver.result is None else driver.result.explain()
        raise ConfigError(
            "resume", found, "the open question: hooks, callbacks and the model must decide the same again"
        )
    recorder.sinks, recorder.sink_errors = sinks, pause.sink_errors
    for letter in pause.letters:
        driver.mailbox.post(letter)
    return cast("Decide", effect)
