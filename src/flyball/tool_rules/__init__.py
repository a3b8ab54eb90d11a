"""Tool rules: which calls may be made when, judged by the calls that succeeded before.

There are three kinds, each a frozen class whose fields are the keys of a mapping or of a `[[tool_rules]]` table:

    LimitedTools        so many calls of some tools, then first one of some others
    RequirePriorTool    this tool only after that one, where wanted with certain parameters
    BlockUntilTool      these tools, or all others, only after that one

`ToolRules` holds the rules and is the same for every run. `begin` gives the `RuleBook` of one run, which is asked
before each call. It knows only what it was told, so the same calls in the same order give the same answers.

>>> rules = ToolRules.of([{"block_until_tool": "login"}])
>>> book = rules.begin()
>>> book.claim("read", {})
'read may not be called before login has succeeded. Call login first.'
>>> book.claim("login", {})
>>> book.note(Done("login", {}, "welcome"))
>>> book.claim("read", {})
"""

from ..progress import Done
from .kinds import BlockUntilTool, LimitedTools, RequirePriorTool, RuleState, ToolRule
from .rules import ToolRules
from .tracker import ToolRuleTracker

__all__ = [
    "BlockUntilTool",
    "Done",
    "LimitedTools",
    "RequirePriorTool",
    "RuleState",
    "ToolRule",
    "ToolRuleTracker",
    "ToolRules",
]
