"""Whatever a loop does: work leaves the reserve alone, and nothing passes the limits that was set aside before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import IterationBudgetRegistry, Limits, TokenPrice, Usage, govern
from flyball.budget.price import compute_max_request_cost
from flyball.budget.spending import Spending

REGISTRY = IterationBudgetRegistry(settings={})
shares = st.floats(0, 1)
steps = st.lists(st.tuples(st.integers(1, 400), shares, shares, st.booleans()), max_size=8)
prices = st.builds(TokenPrice, st.floats(0, 2_000), st.floats(0, 2_000), st.none() | st.floats(0, 2_000))


@given(tokens=st.integers(1, 3_000), usd=st.integers(1, 200), price=prices, steps=steps)
def test_no_limit_is_passed_by_what_was_set_aside(
    tokens: int, usd: int, price: TokenPrice, steps: list[tuple[int, float, float, bool]]
) -> None:
    limits = Limits(turns=500, tokens=tokens, usd=usd / 100)
    plan = iter(steps)
    with govern(limits, price=price, registry=REGISTRY) as run:
        kept = {name: budget.ceiling - run.envelope.reserve.get(name, 0) for name, budget in money_and_tokens(run)}
        for turn in run:
            wanted, of_input, of_output, settled = next(plan, (0, 0.0, 0.0, True))
            if not wanted:
                run.complete()
            elif turn.expect(wanted):
                output = turn.max_output_tokens
                assert output is not None
                if settled:
                    taken = int(wanted * of_input)
                    turn.settle(Usage(taken, int(output * of_output), cached=int(taken * of_output)))
                    again = turn.max_output_tokens  # a second request of the same turn
                    turn.settle(Usage(0, int((again or 0) * of_input)))
                elif output == 0:
                    run.complete()
            else:
                run.complete()
            if not turn.grace:
                for name, budget in money_and_tokens(run):
                    assert budget.used + budget.held <= kept[name] or turn.envelope.reserve == {}
                    assert budget.used <= kept[name]
    for name in ("tokens", "usd"):
        snapshot = run.result().budgets[name]
        assert snapshot.ceiling is not None
        assert snapshot.used <= snapshot.ceiling
        assert snapshot.held == 0


def money_and_tokens(run: govern) -> list[tuple[str, "Bounded"]]:
    return [(name, Bounded(run, name)) for name in ("tokens", "usd")]


class Bounded:
    """A reading of one budget that is known to have a ceiling."""

    def __init__(self, run: govern, name: str) -> None:
        now = run.envelope.budgets[name].snapshot()
        self.ceiling = now.ceiling or 0
        self.used = now.used
        self.held = now.held - run.envelope.reserve.get(name, 0)


@given(tokens=st.integers(0, 10**6), usd=st.integers(0, 10**4), price=prices, given_tokens=st.integers(0, 10**5))
def test_the_room_for_a_reply_is_the_largest_that_fits(
    tokens: int, usd: int, price: TokenPrice, given_tokens: int
) -> None:
    with Limits(tokens=tokens, usd=usd / 100).open(REGISTRY) as envelope:
        purse = Spending(envelope, price)
        room = purse.compute_max_output(given_tokens)
        left, money = envelope.budgets["tokens"].available, envelope.budgets["usd"].available
        assert room is not None
        if room:
            assert given_tokens + room <= left
            assert compute_max_request_cost(price, given_tokens, room) <= money
        fits_one_more = (
            given_tokens + room + 1 <= left and compute_max_request_cost(price, given_tokens, room + 1) <= money
        )
        assert not fits_one_more
        assert bool(purse.find_short_budgets(given_tokens)) == (room == 0)


def test_an_overshoot_is_booked_and_readable() -> None:
    with Limits(tokens=100).open(REGISTRY) as envelope:
        purse = Spending(envelope)
        holds = purse.hold(10, 20)
        assert holds is not None
        purse.settle(holds, Usage(30, 200))
        assert (envelope.budgets["tokens"].used, purse.usage.total, purse.largest_input_tokens) == (230, 230, 30)
        assert envelope.budgets["tokens"].snapshot().ratio == pytest.approx(2.3)


def test_what_nobody_settled_is_booked_whole_in_tokens_and_money() -> None:
    with Limits(tokens=100, usd=1).open(REGISTRY) as envelope:
        purse = Spending(envelope, TokenPrice(input=1_000, output=1_000))
        holds = purse.hold(10, 20)
        assert holds is not None
        purse.settle_estimate(holds)
        assert (envelope.budgets["tokens"].used, envelope.budgets["usd"].used, purse.cost) == (
            30,
            30 * 10**6,
            30 * 10**6,
        )
