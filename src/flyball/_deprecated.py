"""Old public names: modules that have moved, classes and keywords that were renamed. Each gives one warning."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

P = ParamSpec("P")
T = TypeVar("T")

MODULES = {
    "flyball.cli.view": "flyball.cli.live",
    "flyball.conversation": "flyball.agent.conversation",
    "flyball.limits": "flyball.budget.limits",
    "flyball.loop.effect": "flyball.loop.effects",
    "flyball.output": "flyball.agent.output",
    "flyball.pair": "flyball.message",
    "flyball.schema": "flyball.event",
    "flyball.terminal": "flyball.person",
}
"""Old module, and the module that has its names now."""
NAMES = {
    "flyball.chain": {"Refusal": "ChainRefusal"},
    "flyball.errors": {"Mistakes": "ConfigErrors", "Outside": "ExternalError"},
    "flyball.models": {"Patience": "Timeouts"},
    "flyball.progress": {"GoOn": "Continue"},
    "flyball.record": {"result_of": "from_record"},
    "flyball.store": {"Code": "Codec", "Finish": "RunFinish"},
    "flyball.testing": {"Script": "ScriptDriver"},
    "flyball.tools": {"Gate": "OutcomeSlot", "State": "ToolState"},
}
"""Module, and the old and new names of its classes and functions."""


def find_old_name(module: str, name: str) -> object:
    """Return what an old name of a module stands for, with a warning. For a module's `__getattr__`.

    Raises AttributeError if the module never had that name.
    """
    new = NAMES.get(module, {}).get(name)
    if new is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    warnings.warn(f"{module}.{name} is now {module}.{new}", DeprecationWarning, stacklevel=3)
    return getattr(import_module(module), new)


def accept_old_keyword(old: str, new: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let a function take a keyword by its old name, too, with a warning."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> T:
            if old in kwargs:
                warnings.warn(f"the keyword {old} is now {new}", DeprecationWarning, stacklevel=2)
                kwargs.setdefault(new, kwargs.pop(old))
            return function(*args, **kwargs)

        return call

    return decorate


def find_old_module(name: str) -> ModuleSpec | None:
    """Return how to import a module by its old path, with a warning; None if there was no such module."""
    new = MODULES.get(name)
    if new is None:
        return None
    warnings.warn(f"the module {name} is now {new}", DeprecationWarning, stacklevel=2)
    return ModuleSpec(name, cast("Loader", _MovedModuleLoader(new)))


class _MovedModuleLoader:
    """Loads a module that takes every attribute from another.

    It is no subclass of `importlib.abc.Loader`, which would load 30 modules of the standard library.
    """

    def __init__(self, new: str) -> None:
        self._new = new

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave it to the import system, which requires this method."""

    def exec_module(self, module: ModuleType) -> None:
        target = import_module(self._new)

        def get_attribute(name: str) -> object:
            return getattr(target, name)

        module.__dict__["__getattr__"] = get_attribute
        module.__dict__["__dir__"] = lambda: dir(target)
        module.__doc__ = target.__doc__
