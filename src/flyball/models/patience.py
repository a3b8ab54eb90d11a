"""How long one waits for a model, and for what."""

from __future__ import annotations

from dataclasses import dataclass

from .._internal import validation


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds; None waits as long as the run may. Whatever it says, a run's deadline comes first.

    Without streaming a reply comes in one piece, and `first` is for all of it.
    """

    connect: float | None = 10.0
    first: float | None = 300.0
    """Until the first token: a model that thinks may be silent for minutes."""
    between: float | None = 60.0
    """Between one token and the next; what a server sends just to keep a connection open is none."""
    whole: float | None = None

    def __post_init__(self) -> None:
        for name in ("connect", "first", "between", "whole"):
            validation.timeout(f"patience, {name}", getattr(self, name))
