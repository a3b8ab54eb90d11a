"""Repeated calls: duplicates are answered from the earlier result or denied; loops are denied, and end the run."""

from __future__ import annotations

from .. import event
from ..outcome import Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from ..progress import Notice, Point
from ..request import Call
from ..result import Stop
from ..steadiness import Duplicates
from .ending import End
from .orders import call_hooks
from .plan import Prepared, ToolFacts
from .repetition import Key, Loop, build_call_key
from .request_view import read_result_texts
from .state import RunState

_ALLOW = Duplicates.ALLOW  # a global is faster than an enum member
_UNCOUNTED_REASONS = frozenset({Reason.BUDGET, Reason.DEADLINE, Reason.OVERLOAD, Reason.REPEATED})
"""Denials that say nothing about the call, or that are counted already."""
_EXECUTED = (Success, Failure, Timeout)


def check_loop(run: RunState, call: Call, canonical: bytes | None) -> Denied | None:
    """Deny a call that continues a loop; None if it does not. `canonical` are its arguments, if it is valid."""
    repetition = run.repetition
    key = repetition.call_keys[call.id] = build_call_key(call) if canonical is None else (call.name, canonical)
    if not repetition.loop_keys or not repetition.is_looping(key, run.progress.turn):
        return None
    repetition.record_denial(run.progress.turn)
    run.recorder.emit(event.Repeated, call.name, 1, 1, "denied")
    message = "this call was repeated with the same result each time. Do something else, or say what blocks you"
    return Denied(call_id=call.id, tool=call.name, reason=Reason.REPEATED, message=f"{message}.")


def answer_duplicate(run: RunState, call: Call, tool: ToolFacts) -> Outcome | None:
    """Return the outcome of a call that is not made because an equal one was; None if it is made."""
    policy = tool.duplicates or run.spec.behaviour.duplicates
    if policy is _ALLOW:
        return None
    earlier = _find_earlier_success(run, run.repetition.call_keys[call.id], tool)
    return None if earlier is None else _build_duplicate_outcome(run, call, earlier, policy)


def is_skipped(run: RunState, call: Call, prepared: Prepared) -> bool:
    """Return True if a call would not be made now, so that no person is asked about it."""
    canonical = prepared.canonical_arguments
    key = build_call_key(call) if canonical is None else (call.name, canonical)
    return (
        run.repetition.is_looping(key, run.progress.turn) or _find_earlier_success(run, key, prepared.tool) is not None
    )


def _find_earlier_success(run: RunState, key: Key, tool: ToolFacts) -> Success | None:
    """Return the result of an equal call; None if a call that hangs, or a child run, may have changed something."""
    if (tool.duplicates or run.spec.behaviour.duplicates) is _ALLOW or run.hung > 0:
        return None
    if run.background is not None and run.background.open:
        run.repetition.forget_reads()
    return run.repetition.find_success(key)


def _build_duplicate_outcome(run: RunState, call: Call, earlier: Success, policy: Duplicates) -> Outcome:
    shown = read_result_texts(run.messages.history).get(earlier.call_id, earlier.text)
    content = earlier.content if shown == earlier.text else shown  # a hook has replaced it
    if policy is Duplicates.REUSE:
        return Success(
            call_id=call.id,
            tool=call.name,
            content=content,
            value=earlier.value,
            artifact=earlier.artifact,
            ends_run=earlier.ends_run,
            note=f"not called again: this is the result of an equal call, {earlier.call_id}",
            same_as=earlier.call_id,
        )
    message = f"an equal call, {earlier.call_id}, already succeeded, and nothing has changed since. Its result:"
    return Denied(
        call_id=call.id,
        tool=call.name,
        reason=Reason.DUPLICATE,
        message=f"{message}\n{content}",
        artifact=earlier.artifact,
        same_as=earlier.call_id,
    )


def record_outcome(run: RunState, call: Call, outcome: Outcome, tool: ToolFacts | None) -> None:
    """Record an outcome, and add a notice if calls repeat or fail in the same way. `tool` is None if it was not run."""
    repetition = run.repetition
    key = repetition.call_keys.pop(call.id, None) or build_call_key(call)
    if type(outcome) is not Success and _is_uncounted(run, outcome):
        return
    earlier = outcome if outcome.same_as is None else repetition.find_success(key) or outcome
    if repetition.keeps_results:
        repetition.keep_result(key, earlier, tool is not None and _has_written(tool, outcome))
    polls = tool is not None and tool.poll
    loop = repetition.record(key, None if polls else earlier, run.progress.turn)
    if loop is not None:
        run.recorder.emit(event.Repeated, call.name, len(loop.tools), loop.times, "noticed")
        notice = Notice(_format_loop_notice(loop), by="repetition", category="repetition", priority="high")
        run.hooks.notices.add(notice)
    elif type(outcome) is Failure and not polls and repetition.record_failure(key, outcome):
        run.recorder.emit(event.Repeated, call.name, 1, run.spec.behaviour.thresholds.failures or 0, "hinted")
        hint = f"{call.name} has failed before with the same arguments and the same error ({outcome.kind})."
        run.hooks.notices.add(Notice(f"{hint} Try another way.", by="repetition", category="repetition"))


def _has_written(tool: ToolFacts, outcome: Outcome) -> bool:
    """Return True if a call may have changed something, or changed state that other tools may read."""
    changes = type(outcome) is Success and len(outcome.changes) > 0
    return changes or (tool.writes and type(outcome) in _EXECUTED)


def _is_uncounted(run: RunState, outcome: Outcome) -> bool:
    """Return True if an outcome says nothing about its call."""
    if type(outcome) is not Denied:
        return type(outcome) is Cancelled
    if outcome.reason is Reason.RULE:  # the rule may want something done again
        run.repetition.forget_results()
    return outcome.reason in _UNCOUNTED_REASONS


def _format_loop_notice(loop: Loop) -> str:
    if len(loop.tools) == 1:
        what = f"{loop.tools[0]} was called {loop.times} times in a row with the same arguments and the same result."
    else:
        what = (
            f"The calls {', '.join(loop.tools)} were repeated {loop.times} times with the same arguments and results."
        )
    return f"{what} Another such call will be denied, and then the run ends. Try another way, or say what blocks you."


def check_stalled(run: RunState) -> End | None:
    """Return the end of a run whose model repeats itself after a notice and a denial, unless the user steered it."""
    if not run.repetition.stalled or run.signals.steered:
        return None
    run.recorder.emit(event.Repeated, run.progress.outcomes[-1].tool, 1, 1, "stalled")
    call_hooks(run, Point.STALLED)
    return End(Stop.STALLED, warning="The same calls were repeated with the same results.")
