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
from .faults import Fault, SendOptions, Sent, StatusReply

Json = dict[str, Any]

CREATED = 1_900_000_000
"""When every reply was made: a test that reads it finds the same each time."""
_CHUNK_CHARS = 8


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """One event of a stream: what it says, and how many seconds behind the beginning."""

    data: Json | str
    name: str | None = None
    at: float = 0.0


class Wire(Protocol):
    """How a provider writes a reply."""

    def build_body(self, reply: SpokenReply) -> Json:
        """The reply in one piece."""
        ...

    def iter_events(self, reply: SpokenReply) -> Iterator[StreamEvent]:
        """The reply as a stream."""
        ...

    def build_error(self, status: StatusReply) -> Json:
        """An error, as the body of an answer with this status."""
        ...

    def build_error_event(self, status: StatusReply) -> StreamEvent:
        """An error in the middle of a stream."""
        ...


class SpokenReply:
    """What a line says to one request."""

    def __init__(self, sent: Sent, number: int, request_body: Json) -> None:
        self.options = sent.options
        self.number = number
        self.model = str(request_body.get("model", "scripted"))
        options: object = request_body.get("stream_options")
        self.includes_usage = isinstance(options, dict) and bool(cast("Json", options).get("include_usage"))
        line, reply = sent.line, sent.line.build_reply(number * 100)
        self.text: str = reply.text
        self.thinking: str = self.options.get("thinking", "")
        self.usage: Usage | None = reply.usage
        self.finish: Finish = reply.finish
        self.end: float = line.after_s
        ids = [*self.options.get("ids", ())]
        self.calls = [Call(ids.pop(0) if ids else one.id, one.name, one.arguments) for one in reply.calls]
        pieces = line.schedule_pieces() or [(self.end, piece) for piece in split_words(self.text)]
        self.pieces: list[tuple[float, str]] = [(at, piece) for at, piece in pieces if piece]

    def get_finish_reason(self, names: dict[Finish, str]) -> str | None:
        """Why it ended, in the words of a provider."""
        return self.options["finish"] if "finish" in self.options else names.get(self.finish)

    def build_usage(self, counts: Json) -> Json | None:
        """What it used, in the shape of a provider, unless its manner is to say something else."""
        if "usage" not in self.options:
            return counts if self.usage is not None else None
        given = self.options["usage"]
        return given if isinstance(given, dict) else dict.fromkeys(counts, given)  # pyright: ignore[reportUnknownVariableType]


def split_words(text: str) -> list[str]:
    """A text in the pieces in which a model tells it."""
    return re.findall(r"\s*\S+|\s+$", text)


def encode_arguments(call: Call) -> str:
    """The arguments of a call as a text."""
    given = call.arguments
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def split_chunks(text: str) -> list[str]:
    """A text in small pieces that pay no heed to what is in it."""
    return [text[start : start + _CHUNK_CHARS] for start in range(0, len(text), _CHUNK_CHARS)]


_GZIP = 31
_OVERLOADED = StatusReply(529, "Overloaded")


class ConnectionFault(Exception):
    """Here the connection breaks, in this way."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


class ResponseBody:
    """What is sent behind the headers: when, and which bytes."""

    def __init__(self, sent: Sent, reply: SpokenReply, wire: Wire, *, stream: bool) -> None:
        self.fault = sent.fault
        self.options: SendOptions = sent.options
        self.stream = stream
        self._fault_index = self.options.get("events", 0 if sent.fault in ("error", "half") else None)
        events = list(wire.iter_events(reply)) if stream else [StreamEvent(wire.build_body(reply), at=reply.end)]
        message = self.options.get("message", _OVERLOADED.message)
        self._texts = [(event.at, self._encode_event(event)) for event in self._insert_error(events, wire, message)]

    @property
    def headers(self) -> dict[str, str]:
        """What HTTP has to know of it."""
        headers = {"Content-Type": "text/event-stream; charset=utf-8" if self.stream else "application/json"}
        if self.options.get("gzip"):
            headers["Content-Encoding"] = "gzip"
        if self.stream or self.options.get("split"):
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(sum(len(data) for _, data in self._compress()))
        return headers

    @property
    def fails_before_headers(self) -> bool:
        """Whether not even the headers come."""
        return self.fault in ("cut", "reset", "hang") and not self.options.keys() & {"events", "bytes"}

    def iter_pieces(self) -> Iterator[tuple[float, bytes]]:
        """When each piece goes out; raises Break at the place of the fault, or at the end if that is before it."""
        left = self._find_break_offset()
        for at, data in self._merge_pieces() if left != 0 else ():
            for piece in self._split_data(data if left is None else data[:left]):
                yield at, piece
            left = None if left is None else max(0, left - len(data))
            if left == 0:
                break
        if self.fault in ("cut", "reset", "hang"):
            raise ConnectionFault(self.fault)

    def _find_break_offset(self) -> int | None:
        """Behind which byte the connection breaks."""
        if self.fails_before_headers:
            return 0
        if self._fault_index is not None and self.fault in ("cut", "reset", "hang"):
            return sum(len(data) for _, data in self._compress()[: self._fault_index])
        return self.options.get("bytes")

    def _merge_pieces(self) -> Iterable[tuple[float, bytes]]:
        """Each event, or what goes out at one time where the body is split anyway."""
        if not self.options.get("split"):
            return self._compress()
        groups = groupby(self._compress(), key=itemgetter(0))
        return [(at, b"".join(data for _, data in rows)) for at, rows in groups]

    def _insert_error(self, events: list[StreamEvent], wire: Wire, message: str) -> list[StreamEvent]:
        """With an error in the place of the rest."""
        if self.fault != "error" or self._fault_index is None:
            return events
        status = replace(_OVERLOADED, message=message)
        return [*events[: self._fault_index], wire.build_error_event(status)]

    def _encode_event(self, event: StreamEvent) -> str:
        data = event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
        if not self.stream:
            return data
        lines = [": keep-alive", ""] if self.options.get("comments") else []
        lines += [f"event: {event.name}"] if event.name else []
        return ("\r\n" if self.options.get("crlf") else "\n").join([*lines, f"data: {data}", "", ""])

    def _compress(self) -> list[tuple[float, bytes]]:
        raw = [(at, text.encode("utf-8", "surrogatepass")) for at, text in self._halve_event()]
        if not self.options.get("gzip"):
            return raw
        packer = zlib.compressobj(wbits=_GZIP)
        packed = [(at, packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)) for at, data in raw[:-1]]
        return [*packed, (raw[-1][0], packer.compress(raw[-1][1]) + packer.flush())]

    def _halve_event(self) -> Iterator[tuple[float, str]]:
        """The texts, where the fault says so one of them with the first half of its data only."""
        for n, (at, text) in enumerate(self._texts):
            if self.fault == "half" and n == self._fault_index:
                bare = text.rstrip("\r\n")
                start = bare.find("{")
                yield at, bare[: start + (len(bare) - start) // 2] + text[len(bare) :]
            else:
                yield at, text

    def _split_data(self, data: bytes) -> Iterator[bytes]:
        split = self.options.get("split")
        if not split:
            yield data
            return
        sizes = cycle(split if isinstance(split, Sequence) else (split,))
        start = 0
        while start < len(data):
            size = next(sizes)
            yield data[start : start + size]
            start += size
