"""Whether a run is complete: when the model asks for nothing more, and after tool results."""

from __future__ import annotations

from typing import Any

from .. import event
from ..errors import ConfigError, truncate
from ..outcome import Success
from ..progress import Complete, Continue, Decision, Unfinished
from ..request import Finish, Reply
from ..result import Stop
from .background import defer_answer
from .ending import End
from .orders import emit_refusals
from .recall import read_whole
from .state import RunState
from .stopping import check_end

_MAX_REFUSAL_LENGTH = 500
_TOOL_RULES = "tool rules"
"""Name of what is missing while a tool rule does not let the run complete."""


def handle_final_reply(run: RunState, reply: Reply) -> End | None:
    """Return the end for a reply without calls, or None if the run continues."""
    if reply.finish is Finish.CUT:
        return _handle_cut_reply(run)
    if reply.finish is Finish.CONTENT_FILTER:
        why = f": {truncate(reply.detail, _MAX_REFUSAL_LENGTH)}" if reply.detail else ""
        message = f"the provider's filter stopped the reply{why}"
        return End(Stop.FAILED, error={"code": "content_filter", "kind": "ContentFilter", "message": message})
    if reply.finish is Finish.REFUSAL:
        why = truncate(reply.text.strip(), _MAX_REFUSAL_LENGTH) or "it gave no reason"
        message = f"the model refused to answer: {why}"
        return End(Stop.FAILED, error={"code": "refusal", "kind": "Refusal", "message": message})
    cancelled = run.signals.find_cancellation()  # an answer that came in time counts, even if the time is over now
    if cancelled is not None:
        return cancelled
    if run.signals.steered or (run.background is not None and defer_answer(run, run.background)):
        return None
    return _decide_end(run)


def _decide_end(run: RunState) -> End | None:
    """Return the end of a run that has an answer, if its tool rules and its policy agree; None after a nudge."""
    policy, rules = run.spec.completion.policy, run.spec.tools.rules
    why = None if run.evidence is None else run.evidence.find_completion_denial()
    if why is not None:
        return _apply_decision(run, Continue(why, (_TOOL_RULES,)))
    if policy is not None:
        return _apply_decision(run, policy(run.progress))
    if rules is not None and rules.block_completion:
        return _apply_decision(run, Complete(satisfied=(_TOOL_RULES,)))
    return End(Stop.COMPLETED)


def _apply_decision(run: RunState, decision: Decision) -> End | None:
    missing, satisfied = _record_check(run, decision)
    if isinstance(decision, Complete):
        return End(Stop.COMPLETED, text=decision.text, output=decision.output)
    if isinstance(decision, Continue) and not run.spec.behaviour.single_turn and run.budget.claim(nudges=1):
        run.completion.nudge = decision.message
        run.messages.add_user_text(decision.message)
        count = run.budget.budgets["nudges"].used
        run.recorder.emit(event.Nudged, decision.message, missing, satisfied, count)
        return None
    emit_refusals(run)
    return End(Stop.UNFINISHED)


def check_after_calls(run: RunState) -> End | None:
    """Return the end of a run that a batch of calls has completed before the model ended.

    A result ends it, its assertions hold, or its policy has an answer. A run that was complete before continues because
    its user wants more: then the model decides when it is done.
    """
    final = run.completion.take_final_result()
    if final is not None:
        return _handle_final_result(run, final)
    completion, policy = run.spec.completion, run.spec.completion.policy
    if policy is None or run.completion.findings.get("complete") or run.signals.find_end() is not None:
        return None
    is_proved = _is_outcome_proved(run)
    if not is_proved and not completion.asks_after_calls:
        return None
    run.progress.after_calls = True
    try:
        decision = policy(run.progress)
    finally:
        run.progress.after_calls = False
    _check_type(decision)
    if not isinstance(decision, Complete) or (decision.text is None and not is_proved):
        return None  # it wants more; the model has not ended, so there is no nudge
    if run.evidence is not None and run.evidence.find_completion_denial() is not None:
        return None
    _record_check(run, decision)
    return End(Stop.COMPLETED, text=decision.text, output=decision.output)


