"""The record of a run: kept for `flyball why`, and read back from there or from a file."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..budget.snapshot import BudgetSnapshot
from ..errors import ConfigError
from ..result import Result, Stop
from . import folders


class JsonReader:
    """One JSON object: what is missing in it, or is something else than was looked for, is empty or 0.

    >>> data = JsonReader({"tool": "add", "at": "soon", "arguments": {"a": 1}})
    >>> data.text("tool"), data.number("at"), data.nested("arguments").integer("a"), data.text_list("flags")
    ('add', 0.0, 1, [])
    """

    __slots__ = ("_data",)

    def __init__(self, data: object) -> None:
        self._data: Mapping[str, object] = cast("Any", data) if isinstance(data, Mapping) else {}

    def __iter__(self) -> Iterator[str]:
        return (str(key) for key in self._data)

    @property
    def raw(self) -> dict[str, object]:
        """All of it, as it is."""
        return dict(self._data)

    def get(self, key: str) -> object:
        """The value as it is; None where there is none."""
        return self._data.get(key)

    def text(self, key: str) -> str:
        """A text."""
        value = self._data.get(key)
        return value if isinstance(value, str) else ""

    def number(self, key: str) -> float:
        """A number that is finite."""
        value = self._data.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e15:
            return 0.0
        return float(value) if math.isfinite(value) else 0.0

    def integer(self, key: str) -> int:
        """A whole number."""
        return int(self.number(key))

    def nested(self, key: str) -> JsonReader:
        """The object below."""
        return JsonReader(self._data.get(key))

    def nested_list(self, key: str) -> list[JsonReader]:
        """The objects of a list."""
        return [JsonReader(cast("object", one)) for one in self._list(key) if isinstance(one, dict)]

    def text_list(self, key: str) -> list[str]:
        """The texts of a list."""
        return [one for one in self._list(key) if isinstance(one, str)]

    def _list(self, key: str) -> list[object]:
        value = self._data.get(key)
        return cast("list[object]", value) if isinstance(value, list) else []


_EXPECTED = "a record as `flyball run --json` prints it"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """What a record tells of a run; whoever wrote it is not trusted."""

    data: JsonReader
    stop: Stop | None
    """Why it ended; None for one that has not, of which only a store can tell."""
    budgets: dict[str, BudgetSnapshot]
    children: list[RunRecord]
    """Those of the runs that it has delegated, in the order in which they were announced."""
    name: str = ""
    """The agent's."""
    tree_path: str = ""
    """Where in its tree it stands: 2.1 is the first child of the second; nothing is the top."""

    @classmethod
    def from_dict(cls, data: object, require_end: bool = True) -> RunRecord:
        """Read a record, which must be `ended` or may not be; a ValueError says what it cannot be without."""
        return cls._from_reader(JsonReader(data), "", "", require_end)

    @classmethod
    def _from_reader(cls, reader: JsonReader, name: str, tree_path: str, require_end: bool) -> RunRecord:
        has_ended = reader.get("stop") in list(Stop)
        if not has_ended and (require_end or reader.get("stop") is not None):
            raise ValueError("no record of a run: it has no `stop` that is known here")
        if not (isinstance(reader.get("events"), list) and isinstance(reader.get("explanation"), str)):
            raise ValueError("no record of a run: it has no `events` and `explanation`")
        budgets = reader.nested("budgets")
        read = {name: BudgetSnapshot.from_dict(budgets.get(name)) for name in budgets}  # pyright: ignore[reportArgumentType]
        events = reader.nested_list("events")
        name = name or next((event.text("agent") for event in events if event.text("event") == "run_started"), "")
        announced = {event.text("child_id"): event.text("agent") for event in events if event.text("child_id")}
        order = {run_id: n for n, run_id in enumerate(announced)}
        children = sorted(reader.nested_list("children"), key=lambda child: order.get(child.text("run_id"), len(order)))
        below = [
            cls._from_reader(
                child, announced.get(child.text("run_id"), ""), f"{tree_path}.{n}".lstrip("."), require_end
            )
            for n, child in enumerate(children, 1)
        ]
        return cls(reader, Stop(reader.text("stop")) if has_ended else None, read, below, name, tree_path)

    @property
    def status(self) -> str:
        """Why it ended, in a word; or that it has not."""
        return self.data.text("word") or "not ended" if self.stop is None else self.stop.value

    @property
    def is_stored(self) -> bool:
        """Whether a store has it, from which it may go on."""
        return self.data.get("stored") is True and not self.tree_path

    @property
    def label(self) -> str:
        """Its agent's name, and its place, as several may have the same name."""
        return f"{self.name or 'agent'} {self.tree_path}".rstrip()

    @property
    def cost(self) -> float:
        """What it cost, in dollars, without its children."""
        cost = self.data.nested("cost_usd")
        return sum(cost.number(model) for model in cost)

    @property
    def tokens(self) -> int:
        """What its own requests took."""
        usage = self.data.nested("usage")
        return usage.integer("input") + usage.integer("output")

    def find_run(self, tree_path: str) -> RunRecord | None:
        """The run at a place in the tree below; None where there is none."""
        return next((record for record in self.iter_tree() if record.tree_path == tree_path), None)

    def iter_tree(self) -> Iterator[RunRecord]:
        """It and all runs below it, a parent before its children."""
        coming: list[RunRecord] = [self]
        while coming:
            record = coming.pop()
            yield record
            coming += reversed(record.children)

    @property
    def task(self) -> str:
        """What the run was about: the last thing that a user said in it before the model did."""
        said = ""
        for message in self.messages:
            if message.text("role") == "assistant":
                break
            if message.text("role") == "user":
                said = message.text("content")
        return said or self.data.text("task")

    @property
    def messages(self) -> list[JsonReader]:
        """What was said in it; not what an earlier run of its session has said."""
        said = self.data.nested_list("messages")
        own = [message for message in said if message.text("id").startswith(f"{self.data.text('run_id')}:")]
        return own or said

    @property
    def events(self) -> list[JsonReader]:
        """What happened, in order."""
        return self.data.nested_list("events")

    @property
    def calls(self) -> dict[str, object]:
        """What each call was called with, by its id; also those that were never made."""
        said = [one.nested("payload") for one in self.data.nested_list("messages") if one.text("type") == "tool_call"]
        return {call.text("call_id"): _parse_arguments(call.get("arguments")) for call in said}

    @property
    def outcomes(self) -> dict[str, JsonReader]:
        """What each call came to, by the call's id."""
        return {one.text("call_id"): one for one in self.data.nested_list("tool_execution_results")}

    @property
    def started(self) -> str:
        """When it began, as far as the day and the minute."""
        return next((event.text("time")[:16].replace("T", " ") for event in self.events), "")

    @property
    def work_seconds(self) -> float:
        """How long it was allowed to work; 0 where that is not told."""
        first = next(iter(self.events), JsonReader({}))
        return first.nested("limits").number("remaining_s")


