"""`flyball exec` as a user types it: what it prints, its exit codes, and that a program is governed at all."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball import IterationBudgetRegistry, Limits
from flyball.cli.exec_command import describe_command, describe_limits
from flyball.testing import say
from flyball.testing.server import LoopingProvider, ModelServer, sent, status

from .conftest import PROGRAMS, REAL_KEY, environment_for

Exec = Callable[..., subprocess.CompletedProcess[str]]
PLAIN = [sys.executable, str(PROGRAMS / "plain_agent.py")]
REPORT = "The report: the task is not finished."


def test_the_first_example_ends_after_three_turns_with_its_report(
    flyball_exec: Exec, provider: LoopingProvider
) -> None:
    done = flyball_exec(provider, "--turns", "3", "--", *PLAIN, "loop")
    assert (done.returncode, json.loads(done.stdout)["answers"]) == (0, [REPORT])
    first, last = done.stderr.splitlines()
    assert first == "flyball: at most 3 turns, 3,600 seconds (default); no limit of tool calls, tokens, dollars"
    assert last.startswith("flyball: budget: Maximum agent iterations (3) reached. It used 3 of 3 turns, ")
    assert last.endswith(" Next: the same command with --turns 6")
    assert "Limits(" not in last
    assert len(provider.requests) == 4


def test_the_exit_code_of_the_program_is_kept(flyball_exec: Exec, provider: LoopingProvider) -> None:
    program = f"import runpy, sys; sys.argv = ['x', 'loop']; runpy.run_path({PLAIN[1]!r}); sys.exit(7)"
    assert flyball_exec(provider, "--turns", "2", "--", sys.executable, "-c", program).returncode == 7
    assert flyball_exec(provider, "--turns", "2", "--strict", "--", sys.executable, "-c", program).returncode == 3


def test_a_program_whose_requests_do_not_come_through_is_an_error(
    flyball_exec: Exec, provider: LoopingProvider
) -> None:
    program = [sys.executable, "-c", "print('direct')"]
    done = flyball_exec(provider, "--", *program)
    assert (done.returncode, done.stdout) == (8, "direct\n")
    assert "NOT GOVERNED" in done.stderr.splitlines()[-1]
    done = flyball_exec(provider, "--allow-ungoverned", "--", *program)
    assert (done.returncode, "NOT GOVERNED" in done.stderr) == (0, False)
    assert "no request to a model came through the gateway" in done.stderr
    assert flyball_exec(provider, "--allow-ungoverned", "-q", "--", *program).stderr == ""


def test_a_key_in_a_program_that_asks_the_provider_directly_does_not_work(
    flyball_exec: Exec, provider: LoopingProvider
) -> None:
    program = "import os; print(os.environ['OPENAI_API_KEY'], os.environ['ANTHROPIC_API_KEY'])"
    done = flyball_exec(provider, "--", sys.executable, "-c", program)
    assert "real-key" not in done.stdout
    assert done.stdout.startswith("sk-")


@pytest.mark.parametrize("variable", ["CLAUDE_CODE_USE_BEDROCK"])
def test_a_variable_that_leads_around_the_gateway_is_refused_before_the_start(
    flyball_exec: Exec, provider: LoopingProvider, variable: str
) -> None:
    done = flyball_exec(provider, "--", *PLAIN, "loop", **{variable: "1"})
    assert (done.returncode, done.stdout) == (8, "")
    assert done.stderr.startswith("flyball: NOT GOVERNED:")
    assert variable in done.stderr
    assert provider.requests == []


@pytest.mark.parametrize("name", ["amp"])
def test_a_program_known_to_go_around_the_gateway_is_refused_before_the_start(
    flyball_exec: Exec, provider: LoopingProvider, name: str, tmp_path: Path
) -> None:
    program = tmp_path / name
    program.write_text("#!/bin/sh\necho started\n")
    program.chmod(0o755)
    done = flyball_exec(provider, "--", str(program))
    assert (done.returncode, done.stdout) == (8, "")
    assert "NOT GOVERNED" in done.stderr
    assert flyball_exec(provider, "--allow-ungoverned", "--", str(program)).stdout == "started\n"


def test_no_key_is_in_any_output_or_file(flyball_exec: Exec, tmp_path: Path) -> None:
    with ModelServer.looping(status(401, "Incorrect API key provided")) as server:
        store = tmp_path / "runs.db"
        done = flyball_exec(server, "--store", f"sqlite:///{store}", "--", *PLAIN, "loop")
    assert REAL_KEY not in done.stdout + done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and REAL_KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize(
    "words",
    [
        ["--api-key", "hunter2hunter2"],
        ["--password=hunter2hunter2"],
        ["OPENAI_API_KEY=hunter2hunter2"],
        ["-c", "export A=1; MY_TOKEN=hunter2hunter2 run"],
        ["ghp_hunter2hunter2"],
        ["a b sk-proj-hunter2hunter2 c"],
    ],
)
def test_no_key_of_a_command_line_is_stored(words: list[str]) -> None:
    shown = describe_command(["agent", *words, "go"])
    assert "hunter2" not in shown
    assert (shown.startswith("agent "), shown.endswith(" go"), "***" in shown) == (True, True, True)


def test_a_command_line_without_keys_is_stored_as_it_is() -> None:
    assert describe_command(["claude", "-p", "Which keys = values?"]) == "claude -p 'Which keys = values?'"


def test_an_unknown_program_and_a_wrong_option_are_usage_errors(flyball_exec: Exec, provider: LoopingProvider) -> None:
    done = flyball_exec(provider, "--", "no-such-program-at-all")
    assert done.returncode == 2
    assert "no-such-program-at-all cannot be run: no such program was found" in done.stderr
    assert flyball_exec(provider, "--upstream", "groq", "--", "true").returncode == 2
    assert flyball_exec(provider, "--upstream", "groq=https://groq.example/v1", "--", "true").returncode == 2
    assert flyball_exec(provider, "--unpriced", "maybe", "--", "true").returncode == 2


def test_a_provider_that_is_not_known_is_governed_with_upstream_and_set(
    flyball_exec: Exec, provider: LoopingProvider
) -> None:
    program = f"""
