"""One turn: a request to the model, and the calls it asks for."""

from __future__ import annotations

from collections.abc import Sequence

from .. import event
from ..outcome import Denied, Outcome, Reason
from ..progress import Point
from ..request import Call, Finish, Reply
from ..result import Stop
from . import duplicates, shared_budget
from .approval import ask_about, ask_to_go_on
from .completion import conclude, done_early
from .effects import Flow
from .ending import Continue, End
from .model_request import ask
from .state import RunState
from .tool_calls import act, deny, deny_cut

# Found once: see course.py.
_STARTED, _ENDED = Point.TURN_STARTED, Point.TURN_ENDED
_NOT_WHOLE = (Finish.LENGTH, Finish.CONTENT_FILTER, Finish.CUT)
_TOOLS_RAN = Continue.TOOLS_RAN


def take_turn(course: RunState) -> Flow[Continue | End]:
    """Claim a turn, and take it."""
    end = course.must_end()
    if end is not None:
        return end
    course.granted, course.owed = False, None
    if not course.envelope.claim_step():
        end = course.refused("turns")
        if not course.envelope.claim_step():  # a rule may have given more, when it heard of that
            return end
    course.progress.turn += 1
    course.recorder.turn = course.progress.turn
    course.recorder.emit(event.TurnStarted)
    try:
        if course.hooks:
            course.consult(_STARTED)
        going = yield from _taken(course)
        if course.hooks:
            course.consult(_ENDED)
    except BaseException:
        course.abandon_calls()
        raise
    finally:
        course.recorder.emit(event.TurnEnded)
    if course.granted and course.owed is not None:
        shared_budget.give_back(course, course.owed, {"turns": 1})
    return or_end(course, going) if isinstance(going, Continue) else going


def _taken(course: RunState) -> Flow[Continue | End]:
    if course.asks:
        yield from ask_to_go_on(course)
    end = course.must_end() or (End(Stop.PAUSED) if course.questions else None)
    if end is not None:  # a hook or a person halted it before anything was asked
        course.refund_turn("round_never_started")
        return end
    reply = yield from ask(course)
    if not isinstance(reply, Reply):
        return reply
    course.turns += 1
    calls = course.say_reply(reply)
    if not calls:
        course.progress.outcomes = ()
        end = conclude(course, reply)
        if end is not None:
            return end
        return Continue.STEERED if course.put_steered() else Continue.NUDGED
    return (yield from _answer_calls(course, reply, calls))


def _answer_calls(course: RunState, reply: Reply, calls: Sequence[Call]) -> Flow[Continue | End]:
    if reply.finish in _NOT_WHOLE:
        outcomes: Sequence[Outcome] = deny_cut(course, calls, reply.finish)
        if reply.finish is not Finish.LENGTH:
            return conclude(course, reply) or Continue.ANSWERED
    else:
        if course.shared.asking or course.shared.rules_ask:
            calls = yield from ask_about(course, calls)
        if course.questions and not course.is_over():
            deny(course, calls, Reason.APPROVAL, "the run waits for a person, and until then no call is made")
            return course.must_end() or End(Stop.PAUSED)
        outcomes = yield from act(course, calls)
    shared = course.shared
    if shared.assertions is not None:
        end = done_early(course)  # what was proved in time counts, even if the time is over now
        if end is not None:
            return end
    ran = False
    for outcome in outcomes:
        ran = ran or type(outcome) is not Denied
    end = course.must_end()
    if not ran and (end is None or end.stop is Stop.HALTED):
        end = _out_of_calls(course, outcomes) or end
    if end is None and course.repetition.stalled:
        end = duplicates.stalled(course)
    if end is not None:
        return end
    if ran and shared.cheap and shared.cheap.issuperset(outcome.tool for outcome in outcomes):
        course.refund_turn("cheap_round")
    if course.steered:
        course.put_steered()
    return _TOOLS_RAN if ran else Continue.ANSWERED


def _out_of_calls(course: RunState, outcomes: Sequence[Outcome]) -> End | None:
    """When a whole batch was denied because no call is left, there is nothing to go on with."""
    denied = [outcome for outcome in outcomes if isinstance(outcome, Denied) and outcome.reason is Reason.BUDGET]
    if len(denied) < len(outcomes):
        return None
    refused = {refusal.budget for refusal in course.envelope.refusals}
    spent = course.plan.within or course.envelope.budgets["tool_calls"].exceeded
    return course.refused("tool_calls") if spent and "tool_calls" in refused else None


def or_end(course: RunState, going: Continue) -> Continue | End:
    """A turn that would be followed by another: whether the caller wants that."""
    end = course.must_end()
    if end is not None or going is Continue.SHORTENED:  # which was no turn
        return end or going
    if course.shared.single_turn:
        return End(Stop.HALTED, by="single_turn")
    should_continue = course.shared.should_continue
    if should_continue is not None and not should_continue(course.progress):
        return End(Stop.HALTED, by="should_continue")
    return going
