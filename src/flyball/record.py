"""A result from its record: what another service, or a file, tells of a run, read back.

Whoever wrote the record is not trusted. What counts (the reason, counts, tokens, money, budgets, children) must make
sense, or nothing is read. What is only told (messages, outcomes, events) is left out where it makes none. Keys that
nobody knows are passed over: the record may be of a newer Flyball.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, TypeVar, cast

from ._internal import validation
from .budget.snapshot import BudgetSnapshot
from .budget.usage import Usage
from .errors import ConfigError, MessageError
from .event import Event, Header, kinds, own_fields
from .message import Message
from .outcome import Artifact, Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from .person import About, Question
from .request import Call
from .result import Result, Stop
from .unit import Unit

_DEEPEST, _MOST_RUNS = 20, 10_000
"""Runs below runs, and how many in all: each is a thousand times larger than the shortest record of it."""
_MOST = 2**63 - 1
"""No count is higher; sums of these can still be shown, and compared with times."""
_OUTCOMES: Mapping[str, type[Outcome]] = {
    kind.status.value: kind for kind in (Success, Failure, Timeout, Denied, Cancelled)
}
_ROUNDED_S = 1.0
"""The time of an event is told to the microsecond, and seconds since the run's beginning as they are."""
T = TypeVar("T")
_NOT_READ = (KeyError, TypeError, ValueError, MessageError)


def result_of(record: object, where: str = "record") -> Result:
    """The result that `to_dict` has written; a ConfigError names the first thing that makes no sense.

    >>> result_of(Result(stop=Stop.COMPLETED, text="42").to_dict()).text
    '42'
    """
    level, runs = [_JsonReader(record, where)], 1
    for _ in range(_DEEPEST):
        level = [below for told in level for below in told.below]
        runs += len(level)
        if runs > _MOST_RUNS:
            break
    if level:
        raise ConfigError(where, "runs below runs without end", f"at most {_DEEPEST} levels, and {_MOST_RUNS:,} in all")
    return _result(_JsonReader(record, where))


def _result(told: _JsonReader) -> Result:
    where = told.where
    children = [_result(below) for below in told.below]
    by_id = {child.run_id: child for child in children}
    return Result(
        stop=validation.member(f"{where}, stop", told.get("stop"), Stop),
        text=told.text("text") or "",
        output=told.get("output"),
        stopped_by=told.text("stopped_by"),
        flags=told.texts("flags"),
        warning=told.text("warning"),
        turns=told.count("turns"),
        requests=told.count("requests"),
        usage=_usage(where, told.table("usage")),
        cost={name: int(told.money(name, usd)) for name, usd in told.table("cost_usd").items()},
        unpriced=told.texts("unpriced"),
        estimated_requests=told.count("estimated_requests"),
        budgets={name: _budget(f"{where}, budgets.{name}", row) for name, row in told.table("budgets").items()},
        error=told.table("error") or None,
        children=tuple(children),
        run_id=told.text("run_id") or "",
        session_id=told.text("session_id"),
        seconds=validation.duration(f"{where}, seconds", told.get("seconds") or 0),
        messages=_readable(Message.from_dict, told.rows("messages")),
        tool_results=_readable(lambda row: _outcome(row, by_id), told.rows("tool_execution_results")),
        last_calls=_readable(_call, told.rows("last_tool_calls")),
        questions=_readable(_question, told.rows("questions")),
        events=_readable(event_of, told.rows("events")),
        events_dropped=told.count("events_dropped"),
        sink_errors=told.count("sink_errors"),
        finish=told.text("finish"),
        hung=told.count("hung"),
        state=told.table("state"),
        completion=told.table("completion"),
        reflections=told.texts("reflections"),
        faults=told.rows("faults"),
        metadata=told.table("metadata"),
    )


def event_of(row: Mapping[str, Any]) -> Event:
    """The event that `to_dict` has written; a KeyError, TypeError or ValueError where that is none."""
    kind = kinds()[row["event"]]
    at = validation.duration("event, at", row["at"])
    time = datetime.fromisoformat(row["time"]).timestamp()
    if at > time + _ROUNDED_S:
        raise ValueError("an event that was told before its run began")
    header = Header(
        validation.text("event, run_id", row["run_id"]),
        _text_or_none(row.get("session_id")),
        max(0.0, time - at),
        _fitting("Mapping[str, Any] | None", row.get("metadata")),
        _text_or_none(row.get("parent_run_id")),
    )
    told = [_fitting(field.type, row[field.name]) for field in own_fields(kind)]
    return kind(_fitting("int", row["seq"]), at, _fitting("int", row["turn"]), header, *told)


