"""`flyball run` on a real terminal: the live view, questions, and Ctrl-C, once and twice."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from pathlib import Path
from select import select
from typing import Any

import pytest

from flyball import Agent
from flyball.agent.run import Run
from flyball.cli.run_command import start_interruptible
from flyball.testing import ScriptedModel, call, say, until

PATIENCE_S = 60
PROGRAM = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the terminal of its own session, so that Ctrl-C reaches it, and it alone
from flyball.cli import main
main()
"""
KIT = '''
import os, signal, threading, time
from itertools import count
from flyball import tool
from flyball.tools import ToolContext
ticks = count()
@tool(poll=True)
def look(path: str, ctx: ToolContext) -> str:
    """Look."""
    ctx.report("half\x1b[2J done")
    time.sleep(0.1)
    return f"{path} {next(ticks)}"
@tool
def hang() -> str:
    """Hang."""
    open("hangs", "w").close()
    time.sleep(1000)
    return ""
@tool
def cling() -> str:
    """Leave behind what keeps Python from exiting."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()
    return "held"
@tool
def interrupt() -> str:
    """Interrupt this process, and hang until a file is there."""
    os.kill(os.getpid(), signal.SIGINT)
    while not os.path.exists("over"):
        time.sleep(0.01)
    return ""
@tool(approve=True)
def launch(what: str) -> str:
    """Launch."""
    return f"{what} is gone"
tools = [look, hang, cling, launch, interrupt]
'''
SCRIPT = """
name = "smoke"
[[reply]]
pieces = ["I see ", "what\\u001b[2J there is "]
after = 0.4
calls = [{ name = "look", arguments = { path = "a\\u009b" } }]
[[reply]]
calls = [{ name = "launch", arguments = { what = "A\\u202e" } }]
[[reply]]
calls = [{ name = "launch", arguments = { what = "B" } }]
[[reply]]
calls = [{ name = "delegate", arguments = { tasks = [
  { child = "pilot", goal = "Go." }, { child = "pilot", goal = "Go." }, { child = "finder", goal = "Go." },
] } }]
[[reply]]
calls = [{ name = "look", arguments = { path = "b" } }]
[grace]
pieces = ["I have ", "looked."]
after = 0.3
"""

TEAM = """
from kit import hang, launch, look
from flyball import Agent, Limits
from flyball.testing import ScriptedModel, call, say
looks = ScriptedModel.looping(call("look", path="x"), grace=say("I looked."))
reader = Agent(name="reader", model=looks, tools=[look], limits=Limits(turns=20))
tasks = [{"child": "reader", "goal": "Read."}]
finder = Agent(name="finder", model=ScriptedModel(call("delegate", tasks=tasks), say("Found.")), children=[reader])
hanger = Agent(name="hanger", model=ScriptedModel(call("hang"), say("Never.")), tools=[hang])
pilot = Agent(name="pilot", model=ScriptedModel(call("launch", what="A"), say("Off.")), tools=[launch])
"""


class Terminal:
    """A program on a terminal of its own, of 80 columns, and somebody in front of it."""

    def __init__(self, folder: Path, *arguments: str, stdout: Path | None = None) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
        environment = {name: text for name, text in os.environ.items() if not name.startswith(("FLYBALL_", "COLUMNS"))}
        environment |= {"TERM": "xterm-256color", "XDG_STATE_HOME": str(folder / "state"), "LC_ALL": "C.UTF-8"}
        environment |= {"XDG_DATA_HOME": str(folder / "data")}
        with ExitStack() as stack:
            out = theirs if stdout is None else stack.enter_context(stdout.open("wb"))
            command = [sys.executable, "-c", PROGRAM, *arguments]
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=theirs, stdout=out, stderr=theirs, start_new_session=True
            )
        os.close(theirs)
        self.raw = b""

    @property
    def text(self) -> str:
        """All that was printed, without what moves and colours."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace")).replace("\r", "")

    def until(self, words: str, times: int = 1) -> str:
        """Look on until something that matches stands there, so many times."""
        deadline = time.monotonic() + PATIENCE_S
        while len(re.findall(words, self.text, re.MULTILINE)) < times:
            assert time.monotonic() < deadline, f"{words!r} never came:\n{self.text}"
            assert self._look(1.0), f"it ended without {words!r}:\n{self.text}"
        return self.text

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        """Look on until it has ended; its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._look(1.0):
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        return self.process.wait(PATIENCE_S)

    def _look(self, seconds: float) -> bool:
        """Read what there is; False when nothing will come any more."""
        if not select([self._ours], [], [], seconds)[0]:
            return self.process.poll() is None
        with contextlib.suppress(OSError):  # how Linux tells that the other end is closed
            piece = os.read(self._ours, 65_536)
            self.raw += piece
            return bool(piece)
        return False

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        os.close(self._ours)


