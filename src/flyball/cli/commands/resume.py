"""`flyball resume`: a run goes on where it was killed, where it waits for a person, or behind the limit it met."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError, nearest
from ...history.archive import Archive
from ...history.record import JsonReader
from ...person import About, Verdict, read
from ..completion import RUN, runs_like
from ..output import MISTAKE, refused
from ..run_command import OutputMode, conduct
from ..saved_config import outfit_of
from ..store_option import At, StoreLocation

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from ...agent.run import Run
    from ...store import Entry

_More = Annotated[str | None, typer.Option(metavar="+N", help="So much more of it.")]
_ANSWER = "What to say to a question, as on the terminal: ID=y, ID=n, ID='n not now'; the only one needs no ID."


def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN, autocompletion=runs_like)],
    turns: _More = None,
    tool_calls: _More = None,
    seconds: _More = None,
    usd: _More = None,
    tokens: _More = None,
    answer: Annotated[list[str] | None, typer.Option(metavar="ID=WORDS", help=_ANSWER)] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Another model than it had.")] = None,
    mcp: Annotated[list[str] | None, typer.Option(metavar="COMMAND|URL", help="Its MCP servers, again.")] = None,
    from_messages: Annotated[
        bool, typer.Option("--from-messages", help="Where the code has changed: go on from what was said.")
    ] = False,
    store: At = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make every call without asking.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the answer only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole record as JSON.")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Go on with a run that was killed, that waits for an answer, or that met a limit. Nothing is done twice.

    It needs nothing else: model, tools and rules are those it was started with, in the folder where it was started.
    Exits as `flyball run` does.
    """
    more = {"turns": turns, "tool_calls": tool_calls, "seconds": seconds, "usd": usd, "tokens": tokens}
    with ExitStack() as open_ones:
        try:
            place = StoreLocation.of(store)
            extend = {name: _amount(name, text) for name, text in more.items() if text is not None}
            opened = open_ones.enter_context(place.looked_into())
            entry = Archive(opened, place.name).run(run)
            _check(entry)
            answers = _answers(entry, answer or ())
            outfit = outfit_of(entry, {"model": model, "mcp": tuple(mcp or ()), "yes": yes})
        except MISTAKE as error:
            raise refused(error) from None

        def begin(agent: Agent) -> Run:
            return agent.reopen(entry.run_id, answers=answers, extend=extend, from_messages=from_messages).begin()

        conduct(outfit, begin, OutputMode(quiet, as_json, as_jsonl), opened)


def _check(entry: Entry) -> None:
    if entry.start.parent is not None:
        where = f"resume, run {entry.run_id}"
        raise ConfigError(where, "a run that another has delegated", f"the one above it, {entry.start.parent}")


def _amount(name: str, text: str) -> float:
    """How much more; with a plus or without."""
    try:
        amount = float(text) if name in ("seconds", "usd") else int(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < 1e15:
        raise ConfigError(f"resume, --{name.replace('_', '-')}", text, "how much more, such as +20")
    return amount


def _answers(entry: Entry, given: Sequence[str]) -> dict[str, Verdict]:
    """What was said to which of the open questions, in the words that one would type on the terminal."""
    record = JsonReader(entry.finish.record if entry.finish is not None else None)
    asked = {question.text("id"): question for question in record.inners("questions")}
    return dict(_answer(text, asked) for text in given)


def _answer(text: str, asked: Mapping[str, JsonReader]) -> tuple[str, Verdict]:
    where, ids = "resume, --answer", ", ".join(asked) or "none, as the run waits for no answer"
    name, equals, words = text.partition("=")
    if name not in asked and len(asked) == 1 and not (equals and nearest(name, list(asked))):
        [name], words = asked, text
    if name not in asked:
        raise ConfigError(where, text, f"ID=WORDS, where ID is an open question: {ids}")
    about: Any = asked[name].text("about")
    verdict = read(words, About(about) if about in list(About) else About.CALL)
    if verdict is None:
        raise ConfigError(where, text, "y or n, perhaps with words behind it, as on the terminal")
    return name, verdict
