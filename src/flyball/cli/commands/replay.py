"""`flyball replay`: what today's rules and limits would have made of a run; nothing is asked, and nothing is done."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError, nearest
from ...history.archive import Archive
from ...history.replay import RecordedRun, ReplayReport, rehearse
from ..completion import RUN, runs_like
from ..output import MISTAKE, put, refused, say
from ..saved_config import outfit_of
from ..store_option import At, StoreLocation

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMITS = ("turns", "tool_calls", "seconds", "usd", "tokens", "reflections", "nudges", "retries")
_ALL_THE_SAME = "Had the model answered as it did all the same,"
_RULES = "Rule files instead of those it had, or folders of them."


def replay(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN, autocompletion=runs_like)],
    rules: Annotated[list[Path] | None, typer.Option(metavar="PATH", help=_RULES)] = None,
    limits: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="Other limits, such as turns=5,usd=0.2.")
    ] = None,
    store: At = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Play a run again under other rules and limits, and tell the first place where it would have gone another way.

    Its model, its tools and the people are not asked: what they said then is what they say now. The settings and rule
    files are those of today. Exits with 0 if all would have been the same, with 1 if not.
    """
    try:
        place = StoreLocation.of(store)
        given = [path.absolute() for path in rules or ()]
        with place.looked_into() as opened:
            archive = Archive(opened, place.name)
            entry = archive.run(run)
            rows, events = opened.journal.read(entry.run_id), opened.runs.events(entry.run_id)
            if not rows:
                raise ConfigError(f"replay, run {entry.run_id}", "no journal", "a run that was kept with one")
            outfit = outfit_of(entry, {"rules": tuple(given)})
            outfit = replace(outfit, limits={**outfit.limits, **_limits(limits or ())})
            score = RecordedRun(rows, events, None if entry.finish is None else entry.finish.stop)
            agent = outfit.agent()
            found, further = rehearse(agent, score), rehearse(agent, score, lenient=True)
    except MISTAKE as error:
        raise refused(error) from None
    if as_json:
        put(json.dumps({**_record(found), "answered_the_same": _record(further)}, indent=2))
    else:
        for line in _lines(found, further, score.stop):
            say(line)
    raise typer.Exit(0 if found.same else 1)


def _limits(given: Sequence[str]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for one in ",".join(given).split(",") if given else ():
        name, _, text = (part.strip() for part in one.partition("="))
        if name not in _LIMITS:
            near = nearest(name, _LIMITS) or list(_LIMITS)
            raise ConfigError("replay, --limits", one, f"NAME=N, where NAME is {' or '.join(near)}")
        try:
            read[name] = None if text == "none" else float(text) if name in ("seconds", "usd") else int(text)
        except ValueError:
            raise ConfigError("replay, --limits", one, "a number, or none, behind the =") from None
    return read


def _lines(found: ReplayReport, further: ReplayReport, stop: str | None) -> list[str]:
    """What there is to say, for a person."""
    if found.same:
        far = "as far as it came" if stop is None else stop
        return [f"Nothing would have been different: {far}, after {found.of:,} steps."]
    if found.steps == found.of:
        head = f"Each of the {found.of:,} steps would have been the same, but not all that was told:"
    else:
        head = f"It would have gone another way {_place(found)}."
    lines = [head, *_sides(found)]
    if found.result is None and further.steps > found.steps:
        if not further.then and not further.today:
            return [*lines, f"{_ALL_THE_SAME} nothing else would have been different."]
        lines += [f"{_ALL_THE_SAME} it would have gone another way {_place(further)}.", *_sides(further)]
    result = further.result or found.result
    if result is not None:
        return [*lines, f"It would have ended as {result.stop.value}: {result.explain()}"]
    return [*lines, "What would have come of that is not known."]


def _place(found: ReplayReport) -> str:
    where = f"in turn {found.turn}" if found.turn else "at the beginning"
    return f"{where}, after {found.steps:,} of {found.of:,} steps ({found.at:.1f} s)"


def _sides(found: ReplayReport) -> list[str]:
    return [*_side("then", found.then), *_side("today", found.today)]


def _side(name: str, words: Sequence[str]) -> list[str]:
    return [f"  {name if n == 0 else '':6} {line}" for n, line in enumerate(words or ["nothing more"])]


def _record(found: ReplayReport) -> dict[str, Any]:
    result = found.result
    return {
        "same": found.same,
        "steps": found.steps,
        "of": found.of,
        "turn": found.turn,
        "at": found.at,
        "then": list(found.then),
        "today": list(found.today),
        "stop": None if result is None else result.stop.value,
        "explanation": None if result is None else result.explain(),
    }
