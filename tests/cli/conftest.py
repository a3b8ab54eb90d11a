"""A folder in which somebody types commands, run in this process: starting one for each would take most of the time."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from flyball import cli

Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Generator[Typed, None, None]:
    """What somebody types behind `flyball`: `typed("run", "Go.", stdin="", FLYBALL_MODEL="script:a.toml")`."""
    for name in [name for name in os.environ if name.startswith("FLYBALL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])  # commands look for modules in their folder, too
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def type_(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["flyball", *arguments])
            patch.setattr(sys, "stdin", io.StringIO(stdin))
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, err = capsys.readouterr()
        code = ended.value.code
        if not isinstance(code, int):  # a text is printed, and means 1
            code, err = (1, f"{err}{code}\n") if code else (0, err)
        return subprocess.CompletedProcess(arguments, code, out, err)

    yield type_
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