def _parse_arguments(arguments: object) -> object:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):  # the model may have written what is no JSON
        return None


def result_to_dict(result: Result, stored: bool) -> dict[str, Any]:
    """The record of a run in JSON types, and whether a store has it."""
    return {**result.to_dict(), "stored": True} if stored else result.to_dict()


def save_last_record(result: Result, stored: bool = False) -> Path:
    """Keep the record of a run as that of the last one; only its user may read it. An OSError where that cannot be.

    `stored` says that a store has the run, too.
    """
    path = folders.find_state_folder() / "last.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(result_to_dict(result, stored), file)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def read_last_saved_at() -> float:
    """When the record of the last run was kept, in seconds since the epoch; 0 where there is none."""
    try:
        return (folders.find_state_folder() / "last.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def load_record(path: Path | None = None) -> RunRecord:
    """The record in a file (`-` is standard input), or that of the last run; a ConfigError where there is none."""
    where = folders.find_state_folder() / "last.json" if path is None else path
    if path is None and not where.exists():
        raise ConfigError("why", "no run yet", "`flyball run TASK` first, or the file of a saved --json record")
    try:
        text = sys.stdin.read() if str(where) == "-" else where.read_text(encoding="utf-8")
        return RunRecord.from_dict(json.loads(text))
    except OSError as error:
        raise ConfigError(f"why, {where}", error.strerror or str(error), _EXPECTED) from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"why, {where}", f"no JSON ({error})", _EXPECTED) from error
    except (ValueError, RecursionError) as error:  # a ConfigError is one too
        raise ConfigError(f"why, {where}", str(error), _EXPECTED) from error
