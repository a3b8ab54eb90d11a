"""How a server sends a line: as it should, broken at some place, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypedDict, Unpack, get_args

from ..._internal import validation
from ...errors import ConfigError, ContextTooLong, ModelError, Retryable
from ...models.scripted import Line

Fault = Literal["cut", "reset", "hang", "error", "half"]
"""What breaks: the connection is closed without an end, or is reset; nothing comes any more until the server closes; an
error comes instead of the next event, and is the last; of the next event, half comes."""


class SendOptions(TypedDict, total=False):
    """The ways in which a line can be sent. Everything may be left out."""

    events: int
    """The fault comes behind so many events; an answer that is not streamed is one event."""
    bytes: int
    """The fault comes behind so many bytes of the body, as it is sent."""
    message: str
    """What the error says that comes in the middle of a stream."""
    thinking: str
    """What the model thought before it spoke: Anthropic's thinking block, or `reasoning_content`."""
    ids: Sequence[str]
    """The ids of the calls."""
    usage: object
    """What stands where the usage would: a dict as it is, anything else in the place of each count."""
    finish: str | None
    """The reason for the end, in the provider's words, known or not; None for no reason."""
    headers: Mapping[str, str]
    """Further headers, or others in the place of ours."""
    gzip: bool
    crlf: bool
    """Lines of the stream end as they do in HTTP."""
    comments: bool
    """A comment stands before each event of the stream."""
    split: int | Sequence[int]
    """The body comes in pieces of so many bytes, whatever they cut in two; several numbers take turns."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A line, and how it is sent."""

    line: Line
    fault: Fault | None = None
    options: SendOptions = field(default_factory=SendOptions)


@dataclass(frozen=True, slots=True)
class StatusReply:
    """An answer of HTTP that is no reply."""

    status: int
    message: str = ""
    code: str | None = None
    body: object = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Sendable = Line | Sent | StatusReply


def sent(line: Line, fault: Fault | None = None, /, **options: Unpack[SendOptions]) -> Sent:
    """A line that is sent in a way of its own: with a fault, or as servers may but rarely do.

    A fault comes where `events` or `bytes` say, and without them before the headers.
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
        raise ConfigError("sent", "a place without a fault", f"the fault too: {', '.join(get_args(Fault))}")
    if fault in ("error", "half") and "bytes" in options:
        raise ConfigError(f"sent, {fault}", "bytes", "events: it comes instead of an event")
    return Sent(line, fault, options)


def status(
    status: int,
    message: str = "",
    *,
    code: str | None = None,
    body: object = None,
    headers: Mapping[str, str] | None = None,
) -> StatusReply:
    """An answer with this status. Without a `body` it has the wire's own shape, with this message and code.

    A `body` that is a text is sent as it is, as a page; anything else as JSON.
    """
    return StatusReply(validation.check_int("status", status, min_value=200), message, code, body, headers or {})


def check_lines(lines: Sequence[Sendable]) -> tuple[Sendable, ...]:
    """The lines, if a server can send them."""
    for line in lines:
        if not isinstance(line, Line | Sent | StatusReply):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("script", line, "lines: say(...), call(...), sent(...), status(...)")
    return tuple(lines)


def resolve_line(line: Sendable) -> Sent | StatusReply:
    """A line as a server tells it: what a model would raise is a status, or a connection that breaks."""
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
