"""`flyball sessions`: list, title and delete sessions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ...history.archive import UNLIMITED, Archive, format_time
from ..completion import complete_sessions
from ..output import USER_ERRORS, confirm, exit_with_error, print_line, print_raw, print_table
from ..store_option import StoreLocation, StoreOption

if TYPE_CHECKING:
    from ...store import Session, Store

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)

_HEADERS = ("session", "title", "last used (UTC)", "messages", "held by")
_NAME = "Name of the session, or a unique prefix of it."
_Name = Annotated[str, typer.Argument(metavar="SESSION", help=_NAME, autocompletion=complete_sessions)]


@app.callback()
def sessions(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Include sessions of a single run.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Maximum number of sessions.")] = 20,
    store: StoreOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """List, title and delete sessions: conversations across runs (flyball run --session NAME)."""
    if context.invoked_subcommand is not None:
        return
    try:
        with StoreLocation.resolve(store).open_existing() as run_store:
            known = run_store.transcript.sessions(limit=UNLIMITED)
            single = frozenset[str]() if every else _find_single_run_sessions(run_store)
            selected = [session for session in known if session.title or session.id not in single]
            listed = [
                (session, holder.owner if (holder := run_store.lease.holder(session.id)) else "")
                for session in selected[:limit]
            ]
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    if as_json:
        print_raw(
            json.dumps(
                {"sessions": [asdict(session) | {"held_by": owner or None} for session, owner in listed]}, indent=2
            )
        )
    elif listed:
        print_table(_HEADERS, [_build_row(session, owner) for session, owner in listed])
    else:
        print_line("no sessions yet" + (f"; --all lists the {len(known):,} of single runs" if known else ""))


@app.command()
def title(
    name: _Name,
    text: Annotated[str, typer.Argument(metavar="TITLE", help="Title for lists.")],
    store: StoreOption = None,
) -> None:
    """Set the title of a session."""
    try:
        location = StoreLocation.resolve(store)
        with location.open_existing() as run_store:
            session = Archive(run_store, location.name).find_session(name)
            run_store.transcript.title(session.id, text)
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    print_line(f"session {session.id}: {text}")


@app.command()
def delete(
    name: _Name,
    store: StoreOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
) -> None:
    """Delete a session, its messages and its runs.

    A session that a run holds cannot be deleted.
    """
    try:
        location = StoreLocation.resolve(store)
        with location.open_existing() as run_store:
            session = Archive(run_store, location.name).find_session(name)
            if confirm(f"Delete the session {session.id} ({session.messages:,} messages) and its runs?", yes):
                run_store.transcript.delete(session.id)
                print_line(f"deleted session {session.id}")
    except USER_ERRORS as error:
        raise exit_with_error(error) from None


def _find_single_run_sessions(store: Store) -> frozenset[str]:
    """Return unnamed sessions: those with only the run of that id."""
    from ...store import Query

    runs = {entry.run_id: entry.start.session for entry in store.runs.list(Query(limit=UNLIMITED))}
    run_counts = Counter(runs.values())
    return frozenset(run_id for run_id, session in runs.items() if session == run_id and run_counts[session] == 1)


def _build_row(session: Session, owner: str) -> tuple[str, ...]:
    return session.id, session.title, format_time(session.updated_at), f"{session.messages:,}", owner
