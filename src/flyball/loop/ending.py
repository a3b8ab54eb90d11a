"""Why a run ends, and with what; and why it goes on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ..errors import FlyballError
from ..result import Stop


@dataclass(slots=True)
class End:
    """Why a run ends, and with what. Not frozen, for speed; treat it as a value."""

    stop: Stop
    text: str | None = None
    """The answer or report; None for what the model said last."""
    by: str | None = None
    warning: str | None = None
    error: dict[str, Any] | None = None
    output: object = None
    grace: bool = False
    """Whether the model reports though no limit was met."""
    budget: str | None = None
    """The limit that it met."""


class ContinueReason(StrEnum):
    """Why a run goes on. There is no other reason."""

    TOOLS_RAN = "tools_ran"
    NUDGED = "nudged"
    ANSWERED = "answered"
    """No call was made, but the model was told why: a duplicate, a rule, a mistake in the arguments."""
    STEERED = "steered"
    SHORTENED = "shortened"
    """The provider found the conversation too long, and less of it is shown now."""


def describe_error(error: BaseException) -> dict[str, Any]:
    """An error as a result carries it."""
    try:
        message = str(error)
    except Exception:
        message = "an error that cannot be shown"
    code = error.code if isinstance(error, FlyballError) else "exception"
    return {"code": code, "kind": type(error).__name__, "message": message}
