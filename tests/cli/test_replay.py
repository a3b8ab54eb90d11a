"""`flyball replay`: today's rules and limits against a run that was; nothing is asked, and nothing is done."""

import json
import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball.store import Query

Typed = Callable[..., subprocess.CompletedProcess[str]]
KIT = """
from pathlib import Path
from flyball import Agent, tool
from flyball.testing import ScriptedModel, say

@tool(poll=True)
def dig(n: int) -> str:
    '''Dig.'''
    with Path("done.txt").open("a") as file:
        file.write("dig")
    return f"hole {n}"

helper = Agent(name="helper", model=ScriptedModel.looping(say("Helped.")))
"""
CALL = 'calls = [{ name = "dig", arguments = { n = 1 } }]'
DIG = f'loop = true\n[[reply]]\ntext = "Deeper."\n{CALL}\n[grace]\ntext = "Dug."'
RULE = """
[rule]
id = "no-digging"
trigger = "on_tool_call"
[condition]
expression = "context.turn.iteration_count == 2"
[action]
type = "deny"
message = "Enough."
"""
OPTIONS = ("--model=script:own.toml", "--tools=kit:dig")


@pytest.fixture
def dug(typed: Typed, tmp_path: Path) -> Path:
    """A folder in which a run met its limit of three turns."""
    (tmp_path / "kit.py").write_text(KIT)
    (tmp_path / "own.toml").write_text(DIG)
    assert typed("run", "Dig.", *OPTIONS, "--turns=3", "-q").returncode == 3
    (tmp_path / "own.toml").write_text("[[reply]]\nerror = 'nobody may ask'")
    return tmp_path


@pytest.fixture
def lines(typed: Typed, dug: Path) -> Callable[..., tuple[int, list[str]]]:
    def lines(*options: str) -> tuple[int, list[str]]:
        (dug / "own.toml").write_text('[[reply]]\ntext = "Nobody asks."')
        done = typed("replay", "last", *options)
        assert done.stderr == ""
        assert (dug / "done.txt").read_text() == "dig" * 3, "nothing is done again"
        return done.returncode, done.stdout.splitlines()

    return lines


Lines = Callable[..., tuple[int, list[str]]]


def test_under_the_same_limits_nothing_is_different(lines: Lines, snapshot: Callable[..., None]) -> None:
    code, told = lines()
    assert (code, len(told)) == (0, 1)
    snapshot(told[0])
    assert lines("--limits", "turns=3,tokens=1000000")[0] == 0


def test_under_a_lower_limit_the_place_is_told_and_what_would_come_first(
    lines: Lines, snapshot: Callable[..., None]
) -> None:
    code, told = lines("--limits=turns=2")
    told = [line.partition(" (0.")[0] for line in told]
    assert code == 1
    assert "turn 2, after 3 of 11 " in told[0]
    assert "  recorded  turn 3" in told
    assert told.index("  replayed  refused: max_agent_iterations_reached") > told.index("  recorded  turn 3")
    snapshot("\n".join(told))


def test_under_a_higher_limit_it_would_have_gone_on(lines: Lines) -> None:
    code, told = lines("--limits=turns=9")
    assert code == 1
    assert "  recorded  refused: max_agent_iterations_reached" in told
    assert "  replayed  turn 4" in told


def test_a_new_rule_is_seen_where_it_acts(lines: Lines, dug: Path) -> None:
    (dug / "new.toml").write_text(RULE)
    code, told = lines("--rules=new.toml")
    assert code == 1
    assert "turn 2, after 4 of 11 " in told[0]
    assert "  replayed  dig: denied (rule)" in told


def test_a_rule_that_only_tells_changes_no_step_and_is_told(lines: Lines, dug: Path) -> None:
    (dug / "new.toml").write_text(RULE.replace('"deny"', '"log"'))
    code, told = lines("--rules=new.toml")
    assert code == 1
    assert " 11 " in told[0]
    assert any("no-digging" in line and "Enough." in line for line in told)
    assert " budget: " in told[-1]


def test_a_rule_that_ends_it_otherwise_is_told_though_every_step_was_the_same(lines: Lines, dug: Path) -> None:
    rule = RULE.replace("on_tool_call", "on_session_end").replace("== 2", ">= 0")
    (dug / "new.toml").write_text(rule.replace('"deny"', '"emit_event"\nname = "over"').replace("message", "data.said"))
    code, told = lines("--rules=new.toml")
    assert (code, any("no-digging" in line and " over" in line for line in told)) == (1, True)


