"""`flyball why`: what happened in a run, why it ended, and what would let it go on, on one screen."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigError
from ...history.archive import Archive
from ...history.record import RunRecord, load_record, read_last_saved_at
from ..completion import complete_runs
from ..output import USER_ERRORS, exit_with_error, print_raw
from ..store_option import StoreLocation, StoreOption

_RUN = "A run's id (or last), a saved --json record, or - for standard input."


def why(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help=_RUN, autocompletion=complete_runs)] = None,
    child: Annotated[str | None, typer.Option(metavar="PLACE", help="Show one of its children, such as 2.1.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Leave nothing out of the timeline of a long run.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    store: StoreOption = None,
) -> None:
    """Show what happened in a run: turns, calls, warnings, refusals, and why it ended.

    Without RUN it is the last one. An id may be cut, as far as no other begins so; `flyball runs` lists them.
    """
    try:
        found = _find_record(run, store)
        found = found if child is None else _find_child(found, child)
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    from ..report import make_console, render_markdown, render_report

    print_raw(render_markdown(found, every) if markdown else render_report(found, make_console(), every))


def _find_record(run: str | None, store: str | None) -> RunRecord:
    """The record that is meant: a file that is there is one, and all else is looked for in the store."""
    if run is None and store is not None:
        raise ConfigError("why, --store", store, "RUN before it, which is to be looked for there")
    if run is None:
        return _find_last() or load_record()
    if run == "-" or (store is None and Path(run).exists()):
        return load_record(Path(run))
    place = StoreLocation.resolve(store)
    try:
        with place.open_existing() as opened:
            archive = Archive(opened, place.name)
            return archive.build_record(archive.find_run(run))
    except ConfigError:
        if store is None and (Path(run).suffix or os.sep in run):  # a file was meant
            return load_record(Path(run))
        raise


def _find_last() -> RunRecord | None:
    """The newest run of the usual store, where that is newer than the record that the last one has left: it has not
    ended, or somebody else has started it."""
    from ...store import Query

    try:
        place = StoreLocation.resolve(None)
        with place.open_existing() as opened:
            newest = opened.runs.list(Query(limit=1))
            if newest and newest[0].updated_at > read_last_saved_at():
                return Archive(opened, place.name).build_record(newest[0])
    except USER_ERRORS:  # a store that cannot be read does not hide the record
        pass
    return None


def _find_child(record: RunRecord, tree_path: str) -> RunRecord:
    found = record.find_run(tree_path)
    if found is None or not tree_path:
        places = (
            ", ".join(one.tree_path for one in record.iter_tree() if one.tree_path)
            or "none, as this run has no children"
        )
        raise ConfigError("why, --child", tree_path, f"one of {places}" if record.children else places)
    return found
