"""The messages of one run: its history, what requests show of it, and estimates of the next request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..message import Message, MessageType, Role
from ..request import (
    MESSAGE_OVERHEAD_TOKENS,
    Call,
    Finish,
    Reply,
    estimate_bytes,
    estimate_content_tokens,
    estimate_message_tokens,
    estimate_tokens,
)
from .clock import LoopClock
from .request_view import RequestView

# Enum member lookup is about 5x slower than a global on Python 3.11; these are used in every turn.
_CALL, _RESULT, _TEXT = MessageType.TOOL_CALL, MessageType.TOOL_RESULT, MessageType.TEXT
_ASSISTANT, _TOOL = Role.ASSISTANT, Role.TOOL


class MessageLog:
    """Messages of one run, with an upper estimate of the tokens of its next request.

    The history is never shortened. `view` is what requests show of it.
    """

    __slots__ = (
        "_call_ids", "_clock", "_next_numbers", "_number_offset", "_run_id", "_stored_count", "finish", "history",
        "input_tokens", "is_counted", "request_bytes", "view",
    )  # fmt: skip

    def __init__(self, messages: Sequence[Message], run_id: str, clock: LoopClock, stored_count: int = 0) -> None:
        self.history = list(messages)
        self.view = RequestView(self.history)
        self.finish: Finish | None = None
        """Finish reason of the last reply."""
        self.input_tokens = self.request_bytes = 0
        """Upper estimates of the next request: the last one as counted, and the messages since."""
        self.is_counted = False
        """True if the provider has counted the last request, so that only what is new is an estimate."""
        self._run_id = run_id
        self._clock = clock
        self._stored_count = stored_count
        """Number of messages that the transcript has."""
        self._call_ids: set[str] = set()
        self._next_numbers: dict[str, int] = {}
        """Lowest number that may be free, by name of calls with equal ids. Lower ones are taken."""
        self._number_offset = 0
        if len(self.history) > 1:
            self._load_ids(self.history)

    def _load_ids(self, history: Sequence[Message]) -> None:
        """Note the ids of earlier calls, and of messages if an earlier run had the same id as this one."""
        numbers = [message.n for message in history if message.run == self._run_id]
        self._number_offset = max(0, max(numbers, default=0) + 1 - len(history))
        self._call_ids.update(
            str((message.payload or {}).get("call_id")) for message in history if message.type is _CALL
        )

    @property
    def next_n(self) -> int:
        """Number of the next message."""
        return len(self.history) + self._number_offset

    @property
    def task(self) -> str:
        """The last text of the user, or an empty one."""
        texts = [message.content for message in self.history if message.role is Role.USER and message.content]
        return texts[-1] if texts else ""

    def build_user_message(self, text: str, offset: int = 0) -> Message:
        """Build a message of the user for the next place, or `offset` places later, without adding it."""
        return Message(self._run_id, self.next_n + offset, self._clock.wall(), _TEXT, Role.USER, text)

    def add_user_text(self, text: str) -> None:
        """Add a message that the model reads as the user's."""
        self._add(_TEXT, Role.USER, text)
        self._count(estimate_content_tokens(text, None))

    def add_reply(self, reply: Reply) -> Sequence[Call]:
        """Add what the model said, and return its calls with unique ids."""
        text, parts, calls, usage = reply.text, reply.parts, reply.calls, reply.usage
        size, count = len(text), len(calls) + len(parts) + (text != "")
        group = self.next_n if count > 1 else None
        for part in parts:
            self._add(MessageType.MULTIMODAL_PART, _ASSISTANT, "", dict(part), group)
            size += len(str(part))
        if text:
            self._add(_TEXT, _ASSISTANT, text, None, group)
        for place, call in enumerate(calls):
            call_id, arguments = call.id, call.arguments
            if not call_id or call_id in self._call_ids:  # some models number the calls of every reply from the start
                if calls is reply.calls:
                    calls = self._rename(calls, place)
                call_id = calls[place].id
            self._call_ids.add(call_id)
            self._add(_CALL, _ASSISTANT, "", {"call_id": call_id, "name": call.name, "arguments": arguments}, group)
            size += len(arguments) if type(arguments) is str else len(str(arguments))
        if usage is not None and usage.input and usage.output:  # a fact is better than an estimate
            overhead = MESSAGE_OVERHEAD_TOKENS * count
            self.input_tokens += usage.output + overhead
            self.request_bytes += size + 3 * overhead // 2
        elif count:
            self._count(sum(map(estimate_message_tokens, self.history[-count:])))
        self.finish = reply.finish
        return calls

    def add_result(self, call_id: str, tool: str, text: str, is_error: bool, group: int | None) -> None:
        """Add the result of a call."""
        self._add(_RESULT, _TOOL, text, {"call_id": call_id, "name": tool, "is_error": is_error}, group)
        tokens = estimate_tokens(text) + MESSAGE_OVERHEAD_TOKENS
        self.input_tokens += tokens
        self.request_bytes += 3 * tokens // 2

    def replace_last_result(self, text: str) -> tuple[str, str]:
        """Replace the text of the result that was added last. Return the id and the tool of its call."""
        message = self.history[-1]
        difference = estimate_tokens(text) - estimate_tokens(message.content)
        message.content = text
        self.input_tokens += difference
        self.request_bytes += 3 * difference // 2
        payload = message.payload or {}
        return payload["call_id"], payload["name"]

    def _add(
        self,
        kind: MessageType,
        role: Role,
        content: str,
        payload: dict[str, Any] | None = None,
        group: int | None = None,
    ) -> None:
        history, clock = self.history, self._clock
        n, at = len(history) + self._number_offset, clock.started_at + clock.at
        message = Message(self._run_id, n, at, kind, role, content, payload, None, group)
        history.append(message)
        shown = self.view.messages
        if shown is not history:
            shown.append(message)

    def add_base_tokens(self, tokens: int) -> None:
        """Add tokens of tools that are offered from now on to the estimates."""
        self._count(tokens)

    def _count(self, tokens: int) -> None:
        """Add to the estimates of the next request."""
        self.input_tokens += tokens
        self.request_bytes += estimate_bytes(tokens)

    def add_grace_request(self, message: Message) -> None:
        """Add the request for a report to the history. Later requests do not show it if they are shortened."""
        self.history.append(message)

    def remove_grace_request(self) -> None:
        """Remove the request for a report, which is made again."""
        self.history.pop()

    def estimate_bytes(self, tokens: int) -> int:
        """Return roughly the bytes of a request of so many tokens, which may have notices too."""
        more = tokens - self.input_tokens
        return self.request_bytes + estimate_bytes(more) if more > 0 else self.request_bytes

    def take_unsaved(self) -> list[Message]:
        """Return the messages that the transcript does not have, and count them as saved."""
        unsaved = self.history[self._stored_count :]
        self._stored_count = len(self.history)
        return unsaved

    def estimate(self, base_tokens: int) -> None:
        """Estimate the next request from its parts. `base_tokens` is the size of instructions and tools."""
        self.set_estimate(base_tokens + self.view.tokens)

    def set_estimate(self, tokens: int) -> None:
        """Set the estimate of the next request, in tokens and bytes."""
        self.input_tokens, self.is_counted = tokens, False
        self.request_bytes = estimate_bytes(tokens)

    def lower_estimate(self, base_tokens: int) -> int:
        """Estimate the next request after the view was shortened, and return how many tokens are saved."""
        before, estimate = self.input_tokens, base_tokens + self.view.tokens
        self.set_estimate(estimate)
        self.input_tokens = min(before, estimate)
        return before - self.input_tokens

    def _rename(self, calls: Sequence[Call], start: int) -> tuple[Call, ...]:
        """Return the calls with unique ids, from the first one that needs another id."""
        renamed = list(calls)
        for place in range(start, len(calls)):
            call = calls[place]
            call_id = call.id
            if not call_id or call_id in self._call_ids:
                call_id = self._build_id(call_id or "call")
                renamed[place] = Call(call_id, call.name, call.arguments)
            self._call_ids.add(call_id)
        return tuple(renamed)

    def _build_id(self, name: str) -> str:
        n = max(len(self._call_ids), self._next_numbers.get(name, 0))
        while f"{name}-{n}" in self._call_ids:
            n += 1
        self._next_numbers[name] = n + 1
        return f"{name}-{n}"