import os, runpy, sys
os.environ["OPENAI_BASE_URL"] = os.environ["ACME_URL"]
sys.argv = ["x", "loop"]
runpy.run_path({PLAIN[1]!r})
"""
    options = ("--turns", "2", "--upstream", f"acme={provider.url}/v1", "--set", "ACME_URL")
    done = flyball_exec(provider, *options, "--", sys.executable, "-c", program)
    assert (done.returncode, json.loads(done.stdout)["answers"]) == (0, [REPORT])
    assert len(provider.requests) == 3


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(provider: LoopingProvider, tmp_path: Path) -> Start:
    """Starts `flyball exec` with the source of a Python program."""

    def start(program: str, *arguments: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "flyball", "exec", "--store", "none", "--allow-ungoverned", "--"]
        return subprocess.Popen(
            [*command, sys.executable, "-c", program, *arguments],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
            env=environment_for(provider, XDG_STATE_HOME=str(tmp_path)),
        )

    return start


def test_standard_input_and_arguments_belong_to_the_program(start: Start) -> None:
    program = "import sys; print(sys.stdin.read().upper(), sys.argv[1:])"
    with start(program, "--turns", "-x", stdin=subprocess.PIPE) as process:
        assert process.communicate("text", timeout=60)[0] == "TEXT ['--turns', '-x']\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_program_once(start: Start, number: signal.Signals) -> None:
    program = """
import signal, time
counts = []
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, _: counts.append(number))
print("ready", flush=True)
deadline = time.monotonic() + 30
while not counts and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.2)
print(*counts)
"""
    with start(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, number)
        assert process.stdout.read().split() == [str(number.value)]
        assert process.wait(30) == 0


def test_ctrl_c_on_a_terminal_reaches_the_program_once_and_its_input_too(
    provider: LoopingProvider, tmp_path: Path
) -> None:
    program = """
import signal, sys, time
counts = []
signal.signal(signal.SIGINT, lambda number, _: counts.append(number))
print("ready", sys.stdin.isatty(), input(), flush=True)
deadline = time.monotonic() + 30
while not counts and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.2)
print("interrupted", len(counts), flush=True)
"""
    command = [sys.executable, "-m", "flyball", "exec", "--quiet", "--store", "none", "--allow-ungoverned", "--"]
    pid, terminal = pty.fork()
    if pid == 0:
        environment = environment_for(provider, XDG_STATE_HOME=str(tmp_path))
        os.execve(sys.executable, [*command, sys.executable, "-c", program], environment)
    try:
        os.write(terminal, b"a line\n")
        assert "ready True a line" in read_until(terminal, "a line\r\n", count=2)
        os.write(terminal, b"\x03")
        assert "interrupted 1" in read_until(terminal, "interrupted 1")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def read_until(terminal: int, text: str, count: int = 1) -> str:
    output, deadline = "", time.monotonic() + 30
    while output.count(text) < count and time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1)
        output += os.read(terminal, 4096).decode() if ready else ""
    return output


def test_a_killed_flyball_leaves_no_process(start: Start, wait_for: Callable[[Callable[[], bool]], None]) -> None:
    program = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"], start_new_session=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(300)
"""
    with start(program) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()
        process.wait(30)
    assert len(pids) == 2
    wait_for(lambda: not any(_is_alive(pid) for pid in pids))


