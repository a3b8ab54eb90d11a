"""One reply, ready to be written on a wire, and what a wire writes."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, groupby
from operator import itemgetter
from typing import Any, Protocol, cast

from ...request import Call, Finish, Usage
from .faults import Fault, Manner, Sent, StatusReply

Json = dict[str, Any]

CREATED = 1_900_000_000
"""When every reply was made: a test that reads it finds the same each time."""
_PIECE = 8


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream: what it says, and how many seconds behind the beginning."""

    data: Json | str
    name: str | None = None
    at: float = 0.0


class Wire(Protocol):
    """How a provider writes a reply."""

    def whole(self, spoken: SpokenReply) -> Json:
        """The reply in one piece."""
        ...

    def events(self, spoken: SpokenReply) -> Iterator[StreamEvent]:
        """The reply as a stream."""
        ...

    def error(self, status: StatusReply) -> Json:
        """An error, as the body of an answer with this status."""
        ...

    def error_event(self, status: StatusReply) -> StreamEvent:
        """An error in the middle of a stream."""
        ...


class SpokenReply:
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


_GZIP = 31
_OVERLOADED = StatusReply(529, "Overloaded")


class Break(Exception):
    """Here the connection breaks, in this way."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


class ResponseBody:
    """What is sent behind the headers: when, and which bytes."""

    def __init__(self, sent: Sent, spoken: SpokenReply, wire: Wire, *, stream: bool) -> None:
        self.fault = sent.fault
        self.manner: Manner = sent.manner
        self.stream = stream
        self._at = self.manner.get("events", 0 if sent.fault in ("error", "half") else None)
        events = list(wire.events(spoken)) if stream else [StreamEvent(wire.whole(spoken), at=spoken.end)]
        message = self.manner.get("message", _OVERLOADED.message)
        self._texts = [(event.at, self._text(event)) for event in self._spoilt(events, wire, message)]

    @property
    def headers(self) -> dict[str, str]:
        """What HTTP has to know of it."""
        headers = {"Content-Type": "text/event-stream; charset=utf-8" if self.stream else "application/json"}
        if self.manner.get("gzip"):
            headers["Content-Encoding"] = "gzip"
        if self.stream or self.manner.get("split"):
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(sum(len(data) for _, data in self._zipped()))
        return headers

    @property
    def breaks_at_once(self) -> bool:
        """Whether not even the headers come."""
        return self.fault in ("cut", "reset", "hang") and not self.manner.keys() & {"events", "bytes"}

    def pieces(self) -> Iterator[tuple[float, bytes]]:
        """When each piece goes out; raises Break at the place of the fault, or at the end if that is before it."""
        left = self._break_at()
        for at, data in self._merged() if left != 0 else ():
            for piece in self._split(data if left is None else data[:left]):
                yield at, piece
            left = None if left is None else max(0, left - len(data))
            if left == 0:
                break
        if self.fault in ("cut", "reset", "hang"):
            raise Break(self.fault)

    def _break_at(self) -> int | None:
        """Behind which byte the connection breaks."""
        if self.breaks_at_once:
            return 0
        if self._at is not None and self.fault in ("cut", "reset", "hang"):
            return sum(len(data) for _, data in self._zipped()[: self._at])
        return self.manner.get("bytes")

    def _merged(self) -> Iterable[tuple[float, bytes]]:
        """Each event, or what goes out at one time where the body is split anyway."""
        if not self.manner.get("split"):
            return self._zipped()
        groups = groupby(self._zipped(), key=itemgetter(0))
        return [(at, b"".join(data for _, data in rows)) for at, rows in groups]

    def _spoilt(self, events: list[StreamEvent], wire: Wire, message: str) -> list[StreamEvent]:
        """With an error in the place of the rest."""
        if self.fault != "error" or self._at is None:
            return events
        status = replace(_OVERLOADED, message=message)
        return [*events[: self._at], wire.error_event(status)]

    def _text(self, event: StreamEvent) -> str:
        data = event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
        if not self.stream:
            return data
        lines = [": keep-alive", ""] if self.manner.get("comments") else []
        lines += [f"event: {event.name}"] if event.name else []
        return ("\r\n" if self.manner.get("crlf") else "\n").join([*lines, f"data: {data}", "", ""])

    def _zipped(self) -> list[tuple[float, bytes]]:
        raw = [(at, text.encode("utf-8", "surrogatepass")) for at, text in self._halved()]
        if not self.manner.get("gzip"):
            return raw
        packer = zlib.compressobj(wbits=_GZIP)
        packed = [(at, packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)) for at, data in raw[:-1]]
        return [*packed, (raw[-1][0], packer.compress(raw[-1][1]) + packer.flush())]

    def _halved(self) -> Iterator[tuple[float, str]]:
        """The texts, where the fault says so one of them with the first half of its data only."""
        for n, (at, text) in enumerate(self._texts):
            if self.fault == "half" and n == self._at:
                bare = text.rstrip("\r\n")
                start = bare.find("{")
                yield at, bare[: start + (len(bare) - start) // 2] + text[len(bare) :]
            else:
                yield at, text

    def _split(self, data: bytes) -> Iterator[bytes]:
        split = self.manner.get("split")
        if not split:
            yield data
            return
        sizes = cycle(split if isinstance(split, Sequence) else (split,))
        start = 0
        while start < len(data):
            size = next(sizes)
            yield data[start : start + size]
            start += size
