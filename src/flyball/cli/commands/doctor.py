"""`flyball doctor`: proof that this installation works, and that the settings of this place can be used."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ..output import put, say
from .stock import store_check

if TYPE_CHECKING:
    from ...doctor import Check


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Prove that this installation works: Python, extras, models, tools, and rules end to end.

    Offline, with scripted models: tools are called, an MCP server is started, every hook must fire, every action act,
    and a notice reach a model. Also checked: the environment and the nearest flyball.toml. Exits with 1 if anything
    fails; an extra or a key that is not there is only told.
    """
    results = [_Finding(check) for check in _checks()]
    passed = sum(not finding.wrong for finding in results)
    if as_json:
        put(json.dumps({"ok": passed == len(results), "checks": [one.record for one in results]}, indent=2))
    else:
        for finding in results:
            say(finding.line)
        say(f"{passed} of {len(results)} checks passed.")
    if passed < len(results):
        raise typer.Exit(1)


class _Finding:
    """What a check found."""

    def __init__(self, check: Check) -> None:
        from ...doctor import Hint

        found = check.found()
        self.name = check.name
        self.wrong = [one for one in found if not isinstance(one, Hint)]
        self.hints = [str(one) for one in found if isinstance(one, Hint)]

    @property
    def record(self) -> dict[str, object]:
        """It in JSON types."""
        return {"name": self.name, "ok": not self.wrong, "wrong": self.wrong, "hints": self.hints}

    @property
    def line(self) -> str:
        """It for a person."""
        word = "FAIL" if self.wrong else "none" if self.hints else "ok"
        told = "; ".join([*self.wrong, *self.hints])
        return f"{word:4} {self.name}: {told}" if told else f"{word:4} {self.name}"


def _checks() -> list[Check]:
    from ...doctor import Check, checks, installation_checks

    return [*installation_checks(), Check("settings of this place", _settings), store_check(), *checks()]


def _settings() -> list[str]:
    """What cannot be used of the settings that a program started here would have."""
    from ...budget.registry import IterationBudgetRegistry
    from ...rules import RuleSet
    from .limits import wrong_settings

    registry = IterationBudgetRegistry()
    return [str(error) for error in (*wrong_settings(registry), *RuleSet.core(registry.settings).problems)]
