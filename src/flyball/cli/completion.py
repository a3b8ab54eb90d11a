"""Shell completion of models, tools, runs and sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..store import Entry

RUN_HELP = "Run id, or a unique prefix of it; last is the newest run."
"""Help text of the RUN argument."""


def complete_models(incomplete: str) -> list[str]:
    from ..settings import restrict_loading
    from .commands.models import list_models
    from .output import USER_ERRORS
    from .trust import check_project_file

    try:
        with restrict_loading(check_project_file):
            return [model.name for model in list_models() if model.name.startswith(incomplete)]
    except USER_ERRORS:  # completion must not print errors
        return []


def complete_tools(incomplete: str) -> list[str]:
    """Complete the last name of a comma-separated toolbox list."""
    from ..toolbox import NAMES

    *chosen, prefix = incomplete.split(",")
    return [",".join([*chosen, name]) for name in NAMES if name.startswith(prefix) and name not in chosen]


def complete_runs(incomplete: str) -> list[str]:
    """Complete run ids of the default store."""
    return [entry.run_id for entry in _list_entries() if entry.run_id.startswith(incomplete)]


def complete_sessions(incomplete: str) -> list[str]:
    """Complete session names of the default store."""
    names = dict.fromkeys(entry.start.session or "" for entry in _list_entries())
    return [name for name in names if name and name.startswith(incomplete)]


def _list_entries() -> list[Entry]:
    from ..history.archive import Archive
    from ..settings import restrict_loading
    from .output import USER_ERRORS
    from .store_option import StoreLocation
    from .trust import check_project_file

    try:
        with restrict_loading(check_project_file):  # a file of a stranger could name another store
            location = StoreLocation.resolve(None)
        with location.open_existing() as store:
            return Archive(store, location.name).list_entries()
    except USER_ERRORS:  # completion must not print errors
        return []
