"""Decorator that limits the calls or the recursion depth of a plain function."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, ParamSpec, TypeVar, cast

from .._internal import validation
from ..budget.budget import IterationBudget
from ..budget.registry import IterationBudgetRegistry
from ..errors import ConfigError, UsageError

P = ParamSpec("P")
R = TypeVar("R")


def bounded(
    name: str,
    ceiling: int | None = None,
    *,
    counts: str = "calls",
    registry: IterationBudgetRegistry | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Limit a function by a budget of its own.

    A refused call raises BudgetExceeded. The budget lives as long as the outermost call in a thread or task; tasks
    started inside that call share it. `counts="calls"` counts every call, `counts="depth"` the nesting depth. Pass the
    ceiling, or a registry that knows `name`, but not both.

    >>> @bounded("crawl_depth", 2, counts="depth")
    ... def crawl(links):
    ...     return 1 + sum(crawl(below) for below in links)
    >>> crawl([[], []])
    3
    """
    if (ceiling is None) == (registry is None):
        raise UsageError(f"bounded {name!r} needs either a ceiling or a registry")
    kind = validation.parse_enum(f"bounded {name!r}, counts", counts, Counts)

    def create_budget(start: int = 0) -> IterationBudget:
        return IterationBudget(name, ceiling, start=start) if registry is None else registry.create(name, start)

    create_budget()  # raises at decoration time if the name or ceiling is invalid

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"bounded {name!r}", function, "a function that is not a generator")
        bound = _Bound(create_budget, kind)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with bound.claim_call():
                result = function(*args, **kwargs)
            if inspect.iscoroutine(result):
                result.close()
                raise UsageError(f"bounded {name!r}: the function returned a coroutine; declare it with `async def`")
            return result

        @functools.wraps(function)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            with bound.claim_call():
                return await cast("Callable[P, Any]", function)(*args, **kwargs)

        return cast("Callable[P, R]", acall) if inspect.iscoroutinefunction(function) else call

    return decorate


class Counts(StrEnum):
    """Quantity that `bounded` limits: the calls, or their nesting depth."""

    CALLS = "calls"
    DEPTH = "depth"


class _Bound:
    """Budget of the current call, kept per thread and task."""

    def __init__(self, create_budget: Callable[[int], IterationBudget], counts: Counts) -> None:
        self.create_budget = create_budget
        self.counts = counts
        self.current: ContextVar[IterationBudget | None] = ContextVar("flyball_bounded", default=None)

    @contextmanager
    def claim_call(self) -> Generator[None]:
        """Claim one call for the duration of the block."""
        budget = self.current.get()
        # Each level of depth gets its own budget, starting at the caller's count. Concurrent tasks are then equally
        # deep; one shared counter would add them up.
        if budget is None or self.counts is Counts.DEPTH:
            budget = self.create_budget(budget.used if budget else 0)
        budget.spend()
        token = self.current.set(budget)
        try:
            yield
        finally:
            self.current.reset(token)
