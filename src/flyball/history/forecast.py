"""Forecast of a recorded run that has not ended: the limit that it will meet first."""

from __future__ import annotations

from ..budget.forecast import Forecast, Pace, Room, find_forecast
from ..budget.limits import default_reserve
from .record import RunRecord

_LIMITS = ("turns", "tool_calls", "tokens", "usd")
_WITH_RESERVE = ("tokens", "usd")


def find_recorded_forecast(record: RunRecord) -> Forecast | None:
    """Return the limit that the run will meet first at its present pace. None if it is not known.

    The record does not tell the reserve for the report. The default one is assumed.
    """
    pace = Pace()
    for event in record.events:
        amount = event.integer("input_tokens") + event.integer("output_tokens")
        if event.text("event") == "refunded":
            amount = event.integer("amount") if event.text("budget") == "turns" else 0
        pace.note(event.text("event"), event.number("at"), amount)
    rooms: dict[str, Room] = {}
    for name in _LIMITS:
        budget = record.budgets.get(name)
        if budget is not None and budget.ceiling is not None:
            kept = default_reserve(name, budget.ceiling) if name in _WITH_RESERVE else 0
            rooms[name] = Room(max(0, budget.ceiling - kept - budget.used), budget.used)
    if record.work_seconds > 0:
        seconds = record.data.number("seconds")
        rooms["seconds"] = Room(max(0.0, record.work_seconds - seconds), seconds)
    return find_forecast(rooms, pace, record.tokens)
