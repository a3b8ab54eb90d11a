"""`flyball why`: what happened in a run, why it ended, and what would let it go on, on one screen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigError
from ...history.archive import Archive
from ...history.record import RunRecord, kept, last_kept_at
from ..completion import runs_like
from ..output import MISTAKE, put, refused
from ..store_option import At, StoreLocation

_RUN = "A run's id (or last), a saved --json record, or - for standard input."


def why(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help=_RUN, autocompletion=runs_like)] = None,
    child: Annotated[str | None, typer.Option(metavar="PLACE", help="Show one of its children, such as 2.1.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Leave nothing out of the timeline of a long run.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    store: At = None,
) -> None:
    """Show what happened in a run: turns, calls, warnings, refusals, and why it ended.

    Without RUN it is the last one. An id may be cut, as far as no other begins so; `flyball runs` lists them.
    """
    try:
        found = _found(run, store)
        found = found if child is None else _child(found, child)
    except MISTAKE as error:
        raise refused(error) from None
    from ..report import console, drawn, markdown_of

    put(markdown_of(found, every) if markdown else drawn(found, console(), every))


def _found(run: str | None, store: str | None) -> RunRecord:
    """The record that is meant: a file that is there is one, and all else is looked for in the store."""
    if run is None and store is not None:
        raise ConfigError("why, --store", store, "RUN before it, which is to be looked for there")
    if run is None:
        return _last() or kept()
    if run == "-" or (store is None and Path(run).exists()):
        return kept(Path(run))
    place = StoreLocation.of(store)
    try:
        with place.looked_into() as opened:
            archive = Archive(opened, place.name)
            return archive.record(archive.run(run))
    except ConfigError:
        if store is None and (Path(run).suffix or os.sep in run):  # a file was meant
            return kept(Path(run))
        raise


def _last() -> RunRecord | None:
    """The newest run of the usual store, where that is newer than the record that the last one has left: it has not
    ended, or somebody else has started it."""
    from ...store import Query

    try:
        place = StoreLocation.of(None)
        with place.looked_into() as opened:
            newest = opened.runs.list(Query(limit=1))
            if newest and newest[0].updated_at > last_kept_at():
                return Archive(opened, place.name).record(newest[0])
    except MISTAKE:  # a store that cannot be read does not hide the record
        pass
    return None


def _child(record: RunRecord, place: str) -> RunRecord:
    found = record.at(place)
    if found is None or not place:
        places = ", ".join(one.place for one in record.tree() if one.place) or "none, as this run has no children"
        raise ConfigError("why, --child", place, f"one of {places}" if record.children else places)
    return found
