"""Type variables with defaults, which Python has since 3.13: `Tool` alone is a Tool of any function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # every type checker knows typing_extensions; at run time the defaults have no use
    from typing_extensions import ParamSpec, TypeVar

    Params = ParamSpec("Params", default=...)
    """Parameters of a tool's function."""
    MethodParams = ParamSpec("MethodParams", default=...)
    """Parameters of a method, without `self`."""
    Returned = TypeVar("Returned", default=Any, covariant=True)
    """Value that a tool's function returns."""
    Output = TypeVar("Output", default=Any, covariant=True)
    """Type of a run's typed answer."""
else:
    from typing import ParamSpec, TypeVar

    Params, MethodParams = ParamSpec("Params"), ParamSpec("MethodParams")
    Returned, Output = TypeVar("Returned"), TypeVar("Output")
