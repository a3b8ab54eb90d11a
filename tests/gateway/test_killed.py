"""A `flyball exec` that is killed: what it leaves in the store, and that it leaves no process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from flyball.cli.app import app
from flyball.store.sqlite import SqliteStore
from flyball.testing import call, say
from flyball.testing.server import ModelServer, sent

from .conftest import PROGRAMS, environment_for

PLAIN = [sys.executable, str(PROGRAMS / "plain_agent.py")]
Wait = Callable[[Callable[[], bool]], None]


def test_a_killed_flyball_leaves_the_spend_so_far_and_no_process(tmp_path: Path, wait_for: Wait) -> None:
    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    lines = [call("add", a=1), call("add", a=2), sent(say("never"), "hang")]
    with ModelServer(*lines) as server:
        environment = environment_for(server, XDG_STATE_HOME=str(tmp_path), COLUMNS="200")
        program = "import os, runpy, sys; print(os.getpid(), flush=True); sys.argv = ['x', 'loop']; "
        program += f"runpy.run_path({PLAIN[1]!r})"
        options = ("--usd", "0.50", "--turns", "9", "--store", uri)
        command = [sys.executable, "-m", "flyball", "exec", *options, "--", sys.executable, "-c", program]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                pid = int(process.stdout.readline())
                wait_for(lambda: len(server.requests) == 3)
                with SqliteStore(tmp_path / "runs.db") as store:
                    [run] = store.runs.list()
                    wait_for(lambda: count(store, run.run_id, "model_requested") == 3)
                shown = flyball(environment, "runs", "--json", "--store", uri)
                assert (json.loads(shown)["runs"][0]["going_on"], json.loads(shown)["runs"][0]["turns"]) == (True, 2)
            finally:
                os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(pid))
    listed = json.loads(flyball(environment, "runs", "--json", "--store", uri))["runs"][0]
    assert (listed["killed"], listed["stop"], listed["turns"], listed["agent"]) == (True, None, 2, "exec")
    assert listed["usd"] > 0
    assert "interrupted" in flyball(environment, "runs", "--store", uri)
    why = flyball(environment, "why", "last", "--store", uri)
    spent = f"${listed['usd']:.4g}"
    assert "runpy.run_path" in why
    assert f"conversation 1 · gpt-4o: 2 turns, 2 requests, {listed['tokens']:,} tokens, {spent}" in why
    assert why.count("gpt-4o wants 1 call") == 2
    assert "It was interrupted: its process was killed or is gone." in why
    assert "It leaves out 1 request in progress." in why
    assert "flyball resume" not in why
    assert spent in flyball(environment, "spend", "--store", uri)


def count(store: SqliteStore, run_id: str, kind: str) -> int:
    return sum(event["event"] == kind for event in store.runs.events(run_id))


def is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def flyball(environment: dict[str, str], *arguments: str) -> str:
    """Run a command of flyball in this process, and return its output."""
    return CliRunner().invoke(app, arguments, env=environment).output
