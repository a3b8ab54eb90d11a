"""Random agents, rules, shared budgets, children, answers and signals. Every story must pass the audit."""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import cast

from hypothesis import example, given, settings

from flyball import Limits, Result, TurnBudget
from flyball.budget.registry import UNSET
from flyball.loop import Append
from flyball.models import Model
from flyball.testing import ManualClock

from .audit_tree import audit_tree
from .dice import IS_SOAK, Dice, count_examples, sized
from .random_agents import Book, draw_agent
from .random_world import RandomDriver, replay

EXAMPLES = count_examples(150)


def draw_shared(dice: Dice, clock: ManualClock, has_prices: bool) -> tuple[TurnBudget | None, Mapping[str, float]]:
    """Return a budget that other runs share, or None, and its ceilings."""
    if not dice.once_in(3):
        return None, {}
    limits = Limits(
        turns=dice.pick(30, 6, 3),
        tool_calls=dice.pick(UNSET, 6, 2),
        tokens=dice.pick(UNSET, UNSET, 20_000, 3_000),
        usd=dice.pick(UNSET, 0.01) if has_prices else UNSET,
        children=dice.pick(UNSET, 2),
        seconds=dice.pick(3_600, 3_600, 7),
    )
    shared = limits.open(grace=False, clock=clock)
    ceilings = {name: shared.budgets[name].ceiling for name in ("turns", "tool_calls", "tokens", "usd", "children")}
    return shared, {name: inf if ceiling is None else ceiling for name, ceiling in ceilings.items()}


def drive(who: bytes, does: bytes, comes: bytes) -> tuple[RandomDriver, Result]:
    """Drive a random tree of runs, and audit it."""
    dice, clock, book = Dice(who), ManualClock(), Book(does)
    agent = draw_agent(dice, book, clock)
    models = cast("list[Model]", [agent.model, *agent.models.values(), *agent.fallback_models])
    has_prices = all(model.price is not None for model in models)
    shared, ceilings = draw_shared(dice, clock, has_prices)
    plan = agent.plan("Go.", run_id="run") if shared is None else agent.plan("Go.", run_id="run", within=shared)
    plan.has_transcript = not dice.once_in(3)
    driver = RandomDriver(book, comes, shared)
    result = driver.drive_top(agent, plan, clock)
    has_appended = any(isinstance(step, Append) for step in book.stories["run"])
    assert has_appended <= plan.has_transcript  # a run that pauses at once appends nothing
    audit_tree(driver, result, ceilings, shared)
    return driver, result


def check_replay(driver: RandomDriver) -> None:
    """Replay every run of the tree from its answers. Its result and its effects must be the same."""
    driver.book.restart()
    for run in driver.runs.values():
        assert run.result is not None, "it has ended"
        result, prints = replay(run)
        events = () if run.has_tool_children else result.events
        expected = run.result.events if events else ()
        assert replace(result, events=events) == replace(run.result, events=expected), "the replay differs"
        assert prints == run.prints


@settings(max_examples=EXAMPLES, derandomize=not IS_SOAK)
@example(who=bytes(200), does=bytes(80), comes=bytes([2]) + bytes([1]) * 299)
@given(sized(200), sized(80), sized(300))
def test_whatever_happens_every_run_ends_once_inside_its_limits_with_its_true_reason(
    who: bytes, does: bytes, comes: bytes
) -> None:
    driver, _ = drive(who, does, comes)
    check_replay(driver)
