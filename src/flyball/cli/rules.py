"""`flyball rules`: list, check, test and explain rule files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from ..errors import ConfigError, TomlError, nearest
from ..rules import RuleSet
from ..rules.rule import Rule
from ..rules.trial import failures, tried
from ..settings import Settings

app = typer.Typer(no_args_is_help=True, help="List, check, test and explain rule files.", rich_markup_mode=None)

Paths = Annotated[list[Path] | None, typer.Argument(help="Rule files, or folders of them.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


@app.command("list")
def list_(paths: Paths = None, as_json: AsJson = False) -> None:
    """List the rules that an agent here would have: those of the files, and the core rules."""
    rules = _loaded(paths or [])
    if as_json:
        _print({"rules": [_record(rule) for rule in rules], "problems": [str(error) for error in rules.problems]})
    else:
        width = max(len(rule.id) for rule in rules)
        for rule in rules:
            state = "core" if rule.core else "on" if rule.enabled else "off"
            typer.echo(f"{rule.id:<{width}}  {rule.trigger:<17} {rule.priority:>4}  {state:<4}  {rule.description}")
    _end(rules.problems, quiet=as_json)


@app.command()
def check(paths: Paths = None, as_json: AsJson = False) -> None:
    """Check rule files: every mistake with its file and line. Exits with 1 if there is one."""
    rules = _loaded(paths or [])
    if as_json:
        _print({"rules": [rule.id for rule in rules], "problems": [str(error) for error in rules.problems]})
    elif not rules.problems:
        typer.echo(f"{len(rules)} rules are right.")
    _end(rules.problems, quiet=as_json)


@app.command("test")
def run_tests(paths: Paths = None, as_json: AsJson = False) -> None:
    """Run the [[test]] tables of rules; without files, those of the core rules."""
    rules = _loaded(paths or [])
    failed = [failure for rule in rules for failure in failures(rule)]
    count = sum(len(rule.tests) for rule in rules)
    if as_json:
        problems = [str(error) for error in rules.problems]
        _print({"tests": count, "failed": failed, "problems": problems})
    else:
        for failure in failed:
            typer.echo(failure)
        typer.echo(f"{count - len(failed)} of {count} tests passed.")
    _end(rules.problems, quiet=as_json)
    if failed:
        raise typer.Exit(1)


@app.command()
def explain(
    id_: Annotated[str, typer.Argument(metavar="ID", help="The rule; `all` for every one.")],
    context: Annotated[Path, typer.Option("--context", help="What the rules see: a TOML or JSON file.")],
    paths: Annotated[list[Path] | None, typer.Option("--rules", help="Rule files, or folders of them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell whether a rule would fire with a context, why, and what it would do."""
    rules = _loaded(paths or [])
    chosen = [rule for rule in rules if id_ in ("all", rule.id)]
    if not chosen:
        near = nearest(id_, [rule.id for rule in rules]) or [rule.id for rule in rules]
        raise ConfigError("rules explain", id_, f"the id of a rule, such as {' or '.join(near)}")
    seen = _context(context)
    found = [(rule, tried(rule, seen)) for rule in chosen]
    if as_json:
        _print({"findings": [finding.to_dict() for _, finding in found]})
    else:
        for rule, finding in found:
            condition = "always" if rule.condition is None else rule.condition.source.text
            typer.echo(f"{rule.id}: {'fires' if finding.fires else 'does not fire'} ({rule.trigger}, {condition})")
            if finding.reason:
                typer.echo(f"  because {finding.reason}")
            for order in finding.orders:
                typer.echo(f"  {order}")
    _end(rules.problems, quiet=as_json)


def _loaded(paths: list[Path]) -> RuleSet:
    settings = Settings.load()
    return RuleSet.load(*paths, settings=settings).with_core(settings)


def _context(path: Path) -> dict[str, Any]:
    """What somebody wrote down; with or without the word `context` around it."""
    from ..toml import TomlDocument

    if path.suffix == ".json":
        try:
            data: Any = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise TomlError(str(path), str(error), "JSON") from None
    else:
        data = TomlDocument.read(path).data
    if not isinstance(data, dict):
        raise TomlError(str(path), data, "a table of what rules see")
    table = cast("dict[str, Any]", data)
    inner = table.get("context", table)
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else table


def _record(rule: Rule) -> dict[str, Any]:
    names = ("id", "trigger", "name", "description", "version", "priority", "enabled", "core", "fire", "source")
    return {name: getattr(rule, name) for name in names} | {"action": rule.action.type, "params": dict(rule.params)}


def _print(record: dict[str, Any]) -> None:
    typer.echo(json.dumps(record, indent=2, default=str))


def _end(problems: tuple[ConfigError, ...], *, quiet: bool) -> None:
    for problem in problems:
        if not quiet:
            typer.echo(f"flyball: {problem}", err=True)
    if problems:
        raise typer.Exit(1)
