"""Options of limits, which `flyball run` and `flyball exec` share."""

from __future__ import annotations

import math
from typing import Annotated

import typer


def _require_finite(limit: float | None) -> float | None:
    if limit is not None and math.isinf(limit):
        raise typer.BadParameter(f"found '{limit}'; expected a number")
    return limit


TurnsOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum number of turns.")]
ToolCallsOption = Annotated[int | None, typer.Option(min=0, metavar="N", help="Maximum number of tool calls.")]
SecondsOption = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Maximum number of seconds.", callback=_require_finite)
]
UsdOption = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Maximum cost in dollars.", callback=_require_finite)
]
TokensOption = Annotated[int | None, typer.Option(min=0, metavar="N", help="Maximum number of tokens.")]
