"""Checks for tests of agents, tools and rules: honest results, and runs that stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import TIMEOUT_MAX
from typing import TypedDict

from .._internal import validation
from ..agent.agent import Agent
from ..agent.run import Run
from ..agent.validate import Task
from ..errors import ConfigError, suggest_names
from ..event import (
    BudgetRefused,
    Event,
    Extended,
    FellBack,
    GraceStarted,
    ModelReplied,
    ModelRequested,
    Postponed,
    RunEnded,
    ToolEnded,
    ToolStarted,
)
from ..message import MessageType, check_pairs
from ..outcome import Denied
from ..request import FailureKind, Purpose
from ..result import Result, Stop
from ..unit import Unit

_PAIRS = {
    "turn_started": "turn_ended",
    "model_requested": "model_replied",
    "grace_started": "grace_ended",
    "asked_person": "person_answered",
}
_LIMITS = frozenset({Stop.BUDGET, Stop.DEADLINE})
_MAY_EXCEED = frozenset({"tokens", "usd"})
"""Budgets that may exceed their ceiling: actual use is recorded even if it is more than was reserved."""
_CLOSING_S = 10.0
_MEASURES: dict[str, tuple[Unit, Callable[[Result], int | float]]] = {
    "turns": (Unit.COUNT, lambda result: result.turns),
    "requests": (Unit.COUNT, lambda result: result.requests),
    "tool_calls": (Unit.COUNT, lambda result: sum(not isinstance(call, Denied) for call in result.tool_results)),
    "tokens": (Unit.COUNT, lambda result: result.usage.total),
    "usd": (Unit.USD, lambda result: sum(result.cost.values())),
    "seconds": (Unit.SECONDS, lambda result: result.seconds),
}


def assert_honest(result: Result) -> Result:
    """Check that a run's result is consistent, and return the result.

    There is exactly one `run_ended`. It is the last event and agrees with the result. Everything that started has
    ended, and every call has exactly one outcome. No budget is above its ceiling, except tokens and money when a
    request used more than was reserved. Flags match refusals. The stop reason fits the rest: a limit has its flag and
    its sentence, a failure its error, a halt its author.

    >>> from flyball import Agent
    >>> from flyball.testing import ScriptedModel, say
    >>> assert_honest(Agent(model=ScriptedModel(say("done"))).run("Go.")).text
    'done'
    """
    if result.events or not result.events_dropped:
        _check_the_end(result)
    if not result.events_dropped:
        _check_the_tree(result)
        _check_the_facts(result)
    _check_calls(result)
    _check_budgets(result)
    _check_the_reason(result)
    return result


def _check_the_end(result: Result) -> None:
    assert result.events, "there are no events"
    last = result.events[-1]
    assert isinstance(last, RunEnded), f"the last event is {last.kind}, not run_ended"
    assert _count(result, RunEnded) == 1, f"there are {_count(result, RunEnded)} run_ended events"
    event_facts = (last.stop, last.stopped_by, last.flags, last.turns, last.requests)
    result_facts = (result.stop.value, result.stopped_by, result.flags, result.turns, result.requests)
    assert event_facts == result_facts, f"run_ended has {event_facts}, but the result has {result_facts}"
    for before, after in zip(result.events, result.events[1:], strict=False):
        assert before.seq < after.seq, f"event {after.seq} follows event {before.seq}"
        assert before.at <= after.at, f"event {after.seq} is at {after.at}, but the previous event is at {before.at}"


def _check_the_tree(result: Result) -> None:
    """Check that events are properly nested.

    Calls of one group may overlap.
    """
    first = result.events[0]
    assert (first.kind, first.seq) == ("run_started", 0), f"the first event is {first.kind}, number {first.seq}"
    assert sum(event.kind == "run_started" for event in result.events) == 1, "the run started more than once"
    ends, open_kinds, open_calls = set(_PAIRS.values()), list[str](), set[str]()
    for event in result.events:
        if event.kind in _PAIRS:
            assert not open_calls, f"{event.kind} inside the calls {sorted(open_calls)}"
            assert event.kind not in open_kinds, f"{event.kind} inside another"
            open_kinds.append(event.kind)
        elif event.kind in ends:
            assert open_kinds, f"{event.kind}, but nothing had started"
            assert _PAIRS[open_kinds[-1]] == event.kind, f"{event.kind} inside {open_kinds[-1]}"
            assert not open_calls, f"{event.kind}, but the calls {sorted(open_calls)} have not ended"
            open_kinds.pop()
        elif isinstance(event, ToolStarted):
            assert open_kinds == ["turn_started"], f"{event.call_id} started inside {open_kinds}"
            assert event.call_id not in open_calls, f"{event.call_id} started twice"
            open_calls.add(event.call_id)
        elif isinstance(event, ToolEnded):
            assert event.call_id in open_calls or _is_unmade(event), f"{event.call_id} never started"
            open_calls.discard(event.call_id)
    assert not open_kinds, f"{open_kinds} never ended"
    assert not open_calls, f"the calls {sorted(open_calls)} never ended"


def _is_unmade(event: ToolEnded) -> bool:
    """Check whether a call has an outcome without being made.

    A duplicate takes the result of an equal call.
    """
    return event.status in ("denied", "cancelled") or event.reason == "duplicate"


def _check_the_facts(result: Result) -> None:
    """Check the result's counts against the events."""
    requested = [event for event in result.events if isinstance(event, ModelRequested)]
    replied = [event for event in result.events if isinstance(event, ModelReplied)]
    assert result.requests == len(requested), f"{result.requests} requests, but {len(requested)} events"
    assert result.turns <= result.requests, f"{result.turns} turns with {result.requests} requests"
    used = (sum(event.input_tokens for event in replied), sum(event.output_tokens for event in replied))
    assert (result.usage.input, result.usage.output) == used, f"usage is {result.usage}, but the events have {used}"
    estimated = sum(event.estimated for event in replied)
    assert result.estimated_requests == estimated, (
        f"the result has {result.estimated_requests} estimated requests, but the events have {estimated}"
    )
    _check_the_reports(result)
    flags = tuple(event.flag for event in result.events if isinstance(event, BudgetRefused))
    assert flags == result.flags, f"the flags are {result.flags}, but the events refused {flags}"


