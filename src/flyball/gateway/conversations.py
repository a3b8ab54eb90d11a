"""Conversations of a governed program: which request belongs to which."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from .inbound import Inbound

_SESSION_HEADERS = (
    ("x-flyball-run", ""),
    ("x-claude-code-session-id", "x-claude-code-agent-id"),
    ("thread-id", ""),
    ("x-session-id", ""),
)
"""Headers in which programs name their conversation, each with one that names the agent within it."""
_MAX_CALL_IDS = 100_000
_MIN_SUMMARY_CHARS, _SUMMARY_CHARS = 40, 200
_SUMMARY_ITEMS = 4
"""Number of messages at the start of a history that may have a summary."""


@dataclass(frozen=True, slots=True)
class OpenCall:
    """Call that was handed to the program, and has no result yet."""

    tool: str
    started_at: float
    has_id: bool = True
    """Whether the provider gave it an id."""


@dataclass(slots=True, eq=False)
class Chat:
    """Conversation of the program with a model."""

    number: int
    name: str = ""
    """Name that the program gave it. Empty if it gave none."""
    model: str = ""
    turns: int = 0
    """Turns that took place."""
    in_progress: int = 0
    """Requests that are not answered yet."""
    reported: bool = False
    """True once its last request was sent, or a report was made without one."""
    lost_report: bool = False
    """True if the report replaced the history, so that the program has not shown it."""
    made_replies: int = 0
    """Synthetic replies since then."""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    """Billionths of a dollar."""
    text: str = ""
    """Text of the latest reply."""
    known_bytes: int = 0
    """Bytes of the latest request whose usage is known, without its files."""
    known_file_tokens: int = 0
    """About the tokens of those files."""
    known_input: int = 0
    """Input tokens of that request."""
    known_output: int = 0
    task_key: bytes | None = None
    """Hash of the user's messages that began its task."""
    state_id: str | None = None
    """Id of the latest reply that the provider keeps. None means that it keeps none."""
    own_ids: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Ids of the provider's latest replies, by the ids that the gateway gave to joined and synthetic ones."""
    open_calls: dict[str, OpenCall] = field(default_factory=dict[str, "OpenCall"])
    """Calls that the program makes now, by id."""

    @property
    def label(self) -> str:
        """Name for people."""
        return self.name or f"conversation {self.number}"


class Conversations:
    """Finds the conversation of each request.

    First by a header, then by the id of the earlier reply at the provider, then by the ids of calls that passed here,
    then by the first message. A wrong guess costs a report, never money, because budgets belong to the run.
    """

    def __init__(self) -> None:
        self.all: list[Chat] = []
        self._by_name: dict[tuple[str, ...], Chat] = {}
        self._by_state: dict[str, Chat] = {}
        self._by_call: dict[str, Chat] = {}
        self._by_opening: dict[bytes, list[Chat]] = {}
        self._summaries: list[tuple[str, Chat]] = []
        """Starts of the texts that replaced histories, as in JSON, the newest last."""
        self.side = Chat(0, "beside the loop")
        """Stands for all requests that belong to no conversation, such as titles."""

    def find(self, inbound: Inbound) -> Chat:
        """Return the conversation that a request belongs to, possibly a new one."""
        name = _find_name(inbound)
        if name is not None:
            if name not in self._by_name:
                self._by_name[name] = self._create(inbound, name[-1] or name[1])
            return self._by_name[name]
        found = self._find_by_history(inbound)
        if found is None:
            found = self._create(inbound, "")
            self._by_opening.setdefault(inbound.opening, []).append(found)
        return found

    def find_side(self, inbound: Inbound) -> Chat:
        """Return the conversation of a request that a program makes beside its loop."""
        if _find_name(inbound) is not None:
            return self.find(inbound)
        return self._find_by_history(inbound) or self.side

    def remember_summary(self, chat: Chat, text: str) -> None:
        """Record a text that the program may begin a new history with."""
        start = text.strip()[:_SUMMARY_CHARS]
        if len(start) >= _MIN_SUMMARY_CHARS:
            self._summaries.append((json.dumps(start, ensure_ascii=False)[1:-1], chat))

    def remember_call(self, chat: Chat, call_id: str) -> None:
        """Record that a call of this conversation passed."""
        if call_id and len(self._by_call) < _MAX_CALL_IDS:
            self._by_call[call_id] = chat

    def remember_state(self, chat: Chat, state_id: str) -> None:
        """Record a reply, or a conversation, that the provider keeps."""
        self._by_state[state_id] = chat

    def _find_by_history(self, inbound: Inbound) -> Chat | None:
        state = inbound.request.previous_id
        if state is not None and state in self._by_state:
            return self._by_state[state]
        for call_id in inbound.iter_call_ids() if self._by_call else ():
            if call_id in self._by_call:
                return self._by_call[call_id]
        found = self._find_by_summary(inbound)
        if found is not None:
            return found
        count = inbound.reply_count
        if not count:
            return None
        candidates = self._by_opening.get(inbound.opening, ())
        free = [chat for chat in candidates if not chat.in_progress] or [*candidates]
        return next((chat for chat in reversed(free) if chat.requests == count), free[-1] if free else None)

    def _find_by_summary(self, inbound: Inbound) -> Chat | None:
        """Return the conversation whose history was replaced by a text at the start of this one."""
        if not self._summaries:
            return None
        told = json.dumps(inbound.items[:_SUMMARY_ITEMS], ensure_ascii=False)
        return next((chat for text, chat in reversed(self._summaries) if text in told), None)

    def _create(self, inbound: Inbound, name: str) -> Chat:
        chat = Chat(len(self.all) + 1, name, inbound.request.model or "")
        self.all.append(chat)
        return chat


def _find_name(inbound: Inbound) -> tuple[str, ...] | None:
    for header, within in _SESSION_HEADERS:
        value = inbound.headers.get(header)
        if value:
            return header, value, inbound.headers.get(within, "") if within else ""
    return None
