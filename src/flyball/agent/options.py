"""The options of a run: what is its own, when it begins and when it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from .._internal import validation
from ..budget.run_budget import TurnBudget


class RunOptions(TypedDict, total=False):
    """What is one run's own. Everything may be left out."""

    within: TurnBudget
    """An envelope that this run shares with others: what it takes counts there too, and there it may be refused."""
    run_id: str
    session: str
    """The conversation that it goes on with, where the agent has a store; else only a name in results and events."""
    wait_seconds: float
    """How long to wait for another run that holds the session; without, it ends as `contended` at once."""
    metadata: Mapping[str, Any]
    """Added to the agent's."""
    state: Mapping[str, Any]
    """What tools find in `ctx.state` at the start."""


class ResumeOptions(TypedDict, total=False):
    """With what a run is taken up again from a store. Everything may be left out."""

    extend: Mapping[str, float]
    """More of what it has met: `{"turns": 20, "seconds": 60}`."""
    from_messages: bool
    """Begin a new run from what was said in the session, where the old one cannot go on."""
    within: TurnBudget
    """The envelope that it shares with others."""
    wait_seconds: float
    """How long to wait for another run that holds the session."""


def check_run_options(options: RunOptions) -> None:
    """A ConfigError names what cannot be used."""
    validation.check_options("run", options, RunOptions.__annotations__)
    for name, kind in (("within", TurnBudget), ("metadata", Mapping), ("state", Mapping)):
        if options.get(name) is not None:
            validation.check_type(f"run, {name}", options.get(name), kind)
    for name in ("run_id", "session"):
        if options.get(name) is not None:
            validation.check_text(f"run, {name}", options.get(name))
