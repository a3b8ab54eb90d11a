"""The doctor: proves in this installation that every hook fires, every action acts and a notice reaches a model.

Each check is a run of its own, of an agent with a scripted model or of a governed loop, with a rule that was written to
a file for it. Nothing is asked of the network, and no setting of the place counts.
"""

from .check import Check, checks

__all__ = ["Check", "checks"]
