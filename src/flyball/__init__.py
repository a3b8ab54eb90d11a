"""Flyball, the governor for AI agents: every run ends inside its limits, and with exactly one true reason.

The names below are loaded on first use, so that `import flyball` costs next to nothing.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

    from .agent.agent import Agent
    from .agent.conversation import arun_conversation, run_conversation
    from .agent.delegation import Child
    from .agent.run import Run
    from .budget.budget import Hold, IterationBudget
    from .budget.deadline import Deadline, DeadlineToken
    from .budget.limits import Limits, Reserve
    from .budget.price import TokenPrice
    from .budget.registry import BudgetSpec, IterationBudgetRegistry
    from .budget.run_budget import TurnBudget
    from .budget.snapshot import BudgetSnapshot
    from .budget.usage import Usage
    from .completion.assertions import Assertions
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
    from .governor.bounded import bounded
    from .governor.governor import govern
    from .message import Message
    from .recorder import buffered, logged
    from .result import Result, Stop
    from .settings import Settings
    from .tool_rules import ToolRules
    from .tools import tool
    from .unit import Unit

    __version__: str

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
    "agent.agent": ("Agent",),
    "completion.assertions": ("Assertions",),
    "governor.bounded": ("bounded",),
    "budget.budget": ("Hold", "IterationBudget"),
    "agent.conversation": ("arun_conversation", "run_conversation"),
    "budget.deadline": ("Deadline", "DeadlineToken"),
    "agent.delegation": ("Child",),
    "budget.run_budget": ("TurnBudget",),
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
    "governor.governor": ("govern",),
    "budget.limits": ("Limits", "Reserve"),
    "message": ("Message",),
    "budget.price": ("TokenPrice",),
    "recorder": ("buffered", "logged"),
    "budget.registry": ("BudgetSpec", "IterationBudgetRegistry"),
    "result": ("Result", "Stop"),
    "agent.run": ("Run",),
    "settings": ("Settings",),
    "budget.snapshot": ("BudgetSnapshot",),
    "tool_rules": ("ToolRules",),
    "tools": ("tool",),
    "unit": ("Unit",),
    "budget.usage": ("Usage",),
}


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                return globals().setdefault(name, getattr(import_module(f"{__name__}.{home}"), name))
        if name == "__version__":
            from importlib.metadata import version

            return version(import_module(f"{__name__}._internal.distribution").DISTRIBUTION)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _OldModules:
    """Finds modules by the paths they had before; see `_deprecated.py`."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith(f"{__name__}."):
            return None
        from ._deprecated import find_old_module

        return find_old_module(name)


sys.meta_path.append(_OldModules)  # last, so it is asked only for modules that are not there


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
