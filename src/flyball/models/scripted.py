"""A model for tests and demos that answers with scripted lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import anyio

from .._internal import validation
from .._internal.text import pluralize
from ..budget.price import Price
from ..budget.usage import Usage
from ..errors import ConfigError, ModelError, UsageError, suggest_names
from ..request import Call, Finish, Purpose, Reply, Request

_DEFAULT_USAGE = Usage(input=10, output=5)
_SPECIAL_POSITION = 9_000


@dataclass(frozen=True, slots=True)
class Line:
    """Reply of a scripted model, or its failure."""

    text: str = ""
    calls: tuple[tuple[str, str | dict[str, Any]], ...] = ()
    usage: Usage | None = _DEFAULT_USAGE
    """Reported usage. None means a provider that reports none."""
    finish: Finish | None = None
    """Finish reason. None means CALLS if there are calls, otherwise STOP."""
    after_s: float = 0.0
    """Delay in seconds."""
    error: BaseException | None = None
    """Exception to raise instead of replying. None means that the line replies."""
    pieces: tuple[str, ...] = ()
    """Streamed pieces of the text. Empty means that only a delayed text is streamed, in two halves."""

    def after(self, seconds: float) -> Line:
        """Return the line with a delay in seconds.

        Its text is streamed meanwhile, so that a reply that is cut off has some text.
        """
        return replace(self, after_s=validation.parse_duration("script, after", seconds))

    def using(self, usage: Usage | None) -> Line:
        """Return the line with this usage.

        None means a provider that reports none.
        """
        if usage is not None:
            validation.check_type("script, using", usage, Usage)
        return replace(self, usage=usage)

    def ending(self, finish: Finish | str) -> Line:
        """Return the line with another finish reason."""
        return replace(self, finish=validation.parse_enum("script, ending", finish, Finish))

    def streaming(self, *pieces: str) -> Line:
        """Return the line with its text streamed in these pieces."""
        return replace(self, text="".join(pieces), pieces=pieces)

    def schedule_pieces(self) -> list[tuple[float, str]]:
        """Return each piece of the text with its time in seconds.

        The first piece comes at once, the last at the end of the delay.
        """
        half = len(self.text) // 2 if self.after_s else 0
        pieces = self.pieces or ((self.text[:half], self.text[half:]) if half else ())
        steps = len(pieces) - 1
        return [(self.after_s * (n / steps) if n and steps else 0.0, piece) for n, piece in enumerate(pieces)]

    def build_reply(self, first_id: int, model: str = "scripted", provider: str | None = "flyball") -> Reply:
        """Return the reply, with calls numbered from `first_id`, or raise the error."""
        if self.error is not None:
            raise self.error
        calls = tuple(Call(f"call-{first_id + n}", name, arguments) for n, (name, arguments) in enumerate(self.calls))
        finish = self.finish or (Finish.CALLS if calls else Finish.STOP)
        return Reply(self.text, calls, self.usage, finish, model, provider)


def say(text: str, *calls: Line) -> Line:
    """Return a reply with text, and with calls if any are passed."""
    validation.check_type("script, say", text, str)
    return Line(text, _merge_calls(calls))


def call(name: str, /, **arguments: Any) -> Line:
    """Return a reply with one call."""
    return Line(calls=((validation.check_text("script, call", name), arguments),))


def call_json(name: str, arguments: str) -> Line:
    """Return a reply with one call, its arguments as raw text."""
    return Line(calls=((validation.check_text("script, call_json", name), arguments),))


def together(*lines: Line) -> Line:
    """Return one reply with the calls of several lines."""
    calls = _merge_calls(lines)
    return Line(" ".join(line.text for line in lines if line.text), calls)


def fail(error: BaseException) -> Line:
    """Return a failure: Retryable, ContextTooLong or any other exception."""
    if not isinstance(error, BaseException):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("script, fail", error, 'an error to raise, such as Retryable("busy")')
    return Line(error=error)


def check_lines(lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines, or raise ConfigError if an item is not a Line."""
    for line in lines:
        if not isinstance(line, Line):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("script", line, "lines: say(...), call(...), together(...), fail(...)")
    return tuple(lines)


def _merge_calls(lines: Sequence[Line]) -> tuple[tuple[str, str | dict[str, Any]], ...]:
    """Return the calls of lines that become one reply.

    A line with anything beside text and calls is rejected, because it would be lost.
    """
    for line in check_lines(lines):
        if line != Line(line.text, line.calls):
            expected = "text and calls only; delay, usage, finish and error belong to the whole reply"
            raise ConfigError("script, a part of a reply", line, expected)
    return tuple(call for line in lines for call in line.calls)


