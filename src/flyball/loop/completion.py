"""Whether a run may end when the model has asked for nothing more."""

from __future__ import annotations

from typing import Any

from .. import event
from ..errors import ConfigError
from ..progress import Complete, Continue, Decision, Unfinished
from ..request import Finish, Reply
from ..result import Stop
from .ending import End
from .state import RunState


def handle_final_reply(run: RunState, reply: Reply) -> End | None:
    """What becomes of a reply without calls: the end, or None where the run goes on."""
    if reply.finish is Finish.CUT:
        return _handle_cut_reply(run)
    if reply.finish is Finish.CONTENT_FILTER:
        message = "the provider's filter stopped the reply"
        return End(Stop.FAILED, error={"code": "content_filter", "kind": "ContentFilter", "message": message})
    called_off = run.check_cancelled()  # a whole answer that came in time is one, even if the time is over now
    if called_off is not None:
        return called_off
    if run.steered:
        return None
    policy = run.spec.completion.policy
    return End(Stop.COMPLETED) if policy is None else _apply_decision(run, policy(run.progress))


def _apply_decision(run: RunState, decision: Decision) -> End | None:
    missing, satisfied = _record_check(run, decision)
    if isinstance(decision, Complete):
        return End(Stop.COMPLETED, output=decision.output)
    if isinstance(decision, Continue) and not run.spec.behaviour.single_turn and run.envelope.claim(nudges=1):
        run.nudge = decision.message
        run.add_user_message(decision.message)
        count = run.envelope.budgets["nudges"].used
        run.recorder.emit(event.Nudged, decision.message, missing, satisfied, count)
        return None
    run.emit_refusals()
    return End(Stop.UNFINISHED)


def check_early_completion(run: RunState) -> End | None:
    """The end of a run whose assertions name outcomes, one of which a batch has brought about.

    One that was complete before goes on because somebody wants more of it: then its model says when that is done.
    """
    completion = run.spec.completion
    assertions = completion.assertions
    if assertions is None or not assertions.may_end_early or completion.output_schema is not None:
        return None
    if run.completion.get("complete") or run.check_interruption() is not None:
        return None
    if completion.policy is None or not assertions.check(run.progress.evidence).complete:
        return None
    decision = completion.policy(run.progress)
    if not isinstance(decision, Complete):  # a policy behind the assertions: the model has not ended, so no nudge
        return None
    _record_check(run, decision)
    return End(Stop.COMPLETED)


def _record_check(run: RunState, decision: Decision) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keep and tell what a decision says is missing and satisfied, with what the assertions say of it."""
    if not isinstance(decision, Complete | Continue | Unfinished):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("completion policy", decision, "Complete(), Continue(message) or Unfinished()")
    complete, assertions = isinstance(decision, Complete), run.spec.completion.assertions
    missing = () if isinstance(decision, Complete) else decision.missing
    satisfied = decision.satisfied
    if assertions is not None:
        findings = assertions.check(run.progress.evidence)
        missing = tuple(dict.fromkeys([*missing, *findings.missing]))
        satisfied = tuple(dict.fromkeys([*satisfied, *findings.satisfied]))
    run.completion = {"complete": complete, "missing": list(missing), "satisfied": list(satisfied)}
    run.recorder.emit(event.CompletionChecked, complete, missing, satisfied)
    return missing, satisfied


def check_required_tools(run: RunState) -> End | None:
    """The end of a run that could never prove what it must, because the tools for it are not offered."""
    assertions, offered = run.spec.completion.assertions, run.spec.tools.names
    unavailable = () if assertions is None else assertions.unavailable(offered)
    if assertions is None or not unavailable:
        return None
    message = f"the task needs tools that are not offered: {', '.join(unavailable)}"
    error = {
        "code": "completion_required_tool_unavailable",
        "kind": "Assertions",
        "message": message,
        "completion_assertions_required": assertions.required(),
        "unavailable_required_tool_names": list(unavailable),
        "available_tool_names": list(offered),
    }
    return End(Stop.FAILED, error=error)


def describe_completion(run: RunState, stop: Stop) -> dict[str, Any]:
    """What the result says about completion, on every kind of end; empty where nobody asked."""
    if run.spec.completion.policy is None:
        return {}
    found: dict[str, Any] = dict(run.completion)
    assertions = run.spec.completion.assertions
    if assertions is not None:
        if stop not in (Stop.UNFINISHED, Stop.COMPLETED):  # those were decided by what was found last
            findings = assertions.check(run.progress.evidence)
            missing = [*findings.missing, *(["output"] if run.spec.completion.output_schema is not None else [])]
            found = {"complete": not missing, "missing": missing, "satisfied": list(findings.satisfied)}
        found["required"] = assertions.required()
    nudges = run.envelope.budgets["nudges"].used
    nothing: dict[str, Any] = {"complete": False, "missing": [], "satisfied": []}
    return nothing | found | {"nudge_count": nudges, "nudge": run.nudge}


def _handle_cut_reply(run: RunState) -> End | None:
    """A reply is cut by a cancel or at its deadline; only where more time was given meanwhile is that not the end."""
    end = run.check_end()
    if end is None and run.envelope.work_at > run.request_deadline:
        run.add_user_message("The reply was cut off by the time limit. There is more time now: continue.")
        return None
    return end or End(Stop.CANCELLED, by="driver")
