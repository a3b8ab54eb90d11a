"""Model requests, replies and failures, and estimates of their tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any, cast, overload

from ._internal.attachments import take_out_files
from ._internal.jsonable import to_json_text
from .budget.usage import Usage
from .errors import ContextTooLong, ModelError, Retryable, describe_error
from .message import Message


class Purpose(StrEnum):
    """Purpose of a request."""

    TURN = "turn"
    GRACE = "grace"
    REFLECTION = "reflection"


class Finish(StrEnum):
    """Reason why a reply ended."""

    STOP = "stop"
    CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    """The provider's filter blocked the request or stopped the reply."""
    REFUSAL = "refusal"
    """The model refused to answer. The text is what it said."""
    CUT = "cut"
    """A deadline or a cancel of the run ended the reply early. The text received so far is kept."""


@dataclass(slots=True, unsafe_hash=True)
class Call:
    """Tool call as the model wrote it.

    Not frozen, for speed; treat it as a value.
    """

    id: str
    name: str
    arguments: str | Mapping[str, Any]


class History(Sequence[Message]):
    """View of a growing message list, fixed at its current length.

    Each request keeps one instead of a copy of the list.
    """

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
    """Request to a model.

    Not frozen, for speed; treat it as a value.
    """

    messages: Sequence[Message]
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    """Tools that the model may call: `name`, `description` and `parameters` (a JSON schema)."""
    purpose: Purpose = Purpose.TURN
    max_output_tokens: int | None = None
    output_schema: Mapping[str, Any] | None = None
    notices: tuple[str, ...] = ()
    """Short texts for this request only, shown after the newest message."""
    run_id: str = ""
    """Id of the run that sends the request. Its messages may come from other runs."""
    model: str = ""
    """Name of another model of the agent. Empty means the agent's own model."""
    turns: int = 0
    """Number of turns that the run has had."""


@dataclass(slots=True)
class Reply:
    """Reply of a model: text, calls, or both.

    Not frozen, for speed; treat it as a value.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage | None = None
    """Token usage. None means that the provider reported none."""
    finish: Finish = Finish.STOP
    model: str | None = None
    provider: str | None = None
    parts: tuple[Mapping[str, Any], ...] = ()
    """Other content that the provider expects back, such as signed reasoning: payloads of multimodal parts."""
    id: str | None = None
    """Id that the provider gave the reply. None if it gave none."""
    detail: str = ""
    """Provider's word for why its filter stopped the reply. Empty means that it gave none."""


class FailureKind(StrEnum):
    """Kind of a request failure, which decides what the loop does next."""

    RETRYABLE = "retryable"
    CONTEXT = "context"
    """The provider says that the conversation is too long for the model."""
    INTERRUPTED = "interrupted"
    """The process ended during the request. The process that resumes the run sends it again."""
    FINAL = "final"


@dataclass(frozen=True, slots=True)
class ModelFailure:
    """Request that got no reply."""

    kind: FailureKind
    error: str
    """Name of the exception class."""
    code: str
    message: str
    after_s: float | None = None
    """Seconds that the provider asks to wait before the next attempt. None means that it gave none."""
    began: bool = False
    """True if the provider may have begun to answer, and so to charge."""

    @property
    def described(self) -> dict[str, str]:
        """Error as in `Result.error`."""
        return {"code": self.code, "kind": self.error, "message": self.message}

    @classmethod
    def from_error(cls, error: BaseException) -> ModelFailure:
        """Convert an exception of a model for the loop.

        An exception that is not a ModelError is final.
        """
        kind, after = FailureKind.FINAL, None
        if isinstance(error, Retryable):
            kind, after = FailureKind.RETRYABLE, error.after
        elif isinstance(error, ContextTooLong):
            kind = FailureKind.CONTEXT
        described, began = describe_error(error), isinstance(error, ModelError) and error.began
        return cls(kind, described["kind"], described["code"], described["message"], after, began)