class ModelOptions(TypedDict, total=False):
    """Options of a scripted model. All are optional."""

    grace: Line | None
    """Reply to the grace turn's request for a report. None means the next line."""
    reflection: Line | None
    """Reply to a reflection request. None means the next line."""
    name: str
    provider: str | None
    price: Price | None
    max_output_tokens: int | None
    """Maximum tokens of a reply. None means unknown."""
    context_tokens: int | None
    """Size of the context window in tokens. None means unknown."""
    not_ready: str | None
    """Reason that `ready` returns. None means that the model is ready."""


class ScriptedModel:
    """Model that answers each request with the next line of its script.

    Each run starts at the first line, also when several runs are in progress. A run resumed in another process
    continues after the turns that it has had. A request after the last line fails with a message that says so.
    """

    def __init__(self, *lines: Line, **options: Unpack[ModelOptions]) -> None:
        for option in options:
            if option not in ModelOptions.__annotations__:
                known = ModelOptions.__annotations__
                suggestions = suggest_names(option, known) or sorted(known)
                raise ConfigError("scripted model", option, f"an option such as {' or '.join(suggestions)}")
        self.lines = check_lines(lines)
        special_lines = {Purpose.GRACE: options.get("grace"), Purpose.REFLECTION: options.get("reflection")}
        self._special_lines = {purpose: line for purpose, line in special_lines.items() if line is not None}
        check_lines([*self._special_lines.values()])
        self.name = options.get("name", "scripted")
        self.provider = options.get("provider", "flyball")
        self.price = options.get("price")
        self.max_output_tokens = options.get("max_output_tokens")
        self.context_tokens = options.get("context_tokens")
        self.requests: list[Request] = []
        """Requests so far, oldest first. Each has the `run_id` of its run."""
        self._loops = False
        self._not_ready = options.get("not_ready")
        self._positions: dict[str, int] = {}

    @classmethod
    def looping(cls, *lines: Line, **options: Unpack[ModelOptions]) -> ScriptedModel:
        """Create a model that starts over after its last line."""
        model = cls(*lines, **options)
        if not lines:
            raise UsageError("ScriptedModel.looping needs at least one line")
        model._loops = True
        return model

    def ready(self) -> str | None:
        """Return None, or the reason passed as `not_ready`."""
        return self._not_ready

    def take_line(self, request: Request) -> tuple[Line, int]:
        """Return the line for this request and its position in the run, from 0."""
        self.requests.append(request)
        if request.purpose in self._special_lines:
            return self._special_lines[request.purpose], _SPECIAL_POSITION
        run = get_run_id(request)
        # A model that a rule chose for this request starts with its first line, in whichever turn that is.
        position = self._positions.get(run, 0 if request.model else request.turns)
        self._positions[run] = position + 1
        count = len(self.lines)
        if position >= count and not self._loops:
            script = pluralize(count, "line")
            current = f"request {position + 1} of run {run} ({request.purpose.value})"
            raise ModelError(f"the script has {script}, but this is {current}: add a line or use ScriptedModel.looping")
        return self.lines[position % count], position

    async def ask(self, request: Request, tell: object = None, /) -> Reply:
        """Answer with the next line, after its delay."""
        line, position = self.take_line(request)
        elapsed = 0.0
        for at, piece in line.schedule_pieces():
            await _sleep(at - elapsed)
            elapsed = at
            if callable(tell):
                tell(piece)
        await _sleep(line.after_s - elapsed)
        return self.build_reply(line, position)

    def build_reply(self, line: Line, position: int) -> Reply:
        """Return the reply of a line, or raise its error."""
        return line.build_reply(position * 100, self.name, self.provider)

    def assert_asked(self, times: int) -> None:
        """Check the number of requests."""
        assert len(self.requests) == times, f"the model was asked {len(self.requests)} times, not {times}"

    def assert_said_all(self) -> None:
        """Check that every run used all lines of the script."""
        assert self._positions, "the model was never asked"
        for run, position in self._positions.items():
            unused = self.lines[position:]
            assert not unused, (
                f"run {run} left {len(unused)} of {len(self.lines)} lines unused; the next is {unused[0]}"
            )

    def assert_saw(self, text: str) -> None:
        """Check that the last request contained this text."""
        last = self._last_request()
        seen = [last.instructions or "", *last.notices, *[message.content for message in last.messages]]
        assert any(text in part for part in seen), f"{text!r} is not in the last request: {seen}"

    def assert_offered(self, *tools: str) -> None:
        """Check which tools the last request offered."""
        offered = tuple(tool["name"] for tool in self._last_request().tools)
        assert offered == tools, f"the last request offered {offered}, not {tools}"

    def _last_request(self) -> Request:
        assert self.requests, "the model was never asked"
        return self.requests[-1]


def get_run_id(request: Request) -> str:
    """Return the id of the run that sent the request.

    For a request created by hand, it is the run of the newest message.
    """
    return request.run_id or (request.messages[-1].run if request.messages else "")


async def _sleep(seconds: float) -> None:
    if seconds > 0:
        await anyio.sleep(seconds)