def _is_alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_observing_refuses_and_changes_nothing_and_says_what_would_have_been(
    flyball_exec: Exec, provider: LoopingProvider
) -> None:
    done = flyball_exec(provider, "--observe", "--turns", "3", "--tokens", "900", "--", *PLAIN, "shots", "10")
    assert (done.returncode, json.loads(done.stdout)["statuses"]) == (0, [200] * 10)
    assert len(provider.requests) == 10
    assert all(request.body == provider.requests[0].body for request in provider.requests)
    lines = done.stderr.splitlines()
    assert lines[0] == (
        "flyball: observes only; the limits would be at most 3 turns, 900 tokens, 3,600 seconds (default); "
        "no limit of tool calls, dollars"
    )
    assert lines[1] == "flyball: request 4 would have met the limit of turns (3)"
    assert lines[-1].startswith("flyball: completed: It completed. It used 10 turns, 470 tokens, ")


@pytest.mark.parametrize(
    ("arguments", "turns"),
    [
        (["--observe", "--", *PLAIN, "shots", "2"], "2 turns"),
        (["--allow-ungoverned", "--", sys.executable, "-c", ""], "0 turns"),
        (["--", *PLAIN, "shots", "2"], "2 of 90 turns, 88 left"),
    ],
    ids=["observed", "ungoverned", "governed"],
)
def test_the_status_names_only_limits_that_held(
    flyball_exec: Exec, provider: LoopingProvider, tmp_path: Path, arguments: list[str], turns: str
) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    assert flyball_exec(provider, "--store", store, *arguments).returncode == 0
    command = [sys.executable, "-m", "flyball", "status", "--line", "--store", store]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown.startswith(f"completed · {turns} · ")


def test_the_record_says_which_conversation_spent_what(provider: LoopingProvider, tmp_path: Path) -> None:
    folders = {"XDG_STATE_HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path)}

    def flyball(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "flyball", *arguments],
            env=environment_for(provider, **folders, COLUMNS="200"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout + done.stderr

    flyball("exec", "--turns", "3", "--", *PLAIN, "loop")
    assert "exec   budget" in flyball("runs")
    for why in (flyball("why"), flyball("why", "last")):
        assert "plain_agent.py loop" in why
        assert "conversation 1 · gpt-4o: 3 turns, 4 requests," in why
        assert "gpt-4o · 3 turns, 4 requests, 3 calls ·" in why
        assert why.count("gpt-4o wants 1 call") == 3
        assert why.count("gpt-4o reports") == 1
        assert "--turns 6" in why
        assert "flyball resume" not in why
    assert "cannot be resumed: run it again" in flyball("resume", "last", "--turns", "+3")


def test_a_program_that_leaves_a_reply_prints_nothing_on_the_terminal_of_its_user(flyball_exec: Exec) -> None:
    program = """
import http.client, json, os, urllib.parse
url = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
connection = http.client.HTTPConnection(url.netloc, timeout=30)
body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Go."}], "stream": True}
headers = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
connection.request("POST", url.path + "/chat/completions", json.dumps(body), headers)
connection.getresponse().read(10)
"""
    with ModelServer.looping(sent(say("word " * 50).after(30))) as server:
        done = flyball_exec(server, "--", sys.executable, "-c", program)
    first, last = done.stderr.splitlines()
    assert first.startswith("flyball: at most ")
    assert last.startswith("flyball: completed: ")


def test_the_limits_that_hold_are_described_with_what_lowered_them() -> None:
    settings = {"clamp.max_usd": 1, "clamp.max_seconds": 60, "clamp.max_context_tokens": 9_000}
    described = describe_limits(Limits(turns=3, usd=2.5), IterationBudgetRegistry(settings=settings))
    assert described == (
        "at most 3 turns, $1.00 ($2.50 was asked for), 60 seconds (clamp); no limit of tool calls, tokens"
    )
