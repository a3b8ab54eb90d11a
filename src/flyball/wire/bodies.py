"""Requests, replies and stream events as the wires read and write them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from ..message import Message
from ..request import Call, Finish, Reply, Request

Json = dict[str, Any]

CREATED = 1_900_000_000
"""Default creation time of a written reply, in seconds since the epoch."""
_CHUNK_CHARS = 8


class WireMessages(Sequence[Message]):
    """Messages of a request's body, parsed when they are first read.

    `items` are the provider's own, and are written back as they are. `added` are written behind them.
    """

    __slots__ = ("_messages", "_parse", "added", "items", "wire")

    def __init__(
        self, wire: str, items: object, parse: Callable[[object], list[Message]], added: tuple[Message, ...] = ()
    ) -> None:
        self.wire = wire
        self.items = items
        self.added = added
        self._parse = parse
        self._messages: list[Message] | None = None

    def plus(self, *messages: Message) -> WireMessages:
        """Return these messages and more behind them."""
        return WireMessages(self.wire, self.items, self._parse, (*self.added, *messages))

    def _read(self) -> list[Message]:
        if self._messages is None:
            self._messages = [*self._parse(self.items), *self.added]
        return self._messages

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[Message]:
        return iter(self._read())

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self._read()[index]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, WireMessages):
            return self.items is other.items and self.added == other.added
        return NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"<WireMessages with {len(self.added)} added>"


@dataclass(slots=True)
class WireRequest(Request):
    """Request with all that a body says beyond a `Request`.

    Change it with `dataclasses.replace`. A wire writes only what differs from `source` and keeps the rest.
    """

    stream: bool = False
    tool_choice: str | None = None
    """`auto`, `required`, `none`, or the name of the tool to call. None means that the body leaves it open."""
    parallel_calls: bool | None = None
    """Whether a reply may have several calls. None means that the body leaves it open."""
    includes_usage: bool = True
    """Whether a streamed reply will report its usage."""
    previous_id: str | None = None
    """Id of the earlier reply, or conversation, that the provider keeps and continues. None means none."""
    source: Json | None = None
    """Body that it was read from. It is never changed. None writes a new body."""


@dataclass(slots=True)
class ReplyDraft:
    """Reply to write in a provider's format, whole or as a stream."""

    reply: Reply
    id: str = "1"
    """Id of the reply, without the prefix of the provider."""
    model: str = "flyball"
    created: int = CREATED
    """Seconds since the epoch."""
    thinking: str = ""
    """Reasoning before the text."""
    free_text_tools: frozenset[str] = frozenset()
    """Tools whose arguments are a text instead of JSON, in formats that have such tools."""
    includes_usage: bool = True
    """Whether a stream reports the usage, in formats where the client chooses."""
    pieces: Sequence[tuple[float, str]] | None = None
    """Pieces of a streamed text, with the seconds at which a test server sends them. None means one piece."""
    end: float = 0.0
    """Seconds at which a test server sends the rest."""
    override: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """For tests: a `finish` in the provider's words, or None; a `usage` that is written as it is; `items` of an
    output (Responses API)."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """Tool calls of the reply."""
        return self.reply.calls

    @property
    def text(self) -> str:
        """Text of the reply."""
        return self.reply.text

    def iter_pieces(self) -> Iterator[tuple[float, str]]:
        """Yield the pieces of the text with their times."""
        pieces = [(self.end, self.text)] if self.pieces is None else self.pieces
        return ((at, piece) for at, piece in pieces if piece)

    def get_finish(self, names: Mapping[Finish, str]) -> str | None:
        """Return the finish reason in the provider's words."""
        return self.override["finish"] if "finish" in self.override else names.get(self.reply.finish)

    def build_usage(self, counts: Json) -> Json | None:
        """Return the usage in the provider's format. None means that none is reported."""
        if "usage" not in self.override:
            return counts if self.reply.usage is not None else None
        usage = self.override["usage"]
        return dict(usage) if isinstance(usage, Mapping) else dict.fromkeys(counts, usage)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """Event of a stream to write. `at` is in seconds since the start of the reply."""

    data: Json | str
    name: str | None = None
    at: float = 0.0

    def encode(self, line_end: str = "\n") -> bytes:
        """Return the event as bytes of a stream. A lone surrogate becomes a question mark."""
        lines = [f"event: {self.name}"] if self.name else []
        data = self.data if isinstance(self.data, str) else json.dumps(self.data, ensure_ascii=False)
        return line_end.join([*lines, f"data: {data}", "", ""]).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class ErrorReply:
    """Error to write in a provider's format."""

    status: int
    message: str = ""
    code: str | None = None

    @property
    def words(self) -> str:
        """The message, or one about the status."""
        return self.message or f"The server answers with status {self.status}."


def encode_arguments(call: Call) -> str:
    """Return the arguments of a call as a JSON text."""
    arguments = call.arguments
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def parse_arguments(call: Call) -> object:
    """Return the arguments of a call as JSON, or invalid JSON as its text."""
    if not isinstance(call.arguments, str):
        return dict(call.arguments)
    try:
        return json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments


def split_chunks(text: str) -> list[str]:
    """Split a text into small chunks of equal size."""
    return [text[start : start + _CHUNK_CHARS] for start in range(0, len(text), _CHUNK_CHARS)]


def get_text(data: Mapping[str, Any], key: str) -> str | None:
    """Return the value of a key if it is a text."""
    value = data.get(key)
    return value if isinstance(value, str) else None


def get_int(data: Mapping[str, Any], key: str) -> int | None:
    """Return the value of a key if it is a whole number above 0."""
    value = data.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def get_bool(data: Mapping[str, Any], key: str) -> bool | None:
    """Return the value of a key if it is true or false."""
    value = data.get(key)
    return value if isinstance(value, bool) else None


def get_dict(data: Mapping[str, Any], key: str) -> Json:
    """Return the value of a key if it is an object, or {}."""
    value = data.get(key)
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def get_dicts(data: Mapping[str, Any], key: str) -> list[Json]:
    """Return the objects in the list of a key."""
    value = data.get(key)
    return list_dicts(value)


def list_dicts(value: object) -> list[Json]:
    """Return the objects of a list, or []."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]


def join_blank(texts: Iterable[str | None]) -> str:
    """Join the texts that are not empty, with an empty line between them."""
    return "\n\n".join(text for text in texts if text)
