"""What comes in from outside while the loop waits: each letter is noted in the course of the run, or done at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import event
from ..errors import UnknownBudget
from .effects import Cancel, Extend, Late, LeaseLost, Signal, Stalled, Steer, TimeUp, Unkept

if TYPE_CHECKING:
    from .state import RunState


def hear(course: RunState, letter: Signal) -> None:
    """Note what somebody wants of the run."""
    match letter:
        case Cancel(by):
            course.cancelled = course.cancelled or by
        case Steer(text):
            course.steered = [*course.steered, text]
        case Extend():
            extend(course, letter)
        case TimeUp():
            course.time_up = True
        case LeaseLost():
            course.lease_lost = True
        case Stalled(seconds):
            course.idle_s = seconds
        case Unkept(error):
            course.failure = dict(error)
        case Late(call_id, tool, own):
            course.hung -= own
            course.repetition.doubted()
            course.recorder.emit(event.LateResultDropped, call_id, tool)


def extend(course: RunState, letter: Extend) -> bool:
    """Raise ceilings and the time, as far as the registry allows; whether there is more of anything now."""
    raised = [_lift(course, name, amount, letter.by) for name, amount in letter.amounts.items()]
    terms, given = course.shared.terms, course.envelope.postponed_s
    seconds = min(letter.seconds, max(0.0, terms.most_seconds - terms.seconds - given))
    if seconds:
        course.envelope.postpone(seconds, f"extended by {letter.by}")
        course.recorder.emit(event.Postponed, seconds, f"extended by {letter.by}")
        course.extended |= {"seconds"}
    return bool(seconds) or any(raised)


def _lift(course: RunState, name: str, amount: int, by: str) -> int:
    budgets = course.envelope.budgets
    if name not in budgets:
        raise UnknownBudget(name, tuple(budgets))
    raised = budgets[name].extend(amount, by=by)
    if raised:
        course.recorder.emit(event.Extended, name, raised, by)
        course.extended |= {name}
    return raised
