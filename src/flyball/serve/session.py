"""Sessions in memory: what was said in a conversation, and whether a run is at it now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..message import Message, MessageType, Role

_MOST_MESSAGES = 1_000


@dataclass(slots=True)
class Session:
    """A conversation that lasts over runs. One run at a time goes on in it."""

    messages: Sequence[Message] = ()
    busy: bool = False

    def keep(self, messages: Sequence[Message]) -> None:
        """Keep what was said; of a very long conversation the end, from where a user spoke."""
        first = max(0, len(messages) - _MOST_MESSAGES)
        while first and first < len(messages) and not _is_asked(messages[first]):
            first += 1
        self.messages = tuple(messages[first:])


class Sessions:
    """At most so many sessions. The one that was used least lately gives way, unless a run is at it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._by_key: dict[tuple[str, str], Session] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def open(self, key: tuple[str, str]) -> Session:
        """The session of that caller and name; a new one where there was none."""
        session = self._by_key.pop(key, None) or Session()
        self._by_key[key] = session  # now it is the newest
        surplus = len(self._by_key) - self._most
        idle = [other for other, one in self._by_key.items() if not one.busy and one is not session]
        for other in idle[: max(0, surplus)]:
            del self._by_key[other]
        return session


def _is_asked(message: Message) -> bool:
    return message.role is Role.USER and message.type is MessageType.TEXT
