"""Calls that come again: an equal one is answered from before or denied; one that goes round is denied, and ends it."""

from __future__ import annotations

from .. import event
from ..outcome import Cancelled, Denied, Ended, Failure, Outcome, Reason, Success, Timeout
from ..progress import Notice, Point
from ..request import Call
from ..result import Stop
from ..steadiness import Duplicates
from .ending import End
from .plan import Prepared, ToolFacts
from .repetition import Key, Loop, key_of
from .state import RunState

_ALLOW = Duplicates.ALLOW  # found once: see course.py
_NOT_THE_MODELS = frozenset({Reason.BUDGET, Reason.DEADLINE, Reason.OVERLOAD, Reason.REPEATED})
"""Denials that say nothing about the call, or that were counted already."""
_MADE = (Success, Failure, Timeout)


def denied(course: RunState, call: Call, ready: Prepared | Outcome) -> Denied | None:
    """Why a call is not made that goes on with a loop; None where it does not."""
    key = course.keys[call.id] = key_of(call, None if isinstance(ready, Ended) else ready.ordered)
    if not course.repetition.goes_round(key, course.progress.turn):
        return None
    course.repetition.deny(course.progress.turn)
    course.recorder.emit(event.Repeated, call.name, 1, 1, "denied")
    message = "it was made again and again with the same result. Do something else, or say what is in the way"
    return Denied(call_id=call.id, tool=call.name, reason=Reason.REPEATED, message=f"{message}.")


def answered(course: RunState, call: Call, tool: ToolFacts) -> Outcome | None:
    """What a call came to that is not made because an equal one was; None where it is made."""
    earlier = _earlier(course, course.keys[call.id], tool)
    return None if earlier is None else _as_before(call, earlier, tool.duplicates or course.shared.duplicates)


def settled(course: RunState, call: Call, ready: Prepared) -> bool:
    """Whether a call is not made, as things are now: then nobody need be asked about it."""
    key = key_of(call, ready.ordered)
    return course.repetition.goes_round(key, course.progress.turn) or _earlier(course, key, ready.tool) is not None


def _earlier(course: RunState, key: Key, tool: ToolFacts) -> Success | None:
    """The result that stands for an equal call; none while a call hangs, which may still change something."""
    if (tool.duplicates or course.shared.duplicates) is _ALLOW or course.hung > 0:
        return None
    return course.repetition.answered(key)


def _as_before(call: Call, earlier: Success, policy: Duplicates) -> Outcome:
    if policy is Duplicates.REUSE:
        return Success(
            call_id=call.id,
            tool=call.name,
            content=earlier.content,
            value=earlier.value,
            artifact=earlier.artifact,
            note=f"not called again: this is the result of the equal call {earlier.call_id}",
            same_as=earlier.call_id,
        )
    message = f"an equal call, {earlier.call_id}, succeeded before, and nothing was changed since. Its result:"
    return Denied(
        call_id=call.id,
        tool=call.name,
        reason=Reason.DUPLICATE,
        message=f"{message}\n{earlier.content}",
        artifact=earlier.artifact,
        same_as=earlier.call_id,
    )


def learn(course: RunState, call: Call, outcome: Outcome, tool: ToolFacts | None) -> None:
    """Learn what a call came to, and tell the model where it goes round or fails in the same way again."""
    kind, repetition = type(outcome), course.repetition
    key = course.keys.pop(call.id, None) or key_of(call)
    if kind is Cancelled:
        return
    if type(outcome) is Denied:
        if outcome.reason in _NOT_THE_MODELS:
            return
        if outcome.reason is Reason.RULE:  # it may want something done that was done before
            repetition.changed()
    earlier = outcome if outcome.same_as is None else repetition.answered(key) or outcome
    wrote = polls = False
    if tool is not None:
        wrote, polls = (tool.writes and kind in _MADE) or _set_state(outcome), tool.poll
    loop = repetition.learn(key, earlier, course.progress.turn, wrote, polls)
    if loop is not None:
        course.recorder.emit(event.Repeated, call.name, len(loop.tools), loop.times, "noticed")
        course.show(Notice(_told(loop), by="repetition", category="repetition", priority="high"))
    elif type(outcome) is Failure and not polls and repetition.failed_again(key, outcome):
        course.recorder.emit(event.Repeated, call.name, 1, course.shared.thresholds.failures or 0, "hinted")
        hint = f"{call.name} has failed before with the same arguments and in the same way ({outcome.kind})."
        course.show(Notice(f"{hint} Try another way.", by="repetition", category="repetition"))


def _set_state(outcome: Outcome) -> bool:
    """Whether a call has set something that other tools may read."""
    return type(outcome) is Success and len(outcome.changes) > 0


def _told(loop: Loop) -> str:
    if len(loop.tools) == 1:
        what = f"{loop.tools[0]} was called {loop.times} times in a row with the same arguments and the same result."
    else:
        what = f"The calls {', '.join(loop.tools)} went round {loop.times} times with the same arguments and results."
    return f"{what} Calling again will be denied, and then the run ends. Try another way, or say what is in the way."


def stalled(course: RunState) -> End | None:
    """The end of a run whose model goes round, though it was told and denied; not where the user has spoken since."""
    if not course.repetition.stalled or course.steered:
        return None
    course.recorder.emit(event.Repeated, course.progress.outcomes[-1].tool, 1, 1, "stalled")
    course.consult(Point.STALLED)
    return End(Stop.STALLED, warning="The same calls came again and again with the same results.")
