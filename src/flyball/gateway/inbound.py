"""Request of a program, as the gateway reads it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from .._internal.attachments import MIN_CHARACTERS, estimate_base64_tokens, is_base64, is_text_key
from ..message import Message, MessageType
from ..wire.bodies import Json, WireRequest, get_dict, get_dicts, list_dicts
from ..wire.formats import ANTHROPIC, CHAT, GEMINI
from ..wire.reader import read_messages
from ..wire.wire import Wire
from .body import Refused
from .door import Route

_CALL_ID_KEYS = ("tool_call_id", "call_id", "tool_use_id")
_RESULT_KEYS = frozenset({"tool_use_id", "functionResponse", "function_response"})
_ITEM_KEYS = ("messages", "input", "contents")
CHOICE_KEYS = ("n", "candidateCount", "candidate_count")
"""Keys of the number of alternative replies."""
_ASSISTANT_ROLES = frozenset({"assistant", "model"})


@dataclass(slots=True)
class Inbound:
    """Governed request of a program."""

    route: Route
    headers: Mapping[str, str]
    raw: bytes
    """Body as it was sent, without its content encoding."""
    body: Json
    request: WireRequest
    query: str = ""
    keys: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Key headers for the provider."""
    _items: list[Json] | None = None
    _size: tuple[int, int] | None = None
    _choice_count: int | None = None

    @property
    def wire(self) -> Wire:
        """Format of the body."""
        return self.route.wire

    @property
    def is_array(self) -> bool:
        """Whether a stream comes as one JSON array, as Gemini's does without `alt=sse`."""
        return self.wire is GEMINI and self.request.stream and "alt=sse" not in self.query

    @property
    def model(self) -> str:
        """Name of the model for prices, with its provider."""
        return f"{self.route.upstream.name}:{self.request.model}"

    @property
    def caches_long(self) -> bool:
        """Whether the request may write to a cache for an hour, which costs more."""
        return self.wire is ANTHROPIC and b'"1h"' in self.raw

    @property
    def choice_count(self) -> int:
        """Number of alternative replies that the request asks for. Each may be as long as its cap."""
        if self._choice_count is None:
            config = get_dict(self.body, "generationConfig") or get_dict(self.body, "generation_config")
            source = {CHAT.name: self.body, GEMINI.name: config}.get(self.wire.name, {})
            self._choice_count = max((_read_count(source[name]) for name in CHOICE_KEYS if name in source), default=1)
        return self._choice_count

    @property
    def digest(self) -> bytes:
        """Hash of the body, which finds out whether a request is sent again."""
        return hashlib.sha256(self.raw).digest()

    @property
    def items(self) -> list[Json]:
        """Messages of the body in the provider's format."""
        if self._items is None:
            value: Any = next((self.body[key] for key in _ITEM_KEYS if key in self.body), None)
            self._items = [{"role": "user", "content": value}] if isinstance(value, str) else list_dicts(value)
        return self._items

    @property
    def reply_count(self) -> int:
        """Number of replies of the model in the history."""
        return sum(_is_reply(item) for item in self.items)

    @property
    def opening(self) -> bytes:
        """Hash of the first message of the user, and of nothing before it, because that may change."""
        first = next((item for item in self.items if item.get("role") == "user"), None)
        content = json.dumps(None if first is None else first.get("content") or first.get("parts"), sort_keys=True)
        return hashlib.sha256(f"{self.wire.name} {content}".encode("utf-8", "replace")).digest()

    @property
    def task_key(self) -> bytes | None:
        """Hash that tells tasks of a conversation apart. None if its newest messages are not from the user alone."""
        newest = list(takewhile(lambda item: not _is_reply(item), reversed(self.items)))
        if not any(item.get("role") == "user" for item in newest) or any(_has_results(item) for item in newest):
            return None
        told = json.dumps([len(self.items), newest, self.request.previous_id])
        return hashlib.sha256(told.encode("utf-8", "replace")).digest()

    def iter_call_ids(self) -> Iterator[str]:
        """Yield the ids of the calls in the history, newest first."""
        for item in reversed(self.items):
            yield from (str(item[key]) for key in _CALL_ID_KEYS if item.get(key))
            yield from (str(call["id"]) for call in reversed(get_dicts(item, "tool_calls")) if call.get("id"))
            for block in reversed(get_dicts(item, "content")):
                if block.get("tool_use_id") or block.get("type") == "tool_use":
                    yield str(block.get("tool_use_id") or block.get("id"))

    def iter_results(self) -> Iterator[tuple[Message, bool]]:
        """Yield the results of calls in the history, newest first, and whether each is behind the newest reply."""
        is_new = True
        for item in reversed(self.items):
            if _is_reply(item):
                is_new = False
            elif _has_results(item):
                for message in reversed(read_messages([item], self.wire.name)):
                    if message.type is MessageType.TOOL_RESULT:
                        yield message, is_new

    def count_bytes(self) -> tuple[int, int]:
        """Return the bytes of the body without its files, and about the tokens of those."""
        if self._size is None:
            self._size = measure(self.raw)
        return self._size


