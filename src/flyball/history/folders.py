"""The user's folders, where this system has them: for what programs keep between calls, and for what people keep."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def state() -> Path:
    """What is only of the last call; an OSError where this user has no folder at all."""
    return _ours("XDG_STATE_HOME", ".local/state")


def data() -> Path:
    """What is worth keeping; an OSError where this user has no folder at all."""
    return _ours("XDG_DATA_HOME", ".local/share")


def _ours(variable: str, usual: str) -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else _home() / "AppData" / "Local") / "flyball"
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "flyball"
    named = Path(os.environ.get(variable) or ".")
    return (named if named.is_absolute() else _home() / usual) / "flyball"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error
