"""Records of runs, and the saved record of the last run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from .._internal.json_reader import JsonReader
from ..budget.snapshot import BudgetSnapshot
from ..errors import UsageError
from ..result import Result, Stop
from . import folders

COMMAND_METADATA = "flyball_run"
"""Key in the metadata of a run's start that only runs of `flyball run` have."""
_EXPECTED = "give the output of flyball run --json"


class Starter(StrEnum):
    """Origin of a run. It decides how the run can continue."""

    COMMAND = "command"
    """`flyball run`, with a store: `flyball resume` continues it."""
    UNSTORED = "unstored"
    """A command that can only be typed again: `flyball run` without a store, or `flyball exec`."""
    PARENT = "parent"
    AGENT = "agent"
    """An agent of a program, with a store: `agent.resume` continues it there."""
    PROGRAM = "program"
    """A program otherwise, such as one with another framework: only it can start the run again."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Parsed record of a run. Its writer is not trusted."""

    data: JsonReader
    stop: Stop | None
    """Stop reason. None means not ended, which only records from a store can be."""
    budgets: dict[str, BudgetSnapshot]
    children: list[RunRecord]
    """Records of its child runs, in start order."""
    name: str = ""
    """Name of the agent."""
    tree_path: str = ""
    """Position in the tree: 2.1 is the first child of the second child; empty for the top run."""

    @classmethod
    def from_dict(cls, data: object, require_end: bool = True) -> RunRecord:
        """Parse a record.

        Raises `ValueError` if a required part is missing, or if the run has not ended and `require_end` is true.
        """
        return cls._from_reader(JsonReader(data), "", "", require_end)

    @classmethod
    def _from_reader(cls, reader: JsonReader, name: str, tree_path: str, require_end: bool) -> RunRecord:
        has_ended = reader.get("stop") in list(Stop)
        if not has_ended and (require_end or reader.get("stop") is not None):
            raise ValueError("it has no known stop reason")
        if not (isinstance(reader.get("events"), list) and isinstance(reader.get("explanation"), str)):
            raise ValueError("it has no list of events or no explanation")
        budgets = reader.nested("budgets")
        snapshots = {name: BudgetSnapshot.from_dict(budgets.get(name)) for name in budgets}  # pyright: ignore[reportArgumentType]
        events = reader.nested_list("events")
        name = name or next((event.text("agent") for event in events if event.text("event") == "run_started"), "")
        agent_names = {event.text("child_id"): event.text("agent") for event in events if event.text("child_id")}
        order = {run_id: n for n, run_id in enumerate(agent_names)}
        children = sorted(reader.nested_list("children"), key=lambda child: order.get(child.text("run_id"), len(order)))
        child_records = [
            cls._from_reader(
                child, agent_names.get(child.text("run_id"), ""), f"{tree_path}.{n}".lstrip("."), require_end
            )
            for n, child in enumerate(children, 1)
        ]
        return cls(reader, Stop(reader.text("stop")) if has_ended else None, snapshots, child_records, name, tree_path)

    @property
    def status(self) -> str:
        """Stop reason, or that the run has not ended."""
        return self.data.text("word") or "interrupted" if self.stop is None else self.stop.value

    @property
    def starter(self) -> Starter:
        """Origin of the run: from its store, or as far as the record shows it."""
        if self.tree_path:
            return Starter.PARENT
        if self.command:
            return Starter.UNSTORED
        known = self.data.get("starter")
        return Starter(known) if known in list(Starter) else Starter.PROGRAM

    @property
    def label(self) -> str:
        """Agent name and tree path; names alone may repeat."""
        return f"{self.name or 'agent'} {self.tree_path}".rstrip()

    @property
    def cost(self) -> float:
        """Dollars spent, without children."""
        cost = self.data.nested("cost_usd")
        return sum(cost.number(model) for model in cost)

    @property
    def tokens(self) -> int:
        """Tokens used by its own requests."""
        usage = self.data.nested("usage")
        return usage.integer("input") + usage.integer("output")

    def find_run(self, tree_path: str) -> RunRecord | None:
        """Return the run at a tree path, or None."""
        return next((record for record in self.iter_tree() if record.tree_path == tree_path), None)

    def iter_tree(self) -> Iterator[RunRecord]:
        """Yield this run and all runs below it, parents first."""
        pending: list[RunRecord] = [self]
        while pending:
            record = pending.pop()
            yield record
            pending += reversed(record.children)

    @property
    def task(self) -> str:
        """Last user message before the first reply of the model."""
        task = ""
        for message in self.messages:
            if message.text("role") == "assistant":
                break
            if message.text("role") == "user":
                task = message.text("content")
        return task or self.data.text("task") or self.command

    @property
    def title(self) -> str:
        """Task, or the name of what ran if it is not known."""
        return self.task or self.name or self.data.text("agent")

    @property
    def command(self) -> str:
        """Command line of a program under a gateway. Empty for other runs."""
        return self.data.nested("metadata").text("exec_command")

    @property
    def messages(self) -> list[JsonReader]:
        """Messages of this run, without those of earlier runs in its session."""
        messages = self.data.nested_list("messages")
        own = [message for message in messages if message.text("id").startswith(f"{self.data.text('run_id')}:")]
        return own or messages

    @property
    def events(self) -> list[JsonReader]:
        return self.data.nested_list("events")

    @property
    def calls(self) -> dict[str, object]:
        """Arguments of each tool call by call id, including calls that were never made."""
        messages = self.data.nested_list("messages")
        calls = [message.nested("payload") for message in messages if message.text("type") == "tool_call"]
        return {call.text("call_id"): _parse_arguments(call.get("arguments")) for call in calls}

    @property
    def outcomes(self) -> dict[str, JsonReader]:
        """Outcome of each tool call by call id."""
        return {outcome.text("call_id"): outcome for outcome in self.data.nested_list("tool_execution_results")}

    @property
    def call_count(self) -> int:
        """Number of tool calls. The outcomes of a governed program's calls are not stored, so its budget counts."""
        budget = self.budgets.get("tool_calls")
        return len(self.outcomes) or (0 if budget is None else budget.used)

    @property
    def started(self) -> str:
        """Start time to the minute."""
        return next((event.text("time")[:16].replace("T", " ") for event in self.events), "")

    @property
    def work_seconds(self) -> float:
        """Seconds the run was allowed to work; 0 if unknown."""
        first = next(iter(self.events), JsonReader({}))
        return first.nested("limits").number("remaining_s")


