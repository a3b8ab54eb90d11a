"""Questions about functions that callers pass."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def unwrap_partial(function: Any) -> Any:
    """Return the function inside of `functools.partial` objects."""
    return unwrap_partial(function.func) if isinstance(function, functools.partial) else function


def is_async(function: object) -> bool:
    """Return whether a function, or the `__call__` of an object, is an `async def`."""
    plain: object = unwrap_partial(function)
    call = getattr(type(plain), "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(plain) or inspect.iscoroutinefunction(call)
