import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import BudgetSnapshot, ConfigError, IterationBudget, Unit
from flyball.budget.snapshot import Extension

snapshots = st.builds(
    BudgetSnapshot,
    name=st.text(min_size=1).filter(str.strip),
    ceiling=st.none() | st.integers(0, 10**12),
    used=st.integers(0, 10**12),
    held=st.integers(0, 10**6),
    unsettled=st.integers(0, 10**6),
    brought=st.integers(0, 10**6),
    refunds=st.dictionaries(st.text(min_size=1).filter(str.strip), st.integers(0, 9)),
    refund_limit=st.none() | st.integers(0, 99),
    extensions=st.lists(st.builds(Extension, st.integers(1, 9), st.just("a person"))).map(tuple),
    unit=st.sampled_from(Unit),
)


@given(snapshots)
def test_a_snapshot_survives_json(snapshot: BudgetSnapshot) -> None:
    assert BudgetSnapshot.from_dict(json.loads(json.dumps(snapshot.to_dict()))) == snapshot


@given(snapshots)
def test_a_restored_budget_goes_on_where_the_snapshot_was_taken(snapshot: BudgetSnapshot) -> None:
    again = IterationBudget.restore(snapshot).snapshot()
    assert again.used == snapshot.used + snapshot.held
    assert again.remaining == snapshot.remaining
    assert again.unsettled == snapshot.unsettled + snapshot.held
    assert again.claimed == snapshot.claimed + snapshot.held


def test_a_whole_life_is_continued_exactly() -> None:
    turns = IterationBudget("turns", 10, maximum=12, refund_limit=2, start=1, unit=Unit.USD)
    turns.spend(6)
    turns.refund(reason="cheap_round")
    turns.extend(1, by="a rule")
    with turns.hold(3):
        data = json.loads(json.dumps(turns.snapshot().to_dict()))
    again = IterationBudget.restore(data)
    assert (again.used, again.snapshot().unsettled, again.held, again.ceiling, again.maximum) == (9, 3, 0, 11, 12)
    assert (again.refunds, again.refund_limit, again.unit) == ({"cheap_round": 1}, 2, Unit.USD)
    assert again.refund(5, reason="cheap_round") == 1
    assert again.extend(5, by="a person") == 1
    assert [extension.by for extension in again.extensions] == ["a rule", "a person"]


def test_a_restored_budget_joins_a_family_without_counting_twice() -> None:
    tree = IterationBudget("tree", 10, start=4)
    child = IterationBudget.restore(BudgetSnapshot("child", 5, used=4), parent=tree)
    beside = IterationBudget.restore(BudgetSnapshot("tokens", 5, used=4), beside=tree)
    assert child.consume()
    assert (child.used, tree.used, beside.used) == (5, 5, 4)
    assert tree.lock is child.lock is beside.lock


def test_a_snapshot_tells_what_its_budget_tells() -> None:
    turns = IterationBudget("turns", 4, start=4)
    turns.refund(reason="r")
    now = turns.snapshot()
    assert (now.remaining, now.ratio, now.exceeded, now.refunded, now.claimed) == (1, 0.75, False, 1, 4)
    assert IterationBudget("none", 0).snapshot().ratio == 1.0
    assert BudgetSnapshot("free", None, used=7).exceeded is False


def test_a_snapshot_stands_still_and_can_be_pickled() -> None:
    turns = IterationBudget("turns", 4, start=2)
    turns.refund(reason="r")
    now = turns.snapshot()
    turns.refund(reason="r")
    assert now.refunds == {"r": 1}
    assert pickle.loads(pickle.dumps(now)) == now


GOOD: dict[str, Any] = IterationBudget("turns", 5, start=1).snapshot().to_dict()


@pytest.mark.parametrize(
    ("change", "where", "found", "fact"),
    [
        ({"usde": 1}, "", "usde", "used"),
        ({"used": -1}, "'turns', used", -1, ""),
        ({"used": 1.5}, "'turns', used", 1.5, ""),
        ({"held": True}, "'turns', held", True, ""),
        ({"ceiling": "5"}, "'turns', ceiling", "5", ""),
        ({"name": ""}, "name", "", ""),
        ({"refunds": {"r": -1}}, "refunds, r", -1, ""),
        ({"refunds": [1]}, "refunds", [1], ""),
        ({"extensions": [{"amount": 0, "by": "x"}]}, "extensions[0].amount", 0, ""),
        ({"extensions": [{"amount": 1}]}, "extensions[0]", ["amount"], "'by'"),
        ({"extensions": "xx"}, "extensions", "xx", ""),
        ({"extensions": [3]}, "extensions[0]", 3, ""),
        ({"unit": "euro"}, "unit", "euro", "count, usd, seconds"),
        ({"maximum": 3}, "ceiling", 5, "3"),
    ],
)
def test_a_dict_that_no_snapshot_wrote_is_refused(change: dict[str, Any], where: str, found: object, fact: str) -> None:
    with pytest.raises(ConfigError) as caught:
        IterationBudget.restore(GOOD | change)
    assert caught.value.where.endswith(where)
    assert caught.value.found == found
    assert fact in caught.value.expected


@pytest.mark.parametrize("missing", GOOD)
def test_a_dict_that_lacks_a_key_is_refused(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"'{missing}'"):
        BudgetSnapshot.from_dict({key: value for key, value in GOOD.items() if key != missing})


def test_a_snapshot_of_something_else_than_a_dict_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        BudgetSnapshot.from_dict(3)  # pyright: ignore[reportArgumentType]
    assert caught.value.found == 3
