"""Flyball, the governor for AI agents: every run ends inside its limits, and with exactly one true reason.

The names below are loaded on first use, so that `import flyball` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .budget import Hold, IterationBudget
    from .errors import AmountError, BudgetExceeded, ConfigError, FlyballError, SettingError, TomlError, UnknownBudget
    from .registry import BudgetSpec, IterationBudgetRegistry
    from .settings import Settings
    from .snapshot import BudgetSnapshot
    from .unit import Unit

__all__ = [
    "AmountError",
    "BudgetExceeded",
    "BudgetSnapshot",
    "BudgetSpec",
    "ConfigError",
    "FlyballError",
    "Hold",
    "IterationBudget",
    "IterationBudgetRegistry",
    "SettingError",
    "Settings",
    "TomlError",
    "Unit",
    "UnknownBudget",
]

_HOMES = {
    "budget": ("Hold", "IterationBudget"),
    "errors": (
        "AmountError",
        "BudgetExceeded",
        "ConfigError",
        "FlyballError",
        "SettingError",
        "TomlError",
        "UnknownBudget",
    ),
    "registry": ("BudgetSpec", "IterationBudgetRegistry"),
    "settings": ("Settings",),
    "snapshot": ("BudgetSnapshot",),
    "unit": ("Unit",),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(f"{__name__}.{home}"), name))
    if name == "__version__":
        from importlib.metadata import version

        return version("flyball")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
