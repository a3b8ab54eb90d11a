"""Write SVG screenshots of the command line at 44, 80 and 120 columns: `make screenshots`.

The commands run on a terminal of that width, in a folder of their own, with a scripted model. Names are
`dist/screenshots/COMMAND-COLUMNS.svg`; `run-live` is the view of a run in progress.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTHS = (44, 80, 120)
STOKER = "--model=script:stoker.toml"
COMMANDS = {
    "run": ["run", "Keep the pressure at 100.", STOKER, "--tools=engine:tools", "--turns=3", "--tokens=9000"],
    "why": ["why"],
    "status": ["status"],
    "delegate": ["run", "See to the boiler.", "--model=script:chief.toml", "--children=engine:children"],
    "why-tree": ["why"],
    "failed": ["run", "Keep the pressure at 100.", STOKER, "--turns=many"],
    "runs": ["runs"],
    "spend": ["spend", "--by", "agent,model"],
    "limits": ["limits"],
    "models": ["models", "claude", "opus", "4"],
    "exec-list": ["exec", "--list"],
    "doctor": ["doctor"],
    "doctor-verbose": ["doctor", "--verbose"],
}
"""In this order: `why` and `status` show the newest run."""
FILES = {
    "stoker.toml": """
name = "stoker"
loop = true
[[reply]]
pieces = ["The pressure is too low, so I put ", "more coal on the fire and look at the gauge."]
after = 0.4
calls = [{ name = "add_coal", arguments = { shovels = 2 } }, { name = "read_gauge" }]
[grace]
pieces = ["I put coal on the fire three times, six shovels in all. ", "The pressure rose to 100, and still rises."]
after = 0.2
""",
    "chief.toml": """
name = "chief"
[[reply]]
calls = [{ name = "delegate", arguments = { tasks = [
  { child = "finder", goal = "Look at every gauge of the boiler, and at the water." },
  { child = "writer", goal = "Write a line for the log." },
] } }]
[[reply]]
text = "The boiler is dusty, and the log has a line about it."
""",
    "engine.py": '''
from itertools import count
from flyball import Agent, Limits, tool
from flyball.testing import ScriptedModel, call, say

PRESSURE = count(90, 5)

@tool(poll=True)
def add_coal(shovels: int) -> str:
    """Put coal on the fire."""
    return f"{shovels} shovels burn, and the fire is hot"

@tool(effects="read", poll=True)
def read_gauge() -> int:
    """Read the pressure."""
    return next(PRESSURE)

tools = [add_coal, read_gauge]
finder = Agent(name="finder", description="Looks.", tools=[read_gauge], limits=Limits(turns=2),
               model=ScriptedModel.looping(call("read_gauge"), grace=say("The pressure rises.")))
writer = Agent(name="writer", description="Writes.", model=ScriptedModel(say("Dust.")))
children = [finder, writer]
''',
    "flyball.toml": """
max_tool_calls = 50
[prices]
"flyball:stoker" = { input = 3, output = 15 }
"flyball:chief" = { input = 3, output = 15 }
""",
}
_PROGRAM = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from flyball.cli import main
main()
"""
_LIVE = "turn 2: "
"""The first screen with this is that of `run-live`."""
_UNFINISHED = re.compile(r"\x1b[^A-Za-z]*$")
_TOKENS = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\r\n|\n|\r|[^\x1b\r\n]+")


class Screen:
    """Lines of a terminal, as far as rich moves on it: it clears whole lines and writes them again."""

    def __init__(self) -> None:
        self.lines = [""]
        self._row = 0

    def write(self, text: str) -> None:
        """Apply output of a program."""
        for found in _TOKENS.finditer(text):
            code, letter = found[1], found[2]
            match letter or found[0][-1]:
                case "A" if letter:
                    self._row = max(0, self._row - int(code or 1))
                case "K" if letter:
                    self.lines[self._row] = ""
                case "m" if letter:
                    self.lines[self._row] += found[0]
                case "\n":
                    self._row += 1
                    self.lines += [""] * (self._row + 1 - len(self.lines))
                case "\r":
                    pass
                case _ if not letter:
                    self.lines[self._row] += found[0]
                case _:
                    pass

    @property
    def text(self) -> str:
        """All lines, with their colours."""
        return "\n".join(self.lines).rstrip()


def play(arguments: list[str], folder: Path, columns: int) -> tuple[str, str]:
    """Run a command on a terminal; return the last screen, and one in the middle of a run."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    unset = ("FLYBALL_", "COLUMNS", "NO_COLOR")
    environment = {name: text for name, text in os.environ.items() if not name.startswith(unset)}
    homes = {"XDG_STATE_HOME": str(folder / "state"), "XDG_DATA_HOME": str(folder / "data")}
    environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **homes}
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, "--config", "flyball.toml", *arguments],
        cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    output, middle = b"", ""
    while True:
        try:
            output += os.read(ours, 65_536)
        except OSError:  # how Linux tells that the other end is closed
            break
        if not middle and _LIVE in (screen := draw(output)):
            middle = screen
    process.wait(60)
    os.close(ours)
    return draw(output), middle


def draw(output: bytes) -> str:
    """Return the screen after this output, which may end inside a character or an escape sequence."""
    screen = Screen()
    screen.write(_UNFINISHED.sub("", output.decode(errors="ignore")))
    return screen.text


def save(name: str, command: str, screen: str, columns: int, folder: Path) -> None:
    """Write one screen as SVG."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.from_ansi(f"$ {command}\n{screen}"), soft_wrap=False)
    console.save_svg(str(folder / f"{name}-{columns}.svg"), title=f"{name}, {columns} columns")


def main() -> None:
    target = Path(__file__).parents[1] / "dist" / "screenshots"
    target.mkdir(parents=True, exist_ok=True)
    for columns in WIDTHS:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for file, text in FILES.items():
                (folder / file).write_text(text)
            for command, arguments in COMMANDS.items():
                screen, middle = play(arguments, folder, columns)
                shown = " ".join(f'"{word}"' if " " in word else word for word in ["flyball", *arguments])
                save(command, shown, screen, columns, target)
                if command == "run":
                    save("run-live", shown, middle, columns, target)
    print(f"{len(list(target.glob('*.svg')))} screenshots in {target}")


if __name__ == "__main__":
    main()
