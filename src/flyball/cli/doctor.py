"""`flyball doctor`: proof that the rules of this installation work, and that the settings of this place can be used."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from ..registry import IterationBudgetRegistry
from ..rules import RuleSet
from .limits import wrong_settings
from .line import say


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Prove that every hook fires, every action acts and a notice reaches a model, in this installation.

    Small runs with a scripted model, offline. Also checked: the core rules, and the environment and the nearest
    flyball.toml. Exits with 1 if anything fails.
    """
    from ..doctor import Check, checks

    results = [(check.name, check.wrong()) for check in (Check("settings of this place", _settings), *checks())]
    passed = sum(not wrong for _, wrong in results)
    if as_json:
        records = [{"name": name, "ok": not wrong, "wrong": wrong} for name, wrong in results]
        typer.echo(json.dumps({"ok": passed == len(results), "checks": records}, indent=2))
    else:
        for name, wrong in results:
            say(f"FAIL {name}: {'; '.join(wrong)}" if wrong else f"ok   {name}")
        say(f"{passed} of {len(results)} checks passed.")
    if passed < len(results):
        raise typer.Exit(1)


def _settings() -> list[str]:
    """What cannot be used of the settings that a program started here would have."""
    registry = IterationBudgetRegistry()
    return [str(error) for error in (*wrong_settings(registry), *RuleSet.core(registry.settings).problems)]
