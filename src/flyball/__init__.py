"""Flyball, the governor for AI agents: every run ends inside its limits, and with exactly one true reason.

The names below are loaded on first use, so that `import flyball` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .agent import Agent
    from .assertion import Assertions
    from .bound import bounded
    from .budget import Hold, IterationBudget
    from .conversation import arun_conversation, run_conversation
    from .deadline import Deadline, DeadlineToken
    from .delegate import Child
    from .envelope import TurnBudget
    from .errors import (
        AmountError,
        BudgetExceeded,
        ConfigError,
        DeadlineExceeded,
        FlyballError,
        MessageError,
        ModelError,
        RunStopped,
        SettingError,
        TomlError,
        UnknownBudget,
    )
    from .governor import govern
    from .limits import Limits, Reserve
    from .message import Message
    from .price import TokenPrice
    from .recorder import buffered, logged
    from .registry import BudgetSpec, IterationBudgetRegistry
    from .result import Result, Stop
    from .run import Run
    from .settings import Settings
    from .snapshot import BudgetSnapshot
    from .toolrule import ToolRules
    from .tools import tool
    from .unit import Unit
    from .usage import Usage

__all__ = [
    "Agent",
    "AmountError",
    "Assertions",
    "BudgetExceeded",
    "BudgetSnapshot",
    "BudgetSpec",
    "Child",
    "ConfigError",
    "Deadline",
    "DeadlineExceeded",
    "DeadlineToken",
    "FlyballError",
    "Hold",
    "IterationBudget",
    "IterationBudgetRegistry",
    "Limits",
    "Message",
    "MessageError",
    "ModelError",
    "Reserve",
    "Result",
    "Run",
    "RunStopped",
    "SettingError",
    "Settings",
    "Stop",
    "TokenPrice",
    "TomlError",
    "ToolRules",
    "TurnBudget",
    "Unit",
    "UnknownBudget",
    "Usage",
    "arun_conversation",
    "bounded",
    "buffered",
    "govern",
    "logged",
    "run_conversation",
    "tool",
]

_HOMES = {
    "agent": ("Agent",),
    "assertion": ("Assertions",),
    "bound": ("bounded",),
    "budget": ("Hold", "IterationBudget"),
    "conversation": ("arun_conversation", "run_conversation"),
    "deadline": ("Deadline", "DeadlineToken"),
    "delegate": ("Child",),
    "envelope": ("TurnBudget",),
    "errors": (
        "AmountError",
        "BudgetExceeded",
        "ConfigError",
        "DeadlineExceeded",
        "FlyballError",
        "MessageError",
        "ModelError",
        "RunStopped",
        "SettingError",
        "TomlError",
        "UnknownBudget",
    ),
    "governor": ("govern",),
    "limits": ("Limits", "Reserve"),
    "message": ("Message",),
    "price": ("TokenPrice",),
    "recorder": ("buffered", "logged"),
    "registry": ("BudgetSpec", "IterationBudgetRegistry"),
    "result": ("Result", "Stop"),
    "run": ("Run",),
    "settings": ("Settings",),
    "snapshot": ("BudgetSnapshot",),
    "toolrule": ("ToolRules",),
    "tools": ("tool",),
    "unit": ("Unit",),
    "usage": ("Usage",),
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
