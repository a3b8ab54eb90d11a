"""What a shell offers when somebody presses Tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store import Entry

RUN_HELP = "Its id, or as much of it as no other has; or last."
"""What a command says of the run that it wants named."""


def complete_models(incomplete: str) -> list[str]:
    """The models whose names begin so."""
    from .commands.models import list_models

    return [one.name for one in list_models() if one.name.startswith(incomplete)]


def complete_tools(incomplete: str) -> list[str]:
    """The toolbox, of which several may be named with commas."""
    from ..toolbox import NAMES

    *before, begun = incomplete.split(",")
    return [",".join([*before, name]) for name in NAMES if name.startswith(begun) and name not in before]


def complete_runs(incomplete: str) -> list[str]:
    """The runs of the usual store whose ids begin so."""
    return [entry.run_id for entry in _list_entries() if entry.run_id.startswith(incomplete)]


def complete_sessions(incomplete: str) -> list[str]:
    """The sessions in which they were."""
    names = dict.fromkeys(entry.start.session or "" for entry in _list_entries())
    return [name for name in names if name and name.startswith(incomplete)]


def _list_entries() -> list[Entry]:
    from ..history.archive import Archive
    from .output import USER_ERRORS
    from .store_option import StoreLocation

    try:
        place = StoreLocation.resolve(None)
        with place.open_existing() as opened:
            return Archive(opened, place.name).list_entries()
    except USER_ERRORS:  # who presses Tab does not want to read about it
        return []
