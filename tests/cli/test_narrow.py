"""Commands on a terminal of 44 columns, and a person who types while a run is shown."""

import fcntl
import importlib.util
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from select import select
from typing import Any

import pytest

from flyball.testing import until

PATIENCE_S = 60
COLUMNS = 44
PROGRAM = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from flyball.cli import main
main()
"""
KIT = '''
import os, time
from flyball import Agent, Limits, tool
from flyball.testing import ScriptedModel, call, say

@tool(poll=True)
def look(path: str) -> str:
    """Look, until a file is there."""
    open("looks", "a").close()
    while path == "long" and not os.path.exists("over"):
        time.sleep(0.01)
    return "forty pressure gauges of the boiler are fine"

@tool(approve=True)
def launch() -> str:
    """Launch."""
    return "gone"

tools = [look, launch]
finder = Agent(name="finder", description="Looks.", tools=[look], limits=Limits(turns=2),
               model=ScriptedModel.looping(call("look", path="a"), grace=say("The pressure rises.")))
'''
LOOKS = '[[reply]]\ncalls = [{ name = "look", arguments = { path = "PATH" } }]\n'
WORDS = "The pressure of the boiler rises, and every gauge shows considerably different temperatures."
GRACE = f'[grace]\ntext = "{WORDS}"\n'


def load_screenshots() -> Any:
    """The tool that draws screenshots knows what stands on a terminal."""
    path = Path(__file__).parents[2] / "tools" / "screenshots.py"
    spec = importlib.util.spec_from_file_location("screenshots", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCREENSHOTS = load_screenshots()


class Terminal:
    """A program on a terminal of 44 columns."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        unset = ("FLYBALL_", "COLUMNS")
        environment = {name: text for name, text in os.environ.items() if not name.startswith(unset)}
        homes = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
        environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **homes}
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *arguments],
            cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.raw, self._is_closed = b"", False

    @property
    def text(self) -> str:
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.raw.decode(errors="replace")).replace("\r", "")

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._ours)[3] & termios.ECHO)

    def until(self, words: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(words, self.text, re.MULTILINE):
            assert time.monotonic() < deadline, f"{words!r} never came:\n{self.text}"
            assert self._read(), f"it ended without {words!r}:\n{self.text}"

    def end(self) -> int:
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, f"it does not end:\n{self.text}"
        return self._process.wait(PATIENCE_S)

    def _read(self) -> bool:
        if not select([self._ours], [], [], 1.0)[0]:
            return self._process.poll() is None
        try:
            piece = os.read(self._ours, 65_536)
        except OSError:  # how Linux tells that the other end is closed
            return False
        self.raw += piece
        return bool(piece)

    @property
    def screen(self) -> str:
        """What stands on the terminal at the end."""
        return re.sub(r"\x1b\[[0-9;]*m", "", SCREENSHOTS.draw(self.raw))

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._process.kill()
            self._process.wait(PATIENCE_S)
            os.close(self._ours)


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Open]:
    (tmp_path / "kit.py").write_text(KIT)
    (tmp_path / "own.toml").write_text(LOOKS.replace("PATH", "short") * 3 + GRACE)
    opened: list[Terminal] = []

    def open_(*arguments: str) -> Terminal:
        opened.append(Terminal(tmp_path, *arguments))
        return opened[-1]

    yield open_
    for one in opened:
        one.close()


RUN = ("run", "Keep the pressure at 100.", "--model=script:own.toml", "--tools=kit:tools", "--turns=2")


def assert_whole_words(text: str, *sentences: str) -> None:
    """Every line fits, and no word of these sentences is cut at the end of one."""
    lines = text.splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    joined = " ".join(" ".join(line.split()) for line in lines)
    assert [sentence for sentence in sentences if sentence not in joined] == []


def test_a_screen_is_drawn_from_output_that_is_cut_anywhere() -> None:
    output = "━ \x1b[36m━\x1b[0m".encode()
    drawn = {re.sub(r"\x1b\[[0-9;]*m", "", SCREENSHOTS.draw(output[:end])) for end in range(len(output) + 1)}
    assert {screen.rstrip() for screen in drawn} == {"", "━", "━ ━"}


def test_a_run_on_44_columns_cuts_no_word_and_ends_with_the_next_command(terminal: Open) -> None:
    with closing(terminal(*RUN)) as shown:
        assert shown.end() == 3
    notice = "This is the last turn (2 of 2): give your answer now, or say what is missing."
    refused = "max_agent_iterations_reached"
    assert_whole_words(shown.screen, WORDS, notice, refused, "Maximum agent iterations (2) reached.")
    ended, *_ = [n for n, line in enumerate(shown.screen.splitlines()) if line.startswith(" budget  ")]
    last = shown.screen.splitlines()[ended:]
    assert [line.split()[0] for line in last if line[:1].strip()] == ["used", "next"]
    assert re.fullmatch(r"next     flyball resume [0-9a-f]{8} --turns \+2", last[-1])
    assert b"\x1b[1;7;33m budget " in shown.raw, "a badge"