def test_a_model_that_could_not_be_asked_today_is_not_asked(typed: Typed, dug: Path, stock: Any) -> None:
    def exchange(connection: sqlite3.Connection) -> None:
        data = {**run.start.metadata["flyball_run"], "model": "openai:gpt-5.5"}
        connection.execute("UPDATE run SET metadata = ?", (json.dumps({"flyball_run": data}),))

    with stock.open() as store:
        [run] = store.runs.list()
        store.write(exchange)
    done = typed("replay", "last", "--json")
    assert (done.stderr, json.loads(done.stdout)["steps"]) == ("", 11)
    assert (dug / "done.txt").read_text() == "dig" * 3


def test_a_model_that_was_not_stored_is_named_again(typed: Typed, dug: Path, stock: Any) -> None:
    def hide(connection: sqlite3.Connection) -> None:
        data = {**run.start.metadata["flyball_run"], "model": "***"}
        connection.execute("UPDATE run SET metadata = ?", (json.dumps({"flyball_run": data}),))

    with stock.open() as store:
        [run] = store.runs.list()
        store.write(hide)
    refused = typed("replay", "last")
    assert (refused.returncode, "pass --model again" in refused.stderr) == (2, True)
    (dug / "own.toml").write_text('[[reply]]\ntext = "Nobody asks."')
    done = typed("replay", "last", "--model=script:own.toml")
    assert (done.returncode, done.stdout.startswith("No difference")) == (0, True)


def test_a_run_with_mcp_servers_is_refused_with_the_reason_even_if_they_were_not_stored(
    typed: Typed, dug: Path, stock: Any
) -> None:
    def hide(connection: sqlite3.Connection) -> None:
        data = {**run.start.metadata["flyball_run"], "mcp": ["***"]}
        connection.execute("UPDATE run SET metadata = ?", (json.dumps({"flyball_run": data}),))

    with stock.open() as store:
        [run] = store.runs.list()
        store.write(hide)
    refused = typed("replay", "last")
    assert (refused.returncode, "does not start MCP servers" in refused.stderr) == (2, True)


def test_programs_get_the_same_as_json(typed: Typed, dug: Path) -> None:
    (dug / "own.toml").write_text('[[reply]]\ntext = "Nobody asks."')
    same = json.loads(typed("replay", "last", "--json").stdout)
    assert (same["same"], same["steps"], same["of"], same["stop"]) == (True, 11, 11, "budget")
    other = json.loads(typed("replay", "last", "--limits=turns=2", "--json").stdout)
    assert (other["same"], other["steps"], other["turn"], other["stop"]) == (False, 3, 2, None)
    assert other["answered_the_same"]["steps"] == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--limits=tuns=3", "'tuns=3'"),
        ("--limits=turns=few", "'turns=few'"),
        ("--rules=none.toml", "none.toml'"),
    ],
)
@pytest.mark.usefixtures("dug")
def test_an_option_of_replay_that_cannot_be_meant_is_refused(typed: Typed, options: str, words: str) -> None:
    (Path.cwd() / "own.toml").write_text('[[reply]]\ntext = "Nobody asks."')
    done = typed("replay", "last", options)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_run_that_went_on_is_replayed_as_a_whole(typed: Typed, dug: Path) -> None:
    (dug / "own.toml").write_text(DIG)
    assert typed("resume", "last", "--turns=+2", "-q").returncode == 3
    done = typed("replay", "last")
    assert (done.returncode, " 19 " in done.stdout) == (0, True)


def test_children_are_not_run_again(typed: Typed, dug: Path, stock: Any) -> None:
    tasks = 'tasks = [{ child = "helper", goal = "Help." }]'
    script = f'[[reply]]\ncalls = [{{ name = "delegate", arguments = {{ {tasks} }} }}]\n[[reply]]\ntext = "Done."'
    (dug / "own.toml").write_text(script)
    assert typed("run", "Delegate.", "--model=script:own.toml", "--children=kit:helper", "-q").returncode == 0
    with stock.open() as store:
        kept = {run.start.agent: dict(run.start.metadata) for run in store.runs.list(Query(children=True))}
    assert (list(kept["agent"]), kept["helper"]) == (["flyball_run"], {})
    (dug / "own.toml").write_text('[[reply]]\ntext = "Nobody asks."')
    done = typed("replay", "last")
    assert (done.returncode, " 5 " in done.stdout, "completed" in done.stdout) == (0, True, True)
