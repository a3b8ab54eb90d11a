"""A model that says what a test wrote down, and remembers what it was asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import anyio

from .._internal import validation
from ..budget.price import Price
from ..budget.usage import Usage
from ..errors import ConfigError, ModelError, suggest_names
from ..request import Call, Finish, Purpose, Reply, Request

_DEFAULT_USAGE = Usage(input=10, output=5)


@dataclass(frozen=True, slots=True)
class Line:
    """One reply of a scripted model, or its failure."""

    text: str = ""
    calls: tuple[tuple[str, str | dict[str, Any]], ...] = ()
    usage: Usage | None = _DEFAULT_USAGE
    finish: Finish | None = None
    after_s: float = 0.0
    error: BaseException | None = None
    pieces: tuple[str, ...] = ()

    def after(self, seconds: float) -> Line:
        """The same, after a delay. Meanwhile its text comes piece by piece, so that a reply that is cut has some."""
        return replace(self, after_s=validation.parse_duration("script, after", seconds))

    def using(self, usage: Usage | None) -> Line:
        """The same, with what it used; None is a provider that does not tell."""
        if usage is not None:
            validation.check_type("script, using", usage, Usage)
        return replace(self, usage=usage)

    def ending(self, finish: Finish | str) -> Line:
        """The same, with another reason for the reply's end."""
        return replace(self, finish=validation.parse_enum("script, ending", finish, Finish))

    def streaming(self, *pieces: str) -> Line:
        """The same, its text told piece by piece."""
        return replace(self, text="".join(pieces), pieces=pieces)

    def schedule_pieces(self) -> list[tuple[float, str]]:
        """When each piece of its text is told: the first at once, the last at the end of the delay."""
        half = len(self.text) // 2 if self.after_s else 0
        pieces = self.pieces or ((self.text[:half], self.text[half:]) if half else ())
        steps = len(pieces) - 1
        return [(self.after_s * (n / steps) if n and steps else 0.0, piece) for n, piece in enumerate(pieces)]

    def build_reply(self, first_id: int, model: str = "scripted", provider: str | None = "flyball") -> Reply:
        """The reply; its calls are numbered from `first_id`. A line that fails raises."""
        if self.error is not None:
            raise self.error
        calls = tuple(Call(f"call-{first_id + n}", name, given) for n, (name, given) in enumerate(self.calls))
        finish = self.finish or (Finish.CALLS if calls else Finish.STOP)
        return Reply(self.text, calls, self.usage, finish, model, provider)


def say(text: str, *calls: Line) -> Line:
    """A reply of text; and of calls, where they are given too."""
    validation.check_type("script, say", text, str)
    return Line(text, _merge_calls(calls))


def call(name: str, /, **arguments: Any) -> Line:
    """A reply that asks for one call."""
    return Line(calls=((validation.check_text("script, call", name), arguments),))


def call_json(name: str, arguments: str) -> Line:
    """A reply that asks for one call, with its arguments as the model wrote them, right or wrong."""
    return Line(calls=((validation.check_text("script, call_json", name), arguments),))


def together(*lines: Line) -> Line:
    """Several calls in one reply."""
    calls = _merge_calls(lines)
    return Line(" ".join(line.text for line in lines if line.text), calls)


