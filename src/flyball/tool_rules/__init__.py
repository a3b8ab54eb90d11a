"""Tool rules: allow or deny a call by the calls that succeeded before it.

There are four kinds, each a frozen class whose fields are the keys of a mapping or of a `[[tool_rules]]` table:

    LimitedTools        at most N calls of some tools, then a call of another tool is required
    RequirePriorTool    one tool only after another, optionally after a call with certain parameters
    BlockUntilTool      some tools, or all others, only after one tool
    RequireToolUse      the run completes only after a tool call

`ToolRules` holds the rules and is the same for every run. `begin` returns the `ToolRuleTracker` of one run, which is
asked before each call. Its answers depend only on the calls that it has seen, so the same calls in the same order give
the same answers.

>>> rules = ToolRules.of([{"block_until_tool": "login"}])
>>> book = rules.begin()
>>> book.claim("read", {})
'read may not be called before login has succeeded. Call login first.'
>>> book.claim("login", {})
>>> book.note(Done("login", {}, "welcome"))
>>> book.claim("read", {})
"""

from ..progress import Done
from .kinds import BlockUntilTool, LimitedTools, RequirePriorTool, RequireToolUse, RuleState, ToolRule
from .rules import ToolRules
from .tracker import ToolRuleTracker

__all__ = [
    "BlockUntilTool",
    "Done",
    "LimitedTools",
    "RequirePriorTool",
    "RequireToolUse",
    "RuleState",
    "ToolRule",
    "ToolRuleTracker",
    "ToolRules",
]
