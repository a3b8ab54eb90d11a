"""`flyball runs`: list runs and how they ended, including killed ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ConfigError
from ...history.archive import INTERRUPTED, RUNNING, Archive, format_time, shorten_ids
from ...history.run_usage import RunUsage, read_run_usage
from ...result import Stop
from ..output import USER_ERRORS, exit_with_error, format_usd, print_line, print_raw, print_table
from ..report import choose_colour
from ..store_option import StoreLocation, StoreOption

if TYPE_CHECKING:
    from ...store import Entry, Query

_HEADERS = ("run", "started (UTC)", "session", "agent", "status", "turns", "cost", "took", "task")
_NUMBERS = ("turns", "cost", "took")
_COLUMNS_FOR = {"started (UTC)": 72, "session": 88, "agent": 88, "turns": 56, "took": 56}
_STYLES = {RUNNING: "cyan", INTERRUPTED: "yellow", **{stop.value: choose_colour(stop) for stop in Stop}}


def runs(
    session: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this session.")] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="Only runs of this agent.")] = None,
    stop: Annotated[str | None, typer.Option(metavar="REASON", help="Only runs with this stop reason.")] = None,
    unended: Annotated[bool, typer.Option("--unended", help="Only runs that are running or were interrupted.")] = False,
    children: Annotated[bool, typer.Option("--children", help="Include child runs.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of runs.")] = 20,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """List runs and how they ended, newest first.

    The status is the stop reason; or running, while a process holds the session; or interrupted, if that process is
    gone (flyball resume RUN continues it).
    """
    try:
        location = StoreLocation.resolve(store)
        query = _build_query(session, agent, stop, unended, children, limit)
        with location.open_existing() as run_store:
            archive = Archive(run_store, location.name)
            entries = [
                (entry, archive.describe_status(entry), read_run_usage(run_store, entry))
                for entry in run_store.runs.list(query)
            ]
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    if as_json:
        print_raw(json.dumps({"runs": [_build_record(*listed) for listed in entries]}, indent=2))
    elif entries:
        names = shorten_ids([entry.run_id for entry, *_ in entries if entry.start.parent is None])
        rows = [_build_row(*listed, names) for listed in entries]
        print_table(_HEADERS, rows, right=_NUMBERS, columns_for=_COLUMNS_FOR, styles=_STYLES)
    else:
        is_filtered = session or agent or stop or unended
        print_line("no matching runs" if is_filtered else "no runs yet")


def _build_query(
    session: str | None, agent: str | None, stop: str | None, unended: bool, children: bool, limit: int
) -> Query:
    from ...store import Query

    if stop is not None and stop not in list(Stop):
        raise ConfigError("runs, --stop", stop, f"one of {', '.join(Stop)}")
    finished = False if unended else None
    return Query(session=session, agent=agent, stop=stop, finished=finished, children=children, limit=limit)


def _build_row(entry: Entry, status: str, usage: RunUsage, names: dict[str, str]) -> tuple[str, ...]:
    start = entry.start
    session = "" if start.session in (None, entry.run_id) else start.session
    agent = "" if start.agent == "agent" else start.agent
    name, started = names.get(entry.run_id, entry.run_id), format_time(start.at)
    used = f"{usage.turns:,}", format_usd(usage.usd, usage.is_partly_unknown), f"{usage.seconds:,.1f} s"
    return name, started, session or "", agent, status, *used, start.task


def _build_record(entry: Entry, status: str, usage: RunUsage) -> dict[str, Any]:
    start, finish = entry.start, entry.finish
    return {
        "run_id": entry.run_id,
        "session": start.session,
        "parent": start.parent,
        "agent": start.agent,
        "task": start.task,
        "started_at": start.at,
        "updated_at": entry.updated_at,
        "ended_at": None if finish is None else finish.at,
        "stop": None if finish is None else finish.stop,
        "turns": usage.turns,
        "tokens": usage.tokens,
        "usd": usage.usd,
        "seconds": usage.seconds,
        "going_on": status == RUNNING,
        "killed": status == INTERRUPTED,
    }