def fail(error: BaseException) -> Line:
    """A request that fails: with Retryable, ContextTooLong, another ModelError, or whatever a model may raise."""
    if not isinstance(error, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("script, fail", error, 'an error to raise, such as Retryable("busy")')
    return Line(error=error)


def check_lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    """The lines, if that is what they are."""
    for line in lines:
        if not isinstance(line, Line):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("script", line, "lines: say(...), call(...), together(...), fail(...)")
    return tuple(lines)


def _merge_calls(lines: Sequence[Line]) -> tuple[tuple[str, str | dict[str, Any]], ...]:
    """The calls of lines that become one. What else a line has would be lost, so it may have nothing else."""
    for line in check_lines(lines):
        if line != Line(line.text, line.calls):
            expected = "text and calls only; a delay, usage, an end or an error are for the whole reply"
            raise ConfigError("script, a part of a reply", line, expected)
    return tuple(one for line in lines for one in line.calls)


_SPECIAL_POSITION = 9_000


class ModelOptions(TypedDict, total=False):
    """What a scripted model takes beside its lines. Everything may be left out."""

    grace: Line | None
    """What it says when it is asked for the last report; without it, that too is the next line."""
    reflection: Line | None
    """What it says when it is asked to look back; without it, that too is the next line."""
    name: str
    provider: str | None
    price: Price | None
    max_output_tokens: int | None
    """The most that one reply has."""
    context_tokens: int | None
    """How much it takes at once."""
    not_ready: str | None
    """Why it cannot be asked at all."""


class ScriptedModel:
    """Says its lines, one for each request; the script begins anew with each run, also where runs go on side by side.

    A run that goes on in another process goes on in the script, behind the turns that it has had. Past its last line
    a request fails and says so.
    """

    def __init__(self, *lines: Line, **options: Unpack[ModelOptions]) -> None:
        for option in options:
            if option not in ModelOptions.__annotations__:
                near = suggest_names(option, ModelOptions.__annotations__) or sorted(ModelOptions.__annotations__)
                raise ConfigError("scripted model", option, f"an option such as {' or '.join(near)}")
        self.lines = check_lines(lines)
        aside = {Purpose.GRACE: options.get("grace"), Purpose.REFLECTION: options.get("reflection")}
        self._special_lines = {purpose: line for purpose, line in aside.items() if line is not None}
        check_lines([*self._special_lines.values()])
        self.name = options.get("name", "scripted")
        self.provider = options.get("provider", "flyball")
        self.price = options.get("price")
        self.max_output_tokens = options.get("max_output_tokens")
        self.context_tokens = options.get("context_tokens")
        self.requests: list[Request] = []
        """What it was asked, oldest first; each has the `run_id` of who asked."""
        self._loops = False
        self._not_ready = options.get("not_ready")
        self._positions: dict[str, int] = {}

    @classmethod
    def looping(cls, *lines: Line, **options: Unpack[ModelOptions]) -> ScriptedModel:
        """One that begins again behind its last line, and so never ends by itself."""
        model = cls(*lines, **options)
        if not lines:
            raise ConfigError("script", "no line", "at least one line to say again and again")
        model._loops = True
        return model

    def ready(self) -> str | None:
        """Why it cannot be asked, where a test says so."""
        return self._not_ready

    def take_line(self, request: Request) -> tuple[Line, int]:
        """The line for this request, and its place in the run, counted from 0."""
        self.requests.append(request)
        if request.purpose in self._special_lines:
            return self._special_lines[request.purpose], _SPECIAL_POSITION
        run = get_run_id(request)
        # One that a rule has asked instead begins with its first line, whenever that is.
        place = self._positions.get(run, 0 if request.model else request.turns)
        self._positions[run] = place + 1
        count = len(self.lines)
        if place >= count and not self._loops:
            script = "1 line" if count == 1 else f"{count} lines"
            asked = f"request {place + 1} of run {run} ({request.purpose.value})"
            raise ModelError(f"the script has {script}, and this is {asked}; add one, or use ScriptedModel.looping")
        return self.lines[place % count], place

    async def ask(self, request: Request, tell: object = None, /) -> Reply:
        """Say the next line."""
        line, place = self.take_line(request)
        passed = 0.0
        for at, piece in line.schedule_pieces():
            await _sleep(at - passed)
            passed = at
            if callable(tell):
                tell(piece)
        await _sleep(line.after_s - passed)
        return self.build_reply(line, place)

    def build_reply(self, line: Line, position: int) -> Reply:
        """What a line of this model's gives; one that fails raises."""
        return line.build_reply(position * 100, self.name, self.provider)

    def assert_asked(self, times: int) -> None:
        """Check how often it was asked."""
        assert len(self.requests) == times, f"it was asked {len(self.requests)} times, not {times}"

    def assert_said_all(self) -> None:
        """Check that it was asked, and that no run left a line of the script unsaid."""
        assert self._positions, "it was never asked"
        for run, place in self._positions.items():
            unsaid = self.lines[place:]
            assert not unsaid, (
                f"run {run} left {len(unsaid)} of {len(self.lines)} lines unsaid; the next is {unsaid[0]}"
            )

    def assert_saw(self, text: str) -> None:
        """Check that the last request had this text in it."""
        last = self._last_request()
        seen = [last.instructions or "", *last.notices, *[message.content for message in last.messages]]
        assert any(text in one for one in seen), f"{text!r} is not in what it saw last: {seen}"

    def assert_offered(self, *tools: str) -> None:
        """Check which tools the last request offered."""
        offered = tuple(tool["name"] for tool in self._last_request().tools)
        assert offered == tools, f"it was offered {offered}, not {tools}"

    def _last_request(self) -> Request:
        assert self.requests, "it was never asked"
        return self.requests[-1]


def get_run_id(request: Request) -> str:
    """The run that asks; of a request that somebody made by hand, the run of its newest message."""
    return request.run_id or (request.messages[-1].run if request.messages else "")


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await anyio.sleep(seconds)
