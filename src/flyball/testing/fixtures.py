"""What tests wait for, and what they write down."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from ..rules import RuleSet


class Notebook:
    """A teller that writes down what it is told: the kinds of events, and their own fields."""

    def __init__(self) -> None:
        self.events: list[tuple[str, tuple[Any, ...]]] = []

    def tell(self, kind: Any, *fields: Any) -> None:
        """Write it down."""
        self.events.append((kind.kind, fields))

    def kinds(self) -> list[str]:
        """The kinds of events, in order."""
        return [kind for kind, _ in self.events]


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for another thread; AssertionError where it does not come in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"it did not happen within {seconds:g} seconds"
        time.sleep(0.001)


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
