"""`flyball resume`: a run that was killed, that waits or that met a limit goes on with nothing but its id."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent
from flyball.testing import ManualClock, ScriptedModel, say

Typed = Callable[..., subprocess.CompletedProcess[str]]
KIT = """
import os, signal
from pathlib import Path
from flyball import tool

def noted(line):
    with Path("done.txt").open("a") as file:
        file.write(f"{line}\\n")

@tool(poll=True)
def dig(n: int) -> str:
    '''Dig.'''
    noted(f"dig {n}")
    if Path("deadly").exists():
        Path("deadly").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return f"hole {n}"

@tool(approve=True)
def launch(what: str) -> str:
    '''Launch.'''
    noted(f"launch {what}")
    return f"{what} is off"

tools = [dig, launch]
"""
CALL = 'calls = [{ name = "dig", arguments = { n = 1 } }]'
DIG = f'loop = true\n[[reply]]\ntext = "Deeper."\n{CALL}\n[grace]\ntext = "Dug."'
LAUNCH = '[[reply]]\ncalls = [{ name = "launch", arguments = { what = "A" } }]\n[[reply]]\ntext = "Off."'
OPTIONS = ("--model=script:own.toml", "--tools=kit:tools")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "kit.py").write_text(KIT)
    (tmp_path / "own.toml").write_text(DIG)
    return tmp_path


def done_in(place: Path) -> list[str]:
    return (place / "done.txt").read_text().splitlines()


def killed(place: Path, *options: str) -> None:
    """A run in a process of its own, which is killed in the middle of its first call."""
    (place / "deadly").touch()
    command = [sys.executable, "-m", "flyball", "run", "Dig.", *OPTIONS, "--turns=2", *options]
    done = subprocess.run(command, cwd=place, env=os.environ, timeout=60, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL


def test_a_run_whose_process_was_killed_is_told_and_goes_on(typed: Typed, place: Path) -> None:
    killed(place, "--system=Mind your head.")
    [run] = json.loads(typed("runs", "--json").stdout)["runs"]
    assert (run["stop"], run["killed"], run["going_on"], run["task"]) == (None, True, False, "Dig.")
    shown = typed("why", run["run_id"][:6]).stdout
    assert typed("why").stdout == shown, "the last run is the one that was killed"
    assert shown.splitlines()[0].endswith("  Dig.")
    assert "dig(n=1)" in shown
    assert "Deeper." in shown
    assert '**Call** `dig` `{"n": 1}`' in typed("export", "last").stdout
    done = typed("resume", "last", "--json")
    record = json.loads(done.stdout)
    assert (done.returncode, record["stop"], record["text"]) == (3, "budget", "Dug.")
    assert (record["turns"], record["run_id"], record["stored"]) == (2, run["run_id"], True)
    assert done_in(place) == ["dig 1", "dig 1"], "one before the kill, and one in the second turn: none is repeated"
    assert record["tool_execution_results"][0]["ok"] is False
    assert [one["stop"] for one in json.loads(typed("runs", "--json").stdout)["runs"]] == ["budget"]


def test_a_run_that_met_a_limit_goes_on_behind_it(typed: Typed, place: Path) -> None:
    first = typed("run", "Dig.", *OPTIONS, "--turns=2")
    assert first.returncode == 3
    assert typed("why").stdout.splitlines()[-1].startswith("  flyball resume ")
    command = typed("why", "last").stdout.splitlines()[-1].split()
    assert command[-2:] == ["--turns", "+2"]
    done = typed(*command[1:])
    assert (done.returncode, done.stdout) == (3, "Dug.\n")
    assert "turn 4   dig(n=1): done" in done.stderr
    assert "turn 2" not in done.stderr, "what was seen before is not told again"
    assert len(done_in(place)) == 4
    assert "dig(n=1) done: hole 1" in typed("why", "last").stdout, "its events are in the store on their own"
    refused = typed("resume", "last")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "budget" in refused.stderr
    assert "--turns +20" in refused.stderr
    assert "extend=" not in refused.stderr


def test_an_extension_that_a_maximum_lowers_says_so(typed: Typed, place: Path) -> None:
    (place / "flyball.toml").write_text("[clamp]\nmax_iterations = 3\nmax_seconds = 4_000")
    typed("run", "Dig.", *OPTIONS, "--turns=2")
    done = typed("resume", "last", "--turns=+100000", "--seconds=+100000")
    assert "extended turns by 1 (caller); the maximum is 3\n" in done.stderr
    assert "extended seconds by 400 (extended by caller; the maximum is 4,000 s)\n" in done.stderr


def test_more_of_another_limit_than_the_run_met_is_refused_with_the_option_that_helps(
    typed: Typed, place: Path
) -> None:
    typed("run", "Dig.", *OPTIONS, "--turns=80", "--tokens=900")
    calls = done_in(place)
    refused = typed("resume", "last", "--turns=+5")
    assert (refused.returncode, refused.stdout, done_in(place)) == (2, "", calls)
    assert "ended at its limit of tokens: use flyball resume " in refused.stderr
    assert " --tokens +900 " in refused.stderr
    assert typed("resume", "last", "--turns=+5", "--tokens=+900").returncode == 3
    assert len(done_in(place)) > len(calls)


@pytest.mark.parametrize(("answer", "launched"), [("y", True), ("call-0=y", True), ("call-0=n not today", False)])
def test_a_run_that_waits_goes_on_with_the_answer(typed: Typed, place: Path, answer: str, launched: bool) -> None:
    (place / "own.toml").write_text(LAUNCH)
    (place / "done.txt").touch()
    waits = typed("run", "Launch.", *OPTIONS)
    assert waits.returncode == 7
    assert re.search(r"^next     flyball resume [0-9a-f]{8} --answer call-0=y$", waits.stderr, re.MULTILINE)
    assert typed("why").stdout.splitlines()[-1].endswith(" --answer call-0=y")
    done = typed("resume", "last", f"--answer={answer}")
    assert (done.returncode, done.stdout) == (0, "Off.\n")
    assert done_in(place) == ["launch A"] * launched
    again = typed("resume", "last")
    assert (again.returncode, "completed" in again.stderr) == (2, True)
    assert "use --from-messages to start" in again.stderr


def test_a_run_that_waits_for_a_client_tool_goes_on_with_its_result(typed: Typed, place: Path) -> None:
    tool = 'Tool.from_schema("locate", "Locate.", {})'
    (place / "kit.py").write_text(f"from flyball.tools import Tool\ntools = [{tool}]")
    (place / "own.toml").write_text('[[reply]]\ncalls = [{ name = "locate" }]\n[[reply]]\ntext = "Oslo."')
    waits = typed("run", "Locate me.", *OPTIONS)
    assert waits.returncode == 7
    assert typed("why").stdout.splitlines()[-1].endswith(" --answer 'call-0=y RESULT_AS_JSON'")
    refused = typed("resume", "last", "--answer=call-0=y")
    assert (refused.returncode, "y and the result as JSON, or n" in refused.stderr) == (2, True)
    done = typed("resume", "last", '--answer=call-0=y {"city": "Oslo"}')
    assert (done.returncode, done.stdout) == (0, "Oslo.\n")
    unstored = typed("run", "Locate me.", *OPTIONS, "--store=none")
    assert "next     run it with a store, and pass the results to flyball resume" in unstored.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--answer=maybe", "'maybe'"),
        ("--answer=call-9=y", "call-0"),
        ("--turns=many", "--turns: "),
        ("--turns=-1", "--turns: "),
        ("--tool-calls=0.5", "--tool-calls: "),
        ("--usd=nan", "--usd: "),
        ("--json --jsonl", "--json or --jsonl"),
    ],
)
def test_an_option_of_resume_that_cannot_be_meant_is_refused_before_anything_is_done(
    typed: Typed, place: Path, options: str, words: str, snapshot: Callable[..., None]
) -> None:
    (place / "own.toml").write_text(LAUNCH)
    typed("run", "Launch.", *OPTIONS)
    refused = typed("resume", "last", *options.split())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert words in refused.stderr
    assert not (place / "done.txt").exists()
    snapshot(re.sub(r"run [0-9a-f]{8}[-0-9a-f]*", "run ID", refused.stderr))


def test_a_run_goes_on_in_the_folder_where_it_was_started(
    typed: Typed, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed("run", "Dig.", *OPTIONS, "--turns=1", "--store=sqlite:///mine.db")
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert typed("resume", "last", "--turns=+1", "--store=sqlite:///../mine.db").returncode == 3
    assert len(done_in(place)) == 2
    (place / "mine.db").rename(elsewhere / "mine.db")
    monkeypatch.chdir(elsewhere)
    (place / "kit.py").unlink()
    sys.modules.pop("kit", None)
    gone = typed("resume", "last", "--turns=+1", "--store=sqlite:///mine.db")
    assert (gone.returncode, "ModuleNotFoundError" in gone.stderr) == (2, True)


def test_a_run_of_a_program_goes_on_there_and_a_child_with_its_parent(typed: Typed, stock: Any) -> None:
    child = Agent(name="child", model=ScriptedModel(say("Done.")), clock=ManualClock())
    model = ScriptedModel.looping(say("Fine."))
    stock.keep(Agent(model=model, children=[child], clock=ManualClock()).run("Go.", run_id="aaaa1111"))
    refused = typed("resume", "aaaa1111")
    assert (refused.returncode, "its own program" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    "server", ["./server --token hunter2", "http://127.0.0.1:9/mcp?key=hunter2", "http://a:hunter2@127.0.0.1:9/mcp"]
)
@pytest.mark.usefixtures("place")
def test_what_may_be_a_secret_is_not_kept_and_must_be_given_again(typed: Typed, stock: Any, server: str) -> None:
    typed("run", "Go.", *OPTIONS, f"--mcp={server}", "--turns=1")
    with stock.open() as store:
        [run] = store.runs.list()
    assert run.start.metadata["flyball_run"]["mcp"] == ["***"]
    refused = typed("resume", run.run_id)
    assert refused.returncode == 2
    assert "--mcp" in refused.stderr
    assert "hunter2" not in refused.stderr


def test_a_fallback_model_answers_and_is_stored_for_a_resume(typed: Typed, place: Path, stock: Any) -> None:
    (place / "own.toml").write_text('[[reply]]\nerror = { kind = "retryable", message = "busy", after = 0 }\n' * 20)
    (place / "second.toml").write_text(f'[[reply]]\n{CALL}\n[[reply]]\ntext = "Dug."')
    killed(place, "--turns=5", "--fallback-model=script:second.toml")
    with stock.open() as store:
        [run] = store.runs.list()
    assert run.start.metadata["flyball_run"]["fallback_models"] == ["script:second.toml"]
    record = json.loads(typed("resume", run.run_id, "--json").stdout)
    assert (record["stop"], record["final_content"], len(record["fallbacks"])) == ("completed", "Dug.", 1)


@pytest.mark.usefixtures("place")
def test_a_fallback_model_that_may_hide_a_secret_must_be_given_again(typed: Typed, stock: Any) -> None:
    secret = "http://127.0.0.1:9/v1#key=hunter2"
    typed("run", "Go.", *OPTIONS, f"--fallback-model={secret}", "--turns=1")
    with stock.open() as store:
        [run] = store.runs.list()
    assert run.start.metadata["flyball_run"]["fallback_models"] == ["***"]
    for command in ("resume", "replay"):
        refused = typed(command, run.run_id)
        assert (refused.returncode, "pass --fallback-model again" in refused.stderr) == (2, True)


def test_a_session_goes_on_over_runs_and_can_be_busy(typed: Typed, place: Path, stock: Any) -> None:
    (place / "own.toml").write_text('[[reply]]\ntext = "Hello."')
    assert typed("run", "I am Ada.", *OPTIONS, "--session=greeting").returncode == 0
    record = json.loads(typed("run", "Who am I?", *OPTIONS, "--session=greeting", "--json").stdout)
    assert [one["content"] for one in record["messages"]] == ["I am Ada.", "Hello.", "Who am I?", "Hello."]
    assert record["session_id"] == "greeting"
    assert typed("why").stdout.splitlines()[0] == " completed  Who am I?"
    assert typed("run", "Nobody knows.", *OPTIONS, "--store=none", "-q").returncode == 0
    assert typed("why").stdout.splitlines()[0] == " completed  Nobody knows."
    page = typed("export", "last").stdout
    assert page.startswith("# Who am I?")
    assert "I am Ada." not in page
    stock.clock.move(10**9)
    with stock.open() as store:
        store.lease.acquire("greeting", "the night shift:1:x", 10.0**9)
    busy = typed("run", "And now?", *OPTIONS, "--session=greeting")
    assert busy.returncode == 6
    assert "the night shift:1" in busy.stderr
    assert "'greeting'" in busy.stderr
    assert len(json.loads(typed("runs", "--json").stdout)["runs"]) == 2


def test_nothing_is_kept_where_nobody_wants_it_or_it_cannot_be(typed: Typed, place: Path) -> None:
    assert typed("run", "Dig.", *OPTIONS, "--turns=1", "-q", "--store=none").returncode == 3
    assert typed("run", "Dig.", *OPTIONS, "--turns=1", "-q", FLYBALL_STORE="memory:").returncode == 3
    assert not (place / "data").exists()
    assert typed("why").stdout.splitlines()[-1] == "  the same command with --turns 2", "it cannot be resumed"
    (place / "data").write_text("in the way")
    unkept = typed("run", "Dig.", *OPTIONS, "--turns=1", "-q")
    assert (unkept.returncode, unkept.stdout) == (3, "Dug.\n")
    assert unkept.stderr.startswith("flyball: ")
    refused = typed("run", "Dig.", *OPTIONS, "--store=sqlite:///data/runs.db")
    assert (refused.returncode, "data/runs.db: " in refused.stderr) == (2, True)
    assert len(done_in(place)) == 3
