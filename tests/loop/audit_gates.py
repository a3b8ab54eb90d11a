"""The tool rules of a run, checked again from the calls that succeeded. See audit.py."""

from collections.abc import Sequence
from typing import Any

Rule = dict[str, Any]


class Gates:
    """What tool rules allow, by the calls that have succeeded so far."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.done: list[str] = []
        """Tools of the calls that succeeded, in order."""

    def check_call(self, tool: str, pending: Sequence[str]) -> None:
        """Assert that a call may be made. `pending` are tools of earlier calls of the same group."""
        for rule in self.rules:
            if rule.get("tool") == tool:
                assert set(rule["prior_tools"]) <= set(self.done), f"{tool} before its prior tools"
            if rule.get("block_until_tool", tool) != tool:
                assert rule["block_until_tool"] in self.done, f"{tool} while it is blocked"
            if "max_calls" in rule:
                assert not self._is_limited(rule, tool) or self._count(rule, pending) < rule["max_calls"], (
                    f"one {tool} too many"
                )

    def check_completion(self) -> None:
        """Assert that the run may complete."""
        for rule in self.rules:
            needed = [*rule.get("prior_tools", ()), *filter(None, [rule.get("block_until_tool")])]
            assert not rule.get("blocks_completion") or set(needed) <= set(self.done), "complete before its prior tools"
            assert not rule.get("require_tool_use") or self.done, "complete without a tool"

    @staticmethod
    def _is_limited(rule: Rule, tool: str) -> bool:
        return tool in rule["limited_tools"] or (rule["deny"] == "all" and tool not in rule["then_require_one_of"])

    def _count(self, rule: Rule, pending: Sequence[str]) -> int:
        """Return how many limited calls there are since the last that lifts the limit."""
        since = list(self.done)
        for place, tool in enumerate(self.done, 1):
            if tool in rule["then_require_one_of"]:
                since = self.done[place:]
        return sum(tool in rule["limited_tools"] for tool in (*since, *pending))
