"""What is asked of a model, what it replies, and what that used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any, cast, overload

from .budget.usage import Usage
from .errors import ContextTooLong, FlyballError, ModelError, Retryable
from .message import Message


class Purpose(StrEnum):
    """What a request is for."""

    TURN = "turn"
    GRACE = "grace"
    REFLECTION = "reflection"


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    CUT = "cut"
    """By us: a deadline or a cancel ended it in the middle; what there was of its text is kept."""


@dataclass(slots=True, unsafe_hash=True)
class Call:
    """What a model asks for: a tool, and its arguments as the model wrote them. Not frozen; treat it as a value."""

    id: str
    name: str
    arguments: str | Mapping[str, Any]


class History(Sequence[Message]):
    """The first messages of a conversation that only grows: what a request saw, without a copy for each request."""

    __slots__ = ("_all", "_length")

    def __init__(self, messages: list[Message]) -> None:
        self._all = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Message]:
        return islice(self._all, self._length)

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return self._all[slice(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._all[index if index >= 0 else index + self._length]


@dataclass(slots=True)
class Request:
    """One question to a model. Not frozen, because a run makes many; treat it as a value."""

    messages: Sequence[Message]
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    """What may be called: `name`, `description` and `parameters`, a JSON schema."""
    purpose: Purpose = Purpose.TURN
    max_output_tokens: int | None = None
    output_schema: Mapping[str, Any] | None = None
    notices: tuple[str, ...] = ()
    """Short messages for this request only, to be shown behind the newest message."""
    run_id: str = ""
    """The run that asks; its messages may come from others."""
    model: str = ""
    """Which of the agent's other models is asked; empty for its own."""
    turns: int = 0
    """How many turns the run has had."""


@dataclass(slots=True)
class Reply:
    """One answer of a model: text, calls, or both. Not frozen, because a run has many; treat it as a value."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    """None where the provider told nothing."""
    finish: Finish = Finish.STOP
    model: str | None = None
    provider: str | None = None
    parts: tuple[Mapping[str, Any], ...] = ()
    """What else it said that its provider wants back, such as signed reasoning: payloads of multimodal parts."""


class FailureKind(StrEnum):
    """How a request failed, and so what the loop does about it."""

    RETRYABLE = "retryable"
    CONTEXT = "context"
    """The provider says that the conversation is too long for the model."""
    INTERRUPTED = "interrupted"
    """The process ended while the reply was awaited, and another goes on: it is asked again."""
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """A request that got no reply."""

    kind: FailureKind
    error: str
    """The name of the error's class."""
    code: str
    message: str
    after_s: float | None = None
    """How long the provider asks to wait before the next attempt."""
    began: bool = False
    """Whether the provider may have begun to answer, and so to count."""

    @classmethod
    def from_error(cls, error: BaseException) -> ModelFailure:
        """What a model raised, as the loop is told of it; whatever is no ModelError is final."""
        kind, after = FailureKind.FINAL, None
        if isinstance(error, Retryable):
            kind, after = FailureKind.RETRYABLE, error.after
        elif isinstance(error, ContextTooLong):
            kind = FailureKind.CONTEXT
        try:
            message = str(error)
        except Exception:
            message = "an error that cannot be shown"
        code = error.code if isinstance(error, FlyballError) else "exception"
        return cls(kind, type(error).__name__, code, message, after, isinstance(error, ModelError) and error.began)


MESSAGE_OVERHEAD_TOKENS = 16
"""More than a provider puts around a message: its role, and the id of a call."""
MAX_IMAGE_TOKENS = 5_000
"""More than providers count for an image, however large (Anthropic: 4,784; OpenAI: 3,779, but for gpt-4o-mini)."""
_TOOLS_OVERHEAD_TOKENS = {"anthropic": 700}
"""More than a provider adds of its own to a request with tools."""
_LOWERCASE_LETTERS = bytes(range(ord("a"), ord("z") + 1))
_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})


def estimate_tokens(text: str) -> int:
    """More tokens than a text has: one for each byte, but only three for five small letters.

    Words have several letters to a token; digits, signs and what is not English may have none to spare. English has a
    third of this, a list of numbers all of it. docs/money.md tells what this was measured on.
    """
    if not text:
        return 1
    encoded = text.encode("utf-8", "replace")
    others = len(encoded.translate(None, _LOWERCASE_LETTERS))
    return others + 3 * (len(encoded) - others) // 5 + 1


estimate_name_tokens = lru_cache(1_000)(estimate_tokens)
"""The same for names of tools, which are few."""


def estimate_bytes(tokens: int) -> int:
    """About how many bytes so many estimated tokens are."""
    return 3 * tokens // 2


def estimate_message_tokens(message: Message) -> int:
    """More tokens than a message has, with what a provider puts around it."""
    return estimate_content_tokens(message.content, message.payload)


def estimate_content_tokens(content: str, payload: Mapping[str, Any] | None) -> int:
    """The same for what it is made of."""
    tokens = estimate_tokens(content) + MESSAGE_OVERHEAD_TOKENS
    if payload:
        if "arguments" in payload:
            tokens += estimate_call_tokens(str(payload.get("name") or ""), payload["arguments"])
        if "part" in payload:
            tokens += _estimate_part_tokens(payload["part"])
        if payload.get("parts"):
            tokens += sum(map(_estimate_part_tokens, payload["parts"]))
    return tokens


def estimate_call_tokens(name: str, arguments: object) -> int:
    """Estimate the tokens of a tool call."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
    return estimate_name_tokens(name) + estimate_tokens(written)


def estimate_reply_tokens(reply: Reply) -> int:
    """More tokens than a reply has."""
    called = sum(estimate_call_tokens(call.name, call.arguments) + MESSAGE_OVERHEAD_TOKENS for call in reply.calls)
    return estimate_tokens(reply.text) + called + sum(map(_estimate_part_tokens, reply.parts))


def _estimate_part_tokens(part: object) -> int:
    """An image is counted by its pixels, which are bounded, and not by its bytes."""
    if isinstance(part, Mapping) and cast("Mapping[str, object]", part).get("type") in _IMAGE_TYPES:
        return MAX_IMAGE_TOKENS
    return estimate_tokens(part if isinstance(part, str) else json.dumps(part, default=str))


def estimate_tools_tokens(
    tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, provider: str | None
) -> int:
    """More tokens than the tools and the schema of the answer have, with what a provider adds where there are tools."""
    described = [*tools, schema] if schema else tools
    added = _TOOLS_OVERHEAD_TOKENS.get(provider or "", 0) if tools else 0
    return estimate_tokens(json.dumps(described, default=str)) + added if described else 0


def estimate_request_tokens(request: Request, provider: str | None = None) -> int:
    """An upper estimate of a request's input, for models that bring no counter of their own."""
    texts = [request.instructions or "", *request.notices]
    shown = sum(map(estimate_tokens, texts)) + sum(map(estimate_message_tokens, request.messages))
    return shown + estimate_tools_tokens(request.tools, request.output_schema, provider)
