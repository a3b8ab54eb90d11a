"""Claims on budgets that the run shares with other runs.

Each claim is a Grant effect, because its answer depends on other runs. What a request used, and what is refunded, goes
with the next Grant: one that claims, or one of its own (`flush`) before the run waits for something else or ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..budget.run_budget import Refusal
from ..budget.spending import Holds
from .effects import Flow
from .orders import emit_refusals
from .state import RunState, SharedBudget


def claim(run: RunState, shared: SharedBudget, **amounts: int) -> Flow[Refusal | None]:
    """Claim from the shared budgets, all or nothing. A refusal counts as one of the run's own."""
    refusal = yield from _perform_claim(run, shared, amounts)
    if refusal is not None:
        _record_refusal(run, refusal)
    return refusal


def _perform_claim(run: RunState, shared: SharedBudget, amounts: Mapping[str, int]) -> Flow[Refusal | None]:
    grant = shared.take_pending()
    grant.claim = {name: amount for name, amount in amounts.items() if amount}
    return (yield from run.perform(grant))


def _record_refusal(run: RunState, refusal: Refusal) -> None:
    run.budget.remember(replace(refusal, is_shared=True))
    emit_refusals(run)


def claim_request(
    run: RunState, shared: SharedBudget, holds: Holds, must_stop: Callable[[RunState], object], turns: int = 0
) -> Flow[tuple[bool, Refusal | None]]:
    """Claim what a request may use, and return whether it may be made, with the refusal if there was one.

    If it may not, because of a refusal or because `must_stop` is true meanwhile, everything is released.
    """
    refusal = yield from _perform_claim(run, shared, {"turns": turns, "tokens": holds[0], "usd": holds[1]})
    if turns and refusal is None:
        shared.turn_claimed = True
    if refusal is None and not must_stop(run):
        return True, None
    run.spending.release(holds)  # before a rule hears of the refusal: it may switch to another model
    if refusal is None:
        shared.settle({"tokens": 0, "usd": 0})
    else:
        _record_refusal(run, refusal)
    return False, refusal


def flush(run: RunState) -> Flow[None]:
    """Report usage and refunds to the shared budgets now, because other runs may wait for them.

    Needed before anything slow except tool calls, whose own Grants report it. Check afterwards whether the run must
    end.
    """
    shared = run.shared
    if shared is not None and shared.has_pending:
        yield from run.perform(shared.take_pending())
