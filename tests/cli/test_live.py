"""`flyball run` on a real terminal: the live view, questions, and Ctrl-C, once and twice."""

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

from flyball.store import SqliteStore
from flyball.testing import until

PATIENCE_S = 60
PROGRAM = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # the terminal of its own session, so that Ctrl-C reaches it, and it alone
from flyball.cli import main
main()
"""
KIT = '''
import threading, time
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
    """Hang, and leave behind what keeps Python from exiting."""
    threading.Thread(target=time.sleep, args=(1000,), daemon=False).start()
    time.sleep(1000)
    return ""
@tool(approve=True)
def launch(what: str) -> str:
    """Launch."""
    return f"{what} is gone"
tools = [look, hang, cling, launch]
'''
RUNAWAY = """
name = "smoke"
loop = true
[[reply]]
pieces = ["I see ", "what\\u001b[2J there is "]
after = 0.4
calls = [{ name = "look", arguments = { path = "a\\u009b" } }]
[[reply]]
calls = [{ name = "look", arguments = { path = "b" } }]
[grace]
pieces = ["I have ", "looked."]
after = 0.3
"""

TEAM = """
from kit import launch, look
from flyball import Agent, Limits
from flyball.testing import ScriptedModel, call, say
looks = ScriptedModel.looping(call("look", path="x"), grace=say("I looked."))
reader = Agent(name="reader", model=looks, tools=[look], limits=Limits(turns=5))
tasks = [{"child": "reader", "goal": "Read."}]
finder = Agent(name="finder", model=ScriptedModel(call("delegate", tasks=tasks), say("Found.")), children=[reader])
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
        """Look on until these words stand there, so many times."""
        deadline = time.monotonic() + PATIENCE_S
        while self.text.count(words) < times:
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


def calls(*names: str) -> str:
    return "".join(f'[[reply]]\ncalls = [{{ name = "{name}" }}]\n' for name in names) + '[[reply]]\ntext = "Done."\n'


def delegates(*names: str) -> str:
    tasks = ", ".join(f'{{ child = "{name}", goal = "Go." }}' for name in names)
    call = f'{{ name = "delegate", arguments = {{ tasks = [{tasks}] }} }}'
    return f'[[reply]]\ncalls = [{call}]\n[[reply]]\ntext = "Done."\n'


def record(folder: Path) -> Any:
    return json.loads((folder / "state" / "flyball" / "last.json").read_text())


def test_a_run_is_seen_as_it_goes_on(sit: Sit, tmp_path: Path) -> None:
    terminal = sit(RUNAWAY, "--turns=3", "--tokens=5000", "--tool-calls=9")
    assert terminal.end() == 3
    shown = terminal.text
    amounts = {"turns": "1 of 3", "tool calls": "1 of 9", "tokens": "of 5,000", "seconds": "of 3,580 s"}
    for name, amount in amounts.items():
        assert re.search(rf"^ *{name} [━─]+ .*{amount}", shown, re.MULTILINE), name
    assert "turn 1: asks smoke" in shown
    assert "turn 1: look(path='a\\x9b')" in shown
    assert "turn 1: look: half\\x1b[2J done" in shown
    assert "asks for the report: smoke" in shown
    assert re.search(r"^I see what\\x1b\[2J there is", shown, re.MULTILINE), "the text as it streams in"
    for line in (
        "turn 1   I see what\\x1b[2J there is\n",
        "turn 1   look(path='a\\x9b'): done\n",
        "notice   This is the last turn (3 of 3): ",
        "refused  max_agent_iterations_reached\n",
        "grace    one last request, without tools, from what was set aside\n",
        "I have looked.\nbudget: It met a limit: ",
    ):
        assert line in shown
    assert b"\x1b[2J" not in terminal.raw
    assert b"\xc2\x9b" not in terminal.raw
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l"), "the cursor is there again"
    assert record(tmp_path)["stop"] == "budget"


