"""A bound for a plain function that recurses or retries."""

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
from ..errors import ConfigError

P = ParamSpec("P")
R = TypeVar("R")


class Counts(StrEnum):
    """What is bounded: how deep the calls are nested, or how many there are."""

    CALLS = "calls"
    DEPTH = "depth"


def bounded(
    name: str,
    ceiling: int | None = None,
    *,
    counts: str = "calls",
    registry: IterationBudgetRegistry | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Bound a function by a budget of its own; a refusal raises BudgetExceeded.

    The budget begins with the outermost call of a thread or task and ends with it; tasks started below share it.
    `counts="calls"` counts every call, `counts="depth"` how deep they are nested. The ceiling is given here, or by a
    registry.

    >>> @bounded("crawl_depth", 2, counts="depth")
    ... def crawl(links):
    ...     return 1 + sum(crawl(below) for below in links)
    >>> crawl([[], []])
    3
    """
    if (ceiling is None) == (registry is None):
        raise ConfigError(f"bounded {name!r}", (ceiling, registry), "a ceiling or a registry, and not both")
    kind = validation.parse_enum(f"bounded {name!r}, counts", counts, Counts)

    def create_budget(start: int = 0) -> IterationBudget:
        return IterationBudget(name, ceiling, start=start) if registry is None else registry.create(name, start)

    create_budget()  # a wrong name or ceiling is told here, where it stands

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"bounded {name!r}", function, "a function that is no generator")
        bound = _Bound(create_budget, kind)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with bound.claim_call():
                result = function(*args, **kwargs)
            if inspect.iscoroutine(result):
                result.close()
                raise ConfigError(f"bounded {name!r}", function, "an `async def`, as what it returns is awaited")
            return result

        @functools.wraps(function)
        async def acall(*args: P.args, **kwargs: P.kwargs) -> Any:
            with bound.claim_call():
                return await cast("Callable[P, Any]", function)(*args, **kwargs)

        return cast("Callable[P, R]", acall) if inspect.iscoroutinefunction(function) else call

    return decorate


class _Bound:
    """The budget of the call that is under way here, if one is."""

    def __init__(self, create_budget: Callable[[int], IterationBudget], counts: Counts) -> None:
        self.create_budget = create_budget
        self.counts = counts
        self.current: ContextVar[IterationBudget | None] = ContextVar("flyball_bounded", default=None)

    @contextmanager
    def claim_call(self) -> Generator[None]:
        """Claim one call, for as long as it lasts.

        Each level of depth has a budget of its own that starts at its caller's count: tasks that run side by side are
        then equally deep, where one shared count would add them up.
        """
        budget = self.current.get()
        if budget is None or self.counts is Counts.DEPTH:
            budget = self.create_budget(budget.used if budget else 0)
        budget.spend()
        token = self.current.set(budget)
        try:
            yield
        finally:
            self.current.reset(token)
