"""Rules: TOML files that warn, veto, stop and extend; safe to load from anyone. See docs/rules.md."""

from .rule import Fire, Rule, Trigger
from .ruleset import RuleSet

__all__ = ["Fire", "Rule", "RuleSet", "Trigger"]
