"""What a scripted model says: lines, one for each reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ConfigError
from ..request import Call, Finish, Reply, Usage

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
        """The same, after a delay."""
        return replace(self, after_s=seconds)

    def using(self, usage: Usage | None) -> Line:
        """The same, with what it used; None is a provider that does not tell."""
        return replace(self, usage=usage)

    def ending(self, finish: Finish | str) -> Line:
        """The same, with another reason for the reply's end."""
        return replace(self, finish=Finish(finish))

    def streaming(self, *pieces: str) -> Line:
        """The same, its text told piece by piece."""
        return replace(self, text="".join(pieces), pieces=pieces)

    def reply(self, first_id: int) -> Reply:
        """The reply; its calls are numbered from `first_id`. A line that fails raises."""
        if self.error is not None:
            raise self.error
        calls = tuple(Call(f"call-{first_id + n}", name, given) for n, (name, given) in enumerate(self.calls))
        finish = self.finish or (Finish.CALLS if calls else Finish.STOP)
        return Reply(self.text, calls, self.usage, finish, "scripted", "flyball")


def say(text: str, *calls: Line) -> Line:
    """A reply of text; and of calls, where they are given too."""
    return Line(text, tuple(one for line in calls for one in line.calls))


def call(name: str, /, **arguments: Any) -> Line:
    """A reply that asks for one call."""
    return Line(calls=((name, arguments),))


def call_json(name: str, arguments: str) -> Line:
    """A reply that asks for one call, with its arguments as the model wrote them, right or wrong."""
    return Line(calls=((name, arguments),))


def together(*lines: Line) -> Line:
    """Several calls in one reply."""
    return Line(" ".join(line.text for line in lines if line.text), tuple(one for line in lines for one in line.calls))


def fail(error: BaseException) -> Line:
    """A request that fails: with Retryable, ContextTooLong, another ModelError, or whatever a model may raise."""
    return Line(error=error)


def lines_of(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines, if that is what they are."""
    for line in lines:
        if not isinstance(line, Line):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("script", line, "lines: say(...), call(...), together(...), fail(...)")
    return tuple(lines)
