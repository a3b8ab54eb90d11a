"""Making the next request fit: what is old is elided, or summed up by whoever the agent names for that."""

from __future__ import annotations

from dataclasses import replace

from .. import event
from ..message import Message
from ..outcome import Cancelled, Success, Timeout
from ..request import bytes_of
from . import shared_budget
from .effects import Act, Flow
from .state import RunState

_SUMMING_UP_S = 60.0


def estimated(course: RunState) -> int:
    """An upper estimate of the next request, in the measure by which is shortened; usage and counters have others."""
    return _fixed(course) + course.context.tokens


def _fixed(course: RunState) -> int:
    """What of it cannot be shortened."""
    return course.card.base_tokens + course.notices.tokens


def shorten(course: RunState, most: int) -> Flow[bool]:
    """Show less of the conversation, so that the next request takes at most so many tokens; whether anything changed.

    What is counted afterwards is an upper estimate again, because nobody knows what the provider counted for a part.
    """
    context, before, shown = course.context, course.input_tokens, course.context.messages
    fixed = _fixed(course)
    room = max(0, min(most - fixed, context.tokens - 1))
    if course.shared.compact is not None and context.old:
        yield from _sum_up(course)
    context.shorten(room)
    if context.messages is shown:
        return False
    now = {id(message) for message in context.messages}
    count = sum(id(message) not in now for message in shown)
    course.input_tokens = min(before, course.card.base_tokens + context.tokens)
    course.size = bytes_of(course.card.base_tokens + context.tokens)
    course.recorder.emit(event.Elided, count, before - course.input_tokens)
    return True


def _sum_up(course: RunState) -> Flow[None]:
    """Put a summary in place of what is old; where there is none, or it is too long, that stays as it is."""
    assert course.shared.compact is not None, "somebody sums up"
    yield from shared_budget.pay(course)
    if course.must_end() is not None:
        return
    act = course.shared.compact(list(map(_copied, course.context.old)), f"compact-{course.progress.requests}")
    [outcome] = yield from course.do(Act([act], min(course.envelope.work_at, course.clock.at + _SUMMING_UP_S)))
    if isinstance(outcome, Timeout | Cancelled):
        course.hung += outcome.hung
    if isinstance(outcome, Success) and isinstance(outcome.value, str) and outcome.value.strip():
        course.context.sum_up(outcome.value.strip())


def _copied(message: Message) -> Message:
    """A message that may be changed, and the history stays what it is."""
    return replace(message, payload=None if message.payload is None else dict(message.payload))
