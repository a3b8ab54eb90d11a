"""What comes in from outside while the loop waits: each letter is noted in the course of the run, or done at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import event
from ..errors import UnknownBudget
from .effects import Cancel, Extend, Late, LeaseLost, Signal, Stalled, Steer, StoreFailed, TimeUp

if TYPE_CHECKING:
    from .state import RunState  # cycle: its type only; the state calls these functions


def apply_signal(run: RunState, signal: Signal) -> None:
    """Note what somebody wants of the run."""
    match signal:
        case Cancel(by):
            run.cancelled = run.cancelled or by
        case Steer(text):
            run.steered = [*run.steered, text]
        case Extend():
            apply_extension(run, signal)
        case TimeUp():
            run.time_up = True
        case LeaseLost():
            run.lease_lost = True
        case Stalled(seconds):
            run.idle_s = seconds
        case StoreFailed(error):
            run.failure = dict(error)
        case Late(call_id, tool, own):
            run.hung -= own
            run.repetition.forget_reads()
            run.recorder.emit(event.LateResultDropped, call_id, tool)


def apply_extension(run: RunState, extension: Extend) -> bool:
    """Raise ceilings and the time, as far as the registry allows; whether there is more of anything now."""
    raised = [_raise_ceiling(run, name, amount, extension.by) for name, amount in extension.amounts.items()]
    terms, given = run.spec.limits, run.envelope.postponed_s
    seconds = min(extension.seconds, max(0.0, terms.max_extended_seconds - terms.seconds - given))
    if seconds:
        run.envelope.postpone(seconds, f"extended by {extension.by}")
        run.recorder.emit(event.Postponed, seconds, f"extended by {extension.by}")
        run.extended |= {"seconds"}
    return bool(seconds) or any(raised)


def _raise_ceiling(run: RunState, name: str, amount: int, by: str) -> int:
    budgets = run.envelope.budgets
    if name not in budgets:
        raise UnknownBudget(name, tuple(budgets))
    raised = budgets[name].extend(amount, by=by)
    if raised:
        run.recorder.emit(event.Extended, name, raised, by)
        run.extended |= {name}
    return raised
