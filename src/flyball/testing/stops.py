"""The one promise, as an assertion: a run of this agent ends, and inside these bounds."""

from __future__ import annotations

from collections.abc import Callable
from threading import TIMEOUT_MAX
from typing import TypedDict

from .._internal import validation
from ..agent.agent import Agent
from ..agent.run import Run
from ..agent.validate import Task
from ..errors import ConfigError, nearest
from ..outcome import Denied
from ..result import Result, Stop
from ..unit import Unit

_CLOSING_S = 10.0


class Bounds(TypedDict, total=False):
    """Inside what a run must end. Everything may be left out."""

    turns: int
    requests: int
    tool_calls: int
    """Calls that were made; a denied one was not."""
    tokens: int
    usd: float
    seconds: float
    """Active seconds, as the run itself counts them."""
    stop: Stop | str
    """The reason with which it must end."""


_FACTS: dict[str, tuple[Unit, Callable[[Result], int | float]]] = {
    "turns": (Unit.COUNT, lambda result: result.turns),
    "requests": (Unit.COUNT, lambda result: result.requests),
    "tool_calls": (Unit.COUNT, lambda result: sum(not isinstance(one, Denied) for one in result.tool_results)),
    "tokens": (Unit.COUNT, lambda result: result.usage.total),
    "usd": (Unit.USD, lambda result: sum(result.cost.values())),
    "seconds": (Unit.SECONDS, lambda result: result.seconds),
}


def assert_stops(
    agent: Agent, task: Task = "Go on, and never stop.", *, within: Bounds, patience: float = 60.0
) -> Result:
    """Run the agent, assert that the run ended inside the bounds, and give its result.

    It never hangs: a run that goes on for `patience` seconds more than the bounds allow is cancelled, and that is told.
    Works with any model. It waits on this thread, and so model and tools are on Flyball's own event loop.
    """
    limits, stop = _checked(within)
    longest = limits.get("seconds", 0.0) + validation.duration("assert_stops, patience", patience)
    result = _ended(agent.start(task), longest)
    wrong = [
        f"{name.replace('_', ' ')}: {unit.show(fact(result))}, at most {unit.show(limits[name])}"
        for name, (unit, fact) in _FACTS.items()
        if name in limits and fact(result) > limits[name]
    ]
    if stop is not None and result.stop is not stop:
        wrong.append(f"stop: {result.stop.value}, expected {stop.value}")
    assert not wrong, f"the run ended outside its bounds ({'; '.join(wrong)}). {result.explain()}"
    return result


def _checked(within: Bounds) -> tuple[dict[str, int | float], Stop | None]:
    validation.kind("assert_stops, within", within, dict)
    limits: dict[str, int | float] = {}
    stop: Stop | None = None
    for name, value in within.items():
        if name == "stop":
            stop = validation.member("assert_stops, within stop", value, Stop)
        elif name in _FACTS:
            limits[name] = validation.amount_of(f"assert_stops, within {name}", value, _FACTS[name][0])
        else:
            near = nearest(name, Bounds.__annotations__) or list(Bounds.__annotations__)
            raise ConfigError("assert_stops, within", name, f"a bound such as {' or '.join(near)}")
    return limits, stop


def _ended(run: Run, seconds: float) -> Result:
    try:
        return run.result(min(seconds, TIMEOUT_MAX))
    except TimeoutError:
        run.cancel("assert_stops")
    try:
        closed = run.result(_CLOSING_S).explain()
    except TimeoutError:
        closed = "It did not even close when it was cancelled: something in it blocks the event loop."
    raise AssertionError(f"the run had not ended after {seconds:g} seconds. {closed}")
