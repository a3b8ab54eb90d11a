"""`flyball limits`: every budget, its effective ceiling, and where that came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from ...budget.registry import BudgetSpec, IterationBudgetRegistry, Resolution
from ...errors import SettingError, suggest_names
from ...settings import Setting, Settings, variable_for
from ...steadiness import SETTINGS, Thresholds

_CLI_SETTINGS = ("model", "store")
"""What only the command line reads, and in no mode."""


def limits(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show every budget, its effective ceiling, and where that came from.

    Reads the environment and the nearest flyball.toml, as a program started here would. Exits with 1 if a setting is
    wrong.
    """
    registry = IterationBudgetRegistry()
    rows = [(spec, _resolve(registry, spec)) for spec in registry]
    unread = _find_unread(registry)
    if as_json:
        record = {
            "limits": [_build_record(*row) for row in rows],
            "unread": [_format_unread(*found) for found in unread],
        }
        typer.echo(json.dumps(record, indent=2))
    else:
        _print_table(rows)
        for found in unread:
            typer.echo(_format_unread(*found), err=True)
    wrong = find_setting_errors(registry)
    for error in wrong:
        typer.echo(f"flyball: {error}", err=True)
    if wrong:
        raise typer.Exit(1)


def find_setting_errors(registry: IterationBudgetRegistry) -> list[SettingError]:
    """What cannot be used of the settings, for every mode and for single ones."""
    from ...models.catalog import find_price_errors

    found = [_resolve(registry, spec) for spec in registry]
    wrong = [error for error in found if isinstance(error, SettingError)]
    return (
        wrong
        + _find_threshold_errors(registry.settings)
        + find_price_errors(registry.settings)
        + _find_mode_errors(registry)
    )


def _resolve(registry: IterationBudgetRegistry, spec: BudgetSpec) -> Resolution | SettingError:
    """One wrong setting must not hide the other budgets."""
    try:
        return registry.explain(spec.name)
    except SettingError as error:
        return error


def _find_unread(registry: IterationBudgetRegistry) -> list[tuple[Setting, list[str]]]:
    """The settings that nobody reads, each with the key it may have been meant for."""
    budgets = [spec.setting for spec in registry if spec.setting]
    keys, clamps = (
        [*budgets, *SETTINGS, *_list_delegation_settings(), *_list_chain_settings()],
        [f"clamp.{key}" for key in budgets],
    )
    variables = [variable_for(key) for key in (*keys, *clamps)]
    unread: list[tuple[Setting, list[str]]] = []
    for setting in registry.settings:
        mode, key = _split_mode(setting.key)
        if mode is None and key.startswith("prices"):
            continue  # each of them is a price, or wrong
        if key.startswith("rules."):
            meant = _suggest_rule_key(key)
            if meant is not None:
                unread.append((setting, [f"mode.{mode}.{meant}" if mode else meant]))
        elif mode is None and key not in (*keys, *clamps, *_CLI_SETTINGS):
            unread.append((setting, suggest_names(key, (*keys, *clamps, *_CLI_SETTINGS, *variables))[:1]))
        elif mode is not None and key in clamps:  # which holds in every mode
            unread.append((setting, [key]))
        elif mode is not None and key not in keys:
            unread.append((setting, [f"mode.{mode}.{near}" for near in suggest_names(key, keys)[:1]]))
    return unread


def _list_delegation_settings() -> Sequence[str]:
    from ...agent.delegation import SETTINGS as DELEGATION  # and with it pydantic: only this command needs it

    return DELEGATION


def _list_chain_settings() -> Sequence[str]:
    from ...chain.chain import SETTINGS as CHAIN

    return CHAIN


def _suggest_rule_key(key: str) -> str | None:
    """What a setting of a core rule may have been meant for; None where somebody reads it, such as a rule of yours."""
    from ...rules import RuleSet

    known = {rule.id: ("enabled", *rule.params) for rule in RuleSet.core()}
    _, rule, *names = key.split(".")
    if rule not in known or names in [[name] for name in known[rule]]:
        return None
    near = suggest_names(".".join(names), known[rule]) or [*known[rule]][1:2] or ["enabled"]
    return f"rules.{rule}.{near[0]}"


def _find_mode_errors(registry: IterationBudgetRegistry) -> list[SettingError]:
    """What cannot be used of what is said for one mode only."""
    read = [_split_mode(setting.key) for setting in registry.settings]
    wrong: list[SettingError] = []
    for mode in dict.fromkeys(mode for mode, _ in read if mode is not None):
        said = [key for its_mode, key in read if its_mode == mode]
        in_mode = IterationBudgetRegistry(settings=registry.settings.for_mode(mode))
        found = [_resolve(in_mode, spec) for spec in in_mode if spec.setting in said]
        wrong += [error for error in found if isinstance(error, SettingError)]
        wrong += _find_threshold_errors(in_mode.settings) if set(said) & set(SETTINGS) else []
    return wrong


def _find_threshold_errors(settings: Settings) -> list[SettingError]:
    try:
        Thresholds.of(settings)
    except SettingError as error:
        return [error]
    return []


def _split_mode(key: str) -> tuple[str | None, str]:
    """`mode.pipeline.max_turns` is `max_turns`, in one mode."""
    parts = key.split(".", 2)
    return (parts[1], parts[2]) if parts[0] == "mode" and len(parts) > 2 else (None, key)


def _format_unread(setting: Setting, suggestions: list[str]) -> str:
    question = f"; did you mean {suggestions[0]}?" if suggestions else ""
    return f"{setting.key} ({setting.source}): nobody reads this setting{question}"


def _build_record(spec: BudgetSpec, resolution: Resolution | SettingError) -> dict[str, Any]:
    declared = {"name": spec.name, "unit": spec.unit, "setting": spec.setting, "default": spec.default}
    if isinstance(resolution, SettingError):
        return {**declared, "error": str(resolution)}
    outer = spec.unit.outer
    return {
        **declared,
        "ceiling": outer(resolution.value),
        "source": resolution.source,
        "min": outer(resolution.bounds.low),
        "max": outer(resolution.bounds.high),
        "clamped_from": outer(resolution.requested) if resolution.is_clamped else None,
        "clamped": resolution.is_clamped,
    }


def _print_table(rows: list[tuple[BudgetSpec, Resolution | SettingError]]) -> None:
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 10_000  # a pipe has no edge to wrap at
    columns = [Column(name, overflow="fold") for name in ("Budget", "Ceiling", "From", "Allowed", "Setting")]
    table = Table(*columns, box=None, pad_edge=False)
    for spec, found in rows:
        show = spec.unit.show
        if isinstance(found, SettingError):
            cells = (Text("wrong", style="red"), found.source, spec.bounds.show(spec.unit))
        else:
            clamped = f", clamped from {show(found.requested)}" if found.is_clamped else ""
            cells = (show(found.value), found.source + clamped, found.bounds.show(spec.unit))
        table.add_row(spec.name, *cells, spec.setting or "")
    console.print(table)
