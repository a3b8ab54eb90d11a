"""One turn: a request to the model, and the calls it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from .. import event
from ..outcome import Denied, Outcome, Reason
from ..progress import Point
from ..request import Call, Finish, Reply
from ..result import Stop
from . import duplicates, shared_budget
from .approval import ask_to_continue, request_approvals
from .completion import check_early_completion, handle_final_reply
from .effects import Flow
from .ending import ContinueReason, End
from .model_request import ask_model
from .state import RunState
from .tool_calls import deny_calls, deny_incomplete, make_calls

# Found once: see course.py.
_STARTED, _ENDED = Point.TURN_STARTED, Point.TURN_ENDED
_INCOMPLETE = (Finish.LENGTH, Finish.CONTENT_FILTER, Finish.CUT)
_TOOLS_RAN = ContinueReason.TOOLS_RAN


def take_turn(run: RunState) -> Flow[ContinueReason | End]:
    """Claim a turn, and take it."""
    end = run.check_end()
    if end is not None:
        return end
    run.shared_turn_claimed, run.refund_reason = False, None
    if not run.envelope.claim_step():
        end = run.refuse_budget("turns")
        if not run.envelope.claim_step():  # a rule may have given more, when it heard of that
            return end
    run.progress.turn += 1
    run.recorder.turn = run.progress.turn
    run.recorder.emit(event.TurnStarted)
    requests = run.progress.requests
    try:
        if run.hooks:
            run.call_hooks(_STARTED)
        going = yield from _run_turn(run)
        if run.hooks:
            run.call_hooks(_ENDED)
    except BaseException:
        if run.progress.requests == requests:
            run.refund_turn("round_never_started")
        run.cancel_open_calls()
        raise
    finally:
        run.recorder.emit(event.TurnEnded)
    if run.shared_turn_claimed and run.refund_reason is not None:
        shared_budget.refund(run, run.refund_reason, {"turns": 1})
    return check_continue(run, going) if isinstance(going, ContinueReason) else going


def _run_turn(run: RunState) -> Flow[ContinueReason | End]:
    if run.rule_questions:
        yield from ask_to_continue(run)
    end = run.check_end() or (End(Stop.PAUSED) if run.questions else None)
    if end is not None:  # a hook or a person halted it before anything was asked
        run.refund_turn("round_never_started")
        return end
    reply = yield from ask_model(run)
    if not isinstance(reply, Reply):
        return reply
    run.turns += 1
    calls = run.add_reply(reply)
    if not calls:
        run.progress.outcomes = ()
        end = handle_final_reply(run, reply)
        if end is not None:
            return end
        return ContinueReason.STEERED if run.add_steered() else ContinueReason.NUDGED
    return (yield from _handle_calls(run, reply, calls))


def _handle_calls(run: RunState, reply: Reply, calls: Sequence[Call]) -> Flow[ContinueReason | End]:
    if reply.finish in _INCOMPLETE:
        outcomes: Sequence[Outcome] = deny_incomplete(run, calls, reply.finish)
        if reply.finish is not Finish.LENGTH:
            return handle_final_reply(run, reply) or ContinueReason.ANSWERED
    else:
        if run.spec.tools.need_approval or run.spec.rules.need_approval:
            calls = yield from request_approvals(run, calls)
        if run.questions and not run.is_over():
            deny_calls(run, calls, Reason.APPROVAL, "the run waits for a person, and until then no call is made")
            return run.check_end() or End(Stop.PAUSED)
        outcomes = yield from make_calls(run, calls)
    if run.spec.completion.assertions is not None:
        end = check_early_completion(run)  # what was proved in time counts, even if the time is over now
        if end is not None:
            return end
    ran = False
    for outcome in outcomes:
        ran = ran or type(outcome) is not Denied
    end = run.check_end()
    if not ran and (end is None or end.stop is Stop.HALTED):
        end = _check_calls_exhausted(run, outcomes) or end
    if end is None and run.repetition.stalled:
        end = duplicates.check_stalled(run)
    if end is not None:
        return end
    cheap = run.spec.tools.cheap
    if ran and cheap and cheap.issuperset(outcome.tool for outcome in outcomes):
        run.refund_turn("cheap_round")
    if run.steered:
        run.add_steered()
    return _TOOLS_RAN if ran else ContinueReason.ANSWERED


def _check_calls_exhausted(run: RunState, outcomes: Sequence[Outcome]) -> End | None:
    """When a whole batch was denied because no call is left, there is nothing to go on with."""
    denied = [outcome for outcome in outcomes if isinstance(outcome, Denied) and outcome.reason is Reason.BUDGET]
    if len(denied) < len(outcomes):
        return None
    refused = {refusal.budget for refusal in run.envelope.refusals}
    spent = run.plan.has_shared_budget or run.envelope.budgets["tool_calls"].exceeded
    return run.refuse_budget("tool_calls") if spent and "tool_calls" in refused else None


def check_continue(run: RunState, reason: ContinueReason) -> ContinueReason | End:
    """A turn that would be followed by another: whether the caller wants that."""
    end = run.check_end()
    if end is not None or reason is ContinueReason.SHORTENED:  # which was no turn
        return end or reason
    behaviour = run.spec.behaviour
    if behaviour.single_turn:
        return End(Stop.HALTED, by="single_turn")
    should_continue = behaviour.should_continue
    if should_continue is not None and not should_continue(run.progress):
        return End(Stop.HALTED, by="should_continue")
    return reason
