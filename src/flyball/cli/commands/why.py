"""`flyball why`: show what happened in a run and why it ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ...errors import ConfigError, UsageError, quote_value
from ...history.archive import Archive
from ...history.record import RunRecord, load_record, read_last_saved_at
from ..completion import complete_runs
from ..output import USER_ERRORS, exit_with_error, print_raw
from ..store_option import StoreLocation, StoreOption

_RUN = "Run id (or last), file of a saved --json record, or - for standard input."


def why(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help=_RUN, autocompletion=complete_runs)] = None,
    child: Annotated[str | None, typer.Option(metavar="PLACE", help="Show one child run, such as 2.1.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Show every line of a long run.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    store: StoreOption = None,
) -> None:
    """Explain a run: its turns, calls, warnings and refusals, and why it ended.

    Without RUN it explains the last run. A unique prefix of an id is enough; flyball runs lists the ids.
    """
    try:
        record = _find_record(run, store)
        record = record if child is None else _find_child(record, child)
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    from ..report import make_console, render_markdown, render_report

    print_raw(render_markdown(record, every) if markdown else render_report(record, make_console(), every))


def _find_record(run: str | None, store: str | None) -> RunRecord:
    """Return the record of a file or of a run in the store.

    A file that exists has priority.
    """
    if run is None and store is not None:
        raise UsageError("--store needs a run to look for: flyball why RUN --store URI")
    if run is None:
        return find_newest_record(None) or load_record()
    if run == "-" or (store is None and Path(run).exists()):
        return load_record(Path(run))
    location = StoreLocation.resolve(store)
    try:
        with location.open_existing() as run_store:
            archive = Archive(run_store, location.name)
            return archive.build_record(archive.find_run(run))
    except ConfigError:
        if store is None and (Path(run).suffix or os.sep in run):  # it looks like a path
            return load_record(Path(run))
        raise


def find_newest_record(store: str | None) -> RunRecord | None:
    """Return the newest run of the store; of the default one, only if no newer record was saved.

    That is a run that has not ended, or that another program started.
    """
    from ...store import Query

    try:
        location = StoreLocation.resolve(store)
        with location.open_existing() as run_store:
            newest = run_store.runs.list(Query(limit=1))
            if newest and (store is not None or newest[0].updated_at > read_last_saved_at()):
                return Archive(run_store, location.name).build_record(newest[0])
    except USER_ERRORS:
        if store is not None:
            raise
        # an unreadable store must not hide the saved record
    return None


def _find_child(record: RunRecord, tree_path: str) -> RunRecord:
    child_record = record.find_run(tree_path)
    if child_record is None or not tree_path:
        if not record.children:
            raise UsageError(f"--child {quote_value(tree_path)}: this run has no children")
        paths = ", ".join(child.tree_path for child in record.iter_tree() if child.tree_path)
        raise ConfigError("why, --child", tree_path, f"one of {paths}")
    return child_record
