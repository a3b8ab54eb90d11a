"""`flyball limits`: every budget, its effective ceiling, and where that came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from ...budget.model_limits import FIELDS, TABLE, iter_model_settings
from ...budget.registry import BudgetSpec, IterationBudgetRegistry, Resolution
from ...errors import SettingError, format_for_command, suggest_names
from ...settings import Setting, Settings, variable_for
from ...steadiness import SETTINGS, Thresholds
from ...unit import Unit
from ..output import print_table

_HEADERS = ("budget", "ceiling", "from", "allowed", "setting")
_COLUMNS_FOR = {"allowed": 104, "setting": 72}
_INVALID = "invalid"
_CLI_SETTINGS = ("model", "store")
"""Settings that only the command line reads, and not per mode."""


def limits(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Show every budget, its ceiling here, and the source of the ceiling.

    Reads the environment and the nearest flyball.toml, as a program started here would. Exits with 1 if a setting is
    wrong.
    """
    registry = IterationBudgetRegistry()
    rows = [(spec, _resolve(registry, spec)) for spec in registry]
    model_rows = _list_model_rows(registry.settings)
    unread = _find_unread(registry)
    if as_json:
        record = {
            "limits": [_build_record(*row) for row in rows],
            "by_model": [_build_model_record(row) for row in model_rows],
            "unread": [_format_unread(*entry) for entry in unread],
        }
        typer.echo(json.dumps(record, indent=2))
    else:
        _print_table(rows, model_rows)
        for entry in unread:
            typer.echo(_format_unread(*entry), err=True)
    errors = find_setting_errors(registry)
    for error in errors:
        typer.echo(f"flyball: {format_for_command(error)}", err=True)
    if errors:
        raise typer.Exit(1)


def find_setting_errors(registry: IterationBudgetRegistry) -> list[SettingError]:
    """Return errors in the settings, for all modes and for single ones."""
    from ...models.catalog import find_price_errors

    resolutions = [_resolve(registry, spec) for spec in registry]
    errors = [error for error in resolutions if isinstance(error, SettingError)]
    errors += _find_threshold_errors(registry.settings)
    errors += find_price_errors(registry.settings)
    errors += _find_model_errors(registry.settings)
    errors += _find_mode_errors(registry)
    return list({str(error): error for error in errors}.values())  # several budgets may read one setting


def _find_model_errors(settings: Settings) -> list[SettingError]:
    try:
        list(iter_model_settings(settings))
    except SettingError as error:
        return [error]
    return []


@dataclass(frozen=True, slots=True)
class _ModelRow:
    """Limit of one model, from the settings."""

    name: str
    setting: Setting
    unit: Unit
    amount: int | float


def _list_model_rows(settings: Settings) -> list[_ModelRow]:
    """Return the limits per model. Empty if one of them is wrong: the error is shown instead."""
    if _find_model_errors(settings):
        return []
    return [
        _ModelRow(f"{field} of {pattern}", setting, FIELDS[field][1], amount)
        for pattern, field, setting, amount in iter_model_settings(settings)
    ]


def _resolve(registry: IterationBudgetRegistry, spec: BudgetSpec) -> Resolution | SettingError:
    # Errors are values here: one wrong setting must not hide the other budgets.
    try:
        return registry.explain(spec.name)
    except SettingError as error:
        return error


def _find_unread(registry: IterationBudgetRegistry) -> list[tuple[Setting, list[str]]]:
    """Return settings that nothing reads, with the likely key."""
    budgets = [spec.setting for spec in registry if spec.setting]
    keys, clamps = (
        [*budgets, *SETTINGS, *_list_delegation_settings(), *_list_chain_settings()],
        [f"clamp.{key}" for key in budgets],
    )
    variables = [variable_for(key) for key in (*keys, *clamps)]
    unread: list[tuple[Setting, list[str]]] = []
    for setting in registry.settings:
        mode, key = _split_mode(setting.key)
        if mode is None and key.startswith(("prices", TABLE)):
            continue  # checked by find_setting_errors
        if key.startswith("rules."):
            suggestion = _suggest_rule_key(key)
            if suggestion is not None:
                unread.append((setting, [f"mode.{mode}.{suggestion}" if mode else suggestion]))
        elif mode is None and key not in (*keys, *clamps, *_CLI_SETTINGS):
            unread.append((setting, suggest_names(key, (*keys, *clamps, *_CLI_SETTINGS, *variables))[:1]))
        elif mode is not None and key in clamps:  # clamps apply to all modes, so not here
            unread.append((setting, [key]))
        elif mode is not None and key not in keys:
            unread.append((setting, [f"mode.{mode}.{near}" for near in suggest_names(key, keys)[:1]]))
    return unread


