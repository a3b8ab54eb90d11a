"""Tasks that the user of an interactive program gives it, one after the other."""

from __future__ import annotations

from .conversations import Chat, Conversations
from .inbound import Inbound
from .side_requests import find_side_request


def begins_task(inbound: Inbound, chat: Chat, conversations: Conversations) -> bool:
    """Check whether a request carries a further message of the user, and not of an agent to one that it called."""
    key = inbound.task_key
    if key is None or find_side_request(inbound):
        return False
    is_opening = chat.task_key is None
    if not is_opening:
        is_same = key == chat.task_key
        is_rewritten = not inbound.reply_count and inbound.request.previous_id is None  # the program shortened it
        is_called = any(other.open_calls for other in conversations.all[: chat.number - 1])
        if is_same or is_rewritten or is_called:
            return False
    chat.task_key = key
    return not is_opening or chat.number == 1