def test_ctrl_c_once_cancels_a_call_that_hangs_and_reports(sit: Sit, tmp_path: Path) -> None:
    terminal = sit(calls("hang"))
    terminal.until("turn 1: hang()")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "turn 1   hang(): cancelled" in terminal.text
    assert "cancelled: It was cancelled." in terminal.text
    assert "Traceback" not in terminal.text
    assert record(tmp_path)["stop"] == "cancelled"
    events = record(tmp_path)["events"]
    assert (events[-1]["event"], events[-1]["stopped_by"]) == ("run_ended", "Ctrl-C")


def test_ctrl_c_twice_ends_the_program_though_something_keeps_it(sit: Sit) -> None:
    terminal = sit(calls("cling"))
    terminal.until("turn 1: cling()")
    terminal.type("\x03")
    terminal.until("cancelled: It was cancelled.")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert "flyball: stopped at once" in terminal.text
    assert "Traceback" not in terminal.text
    assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")


def test_an_interrupt_to_the_process_group_is_the_same_as_ctrl_c(sit: Sit, tmp_path: Path) -> None:
    terminal = sit(calls("hang"), "--quiet")
    until((tmp_path / "hangs").exists, PATIENCE_S)
    os.killpg(terminal.process.pid, signal.SIGINT)
    assert terminal.end() == 130
    assert "Traceback" not in terminal.text


def test_calls_are_approved_on_the_terminal_while_the_view_is_up(sit: Sit, tmp_path: Path) -> None:
    launch = '[[reply]]\ncalls = [{{ name = "launch", arguments = {{ what = "{0}" }} }}]\n'
    script = launch.format("A\\u202e") + launch.format("B") + '[[reply]]\ntext = "Done."\n'
    answer = tmp_path / "answer.txt"
    terminal = sit(script, stdout=answer)
    terminal.until('May launch be called with {"what": "A\\u202e"}? (y, n, or e')
    terminal.type("perhaps\n")
    terminal.until("Please answer: y, n, or e")
    terminal.type("y\n")
    terminal.until('May launch be called with {"what": "B"}? (y, n, or e')
    terminal.type("n not on a Friday\n")
    assert terminal.end() == 0
    assert answer.read_text() == "Done.\n", "questions are not part of the answer"
    assert "turn 1   launch(what='A\\u202e'): done" in terminal.text
    assert "answered no, not on a Friday" in terminal.text
    assert terminal.text.count('with {"what": "B"}') == 1, "the question is asked, and not told beside that"
    assert "turn 2   launch: denied (approval)" in terminal.text
    assert [one["ok"] for one in record(tmp_path)["tool_execution_results"]] == [True, False]


@pytest.mark.parametrize(("typed", "code", "stop"), [("\x03", 130, "cancelled"), ("\x04", 7, "paused")])
def test_a_question_may_be_left_open(sit: Sit, tmp_path: Path, typed: str, code: int, stop: str) -> None:
    terminal = sit('[[reply]]\ncalls = [{ name = "launch", arguments = { what = "A" } }]\n')
    terminal.until("words behind y or n are passed on) ")
    terminal.type(typed)
    assert terminal.end() == code
    assert record(tmp_path)["stop"] == stop
    assert "Fatal Python error" not in terminal.text
    assert "Traceback" not in terminal.text
    assert re.search(rf"^{stop}: It ", terminal.text, re.MULTILINE), "on a line of its own"