MESSAGE_OVERHEAD_TOKENS = 16
"""Upper bound on the tokens that a provider adds to a message for its role and call id."""
MAX_IMAGE_TOKENS = 5_000
"""Upper bound on the tokens of an image of any size (Anthropic: 4,784; OpenAI: 3,779, except for gpt-4o-mini)."""
_TOOLS_OVERHEAD_TOKENS = {"anthropic": 700}
"""Upper bound on the tokens that a provider adds to a request with tools."""
_LOWERCASE_LETTERS = bytes(range(ord("a"), ord("z") + 1))
_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})


def estimate_tokens(text: str) -> int:
    """Return an upper bound on the tokens of a text.

    Each byte counts as one token, but five lowercase letters count as three. Words have several letters per token;
    digits, punctuation and other languages may have one byte per token. English has a third of this estimate, a list of
    numbers all of it. docs/money.md has the measurements.
    """
    if not text:
        return 1
    encoded = text.encode("utf-8", "replace")
    others = len(encoded.translate(None, _LOWERCASE_LETTERS))
    return others + 3 * (len(encoded) - others) // 5 + 1


estimate_name_tokens = lru_cache(1_000)(estimate_tokens)
"""Cached `estimate_tokens` for tool names, which are few."""


def estimate_bytes(tokens: int) -> int:
    """Return roughly how many bytes correspond to an estimate of tokens."""
    return 3 * tokens // 2


def estimate_message_tokens(message: Message) -> int:
    """Return an upper bound on the tokens of a message."""
    return estimate_content_tokens(message.content, message.payload)


def estimate_content_tokens(content: str, payload: Mapping[str, Any] | None) -> int:
    """Return an upper bound on the tokens of content and payload."""
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
    """Return an upper bound on the tokens of a tool call."""
    text = arguments if isinstance(arguments, str) else to_json_text(arguments)
    return estimate_name_tokens(name) + estimate_tokens(text)


def estimate_reply_tokens(reply: Reply) -> int:
    """Return an upper bound on the tokens of a reply."""
    call_tokens = sum(estimate_call_tokens(call.name, call.arguments) + MESSAGE_OVERHEAD_TOKENS for call in reply.calls)
    return estimate_tokens(reply.text) + call_tokens + sum(map(_estimate_part_tokens, reply.parts))


def _estimate_part_tokens(part: object) -> int:
    if isinstance(part, Mapping) and _is_image(cast("Mapping[str, Any]", part)):
        return MAX_IMAGE_TOKENS  # providers count the pixels of an image, which are bounded, not its bytes
    if isinstance(part, str):
        return estimate_tokens(part)
    rest, file_tokens = take_out_files(part, MAX_IMAGE_TOKENS)
    return estimate_tokens(to_json_text(rest)) + file_tokens


def _is_image(part: Mapping[str, Any]) -> bool:
    match part:
        case {"value": {"inlineData": {**blob}}} | {"value": {"inline_data": {**blob}}}:
            return str(blob.get("mimeType", blob.get("mime_type"))).startswith("image/")
        case _:
            return part.get("type") in _IMAGE_TYPES


def estimate_tools_tokens(
    tools: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None, provider: str | None
) -> int:
    """Return an upper bound on the tokens of tools and output schema."""
    described = [*tools, schema] if schema else tools
    overhead = _TOOLS_OVERHEAD_TOKENS.get(provider or "", 0) if tools else 0
    return estimate_tokens(to_json_text(described)) + overhead if described else 0


def estimate_request_tokens(request: Request, provider: str | None = None) -> int:
    """Return an upper bound on a request's input tokens.

    Used for models without a counter of their own.
    """
    texts = [request.instructions or "", *request.notices]
    content_tokens = sum(map(estimate_tokens, texts)) + sum(map(estimate_message_tokens, request.messages))
    return content_tokens + estimate_tools_tokens(request.tools, request.output_schema, provider)