Sit = Callable[..., Terminal]


@pytest.fixture
def sit(tmp_path: Path) -> Generator[Sit, None, None]:
    """Somebody sits down and types `flyball ...`, with these replies of the model."""
    (tmp_path / "kit.py").write_text(KIT)
    (tmp_path / "team.py").write_text(TEAM)
    with ExitStack() as stack:

        def down(script: str, *options: str, stdout: Path | None = None) -> Terminal:
            (tmp_path / "own.toml").write_text(script)
            arguments = ["run", "Go on.", "--model=script:own.toml", "--tools=kit:tools", *options]
            terminal = Terminal(tmp_path, *arguments, stdout=stdout)
            stack.callback(terminal.close)
            return terminal

        yield down


def record(folder: Path) -> Any:
    return json.loads((folder / "state" / "flyball" / "last.json").read_text())


def cursor_is_shown(terminal: Terminal) -> bool:
    return terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")


def test_a_run_on_a_terminal_is_seen_as_it_goes_on_and_asks_for_itself_and_its_children(
    sit: Sit, tmp_path: Path
) -> None:
    limits = ("--turns=5", "--tokens=5000", "--tool-calls=9")
    answer = tmp_path / "answer.txt"
    terminal = sit(SCRIPT, "--children=team:pilot", "--children=team:finder", *limits, stdout=answer)
    terminal.until(r'launch .*\{"what": "A\\u202e"\}')
    terminal.type("perhaps\n")  # is no answer: it is asked again
    terminal.type("y\n")
    terminal.until(r'launch .*\{"what": "B"\}')
    terminal.type("n not on a Friday\n")
    question = r'pilot: .*launch .*\{"what": "A"\}'
    for n, word in enumerate("yn", 1):
        terminal.until(question, times=n)
        time.sleep(0.6)  # in which the finder's reader goes on, and bars would be drawn
        terminal.type(f"{word}\n")
    assert terminal.end() == 3
    assert answer.read_text() == "I have looked.\n", "neither the view nor questions are part of the answer"
    shown = terminal.text
    for name, amount in {"turns": "1 of 5", "tool calls": "1 of 9", "tokens": "of 5,000", "seconds": "of 3,"}.items():
        assert re.search(rf"^ *{name} [━─]+ .*{amount}", shown, re.MULTILINE), name
    for line in (
        r"turn 1: .*smoke",
        r"turn 1: look\(path='a\\x9b'\)",
        r"turn 1: look: half\\x1b\[2J done",
        r"^I see what\\x1b\[2J there is",
        r"turn 1   I see what\\x1b\[2J there is\n",
        r"turn 1   look\(path='a\\x9b'\): done\n",
        r"turn 2   launch\(what='A\\u202e'\): done\n",
        r"turn 3   launch: denied \(approval\)",
        r"notice   .*\(5 of 5\)",
        r"refused  max_agent_iterations_reached\n",
        r"grace    ",
        r"^ budget  Maximum agent iterations \(5\) reached\.",
        r"└─ finder 3: turn 1 of 50, 15 tokens, \d+\.\d s: ",
        r"   └─ reader 3\.1: turn \d+ of 20, \d+ tokens, \d+\.\d s: look: half\\x1b\[2J done\n",
        r"    reader 3\.1  ended    budget: 20 of 20 turns, 315 tokens, ",
        r"^tree     5 runs, ",
    ):
        assert re.search(line, shown, re.MULTILINE), line
    assert "not on a Friday" in shown
    assert len(re.findall(r'\{"what": "B"\}', shown)) == 1, "the question is asked, and not told beside that"
    for part, word in zip(re.split(question, shown)[1:], "yn", strict=True):
        assert re.match(rf"[^\n]*\) {word}\n", part), "nothing is drawn while somebody types"
    assert b"\x1b[2J" not in terminal.raw
    assert b"\xc2\x9b" not in terminal.raw
    assert cursor_is_shown(terminal)
    kept = record(tmp_path)
    assert kept["stop"] == "budget"
    assert [one["ok"] for one in kept["tool_execution_results"][:3]] == [True, True, False]
    ends = [child["tool_execution_results"][0]["ok"] for child in kept["children"][:2]]
    assert sorted(ends) == [False, True]