def test_children_are_seen_in_a_tree_as_they_go_on(sit: Sit) -> None:
    terminal = sit(delegates("finder", "finder"), "--children=team:finder", "--turns=4")
    assert terminal.end() == 0
    shown = terminal.text
    assert "turn 1: waits for its children" in shown
    assert re.search(r"^ *turns [━─]+ 1 of 4", shown, re.MULTILINE), "the bars are those of the run at the top"
    for line in (
        r"├─ finder 1: turn 1 of 50, 15 tokens, \d+\.\d s: waits for its children\n",
        r"│  └─ reader 1\.1: turn [1-5] of 5, \d+ tokens, \d+\.\d s: look: half\\x1b\[2J done\n",
        r"│  └─ reader 1\.1: budget, 5 of 5 turns, 90 tokens, \d+\.\d s\n",
        r"└─ finder 2: turn 1 of 50, 15 tokens, ",
        r"   └─ reader 2\.1: turn ",
        r".*    reader 2\.1  ended    budget: 5 of 5 turns, 90 tokens, \d+\.\d s\n",
    ):
        assert re.search(f"^{line}", shown, re.MULTILINE), line
    assert "with its children: 5 runs, 16 turns, 270 tokens" in shown
    assert b"\x1b[2J" not in terminal.raw


def test_children_that_ask_at_the_same_time_are_answered_one_after_the_other(sit: Sit, tmp_path: Path) -> None:
    terminal = sit(delegates("pilot", "pilot", "finder"), "--children=team:pilot", "--children=team:finder")
    question = 'pilot: May launch be called with {"what": "A"}?'
    for n, answer in enumerate("yn", 1):
        terminal.until(f"{question} (y, n, or e", times=n)
        time.sleep(0.6)  # in which the finder's reader goes on, and bars would be drawn
        terminal.type(f"{answer}\n")
    assert terminal.end() == 0
    _, first, second = terminal.text.split(question)
    for answer, shown in (("y", first), ("n", second)):
        assert shown.partition("passed on) ")[2].startswith(f"{answer}\n"), "nothing is drawn while somebody types"
    ends = [child["tool_execution_results"][0]["ok"] for child in record(tmp_path)["children"][:2]]
    assert sorted(ends) == [False, True]


def test_ctrl_c_cancels_the_whole_tree(sit: Sit, tmp_path: Path) -> None:
    terminal = sit(delegates("finder", "pilot"), "--children=team:finder", "--children=team:pilot")
    terminal.until("pilot: May launch be called")
    terminal.type("\x03")
    assert terminal.end() == 130
    assert [child["stop"] for child in record(tmp_path)["children"]] == ["cancelled", "cancelled"]
    assert re.search(r"^  pilot 2  ended    cancelled: ", terminal.text, re.MULTILINE)
    assert "Traceback" not in terminal.text


def test_a_run_that_goes_on_is_seen_and_asks_like_any_other(sit: Sit, tmp_path: Path) -> None:
    launch = 'calls = [{ name = "launch", arguments = { what = "A" } }]'
    first = sit(f'[[reply]]\n{launch}\n[[reply]]\ntext = "Off."\nafter = 0.3\n')
    first.until("May launch be called")
    first.type("\x04")  # nobody answers
    assert first.end() == 7
    with closing(Terminal(tmp_path, "resume", "last")) as terminal:
        terminal.until("May launch be called")
        terminal.type("y\n")
        assert terminal.end() == 0
    assert "turn 1   launch(what='A'): done" in terminal.text
    assert re.search(r"^ *turns [━─]+ 1 of 90", terminal.text, re.MULTILINE)
    assert "turn 2: asks scripted" in terminal.text
    assert record(tmp_path)["text"] == "Off."


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 1), ("", 1)])
def test_somebody_is_asked_before_anything_is_thrown_away(sit: Sit, tmp_path: Path, answer: str, left: int) -> None:
    assert sit('[[reply]]\ntext = "Done."\n').end() == 0
    with closing(Terminal(tmp_path, "prune", "--older-than=0s")) as terminal:
        terminal.until("Throw away 1 run and 1 session, untouched since ")
        terminal.type(f"{answer}\n")
        assert terminal.end() == 0
    assert ("threw away 1 run and 1 session" in terminal.text) == (left == 0)
    with SqliteStore(tmp_path / "data" / "flyball" / "runs.db") as store:
        assert len(store.runs.list()) == left
