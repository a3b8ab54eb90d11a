"""What a shell offers when somebody presses Tab."""

from __future__ import annotations


def models_like(incomplete: str) -> list[str]:
    """The models whose names begin so."""
    from .models import known

    return [one.name for one in known() if one.name.startswith(incomplete)]


def tools_like(incomplete: str) -> list[str]:
    """The toolbox, of which several may be named with commas."""
    from ..toolbox.catalogue import NAMES

    *before, begun = incomplete.split(",")
    return [",".join([*before, name]) for name in NAMES if name.startswith(begun) and name not in before]
