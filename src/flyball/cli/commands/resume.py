"""`flyball resume`: continue a run that was killed, is paused, or met a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from ..._internal.json_reader import JsonReader
from ...errors import ConfigError, UsageError, suggest_names
from ...history.archive import Archive
from ...person import ANSWER_HINTS, About, Verdict, parse_answer_line
from ..completion import RUN_HELP, complete_runs
from ..hints import build_hints, list_reached_limits, read_about
from ..output import USER_ERRORS, exit_with_error
from ..run_command import OutputMode, execute_run
from ..saved_config import load_config
from ..store_option import StoreLocation, StoreOption

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from ...agent.run import Run
    from ...history.record import RunRecord
    from ...store import Entry

_Extension = Annotated[str | None, typer.Option(metavar="+N", help="Amount to add.")]
_FALLBACK = "Fallback model instead of the run's."
_ANSWER = "Answer to an open question, as on the terminal: ID=y, ID=n, ID='n not now'. A single question needs no ID."


def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP, autocompletion=complete_runs)],
    turns: _Extension = None,
    tool_calls: _Extension = None,
    seconds: _Extension = None,
    usd: _Extension = None,
    tokens: _Extension = None,
    answer: Annotated[list[str] | None, typer.Option(metavar="ID=WORDS", help=_ANSWER)] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Model instead of the run's model.")] = None,
    fallback_model: Annotated[list[str] | None, typer.Option(metavar="NAME", help=_FALLBACK)] = None,
    mcp: Annotated[
        list[str] | None, typer.Option(metavar="COMMAND|URL", help="MCP server instead of the run's.")
    ] = None,
    from_messages: Annotated[
        bool,
        typer.Option("--from-messages", help="Start a new run from the messages, if the code has changed."),
    ] = False,
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Make every call without asking.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only the answer.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole record as JSON.")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print every event as a line of JSON.")] = False,
) -> None:
    """Continue a run that was killed, is paused, or met a limit. No effect is repeated.

    Model, tools, rules and folder are those of the first start. Exits as flyball run does.
    """
    extensions = {"turns": turns, "tool_calls": tool_calls, "seconds": seconds, "usd": usd, "tokens": tokens}
    with ExitStack() as stack:
        try:
            location = StoreLocation.resolve(store)
            extend = {name: _parse_amount(name, text) for name, text in extensions.items() if text is not None}
            run_store = stack.enter_context(location.open_existing())
            archive = Archive(run_store, location.name)
            entry = archive.find_run(run)
            _require_top_run(entry)
            if extend and not from_messages:
                _require_reached_limit(archive.build_record(entry), extend)
            answers = _parse_answers(entry, answer or ())
            overrides = {"model": model, "fallback_models": tuple(fallback_model or ()), "mcp": tuple(mcp or ())}
            config = load_config(entry, {**overrides, "yes": yes})
        except USER_ERRORS as error:
            raise exit_with_error(error) from None

        def start_run(agent: Agent) -> Run:
            return agent.reopen(entry.run_id, answers=answers, extend=extend, from_messages=from_messages).begin()

        execute_run(config, start_run, OutputMode(quiet, as_json, as_jsonl), run_store)


def _require_top_run(entry: Entry) -> None:
    if entry.start.parent is not None:
        raise UsageError(f"run {entry.run_id} is a child run: resume its parent, {entry.start.parent}")


def _require_reached_limit(record: RunRecord, extend: Mapping[str, float]) -> None:
    """Raise UsageError if no limit that the run met is extended: it would only report again."""
    reached = list_reached_limits(record)
    if reached and not set(reached) & set(extend):
        names = " and ".join(name.replace("_", " ") for name in reached)
        commands = " or ".join(build_hints(record))
        raise UsageError(f"run {record.data.text('run_id')} ended at its limit of {names}: use {commands}")


def _parse_amount(name: str, text: str) -> float:
    """Parse an additional amount, with or without a plus sign."""
    try:
        amount = float(text) if name in ("seconds", "usd") else int(text)
    except ValueError:
        amount = 0.0
    if not 0 < amount < 1e15:
        raise ConfigError(f"resume, --{name.replace('_', '-')}", text, "an amount to add, such as +20")
    return amount


def _parse_answers(entry: Entry, texts: Sequence[str]) -> dict[str, Verdict]:
    """Parse answers to open questions, worded as on the terminal."""
    record = JsonReader(entry.finish.record if entry.finish is not None else None)
    questions = {question.text("id"): question for question in record.nested_list("questions")}
    return dict(_parse_answer(text, questions) for text in texts)


def _parse_answer(text: str, questions: Mapping[str, JsonReader]) -> tuple[str, Verdict]:
    option = "resume, --answer"
    if not questions:
        raise UsageError("this run has no open question: resume it without --answer")
    name, equals, answer = text.partition("=")
    if name not in questions and len(questions) == 1 and not (equals and suggest_names(name, list(questions))):
        [name], answer = questions, text
    if name not in questions:
        raise ConfigError(option, text, f"ID=WORDS, where ID is an open question: {', '.join(questions)}")
    about = read_about(questions[name])
    verdict = parse_answer_line(answer, about)
    if verdict is None:
        expected = "y or n, optionally with words after it, as on the terminal"
        raise ConfigError(option, text, ANSWER_HINTS[about] if about is About.CLIENT_TOOL else expected)
    return name, verdict
