"""Clients of OpenAI and Anthropic without retries of their own, which no limit would see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
_MAX_MODELS = 16


def without_retries(client: Any) -> Any:
    """Return a copy of a client that makes no retries. None if it is no client of the known shape."""
    copy = getattr(client, "with_options", None)
    return copy(max_retries=0) if callable(copy) and hasattr(client, "max_retries") else None


class ModelCopies:
    """Copies of models whose clients make no retries. Each is made once."""

    def __init__(self, copy: Callable[[Any], Any]) -> None:
        self._copy = copy
        self._copies: dict[int, tuple[Any, Any]] = {}
        """Models, kept so that their ids stay theirs, and their copies."""

    def get(self, model: T) -> T:
        """Return the copy of a model."""
        if id(model) not in self._copies:
            while len(self._copies) >= _MAX_MODELS:
                self._copies.pop(next(iter(self._copies)), None)
            self._copies[id(model)] = (model, self._copy(model))
        return self._copies[id(model)][1]