def measure(raw: bytes) -> tuple[int, int]:
    """Return the bytes of a body without the data of images, documents and recordings, and about the tokens of those.

    Such data is a long base64 text under a key of its own. Splitting at the quotes takes a tenth of the time of an
    expression.
    """
    if len(raw) < MIN_CHARACTERS:
        return len(raw), 0
    parts = raw.split(b'"')
    if max(map(len, parts)) < MIN_CHARACTERS:
        return len(raw), 0
    size, file_tokens = len(raw), 0
    for place, part in enumerate(parts):
        tokens = _estimate_file(parts, place) if len(part) >= MIN_CHARACTERS else None
        if tokens is not None:
            size, file_tokens = size - len(part), file_tokens + tokens
    return size, file_tokens


def _estimate_file(parts: Sequence[bytes], place: int) -> int | None:
    """Return about the tokens of one of the parts between quotes. None if it is no file, but what the model reads."""
    if place < 2 or parts[place - 1].strip() != b":" or is_text_key(parts[place - 2].decode("utf-8", "replace")):
        return None
    text = parts[place].replace(b"\\/", b"/").replace(b"\\n", b"")  # some clients escape it, or write lines
    return estimate_base64_tokens(text) if is_base64(text) else None


def _read_count(value: Any) -> int:
    """Return a number of replies as a lenient server reads it, that is also from a text."""
    try:
        return max(1, int(value))
    except (TypeError, ValueError, OverflowError):
        return 1


def _is_reply(item: Json) -> bool:
    kind = item.get("type")
    return item.get("role") in _ASSISTANT_ROLES or kind in ("function_call", "custom_tool_call")


def _has_results(item: Json) -> bool:
    if any(item.get(key) for key in _CALL_ID_KEYS):
        return True
    blocks = (*get_dicts(item, "content"), *get_dicts(item, "parts"))
    return any(not _RESULT_KEYS.isdisjoint(block) for block in blocks)


def check_features(body: Json) -> None:
    """Refuse a request that would work on at the provider, where no limit reaches it."""
    if body.get("background"):
        raise Refused(400, "background_refused", "flyball cannot govern background responses: leave out background")
    tools = get_dicts(body, "tools")
    kinds = {str(tool.get("type")) for tool in tools}
    if kinds & {"computer_use_agent", "agent"}:
        raise Refused(400, "agents_refused", "flyball cannot govern agents that run at the provider")


def limit_thinking(body: Json, cap: int) -> None:
    """Lower the budget for thinking below the cap of the reply, or turn thinking off where it does not fit."""
    thinking = get_dict(body, "thinking")
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or budget < cap:
        return
    if cap > MIN_THINKING_TOKENS:
        body["thinking"] = thinking | {"budget_tokens": max(MIN_THINKING_TOKENS, min(budget, cap * 3 // 4))}
        return
    body.pop("thinking")
    context = get_dict(body, "context_management")  # clearing thoughts without thinking is an error
    edits = [edit for edit in get_dicts(context, "edits") if not str(edit.get("type", "")).startswith("clear_thinking")]
    if "context_management" in body:
        body["context_management"] = context | {"edits": edits}
        if not edits:
            body.pop("context_management")


MIN_THINKING_TOKENS = 1_024
"""Lowest budget for thinking that the provider accepts. It must be lower than the cap of the reply."""


def thinks(body: Json) -> bool:
    """Check whether the model thinks before it replies, so that no tool can be forced."""
    return get_dict(body, "thinking").get("type") in ("enabled", "adaptive")
