"""Making the next request fit: what is old is elided, or summed up by whoever the agent names for that."""

from __future__ import annotations

from dataclasses import replace

from .. import event
from ..message import Message
from ..outcome import Cancelled, Success, Timeout
from ..request import estimate_bytes
from . import shared_budget
from .effects import Act, Flow
from .state import RunState

_SUMMARY_SECONDS = 60.0


def estimate_request_tokens(run: RunState) -> int:
    """An upper estimate of the next request, in the measure by which is shortened; usage and counters have others."""
    return _count_fixed_tokens(run) + run.context.tokens


def _count_fixed_tokens(run: RunState) -> int:
    """What of it cannot be shortened."""
    return run.card.base_tokens + run.notices.tokens


def shorten(run: RunState, max_tokens: int) -> Flow[bool]:
    """Show less of the conversation, so that the next request takes at most so many tokens; whether anything changed.

    What is counted afterwards is an upper estimate again, because nobody knows what the provider counted for a part.
    """
    context, before, shown = run.context, run.input_tokens, run.context.messages
    fixed = _count_fixed_tokens(run)
    room = max(0, min(max_tokens - fixed, context.tokens - 1))
    if run.spec.behaviour.compact is not None and context.old_messages:
        yield from _summarize(run)
    context.shorten(room)
    if context.messages is shown:
        return False
    now = {id(message) for message in context.messages}
    count = sum(id(message) not in now for message in shown)
    run.input_tokens = min(before, run.card.base_tokens + context.tokens)
    run.request_bytes = estimate_bytes(run.card.base_tokens + context.tokens)
    run.recorder.emit(event.Elided, count, before - run.input_tokens)
    return True


def _summarize(run: RunState) -> Flow[None]:
    """Put a summary in place of what is old; where there is none, or it is too long, that stays as it is."""
    compact = run.spec.behaviour.compact
    assert compact is not None, "the agent has a compact function"
    yield from shared_budget.flush(run)
    if run.check_end() is not None:
        return
    act = compact(list(map(_copy_message, run.context.old_messages)), f"compact-{run.progress.requests}")
    [outcome] = yield from run.perform(Act([act], min(run.envelope.work_at, run.clock.at + _SUMMARY_SECONDS)))
    if isinstance(outcome, Timeout | Cancelled):
        run.hung += outcome.hung
    if isinstance(outcome, Success) and isinstance(outcome.value, str) and outcome.value.strip():
        run.context.summarize(outcome.value.strip())


def _copy_message(message: Message) -> Message:
    """A message that may be changed, and the history stays what it is."""
    return replace(message, payload=None if message.payload is None else dict(message.payload))
