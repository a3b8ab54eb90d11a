"""`flyball prune`: delete runs and sessions that were not used for a while."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..._internal.text import pluralize
from ...budget.deadline import SYSTEM
from ...history.archive import UNLIMITED, Archive, format_time
from ..age import parse_age
from ..output import USER_ERRORS, confirm, exit_with_error, print_line
from ..store_option import StoreLocation, StoreOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...store import Entry, Pruned, Store


def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Minimum age, such as 45m, 12h, 30d or 2w.")] = "30d",
    keep: Annotated[int, typer.Option(min=0, metavar="N", help="Keep the newest N runs, whatever their age.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print how much would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without asking.")] = False,
    store: StoreOption = None,
) -> None:
    """Delete old runs, each with its children, and old sessions.

    The age counts from the last use. Running runs, and runs and sessions under a lease, are kept. Deletion cannot be
    undone.
    """
    try:
        location = StoreLocation.resolve(store)
        before = SYSTEM.wall() - parse_age("prune, --older-than", older_than)
        with location.open_existing() as run_store:
            archive = Archive(run_store, location.name)
            before = _adjust_cutoff(archive, before, keep)
            prunable = count_prunable(run_store, before)
            if not prunable.runs and not prunable.sessions:
                print_line("nothing to delete")
            elif dry_run:
                print_line(f"would delete {_format_amount(prunable)}, not used since {format_time(before)} UTC")
            elif confirm(f"Delete {_format_amount(prunable)}, not used since {format_time(before)} UTC?", yes):
                print_line(f"deleted {_format_amount(run_store.prune(before))}")
    except USER_ERRORS as error:
        raise exit_with_error(error) from None


def count_prunable(store: Store, before: float) -> Pruned:
    """Count what `store.prune(before)` would delete now."""
    from ...store import Pruned

    entries = Archive(store, "").list_entries()
    roots = _find_roots(entries)
    held = {session.id for session in store.transcript.sessions(limit=UNLIMITED) if store.lease.holder(session.id)}
    held |= {entry.run_id for entry in entries if store.lease.holder(entry.run_id)}
    live = {
        roots[entry.run_id]
        for entry in entries
        if entry.updated_at >= before or held & {entry.run_id, entry.start.session}
    }
    staying = [entry for entry in entries if roots[entry.run_id] in live]
    used = held | {entry.start.session for entry in staying}
    sessions = [
        session
        for session in store.transcript.sessions(limit=UNLIMITED)
        if session.updated_at < before and session.id not in used
    ]
    return Pruned(len(entries) - len(staying), len(sessions))


def _find_roots(entries: Sequence[Entry]) -> Mapping[str, str]:
    """Return the top run of each run."""
    parents = {entry.run_id: entry.start.parent for entry in entries}

    def find_root(run_id: str) -> str:
        parent = parents[run_id]
        while parent is not None and parent in parents:
            run_id, parent = parent, parents[parent]
        return run_id

    return {run_id: find_root(run_id) for run_id in parents}


def _adjust_cutoff(archive: Archive, before: float, keep: int) -> float:
    """Return the cutoff that keeps the newest `keep` run trees."""
    if not keep:
        return before
    entries = archive.list_entries()
    roots, updated_at = _find_roots(entries), dict[str, float]()
    for entry in entries:
        root = roots[entry.run_id]
        updated_at[root] = max(updated_at.get(root, 0.0), entry.updated_at)
    newest = sorted(updated_at.values(), reverse=True)
    return min(before, newest[keep - 1]) if keep <= len(newest) else 0.0


def _format_amount(pruned: Pruned) -> str:
    return f"{pluralize(pruned.runs, 'run')} and {pluralize(pruned.sessions, 'session')}"