def _check_the_reports(result: Result) -> None:
    """Check that nothing is requested after a report.

    Exceptions are a run whose limits were raised, one whose process had died, and a report by a fallback model.
    """
    has_reported = was_raised = False
    for event in result.events:
        interrupted = isinstance(event, ModelReplied) and event.code == FailureKind.INTERRUPTED.value
        if interrupted or isinstance(event, Extended | Postponed):
            has_reported, was_raised = False, True
        elif isinstance(event, GraceStarted):
            was_raised = False
        elif isinstance(event, FellBack):
            has_reported = False
        elif isinstance(event, ModelRequested):
            assert not has_reported, "the model was asked again after the report"
            is_report = event.purpose == Purpose.GRACE.value
            has_reported = is_report and not was_raised
            assert not (is_report and event.tools), "tools were offered in the grace turn"


def _check_calls(result: Result) -> None:
    orphans = check_pairs(result.messages)
    assert not orphans, f"not every call has exactly one result: {orphans}"
    outcomes = Counter(outcome.call_id for outcome in result.tool_results)
    assert not outcomes or max(outcomes.values()) == 1, f"calls with more than one outcome: {outcomes}"
    message_counts = Counter(
        (message.payload or {}).get("call_id")
        for message in result.messages
        if message.type is MessageType.TOOL_RESULT and message.run == result.run_id
    )
    missing = [call_id for call_id in outcomes if not message_counts[call_id]]
    assert not missing, f"outcomes without a message: {missing}"
    if not result.events_dropped:
        ended = [(event.call_id, event.status) for event in result.events if isinstance(event, ToolEnded)]
        recorded = [(outcome.call_id, outcome.status.value) for outcome in result.tool_results]
        assert ended == recorded, f"the events have {ended}, but the outcomes are {recorded}"


def _check_budgets(result: Result) -> None:
    for name, budget in result.budgets.items():
        assert budget.held == 0, f"{budget.held} of {name} are still held"
        is_allowed = budget.ceiling is None or budget.used <= budget.ceiling
        assert is_allowed or name in _MAY_EXCEED, f"{name}: {budget.used} used, but the ceiling is {budget.ceiling}"
    assert len(set(result.flags)) == len(result.flags), f"a flag occurs twice: {result.flags}"


