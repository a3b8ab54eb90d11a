"""Server-sent events: parse a byte stream, however it was chunked."""

from __future__ import annotations


class EventReader:
    """Parser for the `data` of events.

    Names, ids and comments are ignored.
    """

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """Pieces of the incomplete line. A list, so that a line without end is not copied with each chunk."""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the events completed by this chunk.

        A line may end with LF, CR LF or CR, even across chunks.
        """
        pending = self._rest
        pending.append(chunk)
        if b"\n" not in chunk and b"\r" not in b"".join(pending[-2:]):
            return []
        lines = b"".join(pending).splitlines(keepends=True)
        self._rest = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._events(lines)

    def close(self) -> list[bytes]:
        """Return the last event, if its final empty line is missing."""
        pending, self._rest = b"".join(self._rest), []
        return self._events([pending, b"\n"])

    def _events(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for line in lines:
            text = line.rstrip(b"\r\n")
            if text.startswith(b"data:"):
                self._data.append(text[6:] if text.startswith(b"data: ") else text[5:])
            elif not text and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events
