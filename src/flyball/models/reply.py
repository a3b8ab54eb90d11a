"""The ear: puts together what a provider says, whole or piece by piece."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, cast

from ..errors import ConfigError, Retryable
from ..request import Call, Finish, Reply, Usage

Json = dict[str, Any]

MOST_INDEXES = 1_000_000
"""Of the parts of a reply. A server could choose larger ints so that all have the same hash, and a dict is slow."""


class ReplyParser(ABC):
    """Hears one reply. What it cannot understand it raises as a Retryable: the next reply may be well-formed."""

    def __init__(self, provider: str | None, on_text: Callable[[str], None] | None = None) -> None:
        self._provider = provider
        self._on_text = on_text
        self._text: list[str] = []
        self.calls: list[PartialCall] = []
        self.parts: list[Json] = []
        """What only the provider understands and wants back: signed reasoning."""
        self.usage: Usage | None = None
        self.finish: Finish | None = None
        """Why it ended; None while it has not, and a reply without one is not whole."""
        self.model: str | None = None
        self.piece_count = 0
        """How many came with something of the reply in them: what keeps a connection open is none."""
        self.is_ended = False
        """Whether the provider said that nothing more will come."""

    @property
    def has_started(self) -> bool:
        """Whether a token came."""
        return self.piece_count > 0

    @abstractmethod
    def parse_event(self, event: Json) -> None:
        """Take an event of a stream."""

    @abstractmethod
    def parse_reply(self, reply: Json) -> None:
        """Take a reply that came in one piece."""

    def add_text(self, piece: object) -> None:
        """Take a piece of the text."""
        text = expect_text(piece)
        if text:
            self.piece_count += 1
            self._text.append(text)
            if self._on_text is not None:
                self._on_text(text)

    def set_usage(self, usage: object) -> None:
        """Take what it used; nonsense counts as not told, and is then booked at the estimate."""
        try:
            self.usage = Usage.of(usage)
        except ConfigError:
            self.usage = None

    def build_reply(self) -> Reply:
        """All that was said."""
        calls = tuple(call.build_call() for call in self.calls)
        finish = self.finish or Finish.STOP
        if calls and finish is Finish.STOP:  # some servers of OpenAI's shape say so all the same
            finish = Finish.CALLS
        text = "".join(self._text)
        return Reply(text, calls, self.usage, finish, self.model, self._provider, tuple(self.parts))


class PartialCall:
    """One call, as far as it was heard."""

    __slots__ = ("_arguments", "id", "name")

    def __init__(self, id: str = "", name: str = "") -> None:
        self.id = id
        self.name = name
        self._arguments: list[str] = []

    def add_arguments(self, arguments: object) -> None:
        """Take a piece of the arguments; some servers send a dict instead of its JSON."""
        if isinstance(arguments, dict):
            self._arguments = [json.dumps(arguments, ensure_ascii=False)]
        else:
            self._arguments.append(expect_text(arguments))

    def build_call(self) -> Call:
        """The call. Arguments that are no JSON, or half of it, are told to the model when they are checked."""
        return Call(self.id, self.name, "".join(self._arguments) or "{}")


def expect_text(value: object) -> str:
    """A text, where there should be one; None counts as none."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise malformed_reply(f"a {type(value).__name__} where a text belongs")
    return value


def expect_dict(value: object, label: str) -> Json:
    """A dict, where there should be one; None counts as an empty one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise malformed_reply(f"a {type(value).__name__} as {label}")
    return cast("Json", value)


def expect_list(value: object, label: str) -> list[object]:
    """A list, where there should be one; None counts as an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise malformed_reply(f"a {type(value).__name__} as {label}")
    return cast("list[object]", value)


def malformed_reply(detail: str) -> Retryable:
    """The error for a reply that breaks the rules of its wire."""
    return Retryable(f"the reply is malformed: {detail}", began=True)
