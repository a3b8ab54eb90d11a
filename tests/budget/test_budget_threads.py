"""Budgets under many threads, and against an oracle."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from threading import Barrier, Thread
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

import flyball.budget.budget
from flyball import Hold, IterationBudget

THREADS = 64


@pytest.fixture(autouse=True)
def giving_way_in_the_middle_of_everything() -> Iterator[None]:
    """Threads let others run between any two instructions of budget.py, at random: without its locks, tests fail."""
    chance = random.Random(7).random

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != flyball.budget.budget.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and chance() < 0.15:
            time.sleep(0)
        return trace

    threading.settrace(trace)
    yield
    threading.settrace(None)


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run `work` in many threads that start at one moment; an exception in one of them is raised here."""
    gate = Barrier(threads)
    raised: list[BaseException] = []

    def run(n: int) -> None:
        gate.wait(timeout=60)
        try:
            work(n)
        except BaseException as error:
            raised.append(error)

    workers = [Thread(target=run, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert not any(worker.is_alive() for worker in workers)
    if raised:
        raise raised[0]


@pytest.mark.parametrize("depth", [1, 3])
def test_exactly_the_ceiling_succeeds(depth: int) -> None:
    line = [IterationBudget("root", 400)]
    while len(line) < depth:
        line.append(IterationBudget(f"level_{len(line)}", 2_000, parent=line[-1]))
    won = [0] * THREADS

    def claim(n: int) -> None:
        for _ in range(12):
            won[n] += line[-1].consume()

    together(claim)
    assert sum(won) == 400
    assert [budget.used for budget in line] == [400] * depth


def test_holds_never_promise_more_than_there_is() -> None:
    tokens = IterationBudget("tokens", 1_000)
    booked = [0] * THREADS

    def spend(n: int) -> None:
        for round_number in range(8):
            hold = tokens.try_hold(20)
            if hold is not None:
                fact = (n + round_number) % 21
                assert tokens.used <= 1_000
                hold.settle(fact)
                booked[n] += fact

    together(spend)
    assert tokens.used == sum(booked) <= 1_000
    assert tokens.held == 0


def test_no_reading_is_torn_while_holds_are_settled() -> None:
    """A hold settled whole only moves what is held to what is used: neither their sum nor what remains may change."""
    tokens = IterationBudget("tokens", 10_000)
    holds = [[tokens.hold(5) for _ in range(10)] for _ in range(THREADS)]
    total = THREADS * 10 * 5

    def work(n: int) -> None:
        for hold in holds[n]:
            if n % 2:
                hold.settle(5)
            else:
                now = tokens.snapshot()
                assert now.used + now.held == total
                assert tokens.remaining == tokens.available == 10_000 - total

    together(work)
    for hold in [hold for row in holds for hold in row]:
        hold.release()
    assert (tokens.used, tokens.held) == (total // 2, 0)


def test_what_was_claimed_is_read_in_one_piece_while_refunds_are_made() -> None:
    turns = IterationBudget("turns", 1_000, start=1_000)

    def work(n: int) -> None:
        for _ in range(25):
            if n % 2:
                turns.refund(reason="cheap_round")
            else:
                assert turns.claimed == 1_000

    together(work)
    assert turns.used == 1_000 - THREADS // 2 * 25


@pytest.mark.parametrize("depth", [1, 3])
def test_no_increment_and_no_refund_is_lost(depth: int) -> None:
    line = [IterationBudget("root", None)]
    while len(line) < depth:
        line.append(IterationBudget(f"level_{len(line)}", None, parent=line[-1]))
    given = [0] * THREADS

    def work(n: int) -> None:
        for _ in range(3):
            line[-1].increment(3)
            given[n] += line[-1].refund(1, reason="cheap_round")
            assert line[-1].claimed >= 3
            assert line[-1].remaining == line[-1].available

    together(work)
    assert sum(given) == THREADS * 3
    assert [budget.used for budget in line] == [THREADS * 3 * 2] * depth
    assert [budget.claimed for budget in line] == [THREADS * 3 * 3] * depth


def test_every_snapshot_adds_up_while_everything_happens_at_once() -> None:
    tree = IterationBudget("tree", 120)
    child = IterationBudget("child", 100, parent=tree)

    def work(n: int) -> None:
        for _ in range(6):
            if n % 4 == 0:
                child.consume()
            elif n % 4 == 1:
                child.refund(reason="cheap_round")
            elif n % 4 == 2 and (hold := child.try_hold(3)):
                hold.settle(1)
            for budget in (tree, child):
                now = budget.snapshot()
                assert now.ceiling is not None
                assert now.used + now.held + now.remaining == now.ceiling
                assert 0 <= now.used <= now.ceiling

    together(work)
    assert child.used == tree.used
    assert child.held == tree.held == 0
    assert child.claimed == tree.claimed


def test_only_one_of_many_settles_a_hold() -> None:
    tokens = IterationBudget("tokens", 100)
    hold = tokens.hold(10)
    won = [False] * THREADS

    def settle(n: int) -> None:
        won[n] = hold.settle(n)

    together(settle)
    assert sum(won) == 1
    assert tokens.used == hold.settled == won.index(True)


def test_extensions_from_many_sides_stop_at_the_maximum() -> None:
    turns = IterationBudget("turns", 0, maximum=100)
    raised = [0] * THREADS

    def extend(n: int) -> None:
        raised[n] = turns.extend(3, by=f"thread {n}")

    together(extend)
    assert sum(raised) == turns.ceiling == 100
    assert sum(extension.amount for extension in turns.extensions) == 100


amounts = st.integers(1, 12)
members = st.integers(0, 3)


@dataclass
class Model:
    """One budget, as its documentation describes it."""

    ceiling: int | None
    maximum: int | None
    limit: int | None
    line: list[int]
    used: int = 0
    held: int = 0
    refunds: dict[str, int] = field(default_factory=dict[str, int])

    def allows(self, amount: int) -> bool:
        return self.ceiling is None or self.used + self.held + amount <= self.ceiling

    def refundable(self) -> int:
        limit = self.ceiling if self.limit is None else self.limit
        return self.used if limit is None else max(0, min(self.used, limit - sum(self.refunds.values())))


class Family(RuleBasedStateMachine):
    """Two leaves under a parent under a tree ceiling; any of the four may be claimed from."""

    holds = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Hold] = []
        tree = IterationBudget("tree", 40, maximum=45)
        parent = IterationBudget("parent", 30, parent=tree, refund_limit=6)
        left = IterationBudget("left", 20, parent=parent)
        right = IterationBudget("right", None, parent=parent)
        self.budgets = [tree, parent, left, right]
        self.models = [
            Model(40, 45, None, [0]),
            Model(30, None, 6, [1, 0]),
            Model(20, None, None, [2, 1, 0]),
            Model(None, None, None, [3, 1, 0]),
        ]

    def line(self, n: int) -> list[Model]:
        return [self.models[m] for m in self.models[n].line]

    @rule(n=members, amount=amounts)
    def consume(self, n: int, amount: int) -> None:
        allowed = all(model.allows(amount) for model in self.line(n))
        assert self.budgets[n].consume(amount) == allowed
        if allowed:
            for model in self.line(n):
                model.used += amount

    @rule(n=members, amount=amounts)
    def increment(self, n: int, amount: int) -> None:
        for model in self.line(n):
            model.used += amount
        assert self.budgets[n].increment(amount) == self.models[n].used

    @rule(target=holds, n=members, amount=amounts)
    def hold(self, n: int, amount: int) -> tuple[int, Hold | None]:
        allowed = all(model.allows(amount) for model in self.line(n))
        hold = self.budgets[n].try_hold(amount)
        assert (hold is not None) == allowed
        if hold is not None:
            self.made.append(hold)
            for model in self.line(n):
                model.held += amount
        return n, hold

    @rule(pair=holds, fact=st.integers(0, 15))
    def settle(self, pair: tuple[int, Hold | None], fact: int) -> None:
        n, hold = pair
        if hold is None:
            return
        was_open = hold.open
        assert hold.settle(fact) == was_open
        if was_open:
            for model in self.line(n):
                model.held -= hold.amount
                model.used += fact

    @rule(n=members, amount=amounts, reason=st.sampled_from(["cheap", "never_started"]))
    def refund(self, n: int, amount: int, reason: str) -> None:
        given = min(amount, *(model.refundable() for model in self.line(n)))
        assert self.budgets[n].refund(amount, reason=reason) == given
        for model in self.line(n) if given else []:
            model.used -= given
            model.refunds[reason] = model.refunds.get(reason, 0) + given

    @rule(n=members, amount=amounts)
    def extend(self, n: int, amount: int) -> None:
        model = self.models[n]
        raised = 0
        if model.ceiling is not None:
            raised = amount if model.maximum is None else min(amount, model.maximum - model.ceiling)
            model.ceiling += raised
        assert self.budgets[n].extend(amount, by="a rule") == raised

    @invariant()
    def agrees_with_the_model(self) -> None:
        for budget, model in zip(self.budgets, self.models, strict=True):
            now = budget.snapshot()
            assert (now.used, now.held, now.ceiling, now.refunds) == (
                model.used,
                model.held,
                model.ceiling,
                model.refunds,
            )
            assert now.claimed == budget.claimed == now.used + sum(model.refunds.values())
            if now.ceiling is not None and now.used + now.held <= now.ceiling:
                assert now.used + now.held + now.remaining == now.ceiling
            assert budget.remaining == now.remaining >= 0
            assert budget.available == min(self.budgets[m].remaining for m in model.line)

    @invariant()
    def continues_exactly_from_its_snapshot(self) -> None:
        for budget in self.budgets:
            now = budget.snapshot()
            again = IterationBudget.restore(now.to_dict()).snapshot()
            assert (again.used, again.held, again.unsettled) == (now.used + now.held, 0, now.held)
            assert (again.remaining, again.refunds, again.extensions) == (now.remaining, now.refunds, now.extensions)

    def teardown(self) -> None:
        for hold in self.made:
            hold.release()


TestFamily = Family.TestCase
TestFamily.settings = settings(max_examples=40, stateful_step_count=30)
