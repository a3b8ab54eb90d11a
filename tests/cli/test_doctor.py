"""`flyball doctor`: as a person types it; and each of its checks fails when what it looks at is broken."""

import json
import platform
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flyball import doctor
from flyball.doctor import Check, checks
from flyball.governor.active_rules import ActiveRules
from flyball.progress import Deliver, Notice, Order, Point
from flyball.request import Purpose
from flyball.rules import Trigger, engine, ruleset
from flyball.rules.actions import ACTIONS, Action
from flyball.rules.orders import Notices
from flyball.rules.view import View
from flyball.store import Start

AGENT, GOVERN = "in an agent", "in govern"


Typed = Callable[..., subprocess.CompletedProcess[str]]


def failing(word: str) -> set[str]:
    """Of the checks whose names begin with this word, those that fail."""
    return {check.name for check in checks() if check.name.startswith(word) and check.find_errors()}


def hooks_of(trigger: Trigger) -> set[str]:
    doors = [AGENT] if trigger is Trigger.STALLED else [AGENT, GOVERN]
    return {f"hook {trigger.value} {door}" for door in doors}


def test_all_is_well_here_and_nothing_is_left_behind(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    done = typed("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = done.stdout.splitlines()
    names = {line[5:].split(":")[0] for line in lines}
    assert last.startswith(f"{len(lines)} of {len(lines)} ")
    assert {line[:5] for line in lines} == {"ok   ", "none "}
    assert names >= {f"python {platform.python_version()}", "extra cli", "extra mcp", "key of openai", "toolbox shell"}
    assert names >= {name for trigger in Trigger for name in hooks_of(trigger)}
    assert names >= {f"action {type_} {door}" for type_ in ACTIONS for door in (AGENT, GOVERN)}
    assert names >= {f"notice {at.value} {door}" for at in Deliver for door in (AGENT, GOVERN)}
    assert names >= {f"notice at turn 8 of 10 {door}" for door in (AGENT, GOVERN)}
    assert names >= {"settings of this place", "core rules load", "core rules pass their own tests"}
    assert "ok   tools of an MCP server" in lines
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A doctor that only looks at the settings and the rules: a server is started in one test, and that is enough."""
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
    assert last.startswith(f"{len(checks()) + 1} of {len(checks()) + 2} ")


@pytest.mark.usefixtures("few")
def test_what_is_broken_is_one_line_and_the_exit_code_is_1(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(self: Notices, purpose: Purpose) -> tuple[Notice, ...]:
        return ()

    monkeypatch.setattr(Notices, "select_due", nothing)
    done = typed("doctor")
    *failed, _ = [line for line in done.stdout.splitlines() if not line.startswith(("ok   ", "none "))]
    assert done.returncode == 1
    assert [line.split(":")[0] for line in failed] == [
        "FAIL action notify_self in an agent",
        "FAIL notice turn_start in an agent",
        "FAIL notice after_tool in an agent",
        "FAIL notice immediate in an agent",
        "FAIL notice at turn 8 of 10 in an agent",
    ]
    assert "[2]" in failed[0], "what should have been seen"


def test_a_check_that_raises_fails_with_the_reason() -> None:
    def look() -> list[str]:
        raise OSError("the disk is gone")

    assert Check("disk", look).find_errors() == ("OSError: the disk is gone",)


@pytest.mark.parametrize("trigger", Trigger)
def test_a_hook_that_is_not_wired_is_found(trigger: Trigger, monkeypatch: pytest.MonkeyPatch) -> None:
    triggers = engine._TRIGGERS  # pyright: ignore[reportPrivateUsage]
    after, listen = engine._find_outcome_trigger, engine.RuleEngine._run_event_rules  # pyright: ignore[reportPrivateUsage]

    def deaf(about: object) -> Trigger | None:
        return None if after(about) is trigger else after(about)

    def silent(self: engine.RuleEngine, *_: object) -> list[Order]:
        return []

    wired: Mapping[Point, Trigger] = {point: one for point, one in triggers.items() if one is not trigger}
    monkeypatch.setattr(engine, "_TRIGGERS", wired)
    monkeypatch.setattr(engine, "_find_outcome_trigger", deaf)
    monkeypatch.setattr(engine.RuleEngine, "_run_event_rules", silent if trigger is Trigger.EVENT else listen)
    assert failing(f"hook {trigger.value} ") == hooks_of(trigger)
    assert failing("hook on_turn") == (hooks_of(trigger) if trigger.value.startswith("on_turn") else set())


@pytest.mark.parametrize("type_", ACTIONS)
def test_an_action_that_does_nothing_is_found(type_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(self: Action, view: View, rule: str) -> list[Order]:
        return []

    monkeypatch.setattr(ACTIONS[type_], "build_orders", idle)
    assert failing(f"action {type_} ") == {f"action {type_} {door}" for door in (AGENT, GOVERN)}
    assert failing("action use_model") == (failing(f"action {type_} ") if type_ == "use_model" else set())


def test_an_action_that_nobody_can_prove_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACTIONS, "new", ACTIONS["log"])  # pyright: ignore[reportArgumentType]
    assert failing("action new") == {f"action new {door}" for door in (AGENT, GOVERN)}


def test_notices_that_come_at_the_wrong_time_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(self: Notices, purpose: Purpose) -> tuple[Notice, ...]:
        return tuple(self.pending)

    def again(self: Notices, notices: Sequence[Notice]) -> None:
        """They were seen, and come again."""

    def none(self: ActiveRules, *, grace: bool) -> tuple[str, ...]:
        return ()

    with monkeypatch.context() as patch:
        patch.setattr(Notices, "select_due", everything)
        assert failing("notice") == set()
        patch.setattr(Notices, "mark_delivered", again)
        at = ("turn_start", "after_tool", "at turn 8 of 10")
        assert failing("notice") == {f"notice {one} {AGENT}" for one in at}
    monkeypatch.setattr(ActiveRules, "pop_notices", none)
    assert failing("notice") == {f"notice {one} {GOVERN}" for one in ("immediate", *at)}


def test_core_rules_that_are_not_there_or_wrong_are_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (Path(ruleset.__file__).parent / "core" / "last_turn.toml").read_text()
    (tmp_path / "last_turn.toml").write_text(text.replace("remaining == 0", "remaining == 1"))
    (tmp_path / "cost_budget.toml").write_text("[rule\n")
    core: Any = ruleset.RuleSet.load(tmp_path)
    monkeypatch.setattr(ruleset, "_plain_core", lambda: core)
    loads, passes = (check.find_errors() for check in checks() if check.name.startswith("core rules"))
    assert "cost_budget.toml:1" in loads[0]
    assert any("cost-budget-warning" in one for one in loads)
    assert not any("last-turn-warning" in one for one in loads)
    assert "last-turn-warning" in passes[0]


@pytest.mark.usefixtures("few")
def test_the_store_of_this_place_is_told(typed: Typed, tmp_path: Path, stock: Any) -> None:
    def line() -> str:
        return next(line for line in typed("doctor").stdout.splitlines() if line[5:].startswith("store"))

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
