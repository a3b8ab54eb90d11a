"""Whether a run may end when the model has asked for nothing more."""

from __future__ import annotations

from typing import Any

from .. import event
from ..errors import ConfigError
from ..progress import Complete, Decision, GoOn, Unfinished
from ..request import Finish, Reply
from ..result import Stop
from .ending import End
from .state import RunState


def conclude(course: RunState, reply: Reply) -> End | None:
    """What becomes of a reply without calls: the end, or None where the run goes on."""
    if reply.finish is Finish.CUT:
        return _after_cut(course)
    if reply.finish is Finish.CONTENT_FILTER:
        message = "the provider's filter stopped the reply"
        return End(Stop.FAILED, error={"code": "content_filter", "kind": "ContentFilter", "message": message})
    called_off = course.called_off()  # a whole answer that came in time is one, even if the time is over now
    if called_off is not None:
        return called_off
    if course.steered:
        return None
    policy = course.shared.completion
    return End(Stop.COMPLETED) if policy is None else _decided(course, policy(course.progress))


def _decided(course: RunState, decision: Decision) -> End | None:
    missing, satisfied = _checked(course, decision)
    if isinstance(decision, Complete):
        return End(Stop.COMPLETED, output=decision.output)
    if isinstance(decision, GoOn) and not course.shared.single_turn and course.envelope.claim(nudges=1):
        course.nudge = decision.message
        course.tell_model(decision.message)
        count = course.envelope.budgets["nudges"].used
        course.recorder.emit(event.Nudged, decision.message, missing, satisfied, count)
        return None
    course.tell_refusals()
    return End(Stop.UNFINISHED)


def done_early(course: RunState) -> End | None:
    """The end of a run whose assertions name outcomes, one of which a batch has brought about.

    One that was complete before goes on because somebody wants more of it: then its model says when that is done.
    """
    shared = course.shared
    if shared.assertions is None or not shared.assertions.may_end_early or shared.output_schema is not None:
        return None
    if course.completion.get("complete") or course.disturbance() is not None:
        return None
    if shared.completion is None or not shared.assertions.check(course.progress.evidence).complete:
        return None
    decision = shared.completion(course.progress)
    if not isinstance(decision, Complete):  # a policy behind the assertions: the model has not ended, so no nudge
        return None
    _checked(course, decision)
    return End(Stop.COMPLETED)


def _checked(course: RunState, decision: Decision) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Keep and tell what a decision says is missing and satisfied, with what the assertions say of it."""
    if not isinstance(decision, Complete | GoOn | Unfinished):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("completion policy, its decision", decision, "Complete(), GoOn(message) or Unfinished()")
    complete, assertions = isinstance(decision, Complete), course.shared.assertions
    missing = () if isinstance(decision, Complete) else decision.missing
    satisfied = decision.satisfied
    if assertions is not None:
        findings = assertions.check(course.progress.evidence)
        missing = tuple(dict.fromkeys([*missing, *findings.missing]))
        satisfied = tuple(dict.fromkeys([*satisfied, *findings.satisfied]))
    course.completion = {"complete": complete, "missing": list(missing), "satisfied": list(satisfied)}
    course.recorder.emit(event.CompletionChecked, complete, missing, satisfied)
    return missing, satisfied


def preflight(course: RunState) -> End | None:
    """The end of a run that could never prove what it must, because the tools for it are not offered."""
    assertions, offered = course.shared.assertions, course.shared.tool_names
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


def diagnosis(course: RunState, stop: Stop) -> dict[str, Any]:
    """What the result says about completion, on every kind of end; empty where nobody asked."""
    if course.shared.completion is None:
        return {}
    found: dict[str, Any] = dict(course.completion)
    assertions = course.shared.assertions
    if assertions is not None:
        if stop not in (Stop.UNFINISHED, Stop.COMPLETED):  # those were decided by what was found last
            findings = assertions.check(course.progress.evidence)
            missing = [*findings.missing, *(["output"] if course.shared.output_schema is not None else [])]
            found = {"complete": not missing, "missing": missing, "satisfied": list(findings.satisfied)}
        found["required"] = assertions.required()
    nudges = course.envelope.budgets["nudges"].used
    nothing: dict[str, Any] = {"complete": False, "missing": [], "satisfied": []}
    return nothing | found | {"nudge_count": nudges, "nudge": course.nudge}


def _after_cut(course: RunState) -> End | None:
    """A reply is cut by a cancel or at its deadline; only where more time was given meanwhile is that not the end."""
    end = course.must_end()
    if end is None and course.envelope.work_at > course.asked_until:
        course.tell_model("The reply was cut off when the time was over. There is more time now: go on.")
        return None
    return end or End(Stop.CANCELLED, by="driver")
