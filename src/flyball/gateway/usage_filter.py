"""Filter that removes the usage from a stream, for a program that did not ask for it."""

from __future__ import annotations

import json
import re
from typing import Any, cast

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class UsageFilter:
    """Removes what `include_usage` adds to a stream of chat completions. All other bytes stay as they are."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the bytes of the events that this chunk completes."""
        self._rest += chunk
        ends = [match.end() for match in _END.finditer(self._rest)]
        if not ends:
            return b""
        starts = [0, *ends[:-1]]
        events = [self._rest[start:end] for start, end in zip(starts, ends, strict=True)]
        self._rest = self._rest[ends[-1] :]
        return b"".join(map(_filter_event, events))

    def close(self) -> bytes:
        """Return what is left of an unfinished event."""
        rest, self._rest = self._rest, b""
        return rest


def _filter_event(event: bytes) -> bytes:
    if b'"usage"' not in event:
        return event
    head, separator, data = event.partition(b"data:")
    try:
        chunk: Any = json.loads(data) if separator else None
    except ValueError:
        return event
    if not isinstance(chunk, dict) or "usage" not in chunk:
        return event
    fields = cast("dict[str, Any]", chunk)
    if fields["usage"] is not None and not fields.get("choices"):
        return b""  # the chunk is about nothing else
    if fields["usage"] is not None:
        return event  # the server sends it unasked
    del fields["usage"]
    end = data[len(data.rstrip()) :]
    return head + b"data: " + json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + end
