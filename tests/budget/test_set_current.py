"""Counts that are set: absolute, followed by ancestors, and recorded in a run."""

from typing import Any

import pytest

from flyball import Agent, ConfigError, IterationBudget, Limits, govern, tool
from flyball.errors import UsageError
from flyball.event import CountSet
from flyball.progress import Point, Progress
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say


@tool(effects="read")
def look(n: int) -> int:
    """Look."""
    return n


def test_a_count_is_set_and_the_difference_returned() -> None:
    turns = IterationBudget("turns", 5)
    assert (turns.set_current(3), turns.current, turns.remaining) == (3, 3, 2)
    assert (turns.set_current(1), turns.used) == (-2, 1)
    assert (turns.set_current(9), turns.exceeded, turns.consume()) == (8, True, False)


def test_ancestors_follow_by_the_same_difference() -> None:
    tree = IterationBudget("tree", 20)
    one, other = IterationBudget("one", 10, parent=tree), IterationBudget("other", 10, parent=tree, start=4)
    one.spend(2)
    other.spend(1)
    one.set_current(7)
    other.set_current(6)
    assert (one.used, other.used, tree.used) == (7, 6, 9)
    one.set_current(0)
    other.set_current(1)
    assert (one.used, other.used, tree.used) == (0, 1, 0), "what was brought never counted above"


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3", None])
def test_a_count_that_is_none_is_refused(wrong: Any) -> None:
    turns = IterationBudget("turns", 5)
    with pytest.raises(ConfigError, match="turns"):
        turns.set_current(wrong)
    assert turns.used == 0


def test_the_count_of_a_run_can_only_rise() -> None:
    with Limits(turns=5, tokens=100).open() as envelope:
        turns, tokens = envelope.budgets["turns"], envelope.budgets["tokens"]
        turns.set_current(3)
        tokens.set_current(10)
        for budget in (turns, tokens):
            with pytest.raises(UsageError, match="can only rise"):
                budget.set_current(2)
        assert (turns.used, tokens.used, turns.set_current(3)) == (3, 10, 0)
        below = IterationBudget("below", 9, parent=turns, start=1)
        with pytest.raises(UsageError, match="can only rise"):
            below.set_current(0)
        changes = [(key, change.difference, change.used) for key, change in envelope.take_count_changes()]
        assert changes == [("turns", 3, 3), ("tokens", 10, 10)]


def test_a_governed_loop_records_the_count_and_obeys_it() -> None:
    with govern(Limits(turns=5)) as run:
        for turn in run:
            if turn.number == 1:
                run.envelope.budgets["turns"].set_current(4)
    result = run.result()
    assert (result.turns, result.budgets["turns"].used) == (2, 5)
    assert [(e.budget, e.amount, e.used) for e in result.events if isinstance(e, CountSet)] == [("turns", 3, 4)]


def test_an_agent_records_the_count_that_a_hook_sets_and_obeys_it() -> None:
    def skip(point: Point, progress: Progress, about: object = None) -> None:
        if point is Point.TURN_ENDED and progress.turn == 1:
            progress.envelope.budgets["turns"].set_current(4)

    model = ScriptedModel(*[call("look", n=n) for n in range(9)], grace=say("I report."))
    driver = ScriptDriver(Agent(model=model, tools=[look], hooks=[skip], limits=Limits(turns=5)))
    result = assert_honest(driver.run("Go."))
    assert (result.stop, result.turns, result.budgets["turns"].used) == ("budget", 2, 5)
    assert [(e.budget, e.amount, e.used) for e in result.events if isinstance(e, CountSet)] == [("turns", 3, 4)]
    assert [e.to_dict() for e in driver.replay().events] == [e.to_dict() for e in result.events]