def _list_delegation_settings() -> Sequence[str]:
    from ...agent.delegation import SETTINGS as DELEGATION  # lazy: imports pydantic, which only this command needs

    return DELEGATION


def _list_chain_settings() -> Sequence[str]:
    from ...chain.chain import SETTINGS as CHAIN

    return CHAIN


def _suggest_rule_key(key: str) -> str | None:
    """Return the likely key of a misspelled core rule setting.

    None if the setting is read, for example by a rule of the user.
    """
    from ...rules import RuleSet

    known = {rule.id: ("enabled", *rule.params) for rule in RuleSet.core()}
    _, rule, *names = key.split(".")
    if rule not in known or names in [[name] for name in known[rule]]:
        return None
    suggestions = suggest_names(".".join(names), known[rule]) or [*known[rule]][1:2] or ["enabled"]
    return f"rules.{rule}.{suggestions[0]}"


def _find_mode_errors(registry: IterationBudgetRegistry) -> list[SettingError]:
    """Return errors in settings that apply to one mode only."""
    split_keys = [_split_mode(setting.key) for setting in registry.settings]
    errors: list[SettingError] = []
    for mode in dict.fromkeys(mode for mode, _ in split_keys if mode is not None):
        mode_keys = [key for its_mode, key in split_keys if its_mode == mode]
        in_mode = IterationBudgetRegistry(settings=registry.settings.for_mode(mode))
        resolutions = [_resolve(in_mode, spec) for spec in in_mode if spec.setting in mode_keys]
        errors += [error for error in resolutions if isinstance(error, SettingError)]
        errors += _find_threshold_errors(in_mode.settings) if set(mode_keys) & set(SETTINGS) else []
    return errors


def _find_threshold_errors(settings: Settings) -> list[SettingError]:
    try:
        Thresholds.of(settings)
    except SettingError as error:
        return [error]
    return []


def _split_mode(key: str) -> tuple[str | None, str]:
    """Split `mode.pipeline.max_turns` into mode and key; the mode is None without prefix."""
    parts = key.split(".", 2)
    return (parts[1], parts[2]) if parts[0] == "mode" and len(parts) > 2 else (None, key)


def _format_unread(setting: Setting, suggestions: list[str]) -> str:
    question = f"; did you mean {suggestions[0]}?" if suggestions else ""
    return f"{setting.key} ({setting.source}): this setting is not used{question}"


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


def _build_model_record(row: _ModelRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "unit": row.unit,
        "setting": row.setting.key,
        "ceiling": row.unit.outer(row.amount),
        "source": row.setting.source,
    }


def _print_table(rows: list[tuple[BudgetSpec, Resolution | SettingError]], model_rows: list[_ModelRow]) -> None:
    table: list[tuple[str, ...]] = []
    for spec, resolution in rows:
        show = spec.unit.show
        if isinstance(resolution, SettingError):
            cells = (_INVALID, resolution.source, spec.bounds.show(spec.unit))
        else:
            clamped = f", clamped from {show(resolution.requested)}" if resolution.is_clamped else ""
            cells = (show(resolution.value), resolution.source + clamped, resolution.bounds.show(spec.unit))
        counted = None if isinstance(resolution, SettingError) else resolution.setting
        table.append((spec.name, *cells, counted or spec.setting or ""))
    for row in model_rows:
        table.append((row.name, row.unit.show(row.amount), row.setting.source, "", row.setting.key))
    print_table(
        _HEADERS, table, right=("ceiling",), columns_for=_COLUMNS_FOR, wrapped=("from",), styles={_INVALID: "red"}
    )
