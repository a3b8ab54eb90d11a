"""One turn: a request to the model, and the calls it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from ..budget.forecast import describe_forecast
from ..event import BudgetWarned, TurnEnded, TurnStarted
from ..outcome import Denied, Outcome, Reason
from ..progress import Point
from ..request import Call, Finish, Reply
from ..result import Stop
from . import duplicates
from .approval import ask_to_continue, request_approvals
from .completion import check_after_calls, handle_final_reply
from .effects import Flow
from .ending import ContinueReason, End
from .model_request import ask_model
from .orders import call_hooks, emit_count_changes
from .state import RunState
from .stopping import check_end, is_over, refuse_budget
from .tool_calls import cancel_open_calls, deny_calls, deny_incomplete, make_calls, plan_client_calls

# Globals are faster than enum members on Python 3.11.
_STARTED, _ENDED = Point.TURN_STARTED, Point.TURN_ENDED
_CALLS, _INCOMPLETE = Finish.CALLS, (Finish.LENGTH, Finish.CONTENT_FILTER, Finish.REFUSAL, Finish.CUT)
_TOOLS_RAN = ContinueReason.TOOLS_RAN
_WEAKER_THAN_BUDGET = (Stop.HALTED, Stop.STALLED)


def take_turn(run: RunState) -> Flow[ContinueReason | End]:
    """Claim a turn, and take it. Return why the run continues, or its end."""
    end = _start_turn(run)
    if end is not None:
        return end
    progress, hooks, signals, changes = run.progress, run.hooks, run.signals, run.budget.changes
    requests = progress.requests
    try:
        call_hooks(run, _STARTED)
        if changes is not None and changes.counts:
            emit_count_changes(run)
        if hooks.questions:
            yield from ask_to_continue(run)
        if signals.has_stop or run.approvals.questions:  # a hook or a person may have halted it before the request
            end = _check_before_request(run)
        next_step = end or (yield from ask_model(run))
        if isinstance(next_step, Reply):
            run.turns += 1
            calls, finish = run.add_reply(next_step), next_step.finish
            if not calls or (finish is not _CALLS and finish in _INCOMPLETE):
                next_step = _finish_reply(run, next_step, calls)
            elif run.spec.may_need_approval:
                next_step = yield from _make_approved_calls(run, calls)
            else:
                next_step = _finish_calls(run, (yield from make_calls(run, calls)))
        call_hooks(run, _ENDED)
    except BaseException:
        if progress.requests == requests:
            run.refund_turn("round_never_started")
        cancel_open_calls(run)
        raise
    finally:
        run.recorder.emit(TurnEnded)
    if run.shared is not None:
        run.shared.end_turn()
    return next_step


def _start_turn(run: RunState) -> End | None:
    """Claim a turn and start it. Return the end of the run if there is none."""
    end = check_end(run) if run.signals.has_stop else None
    if end is not None:
        return end
    budget, progress, recorder = run.budget, run.progress, run.recorder
    if run.shared is not None:
        run.shared.start_turn()
    if not budget.claim_step():
        end = refuse_budget(run, "turns")
        if not budget.claim_step():  # a rule may have raised the limit when it heard of that
            return end
    progress.turn += 1
    recorder.start_turn(progress.turn)
    recorder.emit(TurnStarted)
    rules, is_due = run.spec.rules, budget.take_changes(run.clock.at)
    run.hooks.due_points = rules.points if is_due else rules.quiet_points
    if is_due:
        for warning in budget.warnings.take(budget, run.clock.at):
            forecast = progress.forecast if recorder.is_watched else None
            recorder.emit(BudgetWarned, *warning, *describe_forecast(forecast))
    return None


def _check_before_request(run: RunState) -> End | None:
    """Return the end of a run that was halted, or waits for a person, before the request of its turn."""
    end = check_end(run) or (End(Stop.PAUSED) if run.approvals.questions else None)
    if end is not None:
        run.refund_turn("round_never_started")
    return end


def _finish_reply(run: RunState, reply: Reply, calls: Sequence[Call]) -> ContinueReason | End:
    """Return why the run continues after a reply without calls to make, or its end."""
    if not calls:
        run.progress.outcomes = ()
        end = handle_final_reply(run, reply)
        if end is not None:
            return end
        return ContinueReason.STEERED if run.add_steered() else ContinueReason.NUDGED
    outcomes = deny_incomplete(run, calls, reply.finish)
    if reply.finish is Finish.LENGTH:
        return _finish_calls(run, outcomes)
    return handle_final_reply(run, reply) or ContinueReason.ANSWERED


def _make_approved_calls(run: RunState, calls: Sequence[Call]) -> Flow[ContinueReason | End]:
    """Make the calls that a person approves. Return why the run continues, or its end."""
    calls = yield from request_approvals(run, calls)
    yield from plan_client_calls(run, calls)
    if run.approvals.questions and not is_over(run):
        deny_calls(run, calls, Reason.APPROVAL, "the run waits for a person, and until then no call is made")
        return check_end(run) or End(Stop.PAUSED)
    return _finish_calls(run, (yield from make_calls(run, calls)))


def _finish_calls(run: RunState, outcomes: Sequence[Outcome]) -> ContinueReason | End:
    """Return why the run continues after its calls, or its end."""
    ran = False
    for outcome in outcomes:
        if type(outcome) is not Denied:
            ran = True
            break
    if ran and run.completion.checks_calls:
        end = check_after_calls(run)  # what was proved in time counts, even if the time is over now
        if end is not None:
            return end
    end = check_end(run) if run.signals.has_stop else None
    if not ran and (end is None or end.stop in _WEAKER_THAN_BUDGET):
        end = _check_calls_exhausted(run, outcomes) or end
    if end is None and run.repetition.stalled:
        end = duplicates.check_stalled(run)
    if end is not None:
        return end
    cheap_tools = run.spec.tools.cheap
    if ran and cheap_tools and cheap_tools.issuperset(outcome.tool for outcome in outcomes):
        run.refund_turn("cheap_round")
    if run.signals.steered:
        run.add_steered()
    return _TOOLS_RAN if ran else ContinueReason.ANSWERED


def _check_calls_exhausted(run: RunState, outcomes: Sequence[Outcome]) -> End | None:
    """Return the end of a run if a whole batch was denied because no call is left."""
    denied = [outcome for outcome in outcomes if isinstance(outcome, Denied) and outcome.reason is Reason.BUDGET]
    if len(denied) < len(outcomes):
        return None
    refused = {refusal.budget for refusal in run.budget.refusals}
    is_spent = run.shared is not None or run.budget.budgets["tool_calls"].exceeded
    return refuse_budget(run, "tool_calls") if is_spent and "tool_calls" in refused else None


def check_continue(run: RunState, reason: ContinueReason) -> ContinueReason | End:
    """Return the reason to continue, or the end if the run must end or its options want no other turn."""
    end = check_end(run)
    if end is not None or reason is ContinueReason.SHORTENED:  # that was no turn
        return end or reason
    behaviour = run.spec.behaviour
    if behaviour.single_turn:
        return End(Stop.HALTED, by="single_turn")
    should_continue = behaviour.should_continue
    if should_continue is not None and not should_continue(run.progress):
        return End(Stop.HALTED, by="should_continue")
    return reason
