"""Shortening the next request: old results are elided, or replaced by a summary of the agent's `compact` function."""

from __future__ import annotations

from dataclasses import replace

from .. import event
from ..message import Message
from ..outcome import Cancelled, Success, Timeout
from . import shared_budget
from .effects import Act, Flow
from .state import RunState
from .stopping import check_end

_SUMMARY_SECONDS = 60.0


def estimate_request_tokens(run: RunState) -> int:
    """Return an upper estimate of the next request from its parts. Providers may count otherwise."""
    return _count_fixed_tokens(run) + run.messages.view.tokens


def _count_fixed_tokens(run: RunState) -> int:
    """Return the tokens that cannot be shortened."""
    return run.model.card.base_tokens + run.hooks.notices.tokens


def shorten(run: RunState, max_tokens: int) -> Flow[bool]:
    """Show less of the conversation, so that the next request takes at most `max_tokens`.

    Return True if anything changed. The count is an estimate again afterwards: how much the provider counted for a part
    is unknown.
    """
    view = run.messages.view
    before = view.messages
    room = max(0, min(max_tokens - _count_fixed_tokens(run), view.tokens - 1))
    if run.spec.behaviour.compact is not None and view.old_messages:
        yield from _summarize(run)
    view.shorten(room)
    if view.messages is before:
        return False
    shown = {id(message) for message in view.messages}
    count = sum(id(message) not in shown for message in before)
    saved = run.messages.lower_estimate(run.model.card.base_tokens)
    run.recorder.emit(event.Elided, count, saved)
    return True


def _summarize(run: RunState) -> Flow[None]:
    """Replace old messages by a summary. They stay if there is none, or if it is not shorter."""
    compact = run.spec.behaviour.compact
    assert compact is not None, "the agent has a compact function"
    yield from shared_budget.flush(run)
    if check_end(run) is not None:
        return
    view = run.messages.view
    summary = compact(list(map(_copy_message, view.old_messages)), f"compact-{run.progress.requests}")
    [outcome] = yield from run.perform(Act([summary], min(run.budget.work_at, run.clock.at + _SUMMARY_SECONDS)))
    if isinstance(outcome, Timeout | Cancelled):
        run.hung += outcome.hung
    if isinstance(outcome, Success) and isinstance(outcome.value, str) and outcome.value.strip():
        view.summarize(outcome.value.strip())


def _copy_message(message: Message) -> Message:
    """Copy a message, so that user code cannot change the history."""
    return replace(message, payload=None if message.payload is None else dict(message.payload))