class _JsonReader:
    """Looks a record's values up. What is absent is as if it was empty; what is of another kind is nonsense."""

    def __init__(self, record: object, where: str) -> None:
        if not isinstance(record, Mapping):
            raise ConfigError(where, record, "the record of a run, as `Result.to_dict` writes it")
        self._record = cast("Mapping[str, Any]", record)
        self.where = where

    @property
    def below(self) -> list[_JsonReader]:
        """The records of its children."""
        return [_JsonReader(row, f"{self.where}, children[{n}]") for n, row in enumerate(self.rows("children"))]

    def get(self, key: str) -> Any:
        return self._record.get(key)

    def text(self, key: str) -> str | None:
        if self.get(key) is not None:
            validation.kind(f"{self.where}, {key}", self.get(key), str)
        return self.get(key)

    def count(self, key: str) -> int:
        found = self.get(key)
        return 0 if found is None else _bounded(f"{self.where}, {key}", validation.whole(f"{self.where}, {key}", found))

    def money(self, model: str, usd: object) -> int | float:
        return validation.amount_of(f"{self.where}, cost_usd.{model}", usd, Unit.USD)

    def table(self, key: str) -> dict[str, Any]:
        found = self.get(key)
        if found is None:
            return {}
        validation.kind(f"{self.where}, {key}", found, Mapping)
        return {str(name): value for name, value in found.items()}

    def _list(self, key: str) -> Sequence[Any]:
        found = self.get(key)
        if found is None:
            return ()
        validation.kind(f"{self.where}, {key}", found, list)
        return found

    def rows(self, key: str) -> Sequence[Mapping[str, Any]]:
        for row in self._list(key):
            validation.kind(f"{self.where}, {key}", row, Mapping)
        return self._list(key)

    def texts(self, key: str) -> tuple[str, ...]:
        for text in self._list(key):
            validation.kind(f"{self.where}, {key}", text, str)
        return tuple(self._list(key))


def _readable(read: Callable[[Mapping[str, Any]], T], rows: Sequence[Mapping[str, Any]]) -> tuple[T, ...]:
    """Those of which something can be made."""
    made: list[T] = []
    for row in rows:
        try:
            made.append(read(row))
        except _NOT_READ:
            continue
    return tuple(made)


def _bounded(where: str, count: int) -> int:
    if count > _MOST:
        raise ConfigError(where, "an absurd number", f"at most {_MOST}")
    return count


def _usage(where: str, row: Mapping[str, Any]) -> Usage:
    usage = Usage.of(row or Usage())
    _bounded(f"{where}, usage", max(usage.input, usage.output))
    return usage


def _budget(where: str, row: object) -> BudgetSnapshot:
    validation.kind(where, row, Mapping)
    known = {field.name for field in fields(BudgetSnapshot)}
    snapshot = BudgetSnapshot.from_dict({key: value for key, value in cast("Any", row).items() if key in known})
    bounds = (snapshot.ceiling, snapshot.refund_limit, snapshot.maximum)
    _bounded(
        where, max(snapshot.claimed, snapshot.held, snapshot.unsettled, snapshot.brought, *(n or 0 for n in bounds))
    )
    return snapshot


def _outcome(row: Mapping[str, Any], children: Mapping[str, Result]) -> Outcome:
    kind = _OUTCOMES[row["status"]]
    given = {field.name: row[field.name] for field in fields(kind) if field.name in row}
    artifact = given.get("artifact")
    given["artifact"] = None if artifact is None else Artifact(artifact["id"], artifact["size"])
    given["children"] = tuple(children[run_id] for run_id in row.get("children", ()) if run_id in children)
    if "reason" in given:
        given["reason"] = Reason(given["reason"])
    for name in ("call_id", "tool"):
        validation.text(f"outcome, {name}", given[name])
    return kind(**given)


def _call(row: Mapping[str, Any]) -> Call:
    return Call(validation.text("call, id", row["id"]), validation.text("call, name", row["name"]), row["arguments"])


def _question(row: Mapping[str, Any]) -> Question:
    given: dict[str, Any] = {field.name: row[field.name] for field in fields(Question) if field.name in row}
    given["about"] = About(row["about"])
    return Question(**given)


def _text_or_none(value: object) -> str | None:
    return None if value is None else validation.text("event, id", value)


def _fitting(annotation: str, value: Any) -> Any:
    """A value that is what an event's field promises to those who watch; a list as the tuple that it has for one."""
    if value is None and annotation.endswith(" | None"):
        return None
    if not _FITS[annotation.removesuffix(" | None")](value):
        raise ValueError(f"an event with a {type(value).__name__} for {annotation}")
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in cast("list[object]", value))


_FITS: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int and 0 <= value <= _MOST,
    "float": lambda value: type(value) in (int, float) and 0 <= value <= _MOST,
    "tuple[str, ...]": _are_texts,
    "Mapping[str, Any]": lambda value: isinstance(value, Mapping),
}
"""What the fields of events can be, as their classes write it."""
