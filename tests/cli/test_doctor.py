"""`flyball doctor`: as a person types it; and each of its checks fails when what it looks at is broken."""

import json
import platform
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flyball import doctor
from flyball.doctor import Check, Hint, installation_checks
from flyball.rules import ruleset
from flyball.store import Start

Typed = Callable[..., subprocess.CompletedProcess[str]]


def test_all_is_well_here_and_nothing_is_left_behind(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = typed("doctor", "--verbose")
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    names = {line[5:].split(":")[0] for line in lines}
    passed, missing = (sum(line.startswith(status) for line in lines) for status in ("ok ", "none "))
    assert last == f"{passed} checks passed, {missing} optional parts missing."
    [short] = typed("doctor").stdout.splitlines()
    assert short == f"{passed} checks passed, {missing} optional parts missing; --verbose lists all."
    assert {line[:5] for line in lines} == {"ok   ", "none "}
    assert names >= {f"python {platform.python_version()}", "extra cli", "extra mcp", "key of openai", "toolbox shell"}
    assert names >= {"settings of this place", "core rules load", "core rules pass their own tests"}
    assert "ok   tools of an MCP server" in lines
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the checks of the installation: a server is started in one test, and that is enough."""
    monkeypatch.setattr(doctor, "installation_checks", list[Check])


@pytest.mark.usefixtures("few")
def test_a_wrong_setting_is_a_failure_of_its_own(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 'many'\n[repetition]\nsame = 1\n")
    done = typed("doctor", "--json")
    record = json.loads(done.stdout)
    assert (done.returncode, done.stderr, record["ok"]) == (1, "", False)
    [failed] = [check for check in record["checks"] if not check["ok"]]
    turns, same = failed.pop("wrong")
    assert failed == {"name": "settings of this place", "ok": False, "hints": []}
    assert turns.startswith("max_turns (flyball.toml:1): ")
    assert same.startswith("repetition.same (flyball.toml:3): ")


@pytest.mark.usefixtures("few")
def test_a_settings_file_that_cannot_be_read_breaks_no_other_check(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_bytes(b"max_turns 9\n")
    done = typed("doctor")
    failed, last = [line for line in done.stdout.splitlines() if not line.startswith(("ok   ", "none "))]
    assert (done.returncode, done.stderr) == (1, "")
    assert failed.startswith("FAIL settings of this place: ")
    assert "flyball.toml:1: " in failed
    assert last.startswith("1 check failed, ")


def test_what_is_broken_is_one_line_and_the_exit_code_is_1(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installation_checks", lambda: [Check("disk", lambda: ["full", Hint("buy one")])])
    done = typed("doctor")
    failed, *_, last = done.stdout.splitlines()
    assert (done.returncode, failed) == (1, "FAIL disk: full; buy one")
    assert last.startswith("1 check failed, ")


def test_a_check_that_raises_fails_with_the_reason() -> None:
    def look() -> list[str]:
        raise OSError("the disk is gone")

    assert Check("disk", look).find_errors() == ("OSError: the disk is gone",)


def test_core_rules_that_are_not_there_or_wrong_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (Path(ruleset.__file__).parent / "core" / "last_turn.toml").read_text()
    (tmp_path / "last_turn.toml").write_text(text.replace("remaining == 0", "remaining == 1"))
    (tmp_path / "cost_budget.toml").write_text("[rule\n")
    core: Any = ruleset.RuleSet.load(tmp_path)
    monkeypatch.setattr(ruleset, "_plain_core", lambda: core)
    loads, passes = (check.find_errors() for check in installation_checks() if check.name.startswith("core rules"))
    assert "cost_budget.toml:1" in loads[0]
    assert any("cost-budget-warning" in one for one in loads)
    assert not any("last-turn-warning" in one for one in loads)
    assert "last-turn-warning" in passes[0]


@pytest.mark.usefixtures("few")
def test_the_store_of_this_place_is_told(typed: Typed, tmp_path: Path, stock: Any) -> None:
    def line() -> str:
        return next(line for line in typed("doctor", "--verbose").stdout.splitlines() if line[5:].startswith("store"))

    assert line().startswith(f"none store {stock.path}: ")
    with stock.open() as store:
        store.runs.start("aaaa1111", Start(at=0.0))
    told = line()
    assert told.startswith(f"ok   store {stock.path} (1 ")
    with closing(sqlite3.connect(stock.path, isolation_level=None)) as other:
        (tmp_path / "flyball.toml").write_text(f'store = "sqlite:///{stock.path}?busy_seconds=0.1"\n')
        other.execute("BEGIN IMMEDIATE")
        assert line().startswith(f"FAIL store: {stock.path}: ")
    (tmp_path / "flyball.toml").write_text('store = "none"\n')
    assert line().startswith("none store: none (flyball.toml:1): ")
    (tmp_path / "flyball.toml").write_text('store = "sqlite:///flyball.toml"\n')
    assert line().startswith(f"FAIL store: {tmp_path / 'flyball.toml'}: ")
