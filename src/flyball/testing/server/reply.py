"""One reply, ready to be written on a wire, and what a wire writes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from ...request import Call, Finish, Usage
from .faults import Sent, Status

Json = dict[str, Any]

CREATED = 1_900_000_000
"""When every reply was made: a test that reads it finds the same each time."""
_PIECE = 8


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a stream: what it says, and how many seconds behind the beginning."""

    data: Json | str
    name: str | None = None
    at: float = 0.0


class Wire(Protocol):
    """How a provider writes a reply."""

    def whole(self, spoken: Spoken) -> Json:
        """The reply in one piece."""
        ...

    def events(self, spoken: Spoken) -> Iterator[Event]:
        """The reply as a stream."""
        ...

    def error(self, status: Status) -> Json:
        """An error, as the body of an answer with this status."""
        ...

    def error_event(self, status: Status) -> Event:
        """An error in the middle of a stream."""
        ...


class Spoken:
    """What a line says to one request."""

    def __init__(self, sent: Sent, number: int, asked: Json) -> None:
        self.manner = sent.manner
        self.number = number
        self.model = str(asked.get("model", "scripted"))
        options: object = asked.get("stream_options")
        self.tells_usage = isinstance(options, dict) and bool(cast("Json", options).get("include_usage"))
        line, reply = sent.line, sent.line.reply(number * 100)
        self.text: str = reply.text
        self.thinking: str = self.manner.get("thinking", "")
        self.usage: Usage | None = reply.usage
        self.finish: Finish = reply.finish
        self.end: float = line.after_s
        ids = [*self.manner.get("ids", ())]
        self.calls = [Call(ids.pop(0) if ids else one.id, one.name, one.arguments) for one in reply.calls]
        pieces = line.told() or [(self.end, piece) for piece in words(self.text)]
        self.pieces: list[tuple[float, str]] = [(at, piece) for at, piece in pieces if piece]

    def finish_word(self, words: dict[Finish, str]) -> str | None:
        """Why it ended, in the words of a provider."""
        return self.manner["finish"] if "finish" in self.manner else words.get(self.finish)

    def usage_json(self, counts: Json) -> Json | None:
        """What it used, in the shape of a provider, unless its manner is to say something else."""
        if "usage" not in self.manner:
            return counts if self.usage is not None else None
        given = self.manner["usage"]
        return given if isinstance(given, dict) else dict.fromkeys(counts, given)  # pyright: ignore[reportUnknownVariableType]


def words(text: str) -> list[str]:
    """A text in the pieces in which a model tells it."""
    return re.findall(r"\s*\S+|\s+$", text)


def written(call: Call) -> str:
    """The arguments of a call as a text."""
    given = call.arguments
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def scraps(text: str) -> list[str]:
    """A text in small pieces that pay no heed to what is in it."""
    return [text[start : start + _PIECE] for start in range(0, len(text), _PIECE)]
