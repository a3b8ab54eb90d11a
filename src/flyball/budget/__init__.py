"""Budgets: counters, ceilings, deadlines, prices and recorded spending."""

from .budget import Hold, IterationBudget

__all__ = ["Hold", "IterationBudget"]
