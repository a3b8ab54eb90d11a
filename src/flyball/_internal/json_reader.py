"""Typed access to the values of a JSON object."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ..errors import ConfigError
from . import validation


class JsonReader:
    """Reader of one JSON object.

    Missing values read as empty or 0. So do values of another type than requested, unless the reader is strict: then
    they raise a ConfigError that names their place.

    >>> data = JsonReader({"tool": "add", "at": "soon", "arguments": {"a": 1}})
    >>> data.text("tool"), data.number("at"), data.nested("arguments").integer("a"), data.text_list("flags")
    ('add', 0.0, 1, [])
    """

    __slots__ = ("_data", "_is_strict", "where")

    def __init__(self, data: object, where: str = "", *, strict: bool = False) -> None:
        self._data: Mapping[str, object] = cast("Any", data) if isinstance(data, Mapping) else {}
        self._is_strict = strict
        self.where = where
        """Place of the object, for errors."""

    def __iter__(self) -> Iterator[str]:
        return (str(key) for key in self._data)

    @property
    def raw(self) -> dict[str, Any]:
        """Copy of the object."""
        return {str(key): value for key, value in self._data.items()}

    def get(self, key: str) -> object:
        """Return the value as it is; None if it is missing."""
        return self._data.get(key)

    def text(self, key: str) -> str:
        return self.optional_text(key) or ""

    def optional_text(self, key: str) -> str | None:
        return self._check(key, self._data.get(key), str)

    def number(self, key: str) -> float:
        """Return a finite number; 0 for anything else."""
        value = self._data.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15:
            return float(value) if math.isfinite(value) else 0.0
        if self._is_strict and value is not None:
            raise ConfigError(f"{self.where}, {key}", value, "a number")
        return 0.0

    def integer(self, key: str) -> int:
        """Return an int; if the reader is strict, of at least 0."""
        if not self._is_strict:
            return int(self.number(key))
        value = self._data.get(key)
        return 0 if value is None else validation.check_int(f"{self.where}, {key}", value)

    def nested(self, key: str) -> JsonReader:
        return self._open(self._check(key, self._data.get(key), Mapping), key)

    def nested_list(self, key: str) -> list[JsonReader]:
        return [self._open(item, f"{key}[{n}]") for n, item in enumerate(self._list(key, Mapping))]

    def text_list(self, key: str) -> list[str]:
        return self._list(key, str)

    def _open(self, data: object, key: str) -> JsonReader:
        return JsonReader(data, f"{self.where}, {key}", strict=True) if self._is_strict else JsonReader(data)

    def _list(self, key: str, kind: type) -> list[Any]:
        items: list[object] = self._check(key, self._data.get(key), list) or []
        return [item for item in items if self._check(key, item, kind, is_required=True) is not None]

    def _check(self, key: str, value: object, kind: type, *, is_required: bool = False) -> Any:
        """Return the value if it has the type, otherwise None."""
        if isinstance(value, kind):
            return value
        if self._is_strict and (is_required or value is not None):
            validation.check_type(f"{self.where}, {key}", value, kind)
        return None
