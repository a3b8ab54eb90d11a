"""Limits and rules for loops that Flyball does not drive."""

from .governor import govern

__all__ = ["govern"]
