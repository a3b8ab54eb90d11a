"""The record of a run: kept for `flyball why`, and read back from there or from a file."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, cast

from ..errors import ConfigError
from ..result import Result

Record = dict[str, Any]
_EXPECTED = "a record as `flyball run --json` prints it"


def folder() -> Path:
    """The user's folder for what programs keep between calls, where this system has it."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "flyball"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "flyball"
    return Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state") / "flyball"


def keep(result: Result) -> Path:
    """Keep the record of a run as that of the last one; only its user may read it. An OSError where that cannot be."""
    path = folder() / "last.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(result.to_dict(), file)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def kept(path: Path | None = None) -> Record:
    """The record in a file (`-` is standard input), or that of the last run; a ConfigError where there is none."""
    where = folder() / "last.json" if path is None else path
    if path is None and not where.exists():
        raise ConfigError("why", "no run yet", "`flyball run TASK` first, or the file of a saved --json record")
    try:
        text = sys.stdin.read() if str(where) == "-" else where.read_text(encoding="utf-8")
        found: object = json.loads(text)
    except OSError as error:
        raise ConfigError(f"why, {where}", error.strerror or str(error), _EXPECTED) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"why, {where}", f"no JSON ({error})", _EXPECTED) from error
    record = cast("Record", found)
    if not isinstance(found, dict) or not all(isinstance(record.get(key), kind) for key, kind in _NEEDED.items()):
        raise ConfigError(f"why, {where}", "something else", _EXPECTED)
    return record


_NEEDED = {"stop": str, "events": list, "budgets": dict, "messages": list, "explanation": str}
