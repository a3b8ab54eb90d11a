"""`converse()`: one run as a generator that yields effects and receives their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from .. import event
from ..errors import describe_error
from ..progress import Point
from ..recorder import Recorder
from ..result import Result, Stop, read_facts
from . import shared_budget
from .approval import ask_for_extension
from .background import abandon_open, close_background, continue_turns
from .completion import check_required_tools, describe_completion
from .effects import Flow
from .ending import ContinueReason, End
from .fallback import change_to_ready
from .grace import take_grace_turn
from .orders import call_hooks, emit_count_changes, emit_refusals
from .plan import Plan
from .reflection import reflect
from .state import RunState
from .stopping import check_end
from .turn import check_continue, take_turn

_STOP_ORDER = list(Stop)
_COMPLETED = Stop.COMPLETED  # a global is faster than an enum member
EXTENDABLE_STOPS = (Stop.BUDGET, Stop.DEADLINE)
"""Stop reasons that a raised limit can continue from."""


def converse(plan: Plan, recorder: Recorder) -> Flow[Result]:
    """Run a plan from its task to its result. An exception inside ends the run as failed."""
    run = RunState(plan, recorder)
    recorder.emit(event.RunStarted, _read_initial_limits(run), run.spec.name)
    try:
        try:
            end = yield from _run_turns(run)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # a CancelledError here is a callback's own: the loop has no task to cancel
            end = yield from _close_run(run, End(Stop.FAILED, error=describe_error(error)))
    except BaseException:  # it is closed from outside, or Ctrl-C came inside a callback
        _build_result(run, End(Stop.CANCELLED, by="closed"))
        raise
    return _build_result(run, end)


def _read_initial_limits(run: RunState) -> Mapping[str, Any]:
    """Return the ceilings and the time, mostly those that all runs of this agent start with."""
    if run.plan.level:  # a child may have less
        return run.budget.snapshot()
    shown, seconds = run.spec.limits_snapshot, run.budget.remaining_s()
    if shown.get("remaining_s") == seconds > 0:
        return shown
    return {**shown, "remaining_s": None if seconds == inf else seconds, "expired": seconds <= 0}


def _run_turns(run: RunState) -> Flow[End]:
    """Take turns until the end. It is decided after everything is saved, so that signals until then still count."""
    next_step, behaviour, has_transcript = _check_start(run), run.spec.behaviour, run.plan.has_transcript
    while True:
        while next_step is None or isinstance(next_step, ContinueReason):
            next_step = yield from take_turn(run)
            if run.background is not None:
                next_step = yield from continue_turns(run, run.background, next_step)
            if behaviour.checks_turns and isinstance(next_step, ContinueReason):
                next_step = check_continue(run, next_step)
            if has_transcript and not _is_paused(next_step):
                yield from run.append_to_transcript()
            if run.reflections is not None and isinstance(next_step, ContinueReason):
                yield from reflect(run, run.reflections)
        if behaviour.asks_for_extension and _can_extend(run, next_step):
            next_step = yield from ask_for_extension(run, next_step)
            if next_step is None:
                continue
        end = yield from _close_run(run, next_step)
        if end.budget in run.signals.extended and _can_extend(run, end):
            run.budget.restore_reserve()
            run.messages.estimate(run.model.card.base_tokens)  # the report was fitted into less, and had no tools
            next_step = None
        elif end.stop is not _COMPLETED or not run.add_steered():
            return end
        else:
            next_step = check_continue(run, ContinueReason.STEERED)


def _can_extend(run: RunState, end: End) -> bool:
    """Return True if a raised limit lets the run continue. A run of a single turn has had it."""
    return end.stop in EXTENDABLE_STOPS and not (run.spec.behaviour.single_turn and run.progress.turn)


def _close_run(run: RunState, end: End) -> Flow[End]:
    """Return the end with its report, after everything is saved, steered texts included."""
    end = _select_strongest_end(run, end)
    run.signals.forget_extended()
    if run.background is not None:
        yield from close_background(run, run.background, end)
        end = _select_strongest_end(run, end)
    if end.stop is not _COMPLETED:
        run.add_steered()
        end = yield from take_grace_turn(run, end)
    if run.shared is not None:
        yield from shared_budget.flush(run)
    while True:
        if run.plan.has_transcript and not _is_paused(end):
            yield from run.append_to_transcript()
        if end.stop is _COMPLETED or not run.add_steered():
            return _select_strongest_end(run, end)


def _is_paused(end: object) -> bool:
    """Return True if the run waits for a person: its last turn is not over, so its messages are not saved yet."""
    return isinstance(end, End) and end.stop is Stop.PAUSED


def _check_start(run: RunState) -> End | None:
    not_started = run.plan.not_started
    if not_started is None or not_started.stop is not Stop.CONTENDED:  # no hook sees a run without its session
        call_hooks(run, Point.RUN_STARTED)
    if not_started is not None:
        return not_started
    unprovable = check_required_tools(run)
    if unprovable is not None:
        return unprovable
    reason = run.model.facts.ready()
    if reason is None or change_to_ready(run, reason):
        return None
    return End(Stop.FAILED, error={"code": "model_not_ready", "kind": "ModelError", "message": reason})


def _select_strongest_end(run: RunState, end: End) -> End:
    """Return a stronger end if one was requested meanwhile: a cancel, or an order of a hook."""
    late = run.signals.find_end()
    if late is None or late.stop is Stop.STALLED or _STOP_ORDER.index(late.stop) >= _STOP_ORDER.index(end.stop):
        return end
    if late.stop is Stop.HALTED:  # the time may be over too, and goes before
        late = check_end(run) or late
    return replace(late, text=end.text)


def _build_result(run: RunState, end: End) -> Result:
    """Emit the one `run_ended`, and build the result."""
    budget, progress, recorder = run.budget, run.progress, run.recorder
    recorder.ended = True
    try:
        emit_refusals(run)
        call_hooks(run, Point.RUN_ENDED, end.stop)
        if budget.has_count_changes:
            emit_count_changes(run)
    finally:  # Ctrl-C may come inside a hook
        if run.background is not None:
            abandon_open(run, run.background)
        if run.spec.children.specs:
            run.admission.close()
        budget.close()
        flags = budget.flags
        budgets = budget.final_snapshots()
        recorder.emit(event.RunEnded, end.stop, end.by, flags, run.turns, progress.requests, budgets)
    plan = run.plan
    return Result(
        stop=end.stop,
        text=progress.text if end.text is None else end.text,
        output=end.output,
        stopped_by=end.by,
        flags=flags,
        warning=end.warning,
        turns=run.turns,
        requests=progress.requests,
        messages=tuple(run.messages.history),
        tool_results=tuple(progress.results),
        last_calls=tuple(progress.calls),
        budgets=budgets,
        finish=run.messages.finish,
        hung=max(0, run.hung),
        state=run.state,
        sensitive=run.spec.tools.sensitive,
        completion=describe_completion(run, end.stop),
        unsupported=end.unsupported,
        reflections=() if run.reflections is None else tuple(run.reflections.texts),
        faults=tuple(run.hooks.faults),
        fallbacks=run.model.changes,
        children=tuple(run.children),
        cancelled_children=() if run.background is None else run.background.cancelled,
        questions=tuple(run.approvals.questions) if end.stop is Stop.PAUSED else (),
        error=end.error,
        run_id=plan.run_id,
        session_id=plan.session_id,
        metadata=plan.metadata,
        seconds=run.clock.at,
        **read_facts(run.spending, recorder),
    )
