"""Events of a step, encoded once as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast, overload

from pydantic_core import PydanticSerializationError, to_json

from .._internal.jsonable import to_jsonable
from ..budget.snapshot import BudgetSnapshot
from ..event import Event, Header, own_fields
from ..outcome import Reason, Status
from ..recorder import EventRow
from ..request import FailureKind, Finish, Purpose
from ..result import Stop
from .codec import encode_json

_JSON_TYPES = frozenset[type[Any]]({int, float, bool, str, type(None)})
_STR_ONLY = frozenset[type[Any]]({str})
_SNAPSHOT_ONLY = frozenset[type[Any]]({BudgetSnapshot})
_MAX_DEPTH = 5
_ENUMS = frozenset[type[Any]]({FailureKind, Finish, Purpose, Reason, Status, Stop})
"""Enums of strings. pydantic_core takes a microsecond for a member."""


class EncodedEvents(Sequence[Mapping[str, Any]]):
    """Events of one run as one JSON array. An item is what `Event.to_dict` returns, for stores that need it."""

    __slots__ = ("_rows", "seqs", "text")

    def __init__(self, text: str, seqs: Sequence[int]) -> None:
        self.text = text
        self.seqs = seqs
        self._rows: list[dict[str, Any]] | None = None

    def __len__(self) -> int:
        return len(self.seqs)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...

    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if self._rows is None:
            self._rows = json.loads(self.text)
        rows: list[dict[str, Any]] = self._rows or []
        return rows[index]


class EventEncoder:
    """Encodes the events of one run, as the recorder has them: no event is built."""

    __slots__ = ("_at", "_header_text", "_second", "_second_text", "_started_at", "_time_text")

    def __init__(self, header: Header) -> None:
        shared = {
            "run_id": header.run_id,
            "parent_run_id": header.parent_run_id,
            "session_id": header.session_id,
            "metadata": header.metadata,
        }
        self._header_text = encode_json(to_jsonable(shared))[1:-1]
        """Fields that are the same in all events of the run."""
        self._started_at = header.started_at
        self._at = -1.0
        self._time_text = ""
        """Fields with the time of `_at`. The events between two effects have the same."""
        self._second = -1
        self._second_text = ""

    def encode(self, first_seq: int, rows: Sequence[EventRow]) -> EncodedEvents:
        """Encode events that are numbered from `first_seq`."""
        texts: list[str] = []
        for seq, (kind, at, turn, fields) in enumerate(rows, first_seq):
            if at != self._at:
                self._at, self._time_text = at, f'"time":"{self._format_time(at)}","at":{at!r},"turn":'
            first, names = _read_layout(cast("type[Event]", kind))
            head = f"{first}{seq},{self._time_text}{turn},{self._header_text}"
            texts.append(f"{head},{_encode_fields(names, fields)}" if names else f"{head}}}")
        return EncodedEvents(f"[{','.join(texts)}]", range(first_seq, first_seq + len(rows)))

    def _format_time(self, at: float) -> str:
        """Format a time as `datetime.isoformat` does, which takes three times as long."""
        moment = self._started_at + at
        second = int(moment)
        micros = round((moment - second) * 1e6)
        if not 0 < micros < 1_000_000:
            return datetime.fromtimestamp(moment, UTC).isoformat()
        if second != self._second:
            self._second, self._second_text = second, datetime.fromtimestamp(second, UTC).isoformat()[:19]
        return f"{self._second_text}.{micros:06d}+00:00"


def _encode_fields(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return the own fields of an event as the rest of a JSON object."""
    if not _JSON_TYPES.issuperset(map(type, values)):
        values = [value if type(value) in _JSON_TYPES else _to_json_value(value) for value in values]
    fields = dict(zip(names, values, strict=True))
    try:
        return to_json(fields, inf_nan_mode="null").decode()[1:]
    except (PydanticSerializationError, ValueError):  # text with lone surrogates
        return encode_json(to_jsonable(fields))[1:]


def _to_json_value(value: Any) -> Any:
    """Return what `to_jsonable` does, or a value that pydantic_core writes in the same way."""
    kind = cast("type[Any]", type(value))
    if kind in _ENUMS:
        return value._value_
    if _is_json(value, _MAX_DEPTH):
        return value
    return _describe_budgets(value) or to_jsonable(value)


def _describe_budgets(value: object) -> dict[str, Any] | None:
    """Return the budgets at the end of a run in JSON types. None for any other value."""
    if not isinstance(value, Mapping):
        return None
    try:
        budgets = dict(cast("Mapping[str, Any]", value))
    except Exception:  # a mapping of the user may raise
        return None
    if not _SNAPSHOT_ONLY.issuperset(map(type, budgets.values())):
        return None
    return {name: snapshot.to_dict() for name, snapshot in budgets.items()}


def _is_json(value: Any, depth: int) -> bool:
    """Check for a value that pydantic_core writes as `to_jsonable` converts it: most are small and flat."""
    kind = cast("type[Any]", type(value))
    if kind is dict:
        if not _STR_ONLY.issuperset(map(type, value)):
            return False
        value = value.values()
    elif kind is not tuple and kind is not list:
        return kind in _JSON_TYPES
    return _JSON_TYPES.issuperset(map(type, value)) or (depth > 0 and all(_is_json(item, depth - 1) for item in value))


@cache
def _read_layout(kind: type[Event]) -> tuple[str, tuple[str, ...]]:
    """Return the start of an event's text, and the names of its own fields."""
    return f'{{"event":"{kind.kind}","seq":', tuple(field.name for field in own_fields(kind))
