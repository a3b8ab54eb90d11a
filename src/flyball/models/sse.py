"""Server-sent events: what a stream of bytes says, however it was cut into pieces."""

from __future__ import annotations


class EventReader:
    """Puts the `data` of events together; names, ids and comments are not needed by any wire."""

    __slots__ = ("_data", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        """The line that has not ended, in pieces: whoever sends one without end must not have it copied each time."""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are whole now. A line may end with LF, CR LF or CR, also where a chunk ends."""
        rest = self._rest
        rest.append(chunk)
        if b"\n" not in chunk and b"\r" not in b"".join(rest[-2:]):
            return []
        lines = b"".join(rest).splitlines(keepends=True)
        self._rest = [] if lines[-1].endswith(b"\n") else [lines.pop()]
        return self._events(lines)

    def close(self) -> list[bytes]:
        """What was still under way when the stream ended, for servers that leave out the last empty line."""
        rest, self._rest = b"".join(self._rest), []
        return self._events([rest, b"\n"])

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
