"""Budgets that a run shares with others: what it takes there must be granted, because others take too.

What a request has used, and what is given back, is told with the next Grant: one that takes, or one of its own
(`pay`) before the run waits for something else or ends.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..budget.run_budget import Refusal
from .effects import Flow, Grant
from .state import RunState


def take(course: RunState, **amounts: int) -> Flow[Refusal | None]:
    """Take from the shared budgets, all or nothing; the refusal is remembered as the run's own."""
    grant, course.debt = _debt(course), None
    grant.take = {name: amount for name, amount in amounts.items() if amount}
    refusal = yield from course.do(grant)
    if refusal is not None:
        course.envelope.remember(refusal)
        course.tell_refusals()
    return refusal


def settle(course: RunState, facts: Mapping[str, int]) -> None:
    """Book what a request has used there."""
    _debt(course).settle = facts


def give_back(course: RunState, reason: str, amounts: Mapping[str, int]) -> None:
    """Give something back there."""
    given = _debt(course).refund.setdefault(reason, {})
    for name, amount in amounts.items():
        given[name] = given.get(name, 0) + amount


def pay(course: RunState) -> Flow[None]:
    """Tell them now, as others may wait for it. Before anything slow but calls, whose own Grants tell it.

    Whoever goes on then looks whether the run was ended meanwhile.
    """
    debt, course.debt = course.debt, None
    if debt is not None:
        yield from course.do(debt)


def _debt(course: RunState) -> Grant:
    course.debt = course.debt or Grant()
    return course.debt
