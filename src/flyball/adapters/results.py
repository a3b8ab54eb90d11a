"""Results of governed runs, found by what the framework returned."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast
from weakref import WeakValueDictionary, finalize

from ..errors import UsageError

if TYPE_CHECKING:
    from ..result import Result

T = TypeVar("T")
_ATTRIBUTE = "_flyball_run"
_MAX_RUNS = 1_000
"""Newest runs whose results an object that governs many keeps."""
_runs: dict[int, GovernedFramework] = {}
"""Runs of objects that take no attributes, by the ids of the objects."""
_named: WeakValueDictionary[str, GovernedFramework] = WeakValueDictionary()
"""Runs by the ids that the states of agents have."""


class GovernedFramework(Protocol):
    """Run of a framework."""

    @property
    def result(self) -> Result:
        """Result of the run, after its end."""
        ...


def attach(returned: Any, run: GovernedFramework) -> bool:
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


def remember_name(run_id: str, run: GovernedFramework) -> None:
    """Make a run known by the id in the state of its agent, as long as it exists."""
    _named[run_id] = run


def remember(runs: dict[str, T], run_id: str, run: T) -> None:
    """Add a run to those that an object governs, and forget the oldest."""
    runs[run_id] = run
    while len(runs) > _MAX_RUNS:
        del runs[next(iter(runs))]


def result_of(returned: object) -> Result:
    """Return Flyball's result for what a governed framework returned, or for the error that it raised.

    Raises UsageError if the object is not from a governed run, or if its run has not ended, such as an unread stream.
    """
    run = _find_run(returned)
    if run is None:
        raise UsageError(f"this {type(returned).__name__} is not from a governed run: pass what the adapter returned")
    return run.result


def _find_run(returned: Any) -> GovernedFramework | None:
    if isinstance(returned, dict):  # the state of a LangChain agent
        return _named.get(str(cast("dict[str, object]", returned).get("flyball_run_id")))
    return getattr(returned, _ATTRIBUTE, None) or _runs.get(id(returned))