def _handle_final_result(run: RunState, final: Success) -> End | None:
    """Return the end for a result that is the answer, or None if the run continues: it is treated like a last reply."""
    cancelled = run.signals.find_cancellation()
    if cancelled is not None:
        return cancelled
    if run.signals.steered:
        return None
    progress = run.progress
    text_before, progress.text = progress.text, read_whole(final)
    end = _decide_end(run)
    if end is None:
        progress.text = text_before
    return end


def _is_outcome_proved(run: RunState) -> bool:
    """Return True if an outcome of `complete_when_any` is proved, and nothing else is missing."""
    completion = run.spec.completion
    assertions = completion.assertions
    if assertions is None or not assertions.may_end_early or completion.output_schema is not None:
        return False
    return assertions.check(run.progress.evidence).complete


def _check_type(decision: Decision) -> None:
    if not isinstance(decision, Complete | Continue | Unfinished):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("completion policy", decision, "Complete(), Continue(message) or Unfinished()")


def _record_check(run: RunState, decision: Decision) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Record a decision, together with the findings of the assertions. Return what is missing and what is satisfied."""
    _check_type(decision)
    is_complete, assertions = isinstance(decision, Complete), run.spec.completion.assertions
    missing = () if isinstance(decision, Complete) else decision.missing
    satisfied = decision.satisfied
    if assertions is not None:
        findings = assertions.check(run.progress.evidence)
        missing = tuple(dict.fromkeys([*missing, *findings.missing]))
        satisfied = tuple(dict.fromkeys([*satisfied, *findings.satisfied]))
    run.completion.findings = {"complete": is_complete, "missing": list(missing), "satisfied": list(satisfied)}
    run.recorder.emit(event.CompletionChecked, is_complete, missing, satisfied)
    return missing, satisfied


def check_required_tools(run: RunState) -> End | None:
    """Return the end of a run that can never complete, because tools that it needs are not offered."""
    assertions, rules = run.spec.completion.assertions, run.spec.tools.rules
    if assertions is None and rules is None:
        return None
    offered = run.spec.tools.names
    unavailable = () if assertions is None else assertions.unavailable(offered)
    if rules is not None:
        unavailable = tuple(dict.fromkeys([*unavailable, *rules.unavailable(offered)]))
    if not unavailable:
        return None
    run.recorder.emit(event.RequiredToolsUnavailable, unavailable, offered)
    message = f"the task needs tools that are not offered: {', '.join(unavailable)}"
    error = {
        "code": "completion_required_tool_unavailable",
        "kind": "Assertions",
        "message": message,
        "completion_assertions_required": {} if assertions is None else assertions.required(),
        "unavailable_required_tool_names": list(unavailable),
        "available_tool_names": list(offered),
    }
    return End(Stop.FAILED, error=error)


def describe_completion(run: RunState, stop: Stop) -> dict[str, Any]:
    """Return what the result says about completion. Empty if nothing but the model decides about it."""
    rules = run.spec.tools.rules
    if run.spec.completion.policy is None and (rules is None or not rules.block_completion):
        return {}
    described: dict[str, Any] = dict(run.completion.findings)
    assertions = run.spec.completion.assertions
    if assertions is not None:
        if stop not in (Stop.UNFINISHED, Stop.COMPLETED):  # the last check decided those
            findings = assertions.check(run.progress.evidence)
            missing = [*findings.missing, *(["output"] if run.spec.completion.output_schema is not None else [])]
            described = {"complete": not missing, "missing": missing, "satisfied": list(findings.satisfied)}
        described["required"] = assertions.required()
    nudges = run.budget.budgets["nudges"].used
    defaults: dict[str, Any] = {"complete": False, "missing": [], "satisfied": []}
    return defaults | described | {"nudge_count": nudges, "nudge": run.completion.nudge}


def _handle_cut_reply(run: RunState) -> End | None:
    """Return the end after a reply was cut by a cancel or by its deadline; None if there is more time by now."""
    end = check_end(run)
    if end is None and run.budget.work_at > run.request_deadline:
        run.messages.add_user_text("The reply was cut off by the time limit. There is more time now: continue.")
        return None
    return end or End(Stop.CANCELLED, by="driver")
