"""Clients of OpenAI and Anthropic without retries of their own, which no limit would see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

M = TypeVar("M")
T = TypeVar("T")
_MAX_MODELS = 16


def without_retries(client: Any) -> Any:
    """Return a copy of a client that makes no retries. None if it is no client of the known shape."""
    copy = getattr(client, "with_options", None)
    return copy(max_retries=0) if callable(copy) and hasattr(client, "max_retries") else None


class HeldModels(Generic[M, T]):
    """Models of a framework as they are asked. Each is prepared once."""

    def __init__(self, hold: Callable[[M], T]) -> None:
        self._hold = hold
        self._held: dict[int, tuple[M, T]] = {}
        """Models by their ids. They are kept, so that no other object gets the same id."""

    def get(self, model: M) -> T:
        """Return a model as it is asked."""
        found = self._held.get(id(model))
        if found is None:
            while len(self._held) >= _MAX_MODELS:
                self._held.pop(next(iter(self._held)), None)
            found = self._held[id(model)] = (model, self._hold(model))
        return found[1]
