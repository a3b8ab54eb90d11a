"""The command as a process: what it loads, what a shell completes, and readers who leave early."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import flyball

COMMAND = [sys.executable, "-m", "flyball"]
LOADED = """
import json, sys
from flyball.cli import main
sys.argv = ["flyball", *sys.argv[1:]]
try:
    main()
except SystemExit:
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own.toml").write_text('loop = true\n[[reply]]\ntext = "Ten words, and one after the other."\n')
    monkeypatch.delenv("FLYBALL_CONFIG")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def output(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


def test_help_loads_no_model_no_store_and_no_server(place: Path) -> None:
    *_, last = output([sys.executable, "-c", LOADED, "--help"], place).splitlines()
    loaded = set(json.loads(last))
    tops = {name.partition(".")[0] for name in loaded}
    assert "flyball.cli.commands.run" in loaded
    assert not tops & {
        "anyio", "asyncio", "genai_prices", "httpx2", "jsonschema", "mcp", "opentelemetry", "pydantic", "sqlite3",
        "xllamacpp",
    }  # fmt: skip
    rooms = ("models", "tools", "toolbox", "drive", "loop", "agent", "run", "doctor", "testing", "store", "worker")
    assert not loaded & {f"flyball.{room}" for room in rooms}


COMMANDS = [
    "run",
    "resume",
    "replay",
    "why",
    "runs",
    "sessions",
    "spend",
    "status",
    "export",
    "prune",
    "models",
    "limits",
    "trust",
    "doctor",
    "rules",
]


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_the_help_of_a_command_is_as_stored(
    command: str, typed: Callable[..., subprocess.CompletedProcess[str]], snapshot: Callable[..., None]
) -> None:
    done = typed(*command.split(), "--help", COLUMNS="100", TERM="dumb")
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"^Usage: \S+( -m \S+)?", "Usage: flyball", done.stdout)  # it is named after how this was started
    snapshot("\n".join(line.rstrip() for line in shown.splitlines()))


def test_the_installed_command_is_the_same_program_and_tells_its_version(place: Path) -> None:
    command = str(Path(sys.executable).with_name("flyball"))
    assert output([command, "--version"], place) == f"flyball {flyball.__version__}\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("flyball ", set(COMMANDS)),
        ("flyball run --tool-c", {"--tool-calls"}),
        ("flyball run Go --toolbox files,", {"files,write", "files,python", "files,shell", "files,fetch"}),
        ("flyball run Go --model local:", {"local:smollm2"}),
    ],
)
def test_a_shell_completes_commands_options_and_names(
    words: str, offered: set[str], typed: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    cword = str(len(words.split(" ")) - 1)
    done = typed(_FLYBALL_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=cword)
    assert set(done.stdout.split()) == offered


def test_the_script_for_a_shell_can_be_had(place: Path) -> None:
    command = str(Path(sys.executable).with_name("flyball"))
    assert "_FLYBALL_COMPLETE=complete_bash" in output([command], place, _FLYBALL_COMPLETE="source_bash")


@pytest.mark.parametrize(
    ("options", "stream", "code"),
    [("--jsonl", "stdout", 130), ("", "stderr", 130), ("--json", "stdout", 0)],
)
def test_a_run_whose_reader_leaves_is_cancelled_or_ends_with_its_own_code(
    options: str, stream: str, code: int, place: Path
) -> None:
    script = "[[reply]]\npieces = ['a', 'b']\nafter = 0.2\n" * (3 if options == "--jsonl" else 1)
    if options == "":
        script = '[[reply]]\nerror = { kind = "retryable", message = "busy", after = 0.1 }\n' + script
    (place / "own.toml").write_text(script)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        out, err = (writing, subprocess.PIPE) if stream == "stdout" else (subprocess.PIPE, writing)
        command = [*COMMAND, "run", "Go.", "--model=script:own.toml", *options.split()]
        done = subprocess.run(command, cwd=place, timeout=60, check=False, text=True, stdout=out, stderr=err)
    finally:
        os.close(writing)
    assert done.returncode == code
    assert not (done.stderr or "").count("Error")
    assert json.loads((place / "state" / "flyball" / "last.json").read_text())["stop"] == (
        "cancelled" if code else "completed"
    )


def test_a_reader_that_leaves_early_breaks_no_command(place: Path) -> None:
    command = "{ " + " ".join(COMMAND) + " models; echo $? >code; } | head -1"
    done = subprocess.run(command, shell=True, cwd=place, capture_output=True, text=True, timeout=60, check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")
