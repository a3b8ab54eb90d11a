"""Values that tools return: results that end the run, and results that report a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

PLAIN_RESULTS = frozenset({str, int, float, bool, list, type(None)})
"""Types of results that are neither final nor a failure. Nearly all results have one of them."""


@dataclass(frozen=True, slots=True)
class FinalResult:
    """Result of a tool that ends the run, with this value as the answer.

    A tool returns it if only some of its results end the run. `@tool(ends_run=True)` makes every result final.
    """

    value: Any


def reports_failure(value: object) -> bool:
    """Return True if a result says that the call failed.

    It is a mapping with `success` False, or with a truthy `error` and no `success`.

    >>> reports_failure({"success": False}), reports_failure({"error": "not found"}), reports_failure({"error": None})
    (True, True, False)
    """
    if not isinstance(value, Mapping):
        return False
    table = cast("Mapping[Any, Any]", value)
    return table["success"] is False if "success" in table else bool(table.get("error"))
