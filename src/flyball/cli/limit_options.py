"""Options of limits, which `flyball run` and `flyball exec` share."""

from __future__ import annotations

from typing import Annotated

import typer

_LARGEST = 10**12


def _refuse_huge(limit: float | None) -> float | None:
    """Refuse infinity and what a budget cannot hold."""
    if limit is not None and limit > _LARGEST:
        raise typer.BadParameter(f"found '{limit:g}'; expected at most {_LARGEST:,}")
    return limit


TurnsOption = Annotated[int | None, typer.Option(min=1, metavar="N", help="Maximum number of turns.")]
ToolCallsOption = Annotated[int | None, typer.Option(min=0, metavar="N", help="Maximum number of tool calls.")]
SecondsOption = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Maximum number of seconds.", callback=_refuse_huge)
]
UsdOption = Annotated[
    float | None, typer.Option(min=0, metavar="N", help="Maximum cost in dollars.", callback=_refuse_huge)
]
TokensOption = Annotated[int | None, typer.Option(min=0, metavar="N", help="Maximum number of tokens.")]
