"""Budgets that a run shares with others: what it takes there must be granted, because others take too.

What a request has used, and what is given back, is told with the next Grant: one that takes, or one of its own
(`pay`) before the run waits for something else or ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..budget.run_budget import Refusal
from .effects import Flow, Grant
from .state import RunState


def claim(run: RunState, **amounts: int) -> Flow[Refusal | None]:
    """Take from the shared budgets, all or nothing; the refusal is remembered as the run's own."""
    grant, run.pending_grant = _get_pending_grant(run), None
    grant.claim = {name: amount for name, amount in amounts.items() if amount}
    refusal = yield from run.perform(grant)
    if refusal is not None:
        run.envelope.remember(replace(refusal, is_shared=True))
        run.emit_refusals()
    return refusal


def settle(run: RunState, facts: Mapping[str, int]) -> None:
    """Book what a request has used there."""
    _get_pending_grant(run).settle = facts


def refund(run: RunState, reason: str, amounts: Mapping[str, int]) -> None:
    """Give something back there."""
    given = _get_pending_grant(run).refund.setdefault(reason, {})
    for name, amount in amounts.items():
        given[name] = given.get(name, 0) + amount


def flush(run: RunState) -> Flow[None]:
    """Tell them now, as others may wait for it. Before anything slow but calls, whose own Grants tell it.

    Whoever goes on then looks whether the run was ended meanwhile.
    """
    debt, run.pending_grant = run.pending_grant, None
    if debt is not None:
        yield from run.perform(debt)


def _get_pending_grant(run: RunState) -> Grant:
    run.pending_grant = run.pending_grant or Grant()
    return run.pending_grant
