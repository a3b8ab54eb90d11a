"""Self-test of an installation and of its rules.

Tools are called, and every hook, action and notice of rules must work. Each rule check is a run of its own, of an agent
with a scripted model or of a governed loop, with a rule written to a file for it. The user's settings are not read and
the network is not used.
"""

from .installation import installation_checks
from .rule_checks import Check, Hint, checks

__all__ = ["Check", "Hint", "checks", "installation_checks"]