def test_ctrl_c_once_cancels_the_whole_tree_and_twice_ends_the_program_though_something_keeps_it(
    sit: Sit, tmp_path: Path
) -> None:
    tasks = '{ child = "hanger", goal = "Go." }, { child = "pilot", goal = "Go." }'
    calls = f'calls = [{{ name = "delegate", arguments = {{ tasks = [{tasks}] }} }}]'
    script = f'[[reply]]\ncalls = [{{ name = "cling" }}]\n[[reply]]\n{calls}\n'
    terminal = sit(script, "--children=team:hanger", "--children=team:pilot")
    terminal.until(r"pilot: .*launch ")
    until((tmp_path / "hangs").exists, PATIENCE_S)
    terminal.type("\x03")
    terminal.until(r"^ cancelled  ")
    os.killpg(terminal.process.pid, signal.SIGINT)  # is the same as Ctrl-C
    assert terminal.end() == 130
    assert re.search(r"^  pilot 2  ended    cancelled: ", terminal.text, re.MULTILINE)
    assert "Traceback" not in terminal.text
    assert "Fatal Python error" not in terminal.text
    assert cursor_is_shown(terminal)
    kept = record(tmp_path)
    assert kept["stop"] == "cancelled"
    assert [child["stop"] for child in kept["children"]] == ["cancelled", "cancelled"]
    assert kept["children"][0]["tool_execution_results"][0]["status"] == "cancelled"
    last = kept["events"][-1]
    assert (last["event"], last["stopped_by"]) == ("run_ended", "Ctrl-C")


def test_a_question_that_is_left_open_pauses_the_run_and_resume_asks_it_again(sit: Sit, tmp_path: Path) -> None:
    launch = 'calls = [{ name = "launch", arguments = { what = "A" } }]'
    first = sit(f'[[reply]]\n{launch}\n[[reply]]\ntext = "Off."\nafter = 0.3\n')
    first.until(r'launch .*\{"what": "A"\}')
    first.type("\x04")  # nobody answers
    assert first.end() == 7
    assert record(tmp_path)["stop"] == "paused"
    assert re.search(r"^ paused  ", first.text, re.MULTILINE), "on a line of its own"
    assert "Traceback" not in first.text
    with closing(Terminal(tmp_path, "resume", "last")) as terminal:
        terminal.until(r'launch .*\{"what": "A"\}')
        terminal.type("y\n")
        assert terminal.end() == 0
    assert "turn 1   launch(what='A'): done" in terminal.text
    assert re.search(r"^ *turns [━─]+ 1 of 90", terminal.text, re.MULTILINE)
    assert re.search(r"turn 2: .*scripted", terminal.text)
    assert record(tmp_path)["text"] == "Off."


def test_an_interrupt_cancels_a_quiet_run_whose_call_hangs(
    typed: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "kit.py").write_text(KIT)
    (tmp_path / "own.toml").write_text('[[reply]]\ncalls = [{ name = "interrupt" }]\n')
    before = signal.getsignal(signal.SIGINT)
    try:
        done = typed("run", "Go on.", "--model=script:own.toml", "--tools=kit:interrupt", "--quiet")
    finally:
        signal.signal(signal.SIGINT, before)
        (tmp_path / "over").touch()
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert record(tmp_path)["events"][-1]["stopped_by"] == "Ctrl-C"


def test_an_interrupt_while_a_run_starts_cancels_the_run() -> None:
    async def wait() -> None:
        """Wait."""
        await asyncio.sleep(1000)

    agent = Agent(model=ScriptedModel(call("wait"), grace=say("Report.")), tools=[wait])

    def start() -> Run:
        signal.raise_signal(signal.SIGINT)
        return agent.start("Go on.")

    before = signal.getsignal(signal.SIGINT)
    try:
        with start_interruptible(start) as run:
            result = run.result(PATIENCE_S)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (result.stop, result.stopped_by) == ("cancelled", "Ctrl-C")