def test_every_command_fits_44_columns(terminal: Open) -> None:
    with closing(terminal(*RUN)) as shown:
        shown.end()
    commands = (
        "why",
        "runs",
        "limits",
        "models gpt-5",
        "doctor",
        "status",
        "spend",
        "run Go. --turns=many",
        "rules list",
    )
    for command in commands:
        with closing(terminal(*command.split())) as shown:
            shown.end()
        assert [line for line in shown.screen.splitlines() if len(line) > COLUMNS] == [], command
    with closing(terminal("why")) as shown:
        shown.end()
    assert_whole_words(shown.screen, WORDS, "max_agent_iterations_reached")
    assert re.search(r"^ +turns ━+ 2 of 2$", shown.screen, re.MULTILINE)
    assert re.search(r"^ +seconds [━─]+ [\d.]+ s of 3,580 s$", shown.screen, re.MULTILINE)


def test_a_clamped_limit_on_44_columns_is_told_between_words(terminal: Open) -> None:
    with closing(terminal(*RUN[:-1], "--turns=2", "--tool-calls=3", "--seconds=0.5")) as shown:
        shown.end()
    assert_whole_words(shown.screen, "warning seconds is limited to 1 s, not 0.5 s as --seconds says: allowed is")


def test_a_warning_fits_the_terminal_though_the_answer_goes_to_a_file(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {name: text for name, text in os.environ.items() if name != "COLUMNS"}
    command = [sys.executable, "-m", "flyball", "run", "Go.", "--turns=many"]
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(command, cwd=tmp_path, env=environment, stdout=out, stderr=theirs, timeout=60, check=False)
    os.close(theirs)
    told = os.read(ours, 65_536).decode()
    os.close(ours)
    assert len(told.splitlines()) > 1
    assert [line for line in told.splitlines() if len(line) > COLUMNS] == []


def test_a_tree_on_44_columns_keeps_its_names_and_reasons(terminal: Open, tmp_path: Path) -> None:
    task = 'tasks = [{ child = "finder", goal = "Look at every gauge, and at the water of the boiler." }]'
    delegate = f'[[reply]]\ncalls = [{{ name = "delegate", arguments = {{ {task} }} }}]\n[[reply]]\ntext = "Done."\n'
    (tmp_path / "chief.toml").write_text(delegate)
    with closing(terminal("run", "Go.", "--model=script:chief.toml", "--children=kit:finder")) as shown:
        assert shown.end() == 0
    assert_whole_words(shown.screen, "max_child_iterations_reached", "delegate(finder): failed")
    with closing(terminal("why")) as shown:
        shown.end()
    assert_whole_words(shown.screen, "delegate(finder)", "finder 1", "budget: Maximum child")
    assert "goal" not in shown.screen, "the arguments are folded"


def test_enter_does_not_draw_the_view_twice_and_the_echo_comes_back(terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(LOOKS.replace("PATH", "long") + GRACE)
    with closing(terminal(*RUN)) as shown:
        until((tmp_path / "looks").exists, PATIENCE_S)
        shown.until(r"turn 1: look\(path='long'\)")
        assert not shown.echoes()
        shown.type("\n\n\nwords")
        before = shown.raw
        shown.until(r"2 s of 3,580 s")
        drawn = shown.raw[len(before) :].decode()
        assert "words" not in drawn
        assert "\n\r\n" not in drawn.replace("\x1b[2K", ""), "no empty line was typed into the view"
        (tmp_path / "over").touch()
        shown.end()
        assert shown.echoes()
        assert shown.raw.count(b"turn 1   look(path='long'): done") == 1


def test_what_was_typed_before_a_question_is_no_answer(terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(
        LOOKS.replace("PATH", "long") + '[[reply]]\ncalls = [{ name = "launch" }]\n[[reply]]\ntext = "Off."\n'
    )
    with closing(terminal(*RUN[:-1], "--turns=5")) as shown:
        until((tmp_path / "looks").exists, PATIENCE_S)
        shown.until(r"turn 1: look\(path='long'\)")
        shown.type("y\n")
        (tmp_path / "over").touch()
        shown.until("May launch be called")
        shown.until(r"passed on\)\s*$")
        assert shown.echoes()
        shown.type("n\n")
        assert shown.end() == 0
    assert "launch: denied (approval)" in shown.text


def test_a_spinner_turns_while_the_model_is_silent(terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(LOOKS.replace("PATH", "short") + f'after = 1.0\n[[reply]]\ntext = "{WORDS}"\n')
    with closing(terminal(*RUN)) as shown:
        assert shown.end() == 0
    frames = set(re.findall(r"(\S) turn 1: asks scripted", shown.text))
    assert len(frames) >= 3
    assert all(0x2800 <= ord(frame) < 0x2900 for frame in frames)
