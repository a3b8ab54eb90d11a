"""Budgets: counters, ceilings, deadlines, prices and what a run has spent."""

from .budget import Hold, IterationBudget

__all__ = ["Hold", "IterationBudget"]
