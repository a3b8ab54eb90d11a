"""Whether a run may end when the model has asked for nothing more."""

from __future__ import annotations

from .. import event
from ..progress import Complete, GoOn
from ..request import Finish, Reply
from ..result import Stop
from .course import Course, End


def conclude(course: Course, reply: Reply) -> End | None:
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
    if policy is None:
        return End(Stop.COMPLETED)
    decision = policy(course.progress)
    if isinstance(decision, Complete):
        course.recorder.emit(event.CompletionChecked, True, ())
        return End(Stop.COMPLETED, output=decision.output)
    course.recorder.emit(event.CompletionChecked, False, decision.missing)
    if isinstance(decision, GoOn) and not course.shared.single_turn and course.envelope.claim(nudges=1):
        course.tell_model(decision.message)
        course.recorder.emit(event.Nudged, decision.message, decision.missing)
        return None
    course.tell_refusals()
    return End(Stop.UNFINISHED)


def _after_cut(course: Course) -> End | None:
    """A reply is cut by a cancel or at its deadline; only where more time was given meanwhile is that not the end."""
    end = course.must_end()
    if end is None and course.envelope.work_at > course.asked_until:
        course.tell_model("The reply was cut off when the time was over. There is more time now: go on.")
        return None
    return end or End(Stop.CANCELLED, by="driver")
