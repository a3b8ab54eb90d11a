"""Reply parsing: builds a `Reply` from whole or streamed data of a provider."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

from ..errors import ConfigError, Retryable
from ..request import Call, Finish, Reply, Usage

Json = dict[str, Any]

MAX_INDEXES = 1_000_000
"""Limit for the indexes of a reply's parts.

A server could choose larger ints that all have the same hash, which makes a dict slow.
"""


class ReplyParser(ABC):
    """Parser for one reply.

    It raises Retryable for data that it cannot understand, because the next reply may be well-formed.
    """

    def __init__(self, provider: str | None, on_text: Callable[[str], None] | None = None) -> None:
        self._provider = provider
        self._on_text = on_text
        self._text: list[str] = []
        self.calls: list[PartialCall] = []
        self.call_kinds: dict[str, str] = {}
        """Types of the calls that are no usual function calls, by id."""
        self.parts: list[Json] = []
        """Provider's private data to send back with the next request, such as signed reasoning."""
        self.usage: Usage | None = None
        self.finish: Finish | None = None
        """Finish reason. None means that the reply is not complete."""
        self.model: str | None = None
        self.id: str | None = None
        """Id of the reply. None means that the provider gave none."""
        self.detail = ""
        """Provider's word for why it stopped or blocked the reply."""
        self._refusal: list[str] = []
        self.piece_count = 0
        """Number of received pieces with content. Keep-alive messages do not count."""
        self.is_ended = False
        """True once the provider has announced the end of the reply."""

    @property
    def has_started(self) -> bool:
        """Check whether a token was received."""
        return self.piece_count > 0

    @property
    def has_text(self) -> bool:
        """Check whether a text was received."""
        return bool(self._text)

    @property
    def text(self) -> str:
        """Text received so far."""
        return "".join(self._text)

    def find_error(self, event: Json) -> object:
        """Return the error that an event, or a whole reply, consists of. None means that it is none."""
        return event.get("error")

    @abstractmethod
    def parse_event(self, event: Json) -> None:
        """Parse an event of a stream."""

    @abstractmethod
    def parse_reply(self, reply: Json) -> None:
        """Parse a reply that was not streamed."""

    def add_text(self, piece: object) -> None:
        """Add a piece of text, and pass it to the callback."""
        text = expect_text(piece)
        if text:
            self.piece_count += 1
            self._text.append(text)
            if self._on_text is not None:
                self._on_text(text)

    def add_refusal(self, piece: object) -> None:
        """Add a piece of the words with which the model refuses to answer."""
        text = expect_text(piece)
        if text:
            self.piece_count += 1
            self._refusal.append(text)

    def set_usage(self, usage: object) -> None:
        """Set the usage.

        Invalid data counts as unreported, so the run uses its estimate.
        """
        try:
            self.usage = Usage.of(usage)
        except ConfigError:
            self.usage = None

    def build_reply(self) -> Reply:
        """Return the whole reply."""
        calls = tuple(call.build_call() for call in self.calls)
        finish = self.finish or Finish.STOP
        if calls and finish is Finish.STOP:  # some OpenAI-compatible servers send "stop" with calls
            finish = Finish.CALLS
        text = self.text
        if self._refusal and not calls:
            finish, text = Finish.REFUSAL, text + "".join(self._refusal)
        detail = self.detail if finish is Finish.CONTENT_FILTER else ""
        return Reply(text, calls, self.usage, finish, self.model, self._provider, tuple(self.parts), self.id, detail)


class PartialCall:
    """Call of a tool that is still being received."""

    __slots__ = ("_arguments", "id", "name")

    def __init__(self, id: str = "", name: str = "") -> None:
        self.id = id
        self.name = name
        self._arguments: list[str] = []

    def add_arguments(self, arguments: object) -> None:
        """Add a piece of the arguments.

        Some servers send a dict instead of its JSON.
        """
        if isinstance(arguments, dict):
            self._arguments = [json.dumps(arguments, ensure_ascii=False)]
        else:
            self._arguments.append(expect_text(arguments))

    def set_arguments(self, arguments: object) -> None:
        """Set the arguments, in place of the pieces received before."""
        self._arguments = []
        self.add_arguments(arguments)

    def build_call(self) -> Call:
        """Return the call.

        Its arguments may be invalid JSON, which the tool's check reports.
        """
        return Call(self.id, self.name, "".join(self._arguments) or "{}")


def expect_text(value: object) -> str:
    """Return the value if it is a text, or "" for None.

    Otherwise raise Retryable.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise malformed_reply(f"found a {type(value).__name__}; expected a text")
    return value


def expect_dict(value: object, label: str) -> Json:
    """Return the value if it is a dict, or {} for None.

    Otherwise raise Retryable.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise malformed_reply(f"found a {type(value).__name__} as {label}; expected an object")
    return cast("Json", value)


def expect_list(value: object, label: str) -> list[object]:
    """Return the value if it is a list, or [] for None.

    Otherwise raise Retryable.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed_reply(f"found a {type(value).__name__} as {label}; expected a list")
    return cast("list[object]", value)


def malformed_reply(detail: str) -> Retryable:
    """Return the error for a reply that violates the provider's format."""
    return Retryable(f"the reply is malformed: {detail}", began=True)
