"""Governors for agent frameworks: limits, a report and a result for the loop of another library.

    from flyball.adapters import openai_agents
    result = await openai_agents.run(agent, "task", limits=Limits(turns=10))
    flyball.adapters.result_of(result).stop

Each module needs its framework, and imports it on first use. docs/adapters.md has a table of what each one enforces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import claude, langchain, litellm, openai_agents, pydantic_ai
    from .adapter_options import AdapterOptions
    from .results import result_of

__all__ = ["AdapterOptions", "claude", "langchain", "litellm", "openai_agents", "pydantic_ai", "result_of"]

_MODULES = ("claude", "langchain", "litellm", "openai_agents", "pydantic_ai")
_HOMES = {"AdapterOptions": "adapter_options", "result_of": "results"}


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"{__name__}.{name}")
        if name in _HOMES:
            return globals().setdefault(name, getattr(import_module(f"{__name__}.{_HOMES[name]}"), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
