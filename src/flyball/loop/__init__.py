"""The loop: decides what a run does next. It does nothing itself; a driver does."""

from .effects import Act, Answer, Append, Ask, Decide, Effect, Fingerprint, Flow, Grant, Wait
from .loop import converse
from .plan import Plan

__all__ = [
    "Act",
    "Answer",
    "Append",
    "Ask",
    "Decide",
    "Effect",
    "Fingerprint",
    "Flow",
    "Grant",
    "Plan",
    "Wait",
    "converse",
]
