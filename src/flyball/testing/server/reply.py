"""A reply as the server sends it: its data, its encoding and its faults."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, groupby
from operator import itemgetter

from ...request import Call
from ...wire import ErrorReply, ReplyDraft, StreamEvent, Wire, WireRequest
from .faults import Fault, SendOptions, Sent
from .offers import list_offers

_GZIP = 31
_OVERLOADED = ErrorReply(529, "Overloaded")


def build_draft(sent: Sent, number: int, request: WireRequest) -> ReplyDraft:
    """Return the reply of a line to a request, for a wire to write."""
    options, line = sent.options, sent.line
    reply = line.build_reply(number * 100)
    ids = [*options.get("ids", ())]
    calls = tuple(Call(ids.pop(0) if ids else call.id, call.name, call.arguments) for call in reply.calls)
    pieces = line.schedule_pieces() or [(line.after_s, piece) for piece in split_words(reply.text)]
    return ReplyDraft(
        replace(reply, calls=calls),
        id=str(number),
        model=request.model or "scripted",
        thinking=options.get("thinking", ""),
        free_text_tools=_find_free_text_tools(request),
        includes_usage=request.stream and request.includes_usage,
        pieces=pieces,
        end=line.after_s,
        override={name: value for name, value in options.items() if name in ("finish", "usage", "items")},
    )


def _find_free_text_tools(request: WireRequest) -> frozenset[str]:
    return frozenset(offer.name for offer in list_offers(request.source or {}) if offer.is_free_text)


class ResponseBody:
    """Body of a response: its bytes and their times."""

    def __init__(self, sent: Sent, draft: ReplyDraft, wire: Wire, *, stream: bool, is_array: bool = False) -> None:
        self.fault = sent.fault
        self._is_array = is_array
        """Whether the events are a JSON array, as Gemini streams without `alt=sse`."""
        self.options: SendOptions = sent.options
        self.stream = stream
        self._fault_index = self.options.get("events", 0 if sent.fault in ("error", "half") else None)
        events = list(wire.iter_events(draft)) if stream else [StreamEvent(wire.write_reply(draft), at=draft.end)]
        message = self.options.get("message", _OVERLOADED.message)
        events = self._insert_error(events, wire, message)
        self._texts = [(event.at, self._encode_event(event)) for event in events]
        if is_array and stream:
            self._texts = [(at, (",\r\n" if place else "[") + text) for place, (at, text) in enumerate(self._texts)]
            self._texts.append((draft.end, "]"))

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers of the body."""
        is_json = not self.stream or self._is_array
        headers = {"Content-Type": "application/json" if is_json else "text/event-stream; charset=utf-8"}
        if self.options.get("gzip"):
            headers["Content-Encoding"] = "gzip"
        if self.stream or self.options.get("split"):
            headers["Transfer-Encoding"] = "chunked"
        else:
            headers["Content-Length"] = str(sum(len(data) for _, data in self._compress()))
        return headers

    @property
    def fails_before_headers(self) -> bool:
        """Check whether the fault occurs before the headers."""
        return self.fault in ("cut", "reset", "hang") and not self.options.keys() & {"events", "bytes"}

    def iter_pieces(self) -> Iterator[tuple[float, bytes]]:
        """Yield each piece with its time in seconds.

        It raises ConnectionFault at the place of the fault, or at the end if that comes first.
        """
        remaining = self._find_break_offset()
        for at, data in self._merge_pieces() if remaining != 0 else ():
            for piece in self._split_data(data if remaining is None else data[:remaining]):
                yield at, piece
            remaining = None if remaining is None else max(0, remaining - len(data))
            if remaining == 0:
                break
        if self.fault in ("cut", "reset", "hang"):
            raise ConnectionFault(self.fault)

    def _find_break_offset(self) -> int | None:
        """Return the number of bytes before the connection breaks.

        None means it does not.
        """
        if self.fails_before_headers:
            return 0
        if self._fault_index is not None and self.fault in ("cut", "reset", "hang"):
            return sum(len(data) for _, data in self._compress()[: self._fault_index])
        return self.options.get("bytes")

    def _merge_pieces(self) -> Iterable[tuple[float, bytes]]:
        """Return each event, or if the body is split, all bytes of each time."""
        if not self.options.get("split"):
            return self._compress()
        groups = groupby(self._compress(), key=itemgetter(0))
        return [(at, b"".join(data for _, data in rows)) for at, rows in groups]

    def _insert_error(self, events: list[StreamEvent], wire: Wire, message: str) -> list[StreamEvent]:
        """Replace the rest of the events by an error, if that is the fault."""
        if self.fault != "error" or self._fault_index is None:
            return events
        status = replace(_OVERLOADED, message=message)
        return [*events[: self._fault_index], wire.build_error_event(status)]

    def _encode_event(self, event: StreamEvent) -> str:
        data = event.data if isinstance(event.data, str) else json.dumps(event.data, ensure_ascii=False)
        if not self.stream or self._is_array:
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
        """Yield the texts, one of them halved if that is the fault."""
        for n, (at, text) in enumerate(self._texts):
            if self.fault == "half" and n == self._fault_index:
                stripped = text.rstrip("\r\n")
                start = stripped.find("{")
                yield at, stripped[: start + (len(stripped) - start) // 2] + text[len(stripped) :]
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


class ConnectionFault(Exception):
    """Raised where the connection must break."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


def split_words(text: str) -> list[str]:
    """Split a text into words, as a model streams it."""
    return re.findall(r"\s*\S+|\s+$", text)
