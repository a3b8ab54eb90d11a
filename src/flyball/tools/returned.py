"""Values that tools return: results that end the run, and results that report a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class FinalResult:
    """Result of a tool that ends the run, with this value as the answer.

    A tool returns it if only some of its results end the run. `@tool(ends_run=True)` makes every result final.
    """

    value: Any
