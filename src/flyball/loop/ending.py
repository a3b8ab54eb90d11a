"""Why a run ends or continues."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..result import Stop


@dataclass(slots=True)
class End:
    """Why a run ends, with its text. Not frozen, for speed; treat it as a value."""

    stop: Stop
    text: str | None = None
    """Answer or report. None means the last text of the model."""
    by: str | None = None
    warning: str | None = None
    error: dict[str, Any] | None = None
    output: object = None
    grace: bool = False
    """True if the model reports although no limit was reached."""
    unsupported: tuple[str, ...] = ()
    """Claims of the report that no outcome supports."""
    budget: str | None = None
    """Limit that was reached."""


class ContinueReason(StrEnum):
    """Why a run continues. There is no other reason."""

    TOOLS_RAN = "tools_ran"
    NUDGED = "nudged"
    ANSWERED = "answered"
    """No call was made, and the model knows why: a duplicate, a rule, a mistake in the arguments."""
    STEERED = "steered"
    SHORTENED = "shortened"
    """The provider rejected the conversation as too long, and requests show less of it now."""
