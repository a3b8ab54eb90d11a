"""converse(): a whole run, as decisions. It yields what is to be done and is sent what that came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from .. import event
from ..progress import Point
from ..recorder import Recorder
from ..result import Result, Stop
from . import shared_budget
from .approval import ask_for_more
from .completion import diagnosis, preflight
from .effects import Flow
from .ending import Continue, End, described
from .grace import grace
from .plan import Plan
from .reflection import reflect
from .state import RunState
from .turn import or_end, take_turn

_ORDER = list(Stop)
MORE_HELPS = (Stop.BUDGET, Stop.DEADLINE)
"""Ends after which a run that is given more goes on."""


def converse(plan: Plan, recorder: Recorder) -> Flow[Result]:
    """One run, from its task to its result. It never raises; whatever does raise in it ends the run as failed."""
    course = RunState(plan, recorder)
    recorder.emit(event.RunStarted, _limits_shown(course), course.shared.agent)
    try:
        try:
            end = yield from _until_the_end(course)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # nobody can cancel here, so an asyncio.CancelledError is a callback's own
            end = yield from _closed(course, End(Stop.FAILED, error=described(error)))
    except BaseException:  # it is closed from outside, or Ctrl-C came inside a callback
        _finish(course, End(Stop.CANCELLED, by="closed"))
        raise
    return _finish(course, end)


def _limits_shown(course: RunState) -> Mapping[str, Any]:
    """The ceilings and the time; nearly always what all runs of this agent begin with."""
    if course.plan.level:  # it may have less, of its parent's
        return course.envelope.snapshot()
    shown, seconds = course.shared.limits_shown, course.envelope.remaining_s()
    if shown.get("remaining_s") == seconds > 0:
        return shown
    return {**shown, "remaining_s": None if seconds == inf else seconds, "expired": seconds <= 0}


def _until_the_end(course: RunState) -> Flow[End]:
    """Turn after turn. The end is decided when all is kept, so that what came in until then still counts."""
    going = _begin(course)
    while True:
        while going is None or isinstance(going, Continue):
            going = yield from take_turn(course)
            if course.plan.keeps and not _is_paused(going):
                yield from course.append()
            if course.shared.reflection is not None and isinstance(going, Continue):
                yield from reflect(course, course.shared.reflection)
        if course.shared.asks_for_more and going.stop in MORE_HELPS:
            going = yield from ask_for_more(course, going)
            if going is None:
                continue
        end = yield from _closed(course, going)
        if end.budget in course.extended and end.stop in MORE_HELPS:
            course.envelope.set_aside_again()
            going = None
        elif end.stop is not Stop.COMPLETED or not course.put_steered():
            return end
        else:
            going = or_end(course, Continue.STEERED)


def _closed(course: RunState, end: End) -> Flow[End]:
    """The end, with its report, when all is kept; also what was steered in, as its sender was told that it came."""
    end, course.extended = _the_first_reason(course, end), frozenset()
    if end.stop is not Stop.COMPLETED:
        course.put_steered()
    end = yield from grace(course, end)
    yield from shared_budget.pay(course)
    while True:
        if course.plan.keeps and not _is_paused(end):
            yield from course.append()
        if end.stop is Stop.COMPLETED or not course.put_steered():
            return _the_first_reason(course, end)


def _is_paused(end: object) -> bool:
    """Whether it waits for a person: then its last turn is not over, and what is said in it not yet kept."""
    return isinstance(end, End) and end.stop is Stop.PAUSED


def _begin(course: RunState) -> End | None:
    if course.plan.contended is not None:
        return End(Stop.CONTENDED, warning=course.plan.contended)
    course.consult(Point.RUN_STARTED)
    if course.plan.called_off is not None:
        return End(Stop.CANCELLED, by=course.plan.called_off)
    if course.plan.obstacle is not None:
        return End(Stop.FAILED, error=dict(course.plan.obstacle))
    unprovable = preflight(course)
    if unprovable is not None:
        return unprovable
    reason = course.model.ready()
    if reason is None:
        return None
    return End(Stop.FAILED, error={"code": "model_not_ready", "kind": "ModelError", "message": reason})


def _the_first_reason(course: RunState, end: End) -> End:
    """What came up while the end was decided and told counts too, where it goes before: a cancel, a hook's orders."""
    late = course.disturbance()
    if late is None or late.stop is Stop.STALLED or _ORDER.index(late.stop) >= _ORDER.index(end.stop):
        return end
    if late.stop is Stop.HALTED:  # the time may be over too, and goes before
        late = course.must_end() or late
    return replace(late, text=end.text)


def _finish(course: RunState, end: End) -> Result:
    """Exactly one run_ended, and the result."""
    envelope, progress, recorder = course.envelope, course.progress, course.recorder
    recorder.ended = True
    try:
        course.tell_refusals()
        course.consult(Point.RUN_ENDED, end.stop)
    finally:  # Ctrl-C may come inside a hook
        if course.shared.children:
            course.admission.close()
        envelope.close()
        flags = envelope.flags
        budgets = envelope.last_readings()
        recorder.emit(event.RunEnded, end.stop, end.by, flags, course.turns, progress.requests, budgets)
    plan, purse = course.plan, course.purse
    return Result(
        stop=end.stop,
        text=progress.text if end.text is None else end.text,
        output=end.output,
        stopped_by=end.by,
        flags=flags,
        warning=end.warning,
        turns=course.turns,
        requests=progress.requests,
        messages=tuple(course.history),
        tool_results=tuple(progress.results),
        last_calls=tuple(progress.calls),
        usage=purse.usage,
        cost=purse.costs,
        unpriced=purse.unpriced,
        estimated_requests=purse.estimated,
        budgets=budgets,
        events=recorder.record,
        events_dropped=recorder.dropped,
        sink_errors=recorder.sink_errors,
        finish=course.finish,
        hung=max(0, course.hung),
        state=course.state,
        sensitive=course.shared.sensitive,
        completion=diagnosis(course, end.stop),
        reflections=tuple(course.reflections),
        faults=tuple(course.faults),
        children=tuple(course.children),
        questions=tuple(course.questions) if end.stop is Stop.PAUSED else (),
        error=end.error,
        run_id=plan.run_id,
        session_id=plan.session_id,
        metadata=plan.metadata,
        seconds=course.clock.at,
    )
