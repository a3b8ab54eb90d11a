"""`flyball limits` as a person types it: its output and its exit code."""

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from threading import Timer

import pytest

import flyball

Typed = Callable[..., subprocess.CompletedProcess[str]]


def process(folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    """The command in an installation that has nothing but what is in this path."""
    program = [sys.executable, "-S", "-m", "flyball", "limits"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    return subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


def row(text: str, name: str) -> list[str]:
    """The cells of one line of the table, which stand two or more blanks apart."""
    [line] = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_every_budget_is_shown_with_its_value_and_source(
    typed: Typed, tmp_path: Path, snapshot: Callable[..., None]
) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 99\n[clamp]\nmax_usd = 5\n")
    done = typed("limits", FLYBALL_DELEGATION__MAX_ITERATIONS="9")
    assert (done.returncode, done.stderr) == (0, "")
    turns = row(done.stdout, "conversation_turns")
    assert (turns[1], turns[-1]) == ("50", "max_turns")
    assert "flyball.toml:1" in turns[2]
    assert "99" in turns[2]
    children = row(done.stdout, "child_iterations")
    assert (children[1], "FLYBALL_DELEGATION__MAX_ITERATIONS" in children[2]) == ("9", True)
    cost = row(done.stdout, "cost_usd")
    assert (cost[1], "$0.00 to $5.00" in cost[3], "flyball.toml:3" in cost[3]) == ("$5.00", True, True)
    assert row(done.stdout, "seconds")[1] == "3,600 s"
    snapshot(done.stdout)
    assert len(done.stdout.splitlines()) == 1 + len(list(flyball.IterationBudgetRegistry()))


def test_json_has_the_same_in_numbers(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 99\nmax_usd = 4.3\n[clamp]\nmax_usd = 2\n")
    done = typed("limits", "--json")
    record = json.loads(done.stdout)
    rows = {entry["name"]: entry for entry in record["limits"]}
    assert (done.returncode, record["unread"]) == (0, [])
    assert rows["conversation_turns"] == {
        "name": "conversation_turns",
        "unit": "count",
        "setting": "max_turns",
        "default": 25,
        "ceiling": 50,
        "source": "flyball.toml:1",
        "min": 1,
        "max": 50,
        "clamped": True,
        "clamped_from": 99,
    }
    cost = rows["cost_usd"]
    assert (cost["ceiling"], cost["source"], cost["clamped_from"]) == (2.0, "flyball.toml:2", 4.3)
    assert (cost["min"], cost["max"]) == (0.0, 2.0)
    assert (rows["tokens"]["ceiling"], rows["tokens"]["clamped"]) == (None, False)


def test_a_wrong_setting_is_told_and_does_not_hide_the_others(typed: Typed, snapshot: Callable[..., None]) -> None:
    done = typed("limits", FLYBALL_MAX_TURNS="many")
    assert done.returncode == 1
    assert not row(done.stdout, "conversation_turns")[1].isdigit()
    assert row(done.stdout, "retries")[1] == "10"
    [line] = done.stderr.splitlines()
    assert "FLYBALL_MAX_TURNS" in line
    assert "'many'" in line
    snapshot(line)
    as_json = typed("limits", "--json", FLYBALL_MAX_TURNS="many")
    assert as_json.returncode == 1
    assert "'many'" in json.loads(as_json.stdout)["limits"][0]["error"]


def test_a_setting_that_nobody_reads_is_told_with_what_may_have_been_meant(
    typed: Typed, tmp_path: Path, snapshot: Callable[..., None]
) -> None:
    (tmp_path / "flyball.toml").write_text("max_trun = 9\n")
    done = typed("limits")
    assert done.returncode == 0
    assert done.stderr.startswith("max_trun (flyball.toml:1): ")
    assert "max_turns" in done.stderr
    snapshot(done.stderr)
    assert json.loads(typed("limits", "--json").stdout)["unread"] == [done.stderr.strip()]


def test_a_variable_in_the_wrong_case_is_told(typed: Typed, tmp_path: Path) -> None:
    done = typed("limits", FLYBALL_max_turns="5")
    assert "FLYBALL_MAX_TURNS" in done.stderr


@pytest.mark.parametrize("name", ["[work]", "a[/b]", "x" * 150])
def test_a_folder_of_any_name_is_shown_whole(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    below = tmp_path / name / "below"
    below.mkdir(parents=True)
    (tmp_path / name / "flyball.toml").write_text("max_turns = 9\n")
    monkeypatch.chdir(below)
    done = typed("limits")
    assert f"{tmp_path / name / 'flyball.toml'}:1" in done.stdout


def test_a_narrow_terminal_folds_and_hides_nothing(typed: Typed, tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
    program = [sys.executable, "-m", "flyball", "limits"]
    terminal = {**os.environ, "TERM": "xterm"}
    terminal.pop("COLUMNS", None)
    with subprocess.Popen(program, cwd=tmp_path, env=terminal, stdin=inner, stdout=inner, stderr=inner) as process:
        os.close(inner)
        deadline = Timer(60, process.kill)
        deadline.start()
        shown = b""
        with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
            while piece := os.read(outer, 65_536):
                shown += piece
        deadline.cancel()
        os.close(outer)
        assert process.wait(timeout=60) == 0
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown.decode())
    assert max(map(len, text.splitlines())) == 60
    assert "…" not in text


def test_a_broken_file_is_one_line_and_no_traceback(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns 9\n")
    done = typed("limits")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("flyball: ")
    assert "flyball.toml:1: " in done.stderr
    assert "'max_turns 9'" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra_one_line_says_what_to_install(tmp_path: Path) -> None:
    done = process(tmp_path, str(Path(flyball.__file__).parents[1]))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "pip install 'flyball-ai[cli]'" in done.stderr


def test_another_missing_module_is_not_taken_for_the_missing_extra(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import a_module_that_is_not_there\n")
    done = process(tmp_path, f"{Path(flyball.__file__).parents[1]}{os.pathsep}{tmp_path}")
    assert "No module named 'a_module_that_is_not_there'" in done.stderr
    assert "extra" not in done.stderr


def test_what_holds_in_one_mode_is_checked_like_the_rest(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text(
        "[mode.pipeline]\nmax_turns = 10\nmax_truns = 4\ndelegation.max_iterations = 4\nclamp.max_turns = 5\n"
        "[mode.bad]\nmax_turns = 'many'\n"
    )
    done = typed("limits", FLYBALL_MODE__CHAT__MAX_TURNS="7")
    assert done.returncode == 1
    misspelt, misplaced, wrong = done.stderr.splitlines()
    assert misspelt.startswith("mode.pipeline.max_truns (flyball.toml:3): ")
    assert "mode.pipeline.max_turns" in misspelt
    assert misplaced.startswith("mode.pipeline.clamp.max_turns (flyball.toml:5): ")
    assert wrong.startswith("flyball: mode.bad.max_turns (flyball.toml:7): ")


def test_thresholds_of_repetition_are_settings_too(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("[repetition]\nsame = 5\nsaem = 3\n[mode.chat.repetition]\nsame = 1\n")
    done = typed("limits")
    assert done.returncode == 1
    misspelt, wrong = done.stderr.splitlines()
    assert misspelt.startswith("repetition.saem (flyball.toml:3): ")
    assert "repetition.same" in misspelt
    assert wrong.startswith("flyball: mode.chat.repetition.same (flyball.toml:5): ")


def test_settings_of_rules_are_read_by_somebody_unless_a_core_rule_has_no_such_parameter(
    typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "flyball.toml").write_text(
        "[rules.iteration-budget-warning]\nshare = 0.5\nshares = 0.5\n[rules.mine]\nenabled = false\n"
        "[mode.chat.rules.deadline-budget-warning]\nshare = 0.5\nshar = 1\n"
    )
    done = typed("limits")
    assert done.returncode == 0
    first, second = done.stderr.splitlines()
    assert first.startswith("rules.iteration-budget-warning.shares (flyball.toml:3): ")
    assert second.startswith("mode.chat.rules.deadline-budget-warning.shar (flyball.toml:8): ")
    assert "mode.chat.rules.deadline-budget-warning.share" in second


def test_prices_are_read_and_what_is_wrong_in_them_is_told(typed: Typed, tmp_path: Path) -> None:
    text = '[prices."gpt-5.5"]\ninput = 2\noutput = 3\n[prices.other]\ninput = 1\noutptu = 2\n'
    (tmp_path / "flyball.toml").write_text(text, encoding="utf-8")
    done = typed("limits")
    assert done.returncode == 1
    assert done.stderr.startswith('flyball: prices."other".outptu (flyball.toml:6): ')


def test_the_model_of_flyball_run_is_a_setting_that_somebody_reads(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("model = 'openai:a'\n[mode.chat]\nmodel = 'openai:b'\n")
    [line] = typed("limits", FLYBALL_MODEL="x").stderr.splitlines()
    assert line.startswith("mode.chat.model (flyball.toml:3): ")
    (tmp_path / "flyball.toml").write_text("modle = 'openai:a'\n")
    [line] = typed("limits").stderr.splitlines()
    assert line.startswith("modle (flyball.toml:1): ")


def test_settings_of_delegation_are_read_by_somebody(typed: Typed) -> None:
    done = typed("limits", FLYBALL_DELEGATION__STALL_SECONDS="5", FLYBALL_DELEGATION__MAX_CONCURRENT_CHILDREN="2")
    assert (done.returncode, done.stderr) == (0, "")


def test_settings_of_chains_are_read_by_somebody_and_no_key_is_shown(typed: Typed) -> None:
    done = typed("limits", FLYBALL_CHAIN__KEY="a key that nobody may see", FLYBALL_CHAIN__NAME="planner")
    assert (done.returncode, done.stderr) == (0, "")
    assert "nobody may see" not in done.stdout


def test_limits_of_single_models_are_shown_with_their_source(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text('[by_model."gpt-*"]\nmax_tokens = 50000\nmax_usd = 0.5\n')
    shown = typed("limits")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert row(shown.stdout, "tokens of gpt-*") == [
        "tokens of gpt-*", "50,000", "flyball.toml:2", 'by_model."gpt-*".max_tokens',
    ]  # fmt: skip
    record = json.loads(typed("limits", "--json").stdout)["by_model"]
    assert [(limit["name"], limit["ceiling"]) for limit in record] == [
        ("tokens of gpt-*", 50_000),
        ("usd of gpt-*", 0.5),
    ]
    (tmp_path / "flyball.toml").write_text('[by_model."gpt-*"]\nmax_tokns = 5\n')
    wrong = typed("limits")
    assert wrong.returncode == 1
    assert "expected the key max_tokens" in wrong.stderr
