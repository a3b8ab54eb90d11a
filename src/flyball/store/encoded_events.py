"""Events of a step, encoded once as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, cast, overload

from pydantic_core import PydanticSerializationError, to_json

from .._internal.jsonable import to_jsonable
from ..event import Event, Header, own_fields
from ..outcome import Reason, Status
from ..request import FailureKind, Finish, Purpose
from ..result import Stop
from .codec import encode_json

_JSON_TYPES = frozenset[type[Any]]({int, float, bool, str, type(None)})
_ENUMS = frozenset[type[Any]]({FailureKind, Finish, Purpose, Reason, Status, Stop})
"""Enums of strings. pydantic_core takes a microsecond for a member."""


class EncodedEvents(Sequence[Mapping[str, Any]]):
    """Events of one run as one JSON array. An item is what `Event.to_dict` returns, for stores that need it."""

    __slots__ = ("_rows", "seqs", "text")

    def __init__(self, events: Sequence[Event], header_text: str) -> None:
        """Encode events that have the header of `header_text`, which `encode_header` returned."""
        encoder = _EventEncoder(header_text)
        self.text = f"[{','.join([encoder.encode(event) for event in events])}]"
        self.seqs = [event.seq for event in events]
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


def encode_header(header: Header) -> str:
    """Return the fields of events that are the same in a whole run, as a part of a JSON object."""
    shared = {
        "run_id": header.run_id,
        "parent_run_id": header.parent_run_id,
        "session_id": header.session_id,
        "metadata": header.metadata,
    }
    return encode_json(to_jsonable(shared))[1:-1]


class _EventEncoder:
    """Encodes events of one run. It takes a third of the time of `Event.to_dict` and an encoder."""

    __slots__ = ("_at", "_header_text", "_time")

    def __init__(self, header_text: str) -> None:
        self._header_text = header_text
        self._at = -1.0
        self._time = ""
        """Time of day at `_at`. The events between two effects have the same."""

    def encode(self, event: Event) -> str:
        at = event.at
        if at != self._at:
            self._at, self._time = at, datetime.fromtimestamp(event.header.started_at + at, UTC).isoformat()
        first, names, get_values = _read_layout(type(event))
        head = f'{first}{event.seq},"time":"{self._time}","at":{at!r},"turn":{event.turn},{self._header_text}'
        if not names:
            return f"{head}}}"
        values = get_values(event)
        if not _JSON_TYPES.issuperset(map(type, values)):
            values = [value if type(value) in _JSON_TYPES else _to_json_value(value) for value in values]
        try:
            own = to_json(dict(zip(names, values, strict=True)), inf_nan_mode="null").decode()
        except (PydanticSerializationError, ValueError):  # text with lone surrogates
            return encode_json(to_jsonable(event.to_dict()))
        return f"{head},{own[1:]}"


def _to_json_value(value: Any) -> Any:
    """Return what `to_jsonable` does, or a flat tuple or dict that pydantic_core writes in the same way."""
    kind = cast("type[Any]", type(value))
    if kind in _ENUMS:
        return value._value_
    if kind is tuple and _JSON_TYPES.issuperset(map(type, value)):
        return value
    if kind is dict and _JSON_TYPES.issuperset(map(type, value.values())) and all(type(key) is str for key in value):
        return value
    return to_jsonable(value)


@cache
def _read_layout(kind: type[Event]) -> tuple[str, tuple[str, ...], Callable[[Event], Sequence[Any]]]:
    """Return the start of an event's text, the names of its own fields, and a function that returns their values."""
    names = tuple(field.name for field in own_fields(kind))

    def get_few(event: Event) -> Sequence[Any]:
        return [getattr(event, name) for name in names]

    get_values: Callable[[Event], Sequence[Any]] = attrgetter(*names) if len(names) > 1 else get_few
    return f'{{"event":"{kind.kind}","seq":', names, get_values