def _parse_arguments(arguments: object) -> object:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):  # a model may write invalid JSON
        return None


def result_to_dict(result: Result, stored: bool) -> dict[str, Any]:
    """Return the record of a command's run in JSON types, marked if a store has the run."""
    starter = Starter.COMMAND if stored else Starter.UNSTORED
    return result.to_dict() | {"starter": starter.value} | ({"stored": True} if stored else {})


def save_last_record(result: Result, stored: bool = False) -> Path:
    """Save the record as that of the last run.

    Only its user can read the file. `stored` marks that a store has the run as well. Raises `OSError` if the file
    cannot be written.
    """
    path = folders.find_state_folder() / "last.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump(result_to_dict(result, stored), file)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def read_last_saved_at() -> float:
    """Return when the last record was saved.

    Seconds since the epoch; 0 if there is none.
    """
    try:
        return (folders.find_state_folder() / "last.json").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def load_record(path: Path | None = None) -> RunRecord:
    """Load the record in a file, or that of the last run.

    `-` reads standard input. Raises `UsageError` if there is no valid record.
    """
    source = folders.find_state_folder() / "last.json" if path is None else path
    if path is None and not source.exists():
        raise UsageError("there is no run yet: use flyball run TASK first, or give the file of a saved --json record")
    try:
        text = sys.stdin.read() if str(source) == "-" else source.read_text(encoding="utf-8")
        return RunRecord.from_dict(json.loads(text))
    except OSError as error:
        raise UsageError(f"{source} cannot be read: {error.strerror or error}") from error
    except json.JSONDecodeError as error:
        raise UsageError(f"{source} is not valid JSON ({error}); {_EXPECTED}") from error
    except RecursionError as error:
        raise UsageError(f"{source} is not the record of a run: it is nested too deeply; {_EXPECTED}") from error
    except ValueError as error:  # ConfigError is a ValueError
        raise UsageError(f"{source} is not the record of a run: {error}; {_EXPECTED}") from error
