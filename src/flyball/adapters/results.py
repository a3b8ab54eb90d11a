"""Results of governed runs, found by what the framework returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import finalize

from ..errors import UsageError

if TYPE_CHECKING:
    from ..result import Result
    from .framework_run import FrameworkRun

_ATTRIBUTE = "_flyball_run"
_runs: dict[int, FrameworkRun] = {}
"""Runs of objects that take no attributes, by the ids of the objects."""


def attach(returned: Any, run: FrameworkRun) -> bool:
    """Make a run known as that of an object, for `result_of`.

    Returns False for an object that takes neither attributes nor weak references, such as a dict.
    """
    try:
        object.__setattr__(returned, _ATTRIBUTE, run)
    except (AttributeError, TypeError):
        try:
            finalize(returned, _runs.pop, id(returned), None)
        except TypeError:
            return False
        _runs[id(returned)] = run
    return True


def result_of(returned: object) -> Result:
    """Return Flyball's result for what a governed framework returned, or for the error that it raised.

    Raises UsageError if the object is not from a governed run, or if its run has not ended, such as an unread stream.
    """
    run = getattr(returned, _ATTRIBUTE, None) or _runs.get(id(returned))
    if run is None:
        raise UsageError(f"this {type(returned).__name__} is not from a governed run: pass what the adapter returned")
    return run.result
