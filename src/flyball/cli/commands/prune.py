"""`flyball prune`: throw away what nobody has touched for a while."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from ...budget.deadline import SYSTEM
from ...errors import ConfigError
from ...history.archive import EVERY, Archive, moment
from ..output import MISTAKE, agreed, refused, say
from ..store_option import At, StoreLocation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ...store import Entry, Pruned, Store

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([smhdw])")


def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Such as 30d, 12h or 2w.")] = "30d",
    keep: Annotated[int, typer.Option(min=0, metavar="N", help="Keep the newest N runs, however old.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how much it would be.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: At = None,
) -> None:
    """Throw away runs (each with its children) and sessions that nobody has touched for so long.

    A run that is going on, or whose session is held, stays. What is thrown away cannot be had back.
    """
    try:
        place = StoreLocation.of(store)
        before = SYSTEM.wall() - _seconds(older_than)
        with place.looked_into() as opened:
            archive = Archive(opened, place.name)
            before = _sparing(archive, before, keep)
            doomed = doomed_in(opened, before)
            if not doomed.runs and not doomed.sessions:
                say("nothing to throw away")
            elif dry_run:
                say(f"would throw away {_amount(doomed)}, untouched since {moment(before)} UTC")
            elif agreed(f"Throw away {_amount(doomed)}, untouched since {moment(before)} UTC?", yes):
                say(f"threw away {_amount(opened.prune(before))}")
    except MISTAKE as error:
        raise refused(error) from None


def doomed_in(store: Store, before: float) -> Pruned:
    """How much `store.prune(before)` would throw away now."""
    from ...store import Pruned

    entries = Archive(store, "").entries()
    roots = _roots(entries)
    held = {session.id for session in store.transcript.sessions(limit=EVERY) if store.lease.holder(session.id)}
    held |= {entry.run_id for entry in entries if store.lease.holder(entry.run_id)}
    live = {
        roots[entry.run_id]
        for entry in entries
        if entry.updated_at >= before or held & {entry.run_id, entry.start.session}
    }
    staying = [entry for entry in entries if roots[entry.run_id] in live]
    used = held | {entry.start.session for entry in staying}
    sessions = [one for one in store.transcript.sessions(limit=EVERY) if one.updated_at < before and one.id not in used]
    return Pruned(len(entries) - len(staying), len(sessions))


def _roots(entries: Sequence[Entry]) -> Mapping[str, str]:
    """The run at the top of each run's tree."""
    parents = {entry.run_id: entry.start.parent for entry in entries}

    def root(run_id: str) -> str:
        above = parents[run_id]
        while above is not None and above in parents:
            run_id, above = above, parents[above]
        return run_id

    return {run_id: root(run_id) for run_id in parents}


def _sparing(archive: Archive, before: float, keep: int) -> float:
    """The time before which all may go, if the newest so many runs stay with all of their trees."""
    if not keep:
        return before
    entries = archive.entries()
    roots, touched = _roots(entries), dict[str, float]()
    for entry in entries:
        root = roots[entry.run_id]
        touched[root] = max(touched.get(root, 0.0), entry.updated_at)
    newest = sorted(touched.values(), reverse=True)
    return min(before, newest[keep - 1]) if keep <= len(newest) else 0.0


def _seconds(age: str) -> float:
    found = _AGE.fullmatch(age.strip().lower())
    if found is None:
        raise ConfigError("prune, --older-than", age, "a number and a unit: 45m, 12h, 30d or 2w")
    return float(found[1]) * _SECONDS[found[2]]


def _amount(pruned: Pruned) -> str:
    runs, sessions = pruned.runs, pruned.sessions
    return f"{runs:,} run{'' if runs == 1 else 's'} and {sessions:,} session{'' if sessions == 1 else 's'}"
