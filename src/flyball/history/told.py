"""What somebody else's JSON tells, read without trust."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, cast


class Told:
    """One JSON object: what is missing in it, or is something else than was looked for, is empty or 0.

    >>> told = Told({"tool": "add", "at": "soon", "arguments": {"a": 1}})
    >>> told.text("tool"), told.number("at"), told.inner("arguments").whole("a"), told.texts("flags")
    ('add', 0.0, 1, [])
    """

    __slots__ = ("_data",)

    def __init__(self, data: object) -> None:
        self._data: Mapping[str, object] = cast("Any", data) if isinstance(data, Mapping) else {}

    def __iter__(self) -> Iterator[str]:
        return (str(key) for key in self._data)

    @property
    def plain(self) -> dict[str, object]:
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

    def whole(self, key: str) -> int:
        """A whole number."""
        return int(self.number(key))

    def inner(self, key: str) -> Told:
        """The object below."""
        return Told(self._data.get(key))

    def inners(self, key: str) -> list[Told]:
        """The objects of a list."""
        return [Told(cast("object", one)) for one in self._list(key) if isinstance(one, dict)]

    def texts(self, key: str) -> list[str]:
        """The texts of a list."""
        return [one for one in self._list(key) if isinstance(one, str)]

    def _list(self, key: str) -> list[object]:
        value = self._data.get(key)
        return cast("list[object]", value) if isinstance(value, list) else []
