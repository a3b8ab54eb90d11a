"""The calls of one turn: each is prepared, made and finalised in the order asked, and gets exactly one outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..event import Refunded, ToolStarted
from ..outcome import BaseOutcome, Cancelled, Denied, Outcome, Reason, Success, Timeout
from ..progress import Point
from ..request import Call, Finish
from . import approval, children, duplicates, shared_budget
from .effects import Act, Flow
from .plan import Prepared
from .state import RunState

_CALLED = Point.TOOL_CALLED  # found once: see course.py


def make_calls(run: RunState, calls: Sequence[Call]) -> Flow[Sequence[Outcome]]:
    """Make the calls: those that may stand side by side together, group after group; a person has decided by then."""
    outcomes: list[Outcome] = []
    run.progress.outcomes = outcomes
    group_n = run.next_n if len(calls) > 1 else None
    within, admission = run.plan.has_shared_budget, run.admission
    for group in admission.group_calls(calls):
        prepared: list[Prepared | Outcome] = []
        for call in group:
            one = _prepare_call(run, call)
            if not isinstance(one, BaseOutcome):
                one = (yield from _claim_call(run, one)) if within else admission.claim(one) or one
            if run.evidence is not None and isinstance(one, BaseOutcome):
                run.evidence.withdraw(one)
            prepared.append(one)
        if within:
            prepared = _drop_if_late(run, prepared)
        ready: list[Prepared] = []
        for one in prepared:
            if not isinstance(one, BaseOutcome):
                ready.append(one)
                run.recorder.emit(ToolStarted, one.call.id, one.call.name, one.redacted_arguments)
        if run.spec.tools.may_delegate:
            children.start_children(run, ready)
        effect = Act(ready, run.envelope.work_at)
        made = iter(run.receive(effect, (yield effect)) if ready else ())
        if run.spec.tools.may_delegate:
            made = children.settle_children(run, ready, made)
        for place, one in enumerate(prepared):
            call, tool = group[place], None
            if isinstance(one, BaseOutcome):
                outcome = one
            else:
                tool, outcome = one.tool, _finalize_outcome(run, one, next(made))
            if run.verdicts:
                approval.note_changed_arguments(run, call, outcome)
            outcomes.append(outcome)
            if run.evidence is not None:
                run.evidence.record_outcome(outcome)
            run.record_outcome(outcome, group_n)
            duplicates.record_outcome(run, call, outcome, tool)
        if len(ready) < len(prepared):
            run.emit_refusals()
    return outcomes


def _drop_if_late(run: RunState, prepared: list[Prepared | Outcome]) -> list[Prepared | Outcome]:
    """The same; but if the run was called off, or its time ended, while others were asked, none is made any more."""
    late = _check_too_late(run)
    if late is None:
        return prepared
    kept: list[Prepared | Outcome] = []
    for one in prepared:
        if not isinstance(one, BaseOutcome):
            for budget in run.admission.refund(one, "call_never_made"):
                run.recorder.emit(Refunded, budget, 1, "call_never_made")
            if run.plan.has_shared_budget:
                shared_budget.refund(run, "call_never_made", one.counts)
            one = late(one.call)
        kept.append(one)
    return kept


def _check_too_late(run: RunState) -> Callable[[Call], Outcome] | None:
    if run.check_cancelled() is not None:
        return lambda call: Cancelled(call_id=call.id, tool=call.name)
    if run.time_up or run.envelope.is_expired():
        run.envelope.refuse("seconds")
        return lambda call: _build_denied(call, Reason.DEADLINE, "the time of the run is up")
    return None


def deny_calls(run: RunState, calls: Sequence[Call], reason: Reason, message: str) -> list[Outcome]:
    """Answer calls without making them."""
    outcomes: list[Outcome] = []
    run.progress.outcomes = outcomes
    group_n = run.next_n if len(calls) > 1 else None
    for call in calls:
        outcomes.append(_build_denied(call, reason, message))
        run.record_outcome(outcomes[-1], group_n)
    return outcomes


def deny_incomplete(run: RunState, calls: Sequence[Call], finish: Finish) -> list[Outcome]:
    """Answer the calls of a reply that did not come to its end: half of what was meant must not be done."""
    if finish is Finish.LENGTH:
        why = "the reply was cut off at its maximum length, so none of its calls was made. Send less in one reply."
        return deny_calls(run, calls, Reason.VALIDATION, why)
    if finish is Finish.CONTENT_FILTER:
        return deny_calls(run, calls, Reason.BLOCKED, "the provider's filter stopped the reply")
    return deny_calls(run, calls, Reason.DEADLINE, "the reply was cut off before its end")


def _prepare_call(run: RunState, call: Call) -> Prepared | Outcome:
    """What is decided of a call without asking anybody outside; it is not counted yet."""
    if run.cancelled is not None or run.lease_lost:
        return Cancelled(call_id=call.id, tool=call.name)
    if run.time_up:
        run.envelope.refuse("seconds")
        return _build_denied(call, Reason.DEADLINE, "the time of the run is up")
    ready = run.admission.read(call)
    round = duplicates.check_loop(run, call, ready)
    if round is not None or isinstance(ready, BaseOutcome):
        return round or ready
    known = duplicates.answer_duplicate(run, call, ready.tool)
    if known is not None:
        return known
    if call.name in run.spec.tools.need_approval or run.spec.rules.need_approval:
        unapproved = approval.check_approval(run, call)
        if unapproved is not None:
            return unapproved
        ready.answer = run.verdicts[call.id].text
    if run.hooks:
        veto = run.call_hooks(_CALLED, call)
        if veto is not None:
            return _build_denied(call, Reason.RULE, veto.message)
        if run.halt is not None:
            return _build_denied(call, Reason.RULE, run.halt.message or "the run is halted")
    if run.evidence is not None:
        why = run.evidence.check_call(call.id, call.name, ready.values)
        if why is not None:
            return _build_denied(call, Reason.RULE, why)
    return ready


def _claim_call(run: RunState, prepared: Prepared) -> Flow[Prepared | Outcome]:
    """The call, if its own and the shared budgets allow it.

    Its own are looked at first: what is taken there and given back again would use up the refunds, which are bounded.
    """
    short = run.admission.check_budget(prepared)
    if short is not None:
        return short
    refusal = yield from shared_budget.claim(run, **prepared.counts)
    if refusal is not None:
        return _build_denied(prepared.call, Reason.BUDGET, refusal.warning)
    return run.admission.claim(prepared) or prepared


def _finalize_outcome(run: RunState, prepared: Prepared, outcome: Outcome) -> Outcome:
    """The outcome; what the call has set is in the state then."""
    if isinstance(outcome, Success):
        for key, value in outcome.changes.items():
            if value is None:
                run.state.pop(key, None)
            else:
                run.state[key] = value
        return outcome
    run.admission.note(prepared.tool.name, outcome)
    if isinstance(outcome, Timeout | Cancelled):
        run.hung += outcome.hung
    return outcome


def _build_denied(call: Call, reason: Reason, message: str) -> Denied:
    return Denied(call_id=call.id, tool=call.name, reason=reason, message=message)
