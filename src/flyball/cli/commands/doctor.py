"""`flyball doctor`: check the installation, the settings and the store."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ..._internal.text import pluralize
from ...history.archive import Archive
from ...settings import Settings
from ..output import USER_ERRORS, print_line, print_raw
from ..store_option import StoreLocation

if TYPE_CHECKING:
    from ...doctor import Check
    from ...store import Store

_UNITS = ("bytes", "kB", "MB", "GB")


def doctor(
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Print every check.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of lines.")] = False,
) -> None:
    """Test this installation: Python, extras, models, tools, core rules, settings and store.

    Works offline. It calls tools, starts an MCP server, and runs the tests of the core rules. It also checks the
    environment and the nearest flyball.toml. Exits with 1 if a check fails. A missing extra or key is no fault.
    """
    results = [_Finding(check) for check in _list_checks()]
    failed = [finding for finding in results if finding.errors]
    if as_json:
        print_raw(json.dumps({"ok": not failed, "checks": [finding.record for finding in results]}, indent=2))
    else:
        others = [finding for finding in results if not finding.errors] if verbose else []
        for finding in (*failed, *others):
            _print_finding(finding.line)
        _print_finding(_summarize(results, verbose))
    if failed:
        raise typer.Exit(1)


def _summarize(results: Sequence[_Finding], verbose: bool) -> str:
    statuses = Counter(finding.status for finding in results)
    counts = (
        pluralize(statuses["FAIL"], "check") + " failed" if statuses["FAIL"] else "",
        pluralize(statuses["ok"], "check") + " passed",
        pluralize(statuses["none"], "optional part") + " missing" if statuses["none"] else "",
    )
    return ", ".join(filter(None, counts)) + ("." if verbose else "; --verbose lists all.")


def _print_finding(line: str) -> None:
    head = line[:5] if line[:5].rstrip() in ("ok", "none", "FAIL") else ""
    print_line(line[len(head) :], head=head)


class _Finding:
    """Result of one check."""

    def __init__(self, check: Check) -> None:
        from ...doctor import Hint

        findings = check.run()
        self.name = check.name
        self.errors = [finding for finding in findings if not isinstance(finding, Hint)]
        self.hints = [str(finding) for finding in findings if isinstance(finding, Hint)]

    @property
    def record(self) -> dict[str, object]:
        return {"name": self.name, "ok": not self.errors, "wrong": self.errors, "hints": self.hints}

    @property
    def status(self) -> str:
        return "FAIL" if self.errors else "none" if self.hints else "ok"

    @property
    def line(self) -> str:
        details = "; ".join([*self.errors, *self.hints])
        return f"{self.status:4} {self.name}: {details}" if details else f"{self.status:4} {self.name}"


def _list_checks() -> list[Check]:
    from ...doctor import Check, installation_checks

    return [*installation_checks(), Check("settings of this place", _find_setting_errors), build_store_check()]


def _find_setting_errors() -> list[str]:
    """Return errors in the settings that a program started here would read."""
    from ...budget.registry import IterationBudgetRegistry
    from ...rules import RuleSet
    from .limits import find_setting_errors

    registry = IterationBudgetRegistry()
    return [str(error) for error in (*find_setting_errors(registry), *RuleSet.core(registry.settings).problems)]


def build_store_check() -> Check:
    """Build the check that runs can be stored.

    Its name has the path, run count, size and schema version.
    """
    from ...doctor import Check, Hint

    try:
        Settings.load()
    except USER_ERRORS:
        return Check("store", lambda: [Hint("unknown, because the settings cannot be read")])
    try:
        location = StoreLocation.resolve(None)
        if location.is_disabled:
            return Check("store", lambda: [Hint(f"{location.uri} ({location.source}): runs are not stored")])
        if location.path is not None and not location.path.exists():
            return Check(
                f"store {location.name}", lambda: [Hint("it does not exist yet; the first flyball run creates it")]
            )
        with location.open() as store:
            facts = ", ".join(_describe_store(location, store))
            _probe_write(store)
    except USER_ERRORS as error:
        message = str(error)
        return Check("store", lambda: [message])
    return Check(f"store {location.name} ({facts})", tuple[str, ...])


def _describe_store(location: StoreLocation, store: Store) -> list[str]:
    from ...store import SqliteStore

    runs = len(Archive(store, location.name).list_entries())
    facts = [pluralize(runs, "run")]
    if isinstance(store, SqliteStore):
        [version] = store.read(int, "PRAGMA user_version")
        facts += [_format_size(store.path.stat().st_size), f"schema {version}"]
    return facts


def _probe_write(store: Store) -> None:
    """Write something that leaves no trace: acquire a lease and release it."""
    from ...store import Guard

    guard = store.lease.acquire("flyball doctor", "flyball doctor", 60.0)
    if isinstance(guard, Guard):
        store.lease.release(guard)


def _format_size(amount: float) -> str:
    """Format a number of bytes.

    >>> _format_size(999), _format_size(1_480_000)
    ('999 bytes', '1.48 MB')
    """
    unit = 0
    while amount >= 999.5 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1_000, unit + 1
    return f"{amount:.3g} {_UNITS[unit]}" if unit else f"{amount:.0f} {_UNITS[0]}"
