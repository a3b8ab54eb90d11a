"""Small test helpers: an event log, a wait for other threads, and rule files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ..rules import RuleSet


class Notebook:
    """Event receiver that records the kinds of events and their own fields."""

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[Any, ...]]] = []

    def tell(self, kind: Any, *fields: Any) -> None:
        """Record an event."""
        self.events.append((kind.kind, fields))

    def kinds(self) -> list[str]:
        """Return the kinds of events, in order."""
        return [kind for kind, _ in self.events]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition holds, or raise AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not become true within {seconds:g} seconds"
        time.sleep(0.001)


class RuleFolder:
    """Folder of rule files, named and ordered `rule-1`, `rule-2` and so on.

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
        """Write a rule file.

        `action` is the text of `[action]`, `more` is additional text of `[rule]`.
        """
        self.count += 1
        text = f'[rule]\nid = "rule-{self.count}"\ntrigger = "{trigger}"\n{more}\n'
        text += f"[condition]\nexpression = '''{condition}'''\n[action]\n{action}\n"
        (self.path / f"{self.count:02}.toml").write_text(text)
        return self

    def load(self) -> RuleSet:
        """Return the rules, or raise an error if one is invalid."""
        return RuleSet.load(self.path, strict=True)
