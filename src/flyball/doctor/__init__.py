"""The doctor: proves that an installation works: its tools, and that every hook, action and notice of rules does.

Each check of rules is a run of its own, of an agent with a scripted model or of a governed loop, with a rule that was
written to a file for it; no setting of the place counts. Nothing is asked of the network.
"""

from .installation import installation_checks
from .rule_checks import Check, Hint, checks

__all__ = ["Check", "Hint", "checks", "installation_checks"]
