"""Conversations of the agents of a framework: which request belongs to which."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..budget.lock import create_lock
from .model_port import CountedMessages

if TYPE_CHECKING:
    from ..governor.reserved_turn import ReservedTurn

_MAX_CALL_IDS = 100_000


@dataclass(frozen=True, slots=True)
class StartedCall:
    """Call that was handed to the framework, and has no result yet."""

    tool: str
    started_at: float


@dataclass(slots=True, eq=False)
class AgentConversation:
    """Conversation of one agent with its model."""

    number: int
    agent: str = ""
    level: int = 0
    """Number of agents above it: 0 for the agent of the run."""
    turns: int = 0
    reported: bool = False
    """True once its last request was made, or a report was written without one."""
    requests: int = 0
    model: str = ""
    """Model of the latest request."""
    input_tokens: int = 0
    output_tokens: int = 0
    synthetic_replies: int = 0
    """Replies after the report, which no model wrote."""
    text: str = ""
    """Text of the latest reply."""
    known_bytes: int = 0
    """Bytes of the latest request whose usage is known."""
    counted: CountedMessages = field(default_factory=CountedMessages)
    known_input: int = 0
    """Input tokens of that request."""
    has_failed: bool = False
    """True if the latest request failed, so that the next one is a retry."""
    turn: ReservedTurn | None = None
    """Turn whose calls are in progress."""
    open_calls: dict[str, StartedCall] = field(default_factory=dict[str, StartedCall])


class AgentConversations:
    """All conversations of a run. Thread-safe."""

    def __init__(self) -> None:
        self.all: list[AgentConversation] = []
        self._by_key: dict[Hashable, AgentConversation] = {}
        self._by_call: dict[tuple[Hashable, str], AgentConversation] = {}
        self._lock = create_lock()

    def find(self, key: Hashable, agent: str = "", level: int = 0) -> AgentConversation:
        """Return the conversation with a key that the framework gives it, such as the id of its own run."""
        with self._lock:
            if key not in self._by_key:
                self._by_key[key] = self._add(agent, level)
            return self._by_key[key]

    def find_by_calls(self, agent: Hashable, call_ids: Iterable[str]) -> AgentConversation | None:
        """Return the conversation that one of the calls in a history belongs to, newest first.

        A call of the same agent counts before one of another agent, from which it took over. None if all are unknown.
        """
        other: AgentConversation | None = None
        with self._lock:
            for call_id in call_ids:
                if (agent, call_id) in self._by_call:
                    return self._by_call[agent, call_id]
                other = other or self._by_call.get((None, call_id))
        return other

    def add(self, agent: str = "", level: int = 0) -> AgentConversation:
        """Begin a conversation."""
        with self._lock:
            return self._add(agent, level)

    def remember_calls(self, conversation: AgentConversation, agent: Hashable, call_ids: Iterable[str]) -> None:
        """Remember that a model made these calls for an agent in a conversation."""
        with self._lock:
            for call_id in call_ids:
                for owner in (agent, None):
                    self._by_call.pop((owner, call_id), None)
                    self._by_call[owner, call_id] = conversation
            while len(self._by_call) > _MAX_CALL_IDS:
                del self._by_call[next(iter(self._by_call))]

    def _add(self, agent: str, level: int) -> AgentConversation:
        conversation = AgentConversation(len(self.all) + 1, agent, level)
        self.all.append(conversation)
        return conversation
