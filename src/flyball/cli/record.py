"""The record of a run: kept for `flyball why`, and read back from there or from a file."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError
from ..result import Result, Stop
from ..snapshot import BudgetSnapshot
from .told import Told

_EXPECTED = "a record as `flyball run --json` prints it"


@dataclass(frozen=True, slots=True)
class Record:
    """What a record tells of a run that has ended; whoever wrote it is not trusted."""

    told: Told
    stop: Stop
    budgets: dict[str, BudgetSnapshot]

    @classmethod
    def of(cls, data: object) -> Record:
        """Read a record; a ValueError says what it cannot be without."""
        told = Told(data)
        if told.get("stop") not in list(Stop):
            raise ValueError("no record of a run: it has no `stop` that is known here")
        if not (isinstance(told.get("events"), list) and isinstance(told.get("explanation"), str)):
            raise ValueError("no record of a run: it has no `events` and `explanation`")
        budgets = told.inner("budgets")
        read = {name: BudgetSnapshot.from_dict(budgets.get(name)) for name in budgets}  # pyright: ignore[reportArgumentType]
        return cls(told, Stop(told.text("stop")), read)

    @property
    def task(self) -> str:
        """What the run was about: the last thing that a user said before the model did."""
        said = ""
        for message in self.told.inners("messages"):
            if message.text("role") == "assistant":
                break
            if message.text("role") == "user":
                said = message.text("content")
        return said

    @property
    def events(self) -> list[Told]:
        """What happened, in order."""
        return self.told.inners("events")

    @property
    def calls(self) -> dict[str, object]:
        """What each call was called with, by its id; also those that were never made."""
        said = [one.inner("payload") for one in self.told.inners("messages") if one.text("type") == "tool_call"]
        return {call.text("call_id"): _arguments(call.get("arguments")) for call in said}

    @property
    def outcomes(self) -> dict[str, Told]:
        """What each call came to, by the call's id."""
        return {one.text("call_id"): one for one in self.told.inners("tool_execution_results")}

    @property
    def started(self) -> str:
        """When it began, as far as the day and the minute."""
        return next((event.text("time")[:16].replace("T", " ") for event in self.events), "")

    @property
    def work_seconds(self) -> float:
        """How long it was allowed to work; 0 where that is not told."""
        first = next(iter(self.events), Told({}))
        return first.inner("limits").number("remaining_s")


def _arguments(given: object) -> object:
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):  # the model may have written what is no JSON
        return None


def folder() -> Path:
    """The user's folder for what programs keep between calls, where this system has it."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else _home() / "AppData" / "Local") / "flyball"
    if sys.platform == "darwin":
        return _home() / "Library" / "Application Support" / "flyball"
    state = Path(os.environ.get("XDG_STATE_HOME") or ".")
    return (state if state.is_absolute() else _home() / ".local" / "state") / "flyball"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError as error:
        raise OSError("this user has no home folder") from error


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
        return Record.of(json.loads(text))
    except OSError as error:
        raise ConfigError(f"why, {where}", error.strerror or str(error), _EXPECTED) from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"why, {where}", f"no JSON ({error})", _EXPECTED) from error
    except (ValueError, RecursionError) as error:  # a ConfigError is one too
        raise ConfigError(f"why, {where}", str(error), _EXPECTED) from error
