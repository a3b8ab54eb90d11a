"""Checks of an installation: Python, extras, models, tools, MCP and core rules.

Tools are called in a temporary folder. Apart from the model that is asked by default, no settings are read. The network
is not used.
"""

from .check import Check, Hint
from .installation import installation_checks

__all__ = ["Check", "Hint", "installation_checks"]
