"""Stock-taking: what there is in the store of this place, and whether it can be written; for `flyball doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...history.archive import Archive
from ...settings import Settings
from ..output import MISTAKE
from ..store_option import Place

if TYPE_CHECKING:
    from ...doctor import Check
    from ...store import Store

_UNITS = ("bytes", "kB", "MB", "GB")


def store_check() -> Check:
    """That runs can be kept; its name tells where, how many there are, how large it is and of which version."""
    from ...doctor import Check, Hint

    try:
        Settings.load()
    except MISTAKE:
        return Check("store", lambda: [Hint("which one is not known, as the settings cannot be read")])
    try:
        place = Place.of(None)
        if place.keeps_nothing:
            return Check("store", lambda: [Hint(f"{place.uri} ({place.by}): runs are not kept")])
        if place.path is not None and not place.path.exists():
            return Check(f"store {place.name}", lambda: [Hint("it is not there yet: the first flyball run makes it")])
        with place.open() as store:
            told = ", ".join(_facts(place, store))
            _write(store)
    except MISTAKE as error:
        wrong = str(error)
        return Check("store", lambda: [wrong])
    return Check(f"store {place.name} ({told})", tuple[str, ...])


def _facts(place: Place, store: Store) -> list[str]:
    from ...store import SqliteStore

    runs = len(Archive(store, place.name).entries())
    facts = [f"{runs:,} run{'' if runs == 1 else 's'}"]
    if isinstance(store, SqliteStore):
        [version] = store.read(int, "PRAGMA user_version")
        facts += [_size(store.path.stat().st_size), f"schema {version}"]
    return facts


def _write(store: Store) -> None:
    """Write something that leaves nothing: a lease, taken and given back."""
    from ...store import Guard

    guard = store.lease.acquire("flyball doctor", "flyball doctor", 60.0)
    if isinstance(guard, Guard):
        store.lease.release(guard)


def _size(amount: float) -> str:
    """So many bytes, as a person would write it.

    >>> _size(999), _size(1_480_000)
    ('999 bytes', '1.48 MB')
    """
    unit = 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1_000, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}" if unit else f"{amount:.0f} {_UNITS[0]}"
