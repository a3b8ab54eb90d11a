"""JSON encoding of stored values. Journal values are read back as the same classes.

    value                            is written as
    None, bool, int, str, list       itself
    a float                          itself; inf and nan as {"$": "float", "v": "inf"}
    a dict                           itself; with a key "$" or a key that is no str, {"$": "dict", "v": [[key, value]]}
    a tuple, a set, a frozenset      {"$": "tuple", "v": [...]}
    bytes                            {"$": "bytes", "v": base64}
    a known enum                     {"$": "Finish", "v": "stop"}
    a known dataclass                {"$": "Reply", "text": "hello"}; a field that has its default is left out

Any other value, such as one that a tool returned, is converted by `to_jsonable` and read back as JSON types. Other
mappings and sequences become a dict and a list. A dict keeps the order of its keys.

>>> code = Codec()
>>> code.loads(code.dumps((1, {"at": float("inf")})))
(1, {'at': inf})
"""

from __future__ import annotations

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, cast

from pydantic_core import PydanticSerializationError, to_json

from .._internal.jsonable import to_jsonable
from ..budget.run_budget import Refusal
from ..budget.snapshot import BudgetSnapshot, Extension
from ..budget.usage import Usage
from ..errors import StoreError
from ..message import Message, MessageType, Role
from ..outcome import Artifact, Cancelled, Denied, Failure, Reason, Success, Timeout
from ..person import About, Question, Verdict
from ..request import Call, FailureKind, Finish, ModelFailure, Reply
from ..result import Result, Stop
from ..unit import Unit

_TAG, _VALUE = "$", "v"
_MAX_DEPTH = 60
"""Maximum nesting within one field. A deeper value is a mistake, or contains itself."""
_MAX_INT = 1 << 63
"""Ints from here on are written in base 16: Python limits the length of decimal digits that it parses."""
_PLAIN_TYPES = frozenset[type[Any]]({str, bool, type(None)})
_STR_ONLY = frozenset[type[Any]]({str})
_SKIPPED_FIELDS: dict[type[Any], frozenset[str]] = {Result: frozenset({"events", "pause"})}
"""Fields that are not stored: events have rows of their own, and a pause belongs to this process."""

KNOWN: dict[str, type[Any]] = {
    "Reply": Reply, "Call": Call, "Finish": Finish, "Usage": Usage, "ModelFailure": ModelFailure,
    "FailureKind": FailureKind, "Success": Success, "Failure": Failure, "Timeout": Timeout, "Denied": Denied,
    "Cancelled": Cancelled, "Reason": Reason, "Artifact": Artifact, "Refusal": Refusal, "Question": Question,
    "About": About, "Verdict": Verdict, "Message": Message, "MessageType": MessageType, "Role": Role,
    "Result": Result, "Stop": Stop, "BudgetSnapshot": BudgetSnapshot, "Extension": Extension, "Unit": Unit,
}  # fmt: skip
"""Tags in journals and their classes. A tag is stored data: it stays when its class is renamed."""

_Write = Callable[[Any, int], Any]
_Read = Callable[[dict[str, Any]], Any]


class _TooDeep(Exception):
    """Raised for a value that is nested too deeply, or contains itself."""


