"""Rule files in a folder, written as a test needs them."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from ..rules import RuleSet


class RuleFolder:
    """A folder of rule files; the first is called `rule-1`, the next `rule-2`, and that is also their order.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     rules = RuleFolder(name).add("on_turn_start", 'type = "log"\\nmessage = "Hello."').load()
    >>> [rule.id for rule in rules]
    ['rule-1']
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.count = 0

    def add(self, trigger: str, action: str, condition: str = "true", more: str = "") -> Self:
        """Write one: `action` is what stands in `[action]`, `more` what else in `[rule]`."""
        self.count += 1
        text = f'[rule]\nid = "rule-{self.count}"\ntrigger = "{trigger}"\n{more}\n'
        text += f"[condition]\nexpression = '''{condition}'''\n[action]\n{action}\n"
        (self.path / f"{self.count:02}.toml").write_text(text)
        return self

    def load(self) -> RuleSet:
        """The rules; whatever is wrong with one is raised."""
        return RuleSet.load(self.path, strict=True)
