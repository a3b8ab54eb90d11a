"""The tool calls of one turn: each is prepared, made and recorded in the order asked, with exactly one outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..event import Refunded, ToolEnded, ToolStarted
from ..outcome import BaseOutcome, Cancelled, Denied, Outcome, Reason, Status, Success, Timeout
from ..person import Verdict
from ..progress import Point, apply_changes
from ..request import Call, Finish
from . import approval, children, duplicates, shared_budget
from .background import COLLECT, collect_results
from .effects import Act, Flow
from .orders import call_hooks, emit_refusals
from .plan import Prepared
from .recall import offer_recall, read_artifact
from .state import RunState, SharedBudget
from .stopping import check_end, is_over

_NOT_ASKED = "the caller of the run was not asked for its result"
_CALLED, _TOOL_ENDED, _DONE = Point.TOOL_CALLED, Point.TOOL_ENDED, Status.DONE  # globals are faster than enum members


def make_calls(run: RunState, calls: Sequence[Call]) -> Flow[Sequence[Outcome]]:
    """Make the calls of a turn: group after group, those of a group in parallel."""
    outcomes: list[Outcome] = []
    run.progress.outcomes = outcomes
    shared, tools, planned = run.shared, run.spec.tools, run.approvals.planned
    group_n = run.messages.next_n if len(calls) > 1 else None
    for group in run.admission.group_calls(calls):
        started: list[Prepared] = []
        others: dict[str, Outcome] = {}
        """Outcomes of the calls that no driver makes, by call id."""
        for call in group:
            ready = planned.get(call.id) or _prepare_call(run, call)
            if shared is not None and call.id not in planned and not isinstance(ready, BaseOutcome):
                ready = yield from _claim_shared(run, shared, ready)
            if isinstance(ready, BaseOutcome):
                others[call.id] = ready
                if run.evidence is not None:
                    run.evidence.withdraw(ready)
            elif run.background is not None and call.name == COLLECT:
                others[call.id] = yield from collect_results(run, run.background, ready)
            elif tools.recall is not None and call.name == tools.recall["name"]:
                others[call.id] = read_artifact(run, ready)
            else:
                started.append(ready)
        if shared is not None or planned:
            _withdraw_if_over(run, started, others)
        made: Sequence[Outcome] = ()
        if started:
            _record_start(run, started)
            made = run.receive((yield Act(started, run.budget.work_at)))
            if tools.may_delegate:
                children.settle_children(run, started, made)
        _record_group(run, group, group_n, started, made, others, outcomes)
        if others:
            emit_refusals(run)
    return outcomes


def _record_start(run: RunState, started: Sequence[Prepared]) -> None:
    for ready in started:
        run.recorder.emit(ToolStarted, ready.call.id, ready.call.name, ready.redacted_arguments)
    if run.spec.tools.may_delegate:
        children.start_children(run, started)


def _claim_shared(run: RunState, shared: SharedBudget, prepared: Prepared) -> Flow[Prepared | Outcome]:
    """Claim a call in the run's own and in the shared budgets.

    The own ones are checked first: claiming there and refunding would use up the limit of refunds.
    """
    denied = run.admission.check_budget(prepared)
    if denied is not None:
        return denied
    refusal = yield from shared_budget.claim(run, shared, **prepared.counts)
    if refusal is not None:
        return _build_denied(prepared.call, Reason.BUDGET, refusal.warning)
    denied = run.admission.claim(prepared)
    if denied is not None:  # a signal came with the grant
        shared.refund("call_never_made", prepared.counts)
    return denied or prepared


def _withdraw_if_over(run: RunState, started: list[Prepared], others: dict[str, Outcome]) -> None:
    """Withdraw all claimed calls if the run was cancelled, or its time ended, while it waited for an answer."""
    if not is_over(run):
        return
    for ready in started:
        _refund_call(run, ready)
        others[ready.call.id] = _build_too_late(run, ready.call)
    started.clear()


def _refund_call(run: RunState, ready: Prepared) -> None:
    """Refund a claimed call that is not made."""
    for budget in run.admission.refund(ready, "call_never_made"):
        run.recorder.emit(Refunded, budget, 1, "call_never_made")
    if run.shared is not None:
        run.shared.refund("call_never_made", ready.counts)


def plan_client_calls(run: RunState, calls: Sequence[Call]) -> Flow[None]:
    """Claim the calls of client tools, and ask the caller of the run for their results.

    The caller makes a call as soon as it is asked for the result, so whatever may deny the call comes before that.
    """
    planned = run.approvals.planned
    for call in calls:
        prepared = run.admission.read(call)
        if isinstance(prepared, BaseOutcome) or not prepared.tool.is_client:
            continue
        if check_end(run) is not None or duplicates.is_skipped(run, call, prepared):
            run.approvals.verdicts[call.id] = Verdict(False, _NOT_ASKED)
            continue
        ready = _prepare_call(run, call)
        if run.shared is not None and not isinstance(ready, BaseOutcome):
            ready = yield from _claim_shared(run, run.shared, ready)
        if not isinstance(ready, BaseOutcome):
            ready = (yield from _ask_client(run, ready)) or ready
        if isinstance(ready, BaseOutcome) and run.evidence is not None:
            run.evidence.withdraw(ready)
        planned[call.id] = ready


def _ask_client(run: RunState, ready: Prepared) -> Flow[Outcome | None]:
    """Ask for the result of a claimed call. Return its outcome if the caller of the run does not make it."""
    yield from shared_budget.flush(run)
    verdict = None
    if check_end(run) is None:  # a signal may have come with a grant
        verdict = yield from approval.ask_for_result(run, ready)
        if verdict.approved is not False:
            ready.answer = verdict.text
            return None
    _refund_call(run, ready)
    if verdict is None and is_over(run):
        return _build_too_late(run, ready.call)
    return _build_denied(
        ready.call,
        Reason.APPROVAL,
        _NOT_ASKED if verdict is None else verdict.text or "the caller of the run refused it",
    )


def _build_too_late(run: RunState, call: Call) -> Outcome:
    """Return the outcome of a call that is not made because the run is cancelled, or its time is over."""
    if run.signals.is_cancelled:
        return Cancelled(call_id=call.id, tool=call.name)
    run.budget.refuse("seconds")
    return _build_denied(call, Reason.DEADLINE, "the time of the run is up")


def _prepare_call(run: RunState, call: Call) -> Prepared | Outcome:
    """Decide about a call without any effect, and claim it unless its budgets are shared."""
    signals = run.signals
    if signals.has_stop and (signals.is_cancelled or signals.time_up):
        return _build_too_late(run, call)
    prepared = run.admission.read(call)
    if isinstance(prepared, BaseOutcome):
        return duplicates.check_loop(run, call, None) or prepared
    denied = duplicates.check_loop(run, call, prepared.canonical_arguments)
    if denied is not None:
        return denied
    if run.repetition.keeps_results or run.spec.may_need_approval:
        outcome = _answer_duplicate(run, call, prepared) or _check_approval(run, call, prepared)
        if outcome is not None:
            return outcome
    veto = call_hooks(run, _CALLED, call)
    if veto is not None:
        return _build_denied(call, Reason.RULE, veto.message)
    if signals.has_stop and signals.halt is not None:
        return _build_denied(call, Reason.RULE, signals.halt.message or "the run is halted")
    if run.evidence is not None:
        why = run.evidence.check_call(call.id, call.name, prepared.values)
        if why is not None:
            return _build_denied(call, Reason.RULE, why)
    if run.shared is not None:
        return prepared
    return run.admission.claim(prepared) or prepared


def _answer_duplicate(run: RunState, call: Call, prepared: Prepared) -> Outcome | None:
    return duplicates.answer_duplicate(run, call, prepared.tool) if run.repetition.keeps_results else None


def _check_approval(run: RunState, call: Call, prepared: Prepared) -> Denied | None:
    """Deny a call that needs approval and has none. Otherwise note what the person said about it."""
    spec = run.spec
    if call.name not in spec.tools.need_approval and not spec.rules.need_approval:
        return None
    unapproved = approval.check_approval(run, call)
    if unapproved is None:
        prepared.answer = run.approvals.verdicts[call.id].text
    return unapproved


def _record_group(
    run: RunState,
    group: Sequence[Call],
    group_n: int | None,
    started: Sequence[Prepared],
    made: Sequence[Outcome],
    others: Mapping[str, Outcome],
    outcomes: list[Outcome],
) -> None:
    """Record the outcome of each call of a group, in the order asked, and add it to those of the turn."""
    place = 0
    for call in group:
        if call.id in others:
            tool, outcome = None, others[call.id]
            if type(outcome) is Success and outcome.ends_run:  # an equal call's result is reused
                run.completion.note_final_result(outcome)
        else:
            tool, outcome = started[place].tool, made[place]
            place += 1
            if type(outcome) is not Success or outcome.changes or outcome.ends_run or outcome.artifact is not None:
                _apply_outcome(run, outcome)
        if run.approvals.verdicts:
            approval.note_changed_arguments(run, call, outcome)
        outcomes.append(outcome)
        if run.evidence is not None:
            run.evidence.record_outcome(outcome)
        record_outcome(run, outcome, group_n)
        duplicates.record_outcome(run, call, outcome, tool)


def _apply_outcome(run: RunState, outcome: Outcome) -> None:
    """Apply the state changes of a call, or note that it failed or hangs, or was shown in part."""
    if outcome.artifact is not None:
        offer_recall(run, outcome.artifact, outcome)
    if isinstance(outcome, Success):
        apply_changes(run.state, outcome.changes)
        if outcome.ends_run:
            run.completion.note_final_result(outcome)
        return
    run.admission.note(outcome.tool, outcome)
    if isinstance(outcome, Timeout | Cancelled):
        run.hung += outcome.hung


def record_outcome(run: RunState, outcome: Outcome, group: int | None) -> None:
    """Record an outcome in events, messages and counts, and ask the hooks about it."""
    progress, call_id, tool = run.progress, outcome.call_id, outcome.tool
    is_done, reason = type(outcome) is Success, None
    if not is_done or outcome.same_as is not None:
        reason = _find_reason(outcome)
    if run.recorder.sinks:
        run.recorder.show(outcome, run.spec.tools.sensitive)
    run.recorder.emit(ToolEnded, call_id, tool, _DONE if is_done else outcome.status, reason, outcome.seconds)
    run.messages.add_result(call_id, tool, outcome.text, not is_done, group)
    progress.results.append(outcome)
    counts = progress.successes if is_done else progress.failures
    counts[tool] = counts[tool] + 1 if tool in counts else 1
    call_hooks(run, _TOOL_ENDED, outcome)
    if run.hooks.notices.after_tool:
        run.hooks.notices.release_after_tool()


def _find_reason(outcome: Outcome) -> Reason | None:
    """Return why a call was not made. None if it was."""
    if type(outcome) is Denied:
        return outcome.reason
    return None if outcome.same_as is None else Reason.DUPLICATE


def deny_calls(run: RunState, calls: Sequence[Call], reason: Reason, message: str) -> list[Outcome]:
    """Deny calls without making them."""
    outcomes: list[Outcome] = []
    run.progress.outcomes = outcomes
    group_n = run.messages.next_n if len(calls) > 1 else None
    for call in calls:
        outcomes.append(_build_denied(call, reason, message))
        record_outcome(run, outcomes[-1], group_n)
    return outcomes


def deny_incomplete(run: RunState, calls: Sequence[Call], finish: Finish) -> list[Outcome]:
    """Deny the calls of a reply that was cut off: half of what was meant must not be done."""
    if finish is Finish.LENGTH:
        why = "the reply was cut off at its maximum length, so none of its calls was made. Send less in one reply."
        return deny_calls(run, calls, Reason.VALIDATION, why)
    if finish is Finish.CONTENT_FILTER:
        return deny_calls(run, calls, Reason.BLOCKED, "the provider's filter stopped the reply")
    if finish is Finish.REFUSAL:
        return deny_calls(run, calls, Reason.BLOCKED, "the model refused to answer")
    return deny_calls(run, calls, Reason.DEADLINE, "the reply was cut off before its end")


def cancel_open_calls(run: RunState) -> None:
    """Give calls without an outcome one, after something raised in the middle of a turn."""
    ended = {outcome.call_id for outcome in run.progress.results}
    for call in run.progress.calls:
        if call.id not in ended:
            with suppress(BaseException):  # of a hook; the first error is raised
                record_outcome(run, Cancelled(call_id=call.id, tool=call.name), None)


def _build_denied(call: Call, reason: Reason, message: str) -> Denied:
    return Denied(call_id=call.id, tool=call.name, reason=reason, message=message)
