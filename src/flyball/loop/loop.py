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
from .approval import ask_for_extension
from .completion import check_required_tools, describe_completion
from .effects import Flow
from .ending import ContinueReason, End, describe_error
from .grace import take_grace_turn
from .plan import Plan
from .reflection import reflect
from .state import RunState
from .turn import check_continue, take_turn

_STOP_ORDER = list(Stop)
EXTENDABLE_STOPS = (Stop.BUDGET, Stop.DEADLINE)
"""Ends after which a run that is given more goes on."""


def converse(plan: Plan, recorder: Recorder) -> Flow[Result]:
    """One run, from its task to its result. It never raises; whatever does raise in it ends the run as failed."""
    course = RunState(plan, recorder)
    recorder.emit(event.RunStarted, _read_initial_limits(course), course.spec.name)
    try:
        try:
            end = yield from _run_turns(course)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # nobody can cancel here, so an asyncio.CancelledError is a callback's own
            end = yield from _close_run(course, End(Stop.FAILED, error=describe_error(error)))
    except BaseException:  # it is closed from outside, or Ctrl-C came inside a callback
        _build_result(course, End(Stop.CANCELLED, by="closed"))
        raise
    return _build_result(course, end)


def _read_initial_limits(run: RunState) -> Mapping[str, Any]:
    """The ceilings and the time; nearly always what all runs of this agent begin with."""
    if run.plan.level:  # it may have less, of its parent's
        return run.envelope.snapshot()
    shown, seconds = run.spec.limits_snapshot, run.envelope.remaining_s()
    if shown.get("remaining_s") == seconds > 0:
        return shown
    return {**shown, "remaining_s": None if seconds == inf else seconds, "expired": seconds <= 0}


def _run_turns(run: RunState) -> Flow[End]:
    """Turn after turn. The end is decided when all is kept, so that what came in until then still counts."""
    going, behaviour = _check_start(run), run.spec.behaviour
    while True:
        while going is None or isinstance(going, ContinueReason):
            going = yield from take_turn(run)
            if run.plan.has_transcript and not _is_paused(going):
                yield from run.append_to_transcript()
            if behaviour.reflection is not None and isinstance(going, ContinueReason):
                yield from reflect(run, behaviour.reflection)
        if behaviour.asks_for_extension and _can_extend(run, going):
            going = yield from ask_for_extension(run, going)
            if going is None:
                continue
        end = yield from _close_run(run, going)
        if end.budget in run.extended and _can_extend(run, end):
            run.envelope.restore_reserve()
            run.estimate_input()  # the report was fitted into less, and had no tools
            going = None
        elif end.stop is not Stop.COMPLETED or not run.add_steered():
            return end
        else:
            going = check_continue(run, ContinueReason.STEERED)


def _can_extend(run: RunState, end: End) -> bool:
    """Return True if a raised limit lets the run continue. A run of a single turn has had it."""
    return end.stop in EXTENDABLE_STOPS and not (run.spec.behaviour.single_turn and run.progress.turn)


def _close_run(run: RunState, end: End) -> Flow[End]:
    """The end, with its report, when all is kept; also what was steered in, as its sender was told that it came."""
    end, run.extended = _select_strongest_end(run, end), frozenset()
    if end.stop is not Stop.COMPLETED:
        run.add_steered()
    end = yield from take_grace_turn(run, end)
    yield from shared_budget.flush(run)
    while True:
        if run.plan.has_transcript and not _is_paused(end):
            yield from run.append_to_transcript()
        if end.stop is Stop.COMPLETED or not run.add_steered():
            return _select_strongest_end(run, end)


def _is_paused(end: object) -> bool:
    """Whether it waits for a person: then its last turn is not over, and what is said in it not yet kept."""
    return isinstance(end, End) and end.stop is Stop.PAUSED


def _check_start(run: RunState) -> End | None:
    not_started = run.plan.not_started
    if not_started is None or not_started.stop is not Stop.CONTENDED:  # no hook sees a run without its session
        run.call_hooks(Point.RUN_STARTED)
    if not_started is not None:
        return not_started
    unprovable = check_required_tools(run)
    if unprovable is not None:
        return unprovable
    reason = run.model.ready()
    if reason is None:
        return None
    return End(Stop.FAILED, error={"code": "model_not_ready", "kind": "ModelError", "message": reason})


def _select_strongest_end(run: RunState, end: End) -> End:
    """What came up while the end was decided and told counts too, where it goes before: a cancel, a hook's orders."""
    late = run.check_interruption()
    if late is None or late.stop is Stop.STALLED or _STOP_ORDER.index(late.stop) >= _STOP_ORDER.index(end.stop):
        return end
    if late.stop is Stop.HALTED:  # the time may be over too, and goes before
        late = run.check_end() or late
    return replace(late, text=end.text)


def _build_result(run: RunState, end: End) -> Result:
    """Exactly one run_ended, and the result."""
    envelope, progress, recorder = run.envelope, run.progress, run.recorder
    recorder.ended = True
    try:
        run.emit_refusals()
        run.call_hooks(Point.RUN_ENDED, end.stop)
    finally:  # Ctrl-C may come inside a hook
        if run.spec.children.specs:
            run.admission.close()
        envelope.close()
        flags = envelope.flags
        budgets = envelope.final_snapshots()
        recorder.emit(event.RunEnded, end.stop, end.by, flags, run.turns, progress.requests, budgets)
    plan, purse = run.plan, run.spending
    return Result(
        stop=end.stop,
        text=progress.text if end.text is None else end.text,
        output=end.output,
        stopped_by=end.by,
        flags=flags,
        warning=end.warning,
        turns=run.turns,
        requests=progress.requests,
        messages=tuple(run.history),
        tool_results=tuple(progress.results),
        last_calls=tuple(progress.calls),
        usage=purse.usage,
        cost=purse.costs,
        unpriced=purse.unpriced,
        estimated_requests=purse.estimated_requests,
        budgets=budgets,
        events=recorder.recorded_events,
        events_dropped=recorder.dropped,
        sink_errors=recorder.sink_errors,
        finish=run.finish,
        hung=max(0, run.hung),
        state=run.state,
        sensitive=run.spec.tools.sensitive,
        completion=describe_completion(run, end.stop),
        reflections=tuple(run.reflections),
        faults=tuple(run.faults),
        children=tuple(run.children),
        questions=tuple(run.questions) if end.stop is Stop.PAUSED else (),
        error=end.error,
        run_id=plan.run_id,
        session_id=plan.session_id,
        metadata=plan.metadata,
        seconds=run.clock.at,
    )
