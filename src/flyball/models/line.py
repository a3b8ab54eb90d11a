"""What a scripted model says: lines, one for each reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._internal import validation
from ..budget.usage import Usage
from ..errors import ConfigError
from ..request import Call, Finish, Reply

_USUAL = Usage(input=10, output=5)


@dataclass(frozen=True, slots=True)
class Line:
    """One reply of a scripted model, or its failure."""

    text: str = ""
    calls: tuple[tuple[str, str | dict[str, Any]], ...] = ()
    usage: Usage | None = _USUAL
    finish: Finish | None = None
    after_s: float = 0.0
    error: BaseException | None = None
    pieces: tuple[str, ...] = ()

    def after(self, seconds: float) -> Line:
        """The same, after a delay. Meanwhile its text comes piece by piece, so that a reply that is cut has some."""
        return replace(self, after_s=validation.duration("script, after", seconds))

    def using(self, usage: Usage | None) -> Line:
        """The same, with what it used; None is a provider that does not tell."""
        if usage is not None:
            validation.kind("script, using", usage, Usage)
        return replace(self, usage=usage)

    def ending(self, finish: Finish | str) -> Line:
        """The same, with another reason for the reply's end."""
        return replace(self, finish=validation.member("script, ending", finish, Finish))

    def streaming(self, *pieces: str) -> Line:
        """The same, its text told piece by piece."""
        return replace(self, text="".join(pieces), pieces=pieces)

    def told(self) -> list[tuple[float, str]]:
        """When each piece of its text is told: the first at once, the last at the end of the delay."""
        half = len(self.text) // 2 if self.after_s else 0
        pieces = self.pieces or ((self.text[:half], self.text[half:]) if half else ())
        steps = len(pieces) - 1
        return [(self.after_s * (n / steps) if n and steps else 0.0, piece) for n, piece in enumerate(pieces)]

    def reply(self, first_id: int, model: str = "scripted", provider: str | None = "flyball") -> Reply:
        """The reply; its calls are numbered from `first_id`. A line that fails raises."""
        if self.error is not None:
            raise self.error
        calls = tuple(Call(f"call-{first_id + n}", name, given) for n, (name, given) in enumerate(self.calls))
        finish = self.finish or (Finish.CALLS if calls else Finish.STOP)
        return Reply(self.text, calls, self.usage, finish, model, provider)


def say(text: str, *calls: Line) -> Line:
    """A reply of text; and of calls, where they are given too."""
    validation.kind("script, say", text, str)
    return Line(text, _calls(calls))


def call(name: str, /, **arguments: Any) -> Line:
    """A reply that asks for one call."""
    return Line(calls=((validation.text("script, call", name), arguments),))


def call_json(name: str, arguments: str) -> Line:
    """A reply that asks for one call, with its arguments as the model wrote them, right or wrong."""
    return Line(calls=((validation.text("script, call_json", name), arguments),))


def together(*lines: Line) -> Line:
    """Several calls in one reply."""
    calls = _calls(lines)
    return Line(" ".join(line.text for line in lines if line.text), calls)


def fail(error: BaseException) -> Line:
    """A request that fails: with Retryable, ContextTooLong, another ModelError, or whatever a model may raise."""
    if not isinstance(error, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("script, fail", error, 'an error to raise, such as Retryable("busy")')
    return Line(error=error)


def lines_of(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines, if that is what they are."""
    for line in lines:
        if not isinstance(line, Line):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("script", line, "lines: say(...), call(...), together(...), fail(...)")
    return tuple(lines)


def _calls(lines: Sequence[Line]) -> tuple[tuple[str, str | dict[str, Any]], ...]:
    """The calls of lines that become one. What else a line has would be lost, so it may have nothing else."""
    for line in lines_of(lines):
        if line != Line(line.text, line.calls):
            expected = "text and calls only; a delay, usage, an end or an error are for the whole reply"
            raise ConfigError("script, a part of a reply", line, expected)
    return tuple(one for line in lines for one in line.calls)
