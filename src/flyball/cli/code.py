"""Exit codes: how a shell learns why a run ended."""

from __future__ import annotations

from ..result import Stop

USAGE = 2
CODES = {
    Stop.COMPLETED: 0,
    Stop.FAILED: 1,
    Stop.BUDGET: 3,
    Stop.DEADLINE: 4,
    Stop.STALLED: 5,
    Stop.UNFINISHED: 5,
    Stop.HALTED: 5,
    Stop.CONTENDED: 6,
    Stop.PAUSED: 7,
    Stop.CANCELLED: 130,
}
