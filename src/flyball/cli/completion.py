"""What a shell offers when somebody presses Tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store import Entry

RUN = "Its id, or as much of it as no other has; or last."
"""What a command says of the run that it wants named."""


def models_like(incomplete: str) -> list[str]:
    """The models whose names begin so."""
    from .commands.models import known

    return [one.name for one in known() if one.name.startswith(incomplete)]


def tools_like(incomplete: str) -> list[str]:
    """The toolbox, of which several may be named with commas."""
    from ..toolbox import NAMES

    *before, begun = incomplete.split(",")
    return [",".join([*before, name]) for name in NAMES if name.startswith(begun) and name not in before]


def runs_like(incomplete: str) -> list[str]:
    """The runs of the usual store whose ids begin so."""
    return [entry.run_id for entry in _archive_entries() if entry.run_id.startswith(incomplete)]


def sessions_like(incomplete: str) -> list[str]:
    """The sessions in which they were."""
    names = dict.fromkeys(entry.start.session or "" for entry in _archive_entries())
    return [name for name in names if name and name.startswith(incomplete)]


def _archive_entries() -> list[Entry]:
    from ..history.archive import Archive
    from .output import MISTAKE
    from .store_option import StoreLocation

    try:
        place = StoreLocation.of(None)
        with place.looked_into() as opened:
            return Archive(opened, place.name).entries()
    except MISTAKE:  # who presses Tab does not want to read about it
        return []
