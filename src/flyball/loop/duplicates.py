"""Calls that come again: an equal one is answered from before or denied; one that goes round is denied, and ends it."""

from __future__ import annotations

from .. import event
from ..outcome import BaseOutcome, Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from ..progress import Notice, Point
from ..request import Call
from ..result import Stop
from ..steadiness import Duplicates
from .ending import End
from .plan import Prepared, ToolFacts
from .repetition import Key, Loop, build_call_key
from .state import RunState

_ALLOW = Duplicates.ALLOW  # found once: see course.py
_UNCOUNTED_REASONS = frozenset({Reason.BUDGET, Reason.DEADLINE, Reason.OVERLOAD, Reason.REPEATED})
"""Denials that say nothing about the call, or that were counted already."""
_EXECUTED = (Success, Failure, Timeout)


def check_loop(run: RunState, call: Call, prepared: Prepared | Outcome) -> Denied | None:
    """Why a call is not made that goes on with a loop; None where it does not."""
    key = run.call_keys[call.id] = build_call_key(
        call, None if isinstance(prepared, BaseOutcome) else prepared.ordered_arguments
    )
    if not run.repetition.is_looping(key, run.progress.turn):
        return None
    run.repetition.record_denial(run.progress.turn)
    run.recorder.emit(event.Repeated, call.name, 1, 1, "denied")
    message = "this call was repeated with the same result each time. Do something else, or say what blocks you"
    return Denied(call_id=call.id, tool=call.name, reason=Reason.REPEATED, message=f"{message}.")


def answer_duplicate(run: RunState, call: Call, tool: ToolFacts) -> Outcome | None:
    """What a call came to that is not made because an equal one was; None where it is made."""
    earlier = _find_earlier_success(run, run.call_keys[call.id], tool)
    if earlier is None:
        return None
    return _build_duplicate_outcome(call, earlier, tool.duplicates or run.spec.behaviour.duplicates)


def is_skipped(run: RunState, call: Call, prepared: Prepared) -> bool:
    """Whether a call is not made, as things are now: then nobody need be asked about it."""
    key = build_call_key(call, prepared.ordered_arguments)
    return (
        run.repetition.is_looping(key, run.progress.turn) or _find_earlier_success(run, key, prepared.tool) is not None
    )


def _find_earlier_success(run: RunState, key: Key, tool: ToolFacts) -> Success | None:
    """The result that stands for an equal call; none while a call hangs, which may still change something."""
    if (tool.duplicates or run.spec.behaviour.duplicates) is _ALLOW or run.hung > 0:
        return None
    return run.repetition.find_success(key)


def _build_duplicate_outcome(call: Call, earlier: Success, policy: Duplicates) -> Outcome:
    if policy is Duplicates.REUSE:
        return Success(
            call_id=call.id,
            tool=call.name,
            content=earlier.content,
            value=earlier.value,
            artifact=earlier.artifact,
            note=f"not called again: this is the result of an equal call, {earlier.call_id}",
            same_as=earlier.call_id,
        )
    message = f"an equal call, {earlier.call_id}, already succeeded, and nothing has changed since. Its result:"
    return Denied(
        call_id=call.id,
        tool=call.name,
        reason=Reason.DUPLICATE,
        message=f"{message}\n{earlier.content}",
        artifact=earlier.artifact,
        same_as=earlier.call_id,
    )


def record_outcome(run: RunState, call: Call, outcome: Outcome, tool: ToolFacts | None) -> None:
    """Learn what a call came to, and tell the model where it goes round or fails in the same way again."""
    kind, repetition = type(outcome), run.repetition
    key = run.call_keys.pop(call.id, None) or build_call_key(call)
    if kind is Cancelled:
        return
    if type(outcome) is Denied:
        if outcome.reason in _UNCOUNTED_REASONS:
            return
        if outcome.reason is Reason.RULE:  # it may want something done that was done before
            repetition.forget_results()
    earlier = outcome if outcome.same_as is None else repetition.find_success(key) or outcome
    wrote = polls = False
    if tool is not None:
        wrote, polls = (tool.writes and kind in _EXECUTED) or _has_state_changes(outcome), tool.poll
    loop = repetition.record(key, earlier, run.progress.turn, wrote, polls)
    if loop is not None:
        run.recorder.emit(event.Repeated, call.name, len(loop.tools), loop.times, "noticed")
        run.add_notice(Notice(_format_loop_notice(loop), by="repetition", category="repetition", priority="high"))
    elif type(outcome) is Failure and not polls and repetition.record_failure(key, outcome):
        run.recorder.emit(event.Repeated, call.name, 1, run.spec.behaviour.thresholds.failures or 0, "hinted")
        hint = f"{call.name} has failed before with the same arguments and the same error ({outcome.kind})."
        run.add_notice(Notice(f"{hint} Try another way.", by="repetition", category="repetition"))


def _has_state_changes(outcome: Outcome) -> bool:
    """Whether a call has set something that other tools may read."""
    return type(outcome) is Success and len(outcome.changes) > 0


def _format_loop_notice(loop: Loop) -> str:
    if len(loop.tools) == 1:
        what = f"{loop.tools[0]} was called {loop.times} times in a row with the same arguments and the same result."
    else:
        what = (
            f"The calls {', '.join(loop.tools)} were repeated {loop.times} times with the same arguments and results."
        )
    return f"{what} Another such call will be denied, and then the run ends. Try another way, or say what blocks you."


def check_stalled(run: RunState) -> End | None:
    """The end of a run whose model goes round, though it was told and denied; not where the user has spoken since."""
    if not run.repetition.stalled or run.steered:
        return None
    run.recorder.emit(event.Repeated, run.progress.outcomes[-1].tool, 1, 1, "stalled")
    run.call_hooks(Point.STALLED)
    return End(Stop.STALLED, warning="The same calls were repeated with the same results.")
