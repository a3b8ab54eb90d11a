"""Whether a run must end now, and why."""

from __future__ import annotations

from ..budget.run_budget import Refusal
from ..result import Stop
from .ending import End
from .orders import emit_refusals
from .state import RunState

_WEAKER_THAN_DEADLINE = (Stop.HALTED, Stop.STALLED)


def check_end(run: RunState) -> End | None:
    """Return why the run must end now, or None."""
    signals = run.signals
    if not signals.has_stop:
        return None
    end = signals.find_end()
    if (signals.time_up or run.budget.is_expired()) and (end is None or end.stop in _WEAKER_THAN_DEADLINE):
        return refuse_budget(run, "seconds")
    return end


def is_over(run: RunState) -> bool:
    """Return True if no call may be made any more: the run is cancelled, or its time for work is over."""
    return run.signals.is_cancelled or run.signals.time_up or run.budget.is_expired()


def refuse_budget(run: RunState, name: str, input_tokens: int = 0) -> End:
    """Return the end of a run that a budget, or the deadline (`seconds`), refuses.

    `input_tokens` is the estimated input of the request that it refuses, if that decides.
    """
    return end_by_refusal(run, run.budget.refuse(name, input_tokens=input_tokens))


def end_by_refusal(run: RunState, refusal: Refusal) -> End:
    """Return the end of a run by a refusal that its budget knows."""
    emit_refusals(run)
    stop = Stop.DEADLINE if refusal.budget == "seconds" else Stop.BUDGET
    return End(stop, warning=refusal.warning, budget=refusal.budget)
