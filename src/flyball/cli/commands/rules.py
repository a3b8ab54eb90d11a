"""`flyball rules`: list, check, test and explain rule files."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..._internal.text import pluralize
from ...errors import ConfigError, TomlError, UsageError, format_for_command, suggest_names
from ...rules import RuleSet
from ...rules.rule import Rule
from ...rules.trial import TrialFinding, failures, try_rule
from ...settings import Settings
from ..output import NARROW_COLUMNS, print_line, print_table

app = typer.Typer(no_args_is_help=True, help="List, check, test and explain rule files.", rich_markup_mode=None)

Paths = Annotated[
    list[Path] | None, typer.Argument(metavar="PATH", help="Rule files, or folders of them.", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


_COLUMNS = ("rule", "trigger", "priority", "state", "description")


@app.command("list")
def list_(paths: Paths = None, as_json: AsJson = False) -> None:
    """List the rules of the files and the core rules."""
    rules = _load_rules(paths)
    if as_json:
        _print_json({"rules": [_build_record(rule) for rule in rules]}, rules.problems)
    else:
        rows = [(rule.id, rule.trigger, str(rule.priority), _show_state(rule), rule.description) for rule in rules]
        print_table(
            _COLUMNS,
            rows,
            right=("priority",),
            columns_for=dict.fromkeys(("trigger", "priority", "state"), NARROW_COLUMNS),
            wrapped=("description",),
        )
    _exit_on_problems(rules.problems, already_printed=as_json)


def _show_state(rule: Rule) -> str:
    return "core" if rule.core else "on" if rule.enabled else "off"


@app.command()
def check(
    paths: Paths = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for a warning too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check rule files and print every mistake and warning.

    Exits with 1 if there is a mistake. A rule that a core rule replaces is a warning. Without files, the core rules and
    their settings here are checked.
    """
    own, rules = _load_own_rules(paths)
    if as_json:
        warnings = [str(warning) for warning in rules.warnings]
        _print_json({"rules": [rule.id for rule in own], "warnings": warnings}, rules.problems)
    elif not rules.problems:
        print_line(f"{pluralize(len(own), 'rule')} {'is' if len(own) == 1 else 'are'} valid.")
    if not as_json:
        _print_problems(rules.problems)
        _print_problems(rules.warnings, "warning: ")
    if rules.problems or (strict and rules.warnings):
        raise typer.Exit(1)


@app.command("test")
def run_tests(paths: Paths = None, as_json: AsJson = False) -> None:
    """Run the [[test]] tables of rule files.

    Without files, those of the core rules are run. Exits with 1 if a test fails or a file has a mistake.
    """
    own, rules = _load_own_rules(paths)
    failed = [failure for rule in own for failure in failures(rule)]
    count = sum(len(rule.tests) for rule in own)
    if as_json:
        _print_json({"tests": count, "failed": failed}, rules.problems)
    else:
        for failure in failed:
            print_line(failure)
        print_line(f"{count - len(failed)} of {count} tests passed.")
    _exit_on_problems(rules.problems, already_printed=as_json)
    if failed:
        raise typer.Exit(1)


@app.command()
def explain(
    id_: Annotated[str, typer.Argument(metavar="ID", help="Id of the rule; all is every rule.")],
    context: Annotated[
        Path,
        typer.Option("--context", metavar="FILE", help="Context as in a [[test]], a TOML or .json file."),
    ],
    paths: Annotated[
        list[Path] | None,
        typer.Option("--rules", metavar="PATH", help="Rule file, or a folder of them; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether a rule fires, and what it does.

    Core rules need no --rules. The rule is evaluated as if it had never fired before.
    """
    rules = _load_rules(paths)
    chosen = [rule for rule in rules if id_ in ("all", rule.id)]
    if not chosen:
        _print_problems(rules.problems)  # one of them may explain why the rule is missing
        suggestions = suggest_names(id_, [rule.id for rule in rules]) or [rule.id for rule in rules]
        raise ConfigError("rules explain", id_, f"the id of a rule, such as {' or '.join(suggestions)}")
    data = _read_context(context)
    findings = [(rule, _explain_rule(rule, data)) for rule in chosen]
    if as_json:
        records = [
            {"trigger": rule.trigger, "condition": _format_condition(rule)} | finding.to_dict()
            for rule, finding in findings
        ]
        _print_json({"findings": records}, rules.problems)
    else:
        for rule, finding in findings:
            _print_finding(rule, finding)
    _exit_on_problems(rules.problems, already_printed=as_json)


def _print_finding(rule: Rule, finding: TrialFinding) -> None:
    print_line(
        f"{rule.id}: {'fires' if finding.fires else 'does not fire'} ({rule.trigger}, {_format_condition(rule)})"
    )
    if finding.reason:
        print_line(f"  {'but' if finding.fires else 'because'} {finding.reason}")
    for order in finding.to_dict()["orders"]:
        name = order.pop("order")
        arguments = ", ".join(f"{key}={value!r}" for key, value in order.items() if key != "by")
        print_line(f"  {name}({arguments})")


def _explain_rule(rule: Rule, context: dict[str, Any]) -> TrialFinding:
    """Return what the rule would do, or why it would not fire."""
    if not rule.enabled:
        return TrialFinding(rule.id, False, "it is disabled")
    finding = try_rule(rule, context)
    if finding.fires or finding.reason:
        return finding
    return replace(finding, reason="its condition is false")


def _format_condition(rule: Rule) -> str:
    return "always" if rule.condition is None else " ".join(rule.condition.source.text.split())


def _load_rules(paths: list[Path] | None) -> RuleSet:
    """Load the rules that an agent started here would have."""
    return _load_own_rules(paths)[1]


def _load_own_rules(paths: list[Path] | None) -> tuple[RuleSet, RuleSet]:
    """Load the rules of the files, and those together with the core rules; without files, these twice."""
    settings = Settings.load()
    own = RuleSet.load(*(paths or []), settings=settings)
    rules = own.with_core(settings)
    return own if paths else rules, rules


def _read_context(path: Path) -> dict[str, Any]:
    """Read a context file, with or without a `context` table around it."""
    from ..._internal.toml import TomlDocument

    data: Any = _read_json(path) if path.suffix == ".json" else TomlDocument.read(path).data
    if not isinstance(data, dict):
        raise TomlError(str(path), data, "a table with the context of a rule")
    table = cast("dict[str, Any]", data)
    inner = table.get("context", table)
    if not isinstance(inner, dict):
        raise TomlError(f"{path}, context", inner, "a table with the context of a rule")
    return cast("dict[str, Any]", inner)


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"the context {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"the context {path} is not valid JSON: {error}") from None


def _build_record(rule: Rule) -> dict[str, Any]:
    names = (
        "id", "trigger", "name", "description", "version", "priority", "enabled", "core", "fire", "cooldown_turns",
        "event", "source",
    )  # fmt: skip
    record = {name: getattr(rule, name) for name in names}
    return record | {"condition": _format_condition(rule), "action": rule.action.type, "params": dict(rule.params)}


def _print_json(record: dict[str, Any], problems: Iterable[ConfigError]) -> None:
    typer.echo(json.dumps(record | {"problems": [str(error) for error in problems]}, indent=2, default=str))


def _print_problems(problems: Iterable[ConfigError], prefix: str = "") -> None:
    for problem in problems:
        print_line(f"{prefix}{format_for_command(problem)}", head="flyball: ", err=True)


def _exit_on_problems(problems: tuple[ConfigError, ...], *, already_printed: bool) -> None:
    if not already_printed:
        _print_problems(problems)
    if problems:
        raise typer.Exit(1)