def _check_the_reason(result: Result) -> None:
    stop = result.stop
    if stop in _LIMITS:
        assert result.flags, f"the run stopped with {stop.value}, but no budget refused"
        assert result.warning, f"the run stopped with {stop.value}, but has no warning"
    if stop is Stop.DEADLINE:
        assert "max_seconds_reached" in result.flags, f"the run met its deadline, but the flags are {result.flags}"
    assert bool(result.questions) == (stop is Stop.PAUSED), f"{stop.value}, with the questions {result.questions}"
    if stop is Stop.STALLED:
        assert result.warning, "the run stalled, but has no warning"
    if stop is Stop.FAILED:
        assert result.error is not None, "the run failed, but has no error"
        assert set(result.error) >= {"code", "kind", "message"}, f"the error is incomplete: {result.error}"
    if stop in (Stop.HALTED, Stop.CANCELLED):
        assert result.stopped_by, f"the run was {stop.value}, but stopped_by is empty"
    if stop is Stop.COMPLETED:
        assert result.error is None, f"the run completed, but has the error {result.error}"
        assert result.warning is None, f"the run completed, but has the warning {result.warning}"
    has_grace = any(event.kind == "grace_started" for event in result.events)
    assert not has_grace or result.text.strip(), "the run had a grace turn, but its text is empty"


def _count(result: Result, kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in result.events)


class Bounds(TypedDict, total=False):
    """Bounds in which a run must end. All are optional."""

    turns: int
    requests: int
    tool_calls: int
    """Calls that were made, without denied ones."""
    tokens: int
    usd: float
    seconds: float
    """Active seconds, as the run itself counts them."""
    stop: Stop | str
    """Expected stop reason."""


def assert_stops(
    agent: Agent, task: Task = "Go on, and never stop.", *, within: Bounds, patience: float = 60.0
) -> Result:
    """Run the agent, check that it ended in the bounds, and return its result.

    It never hangs. A run that takes `patience` seconds more than the bounds allow is cancelled, and the error says so.
    It works with any model. It blocks this thread, so model and tools run on Flyball's own event loop.
    """
    limits, stop = _parse_bounds(within)
    max_seconds = limits.get("seconds", 0.0) + validation.parse_duration("assert_stops, patience", patience)
    result = _wait_for_end(agent.start(task), max_seconds)
    violations = [
        f"{name.replace('_', ' ')}: {unit.show(measure(result))}, at most {unit.show(limits[name])}"
        for name, (unit, measure) in _MEASURES.items()
        if name in limits and measure(result) > limits[name]
    ]
    if stop is not None and result.stop is not stop:
        violations.append(f"stop: {result.stop.value}, expected {stop.value}")
    assert not violations, f"the run ended outside its bounds ({'; '.join(violations)}). {result.explain()}"
    return result


def _parse_bounds(bounds: Bounds) -> tuple[dict[str, int | float], Stop | None]:
    validation.check_type("assert_stops, within", bounds, dict)
    limits: dict[str, int | float] = {}
    stop: Stop | None = None
    for name, value in bounds.items():
        if name == "stop":
            stop = validation.parse_enum("assert_stops, within stop", value, Stop)
        elif name in _MEASURES:
            limits[name] = validation.parse_amount(f"assert_stops, within {name}", value, _MEASURES[name][0])
        else:
            suggestions = suggest_names(name, Bounds.__annotations__) or list(Bounds.__annotations__)
            raise ConfigError("assert_stops, within", name, f"a bound such as {' or '.join(suggestions)}")
    return limits, stop


def _wait_for_end(run: Run, max_seconds: float) -> Result:
    try:
        return run.result(min(max_seconds, TIMEOUT_MAX))
    except TimeoutError:
        run.cancel("assert_stops")
    try:
        explanation = run.result(_CLOSING_S).explain()
    except TimeoutError:
        explanation = "It did not end after a cancel either: something blocks the event loop."
    raise AssertionError(f"the run had not ended after {max_seconds:g} seconds. {explanation}")
