"""Budgets that a run shares with others: what it takes there must be granted, because others take too."""

from __future__ import annotations

from collections.abc import Mapping

from ..envelope import Refusal
from .course import Course
from .effect import Deed, Flow, Grant


def take(course: Course, **amounts: int) -> Flow[Refusal | None]:
    """Take from the shared budgets, all or nothing; the refusal is remembered as the run's own."""
    wanted = {name: amount for name, amount in amounts.items() if amount}
    refusal = yield from course.do(Grant(Deed.TAKE, wanted))
    if refusal is not None:
        course.envelope.remember(refusal)
        course.tell_refusals()
    return refusal


def settle(course: Course, facts: Mapping[str, int]) -> Flow[None]:
    """Book what a request has used there."""
    yield from course.do(Grant(Deed.SETTLE, facts))


def give_back(course: Course, reason: str, **amounts: int) -> Flow[None]:
    """Give something back there."""
    yield from course.do(Grant(Deed.REFUND, amounts, reason))
