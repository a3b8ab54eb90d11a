"""Ways to send a line: normally, broken at some point, or as an HTTP error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack, get_args

from ..._internal import validation
from ...errors import ConfigError, ContextTooLong, ModelError, Retryable, UsageError
from ...models.scripted import Line

Fault = Literal["cut", "reset", "hang", "error", "half"]
"""Kind of fault.

- `cut`: the connection is closed before the end.
- `reset`: the connection is reset.
- `hang`: nothing more is sent until the server closes.
- `error`: an error is sent instead of the next event, and is the last event.
- `half`: only half of the next event is sent.
"""


class SendOptions(TypedDict, total=False):
    """Options for sending a line. All are optional."""

    events: int
    """Number of events before the fault. A reply that is not streamed is one event."""
    bytes: int
    """Number of bytes of the encoded body before the fault."""
    message: str
    """Message of an error in the middle of a stream."""
    thinking: str
    """Reasoning before the text: Anthropic's thinking block, or `reasoning_content`."""
    ids: Sequence[str]
    """Ids of the calls."""
    usage: object
    """Replacement for the usage: a dict as it is, any other value in place of each count."""
    finish: str | None
    """Finish reason in the provider's words, known or not. None sends no reason."""
    items: Sequence[Mapping[str, Any]]
    """Items of the Responses API to send before those of the line."""
    headers: Mapping[str, str]
    """Additional headers, which replace ours of the same name."""
    gzip: bool
    crlf: bool
    """Whether lines of the stream end with CR LF."""
    comments: bool
    """Whether a comment precedes each event of the stream."""
    split: int | Sequence[int]
    """Chunk size of the body in bytes, whatever is cut in two. Several sizes take turns."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Line with its way of sending."""

    line: Line
    fault: Fault | None = None
    options: SendOptions = field(default_factory=SendOptions)


@dataclass(frozen=True, slots=True)
class StatusReply:
    """HTTP response that is not a reply of a model."""

    status: int
    message: str = ""
    code: str | None = None
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Sendable = Line | Sent | StatusReply


def sent(line: Line, fault: Fault | None = None, /, **options: Unpack[SendOptions]) -> Sent:
    """Return a line with a fault, or with options that servers rarely use.

    A fault occurs after `events` or `bytes`, and without them before the headers.
    """
    validation.check_type("sent", line, Line)
    if fault is not None and fault not in get_args(Fault):
        raise ConfigError("sent, the fault", fault, f"one of {', '.join(get_args(Fault))}")
    validation.check_options("sent", options, SendOptions.__annotations__)
    validation.check_int("sent, events", options.get("events", 0))
    validation.check_int("sent, bytes", options.get("bytes", 0))
    split = options.get("split", 1)
    for size in split if isinstance(split, Sequence) else (split,):
        validation.check_int("sent, split", size, min_value=1)
    if not fault and ("events" in options or "bytes" in options):
        raise UsageError(f"sent: events and bytes need a fault: {', '.join(get_args(Fault))}")
    if fault in ("error", "half") and "bytes" in options:
        raise UsageError(f"sent: the fault {fault!r} replaces an event, so use events instead of bytes")
    return Sent(line, fault, options)


def status(
    status: int,
    message: str = "",
    *,
    code: str | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> StatusReply:
    """Return a response with this status.

    Without a `body` it has the provider's own format, with this message and code. A `body` that is a text is sent as
    HTML, anything else as JSON.
    """
    return StatusReply(validation.check_int("status", status, min_value=200), message, code, body, headers or {})


def check_lines(lines: Sequence[Sendable]) -> tuple[Sendable, ...]:
    """Return the lines, or raise ConfigError if a server cannot send one."""
    for line in lines:
        if not isinstance(line, Line | Sent | StatusReply):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("script", line, "lines: say(...), call(...), sent(...), status(...)")
    return tuple(lines)


def resolve_line(line: Sendable) -> Sent | StatusReply:
    """Return a line as a server sends it.

    An error of a model becomes a status, or a connection that breaks.
    """
    if not isinstance(line, Line):
        return line if isinstance(line, StatusReply) or line.line.error is None else resolve_line(line.line)
    match line.error:
        case None:
            return Sent(line)
        case Retryable(message=message, after=after):
            return StatusReply(429, message, headers={} if after is None else {"Retry-After": f"{after:g}"})
        case ContextTooLong(message=message):
            return StatusReply(400, message, code="context_length_exceeded")
        case ModelError(message=message):
            return StatusReply(400, message)
        case OSError():
            return Sent(line, "reset")
        case error:
            return StatusReply(500, str(error))
