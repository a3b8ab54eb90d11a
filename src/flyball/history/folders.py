"""Per-user folders for Flyball's state and data."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def find_state_folder() -> Path:
    """Return the folder for what one command leaves to the next.

    Raises `OSError` if the user has no home folder.
    """
    return _find_folder("XDG_STATE_HOME", ".local/state")


def find_data_folder() -> Path:
    """Return the folder for data worth keeping.

    Raises `OSError` if the user has no home folder.
    """
    return _find_folder("XDG_DATA_HOME", ".local/share")


def _find_folder(variable: str, default: str) -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else _find_home() / "AppData" / "Local") / "flyball"
    if sys.platform == "darwin":
        return _find_home() / "Library" / "Application Support" / "flyball"
    configured = Path(os.environ.get(variable) or ".")
    return (configured if configured.is_absolute() else _find_home() / default) / "flyball"


def _find_home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error
