"""Sessions of a chat app in memory, bounded in number and in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._internal.jsonable import to_json_text
from ..message import Message, MessageType, Role

MAX_MESSAGES = 1_000
"""Maximum number of messages kept per session."""
MAX_BYTES = 4_000_000
"""Maximum size of the messages kept per session."""
_MESSAGE_BYTES = 500
"""Size of a message without its content."""


@dataclass(slots=True)
class ChatSession:
    """Conversation that spans several runs, one run at a time."""

    messages: Sequence[Message] = ()
    size: int = 0
    """Bytes of the messages, roughly."""
    is_busy: bool = False

    def store_messages(self, messages: Sequence[Message], max_bytes: int = MAX_BYTES) -> None:
        """Store the messages of a run.

        A very long conversation loses its oldest messages; the first one kept is then text from the user.
        """
        first, size, sizes = len(messages), 0, list[int]()
        for message in reversed(messages[-MAX_MESSAGES:]):
            size += _measure(message)
            if size > max_bytes:
                break
            sizes.append(size)
            first -= 1
        while first and first < len(messages) and not _is_user_text(messages[first]):
            first += 1
        self.messages = tuple(messages[first:])
        self.size = sizes[len(self.messages) - 1] if self.messages else 0


class ChatSessions:
    """Sessions kept in memory, up to a maximum number and size.

    The least recently used session is dropped first, unless a run is using it.
    """

    def __init__(self, max_sessions: int, max_bytes: int) -> None:
        self._max_sessions = max_sessions
        self._max_bytes = max_bytes
        self._by_key: dict[tuple[str, str], ChatSession] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def size(self) -> int:
        """Bytes of all sessions, roughly."""
        return sum(session.size for session in self._by_key.values())

    def open(self, key: tuple[str, str]) -> ChatSession:
        """Return the session of this caller and name, creating it if needed."""
        session = self._by_key.pop(key, None) or ChatSession()
        self._by_key[key] = session  # re-inserted at the end: dicts keep order, so the first keys are the oldest
        self._drop_oldest(session)
        return session

    def store(self, session: ChatSession, messages: Sequence[Message]) -> None:
        """Store the messages of a run in its session."""
        session.store_messages(messages, min(MAX_BYTES, self._max_bytes))
        self._drop_oldest(session)

    def _drop_oldest(self, kept: ChatSession) -> None:
        """Drop sessions until the rest fits. The kept one, and those that a run is using, stay."""
        count, size = len(self._by_key), self.size
        for key, session in tuple(self._by_key.items()):
            if count <= self._max_sessions and size <= self._max_bytes:
                return
            if session is not kept and not session.is_busy:
                del self._by_key[key]
                count, size = count - 1, size - session.size


def _measure(message: Message) -> int:
    payload = 0 if message.payload is None else len(to_json_text(message.payload))
    return _MESSAGE_BYTES + len(message.content.encode("utf-8", "replace")) + payload


def _is_user_text(message: Message) -> bool:
    return message.role is Role.USER and message.type is MessageType.TEXT
