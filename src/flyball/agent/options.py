"""Options of a new run and of a resumed run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from .._internal import validation
from ..budget.run_budget import TurnBudget


class RunOptions(TypedDict, total=False):
    """Options of one run. All are optional."""

    within: TurnBudget
    """Shared budget. The claims of this run also count there, and it can refuse them."""
    run_id: str
    session: str
    """Session to continue if the agent has a store. Without a store it is only a name in results and events."""
    wait_seconds: float
    """Seconds to wait for another run that holds the session. Default: 0; the run then ends as `contended`."""
    metadata: Mapping[str, Any]
    """Data that is added to the agent's metadata."""
    state: Mapping[str, Any]
    """Initial values of `ctx.state`."""


class ResumeOptions(TypedDict, total=False):
    """Options of a run that is resumed from a store. All are optional."""

    extend: Mapping[str, float]
    """Increase of the limits that the run reached: `{"turns": 20, "seconds": 60}`."""
    from_messages: bool
    """True to start a new run from the messages of the session, if the old run cannot be resumed."""
    within: TurnBudget
    """Budget that the run shares with other runs."""
    wait_seconds: float
    """Seconds to wait for another run that holds the session. Default: 0."""


def check_run_options(options: RunOptions) -> None:
    """Raise ConfigError for the first invalid option."""
    validation.check_options("run", options, RunOptions.__annotations__)
    for name, kind in (("within", TurnBudget), ("metadata", Mapping), ("state", Mapping)):
        if options.get(name) is not None:
            validation.check_type(f"run, {name}", options.get(name), kind)
    for name in ("run_id", "session"):
        if options.get(name) is not None:
            validation.check_text(f"run, {name}", options.get(name))
