"""The calls of one turn: each is prepared, made and finalised in the order asked, and gets exactly one outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..event import Refunded, ToolStarted
from ..outcome import Cancelled, Denied, Ended, Outcome, Reason, Success, Timeout
from ..progress import Point
from ..request import Call, Finish
from . import approval, children, duplicates, shared_budget
from .effects import Act, Flow
from .plan import Prepared
from .state import RunState

_CALLED = Point.TOOL_CALLED  # found once: see course.py


def act(course: RunState, calls: Sequence[Call]) -> Flow[Sequence[Outcome]]:
    """Make the calls: those that may stand side by side together, group after group; a person has decided by then."""
    outcomes: list[Outcome] = []
    course.progress.outcomes = outcomes
    group_n = course.next_n if len(calls) > 1 else None
    within, admission = course.plan.within, course.admission
    for group in admission.groups(calls):
        prepared: list[Prepared | Outcome] = []
        for call in group:
            one = _read(course, call)
            if not isinstance(one, Ended):
                one = (yield from _granted(course, one)) if within else admission.claim(one) or one
            if course.witness is not None and isinstance(one, Ended):
                course.witness.withdraw(one)
            prepared.append(one)
        if within:
            prepared = _still_wanted(course, prepared)
        ready: list[Prepared] = []
        for one in prepared:
            if not isinstance(one, Ended):
                ready.append(one)
                course.recorder.emit(ToolStarted, one.call.id, one.call.name, one.shown)
        if course.shared.may_delegate:
            children.begin(course, ready)
        effect = Act(ready, course.envelope.work_at)
        made = iter(course.hear(effect, (yield effect)) if ready else ())
        if course.shared.may_delegate:
            made = children.ended(course, ready, made)
        for place, one in enumerate(prepared):
            call, tool = group[place], None
            if isinstance(one, Ended):
                outcome = one
            else:
                tool, outcome = one.tool, _finalised(course, one, next(made))
            if course.verdicts:
                approval.mark(course, call, outcome)
            outcomes.append(outcome)
            if course.witness is not None:
                course.witness.settle(outcome)
            course.end_call(outcome, group_n)
            duplicates.learn(course, call, outcome, tool)
        if len(ready) < len(prepared):
            course.tell_refusals()
    return outcomes


def _still_wanted(course: RunState, prepared: list[Prepared | Outcome]) -> list[Prepared | Outcome]:
    """The same; but if the run was called off, or its time ended, while others were asked, none is made any more."""
    late = _too_late(course)
    if late is None:
        return prepared
    kept: list[Prepared | Outcome] = []
    for one in prepared:
        if not isinstance(one, Ended):
            for budget in course.admission.unclaim(one, "call_never_made"):
                course.recorder.emit(Refunded, budget, 1, "call_never_made")
            if course.plan.within:
                shared_budget.give_back(course, "call_never_made", one.counts)
            one = late(one.call)
        kept.append(one)
    return kept


def _too_late(course: RunState) -> Callable[[Call], Outcome] | None:
    if course.called_off() is not None:
        return lambda call: Cancelled(call_id=call.id, tool=call.name)
    if course.time_up or course.envelope.is_expired():
        course.envelope.refuse("seconds")
        return lambda call: _denied(call, Reason.DEADLINE, "the time for work is over")
    return None


def deny(course: RunState, calls: Sequence[Call], reason: Reason, message: str) -> list[Outcome]:
    """Answer calls without making them."""
    outcomes: list[Outcome] = []
    course.progress.outcomes = outcomes
    group_n = course.next_n if len(calls) > 1 else None
    for call in calls:
        outcomes.append(_denied(call, reason, message))
        course.end_call(outcomes[-1], group_n)
    return outcomes


def deny_cut(course: RunState, calls: Sequence[Call], finish: Finish) -> list[Outcome]:
    """Answer the calls of a reply that did not come to its end: half of what was meant must not be done."""
    if finish is Finish.LENGTH:
        why = "the reply was cut off at its greatest length. Ask again, with less in one reply"
        return deny(course, calls, Reason.VALIDATION, f"{why}; nothing of it was run.")
    if finish is Finish.CONTENT_FILTER:
        return deny(course, calls, Reason.BLOCKED, "the provider's filter stopped the reply")
    return deny(course, calls, Reason.DEADLINE, "the reply was cut off before its end")


def _read(course: RunState, call: Call) -> Prepared | Outcome:
    """What is decided of a call without asking anybody outside; it is not counted yet."""
    if course.cancelled is not None or course.lease_lost:
        return Cancelled(call_id=call.id, tool=call.name)
    if course.time_up:
        course.envelope.refuse("seconds")
        return _denied(call, Reason.DEADLINE, "the time for work is over")
    ready = course.admission.read(call)
    round = duplicates.denied(course, call, ready)
    if round is not None or isinstance(ready, Ended):
        return round or ready
    known = duplicates.answered(course, call, ready.tool)
    if known is not None:
        return known
    if call.name in course.shared.asking or course.shared.rules_ask:
        unapproved = approval.unapproved(course, call)
        if unapproved is not None:
            return unapproved
        ready.answer = course.verdicts[call.id].text
    if course.hooks:
        veto = course.consult(_CALLED, call)
        if veto is not None:
            return _denied(call, Reason.RULE, veto.message)
        if course.halt is not None:
            return _denied(call, Reason.RULE, course.halt.message or "the run is halted")
    if course.witness is not None:
        why = course.witness.see(call.id, call.name, ready.values)
        if why is not None:
            return _denied(call, Reason.RULE, why)
    return ready


def _granted(course: RunState, ready: Prepared) -> Flow[Prepared | Outcome]:
    """The call, if its own and the shared budgets allow it.

    Its own are looked at first: what is taken there and given back again would use up the refunds, which are bounded.
    """
    short = course.admission.short(ready)
    if short is not None:
        return short
    refusal = yield from shared_budget.take(course, **ready.counts)
    if refusal is not None:
        return _denied(ready.call, Reason.BUDGET, refusal.warning)
    return course.admission.claim(ready) or ready


def _finalised(course: RunState, ready: Prepared, outcome: Outcome) -> Outcome:
    """The outcome; what the call has set is in the state then."""
    if isinstance(outcome, Success):
        for key, value in outcome.changes.items():
            if value is None:
                course.state.pop(key, None)
            else:
                course.state[key] = value
        return outcome
    course.admission.note(ready.tool.name, outcome)
    if isinstance(outcome, Timeout | Cancelled):
        course.hung += outcome.hung
    return outcome


def _denied(call: Call, reason: Reason, message: str) -> Denied:
    return Denied(call_id=call.id, tool=call.name, reason=reason, message=message)
