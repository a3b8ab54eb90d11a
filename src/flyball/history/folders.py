"""The user's folders, where this system has them: for what programs keep between calls, and for what people keep."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def find_state_folder() -> Path:
    """What is only of the last call; an OSError where this user has no folder at all."""
    return _find_folder("XDG_STATE_HOME", ".local/state")


def find_data_folder() -> Path:
    """What is worth keeping; an OSError where this user has no folder at all."""
    return _find_folder("XDG_DATA_HOME", ".local/share")


def _find_folder(variable: str, default: str) -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else _find_home() / "AppData" / "Local") / "flyball"
    if sys.platform == "darwin":
        return _find_home() / "Library" / "Application Support" / "flyball"
    named = Path(os.environ.get(variable) or ".")
    return (named if named.is_absolute() else _find_home() / default) / "flyball"


def _find_home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error