class Codec:
    """Encoder and decoder of journal values.

    It knows the classes in `KNOWN` and those passed in. A class of `classes` is tagged with its name, a class of `tags`
    with its key. Raises StoreError when two classes have the same tag.
    """

    def __init__(self, *classes: type[Any], tags: Mapping[str, type[Any]] = MappingProxyType({})) -> None:
        self._writers: dict[type[Any], _Write] = {
            int: _write_int,
            float: _write_float,
            bytes: _write_bytes,
            list: self._write_list,
            dict: self._write_dict,
            tuple: self._build_items_writer("tuple"),
            set: self._build_items_writer("set"),
            frozenset: self._build_items_writer("frozenset"),
        }
        self._readers: dict[str, _Read] = {
            "int": lambda row: int(row[_VALUE], 16),
            "float": lambda row: float(row[_VALUE]),
            "bytes": lambda row: b64decode(row[_VALUE]),
            "dict": lambda row: dict(row[_VALUE]),
            "tuple": lambda row: tuple(row[_VALUE]),
            "set": lambda row: set(row[_VALUE]),
            "frozenset": lambda row: frozenset(row[_VALUE]),
        }
        known = [*KNOWN.items(), *tags.items(), *((kind.__name__, kind) for kind in classes)]
        for tag, kind in known:
            self._register(tag, kind)
        self._keys = {tag: _list_keys(kind) for tag, kind in known}
        self._decode = json.JSONDecoder(object_hook=self._read).decode

    def keys(self, tag: str) -> tuple[str, ...]:
        """Return the fields of a tagged dataclass, or the values of an enum.

        Empty for an unknown tag.
        """
        return self._keys.get(tag, ())

    def dumps(self, value: object) -> str:
        """Encode a value as JSON. Values of unknown classes go through `to_jsonable`."""
        try:
            return encode_json(self._write(value, 0))
        except (_TooDeep, RecursionError):
            return encode_json(self._write(to_jsonable(value), 0))

    def loads(self, text: str) -> Any:
        """Decode text written by `dumps`. Raises StoreError for any other text."""
        try:
            return self._decode(text)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(
                "journal",
                f"a value cannot be read ({error}); the journal is damaged, or another version has written it",
            ) from error

    def _register(self, name: str, kind: type[Any]) -> None:
        if name in self._readers:
            raise StoreError("codec", f"two classes have the name {name}: give each its own")
        if issubclass(kind, Enum):
            self._writers[kind] = lambda value, _depth: {_TAG: name, _VALUE: value._value_}
            self._readers[name] = lambda row: kind(row[_VALUE])
        elif is_dataclass(kind):
            self._writers[kind] = self._build_field_writer(name, _list_stored_fields(kind))
            names = {key: field_name for field_name, key, _ in _list_stored_fields(kind)}
            self._readers[name] = lambda row: kind(**{names.get(k, k): row[k] for k in row if k != _TAG})
        else:
            raise StoreError("codec", f"the class {name} is neither a dataclass nor an enum")

    def _write(self, value: object, depth: int) -> Any:
        kind = type(value)
        if kind in _PLAIN_TYPES:
            return value
        if depth > _MAX_DEPTH:
            raise _TooDeep
        write = self._writers.get(kind)
        return self._write_other(value, depth) if write is None else write(value, depth)

    def _build_field_writer(self, name: str, slots: Sequence[tuple[str, str, object]]) -> _Write:
        writers, write_other = self._writers, self._write_other

        def write_fields(value: Any, _depth: int) -> dict[str, Any]:
            row: dict[str, Any] = {_TAG: name}
            for field_name, key, default in slots:
                field_value: Any = getattr(value, field_name)
                if field_value is default:
                    continue
                # As `_write` does; a call for each field would take longer.
                kind = cast("type[Any]", type(field_value))
                if kind in _PLAIN_TYPES or (kind is int and -_MAX_INT < field_value < _MAX_INT):
                    row[key] = field_value
                    continue
                write = writers.get(kind, write_other)
                try:
                    # Depth counts from 0 in each field: one deep value, such as a tool's, must not affect the others.
                    row[key] = write(field_value, 0)
                except _TooDeep:
                    row[key] = self._write(to_jsonable(field_value), 0)
            return row

        return write_fields

    def _build_items_writer(self, name: str) -> _Write:
        def write_items(value: Iterable[Any], depth: int) -> dict[str, Any]:
            return {_TAG: name, _VALUE: [self._write(item, depth + 1) for item in value]}

        return write_items

    def _write_list(self, value: Iterable[Any], depth: int) -> list[Any]:
        return [self._write(item, depth + 1) for item in value]

    def _write_dict(self, value: Mapping[Any, Any], depth: int) -> Mapping[str, Any]:
        if _TAG not in value and _STR_ONLY.issuperset(map(type, value)):
            if _PLAIN_TYPES.issuperset(map(type, value.values())):
                return value
            return {key: self._write(item, depth + 1) for key, item in value.items()}
        pairs = [[self._write(key, depth + 1), self._write(item, depth + 1)] for key, item in value.items()]
        return {_TAG: "dict", _VALUE: pairs}

    def _write_other(self, value: object, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._write_dict(dict(cast("Mapping[Any, Any]", value)), depth)
        if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
            return self._write_list(cast("Sequence[Any]", value), depth)
        return self._write(to_jsonable(value), depth)

    def _read(self, row: dict[str, Any]) -> Any:
        name = row.get(_TAG)
        if name is None:
            return row
        read = self._readers.get(name)
        if read is None:
            raise StoreError(
                "journal",
                f"a value has the unknown class {name!r}; known are {', '.join(sorted(self._readers))}",
            )
        return read(row)


def _list_stored_fields(kind: Any) -> list[tuple[str, str, object]]:
    """Return the name, the key in journals and the default of each field that is written.

    A field that was renamed gives its key as `metadata={"stored_as": KEY}`.
    """
    skipped = _SKIPPED_FIELDS.get(kind, frozenset())
    written = [field for field in fields(kind) if field.init and field.name not in skipped]
    return [(field.name, field.metadata.get("stored_as", field.name), field.default) for field in written]


def _list_keys(kind: Any) -> tuple[str, ...]:
    if issubclass(kind, Enum):
        return tuple(str(member.value) for member in kind)
    return tuple(key for _, key, _ in _list_stored_fields(kind))


def _write_int(value: int, _depth: int) -> Any:
    return value if -_MAX_INT < value < _MAX_INT else {_TAG: "int", _VALUE: hex(value)}


def _write_float(value: float, _depth: int) -> Any:
    return value if math.isfinite(value) else {_TAG: "float", _VALUE: repr(value)}


def _write_bytes(value: bytes, _depth: int) -> Any:
    return {_TAG: "bytes", _VALUE: b64encode(value).decode()}


def to_text(value: object) -> str:
    """Encode a value as JSON. Other types go through `to_jsonable`."""
    try:
        return _encode_with_json(value)
    except (TypeError, ValueError, RecursionError):
        return _encode_with_json(to_jsonable(value))


_encode_with_json = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def encode_json(value: object) -> str:
    """Encode a value that consists of JSON types. Text with lone surrogates needs the json module, which is slower."""
    try:
        return to_json(value).decode()
    except (PydanticSerializationError, ValueError):
        return _encode_with_json(value)


def to_value(text: str) -> Any:
    """Decode text written by `to_text`."""
    return json.loads(text)


def to_line(message: Message) -> str:
    """Encode a message as JSON."""
    row: dict[str, Any] = {
        "run": message.run,
        "n": message.n,
        "created_at": message.created_at,
        "type": message.type._value_,  # a string: pydantic_core takes a microsecond for a member of an enum
        "role": message.role._value_,
        "content": message.content,
    }
    for key in ("payload", "metadata", "group"):
        value = getattr(message, key)
        if value is not None:
            row[key] = value
    return to_line_text(row)


def to_line_text(value: object) -> str:
    """Encode a value that consists of JSON types, mostly. A value that does not must not make a whole step fail."""
    try:
        return to_json(value, inf_nan_mode="null").decode()
    except (PydanticSerializationError, ValueError):
        return to_text(value)


def to_message(text: str) -> Message:
    """Decode a message written by `to_line`."""
    row = json.loads(text)
    row["type"], row["role"] = MessageType(row["type"]), Role(row["role"])
    return Message(**row)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which no database accepts, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")
