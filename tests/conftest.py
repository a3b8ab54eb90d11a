"""What every test relies on: settings are empty unless a test gives them, and nothing depends on how fast it runs."""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import anyio
import hypothesis
import pytest

from flyball import Agent, Result, Settings, cli
from flyball.cli.trust import TrustStore
from flyball.errors import FlyballError
from flyball.testing.plugin import clear_settings

BOUND_S = 60.0
UNCLOSED = "ignore:unclosed:ResourceWarning"
"""Filter for tests that run programs with clients of others, which may leave a connection open."""
KEY = "sk-flyball-0123456789-nobody-may-see-this"
_OF_PROVIDERS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "FLYBALL_API_KEY")


def pytest_configure() -> None:
    clear_settings(os.environ)
    for variable in (*_OF_PROVIDERS, "COLUMNS", "LINES"):  # pytest-xdist sets the width of the terminal
        os.environ.pop(variable, None)
    os.environ["OPENAI_AGENTS_DISABLE_TRACING"] = "1"  # the SDK would send what it traces to its provider
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        sys.dont_write_bytecode = False  # else each interpreter that a test starts compiles Flyball anew
    slow, examples = [hypothesis.HealthCheck.too_slow], int(os.environ.get("EXAMPLES", "40"))
    hypothesis.settings.register_profile(
        "flyball", deadline=None, print_blob=True, suppress_health_check=slow, max_examples=examples
    )
    hypothesis.settings.load_profile("flyball")


@pytest.fixture(scope="session")
def key() -> str:
    """The key that tests give to models. A test after which it is in any captured text fails."""
    return KEY


@pytest.fixture(scope="session")
def through() -> Callable[[str], Callable[[Agent], Result]]:
    """Runs an agent through a door: `sync`, `asyncio` or `trio`; none waits for ever."""

    def through(door: str) -> Callable[[Agent], Result]:
        async def bounded(agent: Agent) -> Result:
            with anyio.fail_after(BOUND_S):
                return await agent.arun("go")

        if door == "sync":
            return lambda agent: agent.start("go").result(BOUND_S)
        return lambda agent: anyio.run(bounded, agent, backend=door)

    return through


class Keyboard(io.StringIO):
    """Standard input of somebody who sits at a terminal."""

    def isatty(self) -> bool:
        return True


def trust_project_file() -> None:
    """Trust the settings file of the working directory, as most tests of commands want it."""
    with contextlib.suppress(FlyballError, OSError):
        file = Settings.load(environ={}).project_file
        if file is not None:
            TrustStore().add(file)


Typed = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Run a command in this process: `typed("run", "Go.", stdin="", FLYBALL_MODEL="script:a.toml")`.

    It runs in the folder of the test, with stores and states of its own. To start a process for each command would take
    most of the time of these tests.
    """
    for name in [name for name in os.environ if name.startswith("FLYBALL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)

    def type_(
        *arguments: str,
        stdin: str = "",
        terminal: bool = False,
        merged: bool = False,
        trusted: bool = True,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        before, out = set(sys.modules), io.StringIO()
        err = out if merged else io.StringIO()
        with monkeypatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "path", [*sys.path])  # commands look for modules in their folder, too
            patch.setattr(sys, "argv", ["flyball", *arguments])
            patch.setattr(sys.modules["__main__"], "__package__", None)  # or it is called `python -m pytest.flyball`
            patch.setattr(sys, "stdin", Keyboard(stdin) if terminal else io.StringIO(stdin))
            if trusted:
                trust_project_file()
            with pytest.raises(SystemExit) as ended:
                cli.main()
        for name in set(sys.modules) - before:
            if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]
        code = ended.value.code
        if not isinstance(code, int):  # a text is printed, and means 1
            err.write(f"{code}\n" if code else "")
            code = 1 if code else 0
        return subprocess.CompletedProcess(arguments, code, out.getvalue(), "" if merged else err.getvalue())

    return type_


SNAPSHOTS = Path(__file__).with_name("snapshots")
RENEW = os.environ.get("SNAPSHOTS") == "write"


def hide_time(text: str) -> str:
    return re.sub(r"\bin [\d.,]+ s\b", "in 0 s", text)


class Snapshots:
    """Exact texts that users see, in one JSON file per area: `tests/snapshots/cli.json`. `in 0 s` stands for any time.

    An area is the folder of a test below `tests/`. `make snapshots` writes the files anew.
    """

    def __init__(self) -> None:
        self._areas: dict[str, dict[str, str]] = {}
        self._seen: dict[str, dict[str, str]] = {}

    def check(self, area: str, key: str, text: str) -> None:
        """Compare a text with the stored one, or store it when files are written anew."""
        seen = self._seen.setdefault(area, {})
        assert seen.setdefault(key, text) == text, f"two texts for {key}: give each a name"
        if not RENEW:
            stored = self._read(area).get(key)
            if stored is not None and "in 0 s" in stored:  # by a real clock
                text, stored = hide_time(text), hide_time(stored)
            assert text == stored, f"{SNAPSHOTS.name}/{area}.json has another text; `make snapshots` renews it"

    def write(self) -> None:
        """Store all texts that were seen, in place of those of the same test files."""
        SNAPSHOTS.mkdir(exist_ok=True)
        for area, seen in self._seen.items():
            files = {key.partition("::")[0] for key in seen}
            kept = {key: text for key, text in self._read(area).items() if key.partition("::")[0] not in files}
            rows = dict(sorted((kept | seen).items()))
            (SNAPSHOTS / f"{area}.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")

    def _read(self, area: str) -> dict[str, str]:
        if area not in self._areas:
            path = SNAPSHOTS / f"{area}.json"
            self._areas[area] = json.loads(path.read_text()) if path.exists() else {}
        return self._areas[area]


@pytest.fixture(scope="session")
def snapshots() -> Iterator[Snapshots]:
    stored = Snapshots()
    yield stored
    if RENEW:
        stored.write()


@pytest.fixture
def snapshot(request: pytest.FixtureRequest, snapshots: Snapshots) -> Callable[..., None]:
    """Hold a text that users see to the stored one: `snapshot(error)`, or `snapshot(text, "name")` for several."""
    path = request.path.relative_to(Path(__file__).parent)
    area = path.parts[0] if len(path.parts) > 1 else "root"

    def check(text: object, name: str = "") -> None:
        key = f"{path.name}::{request.node.name}" + (f"::{name}" if name else "")
        snapshots.check(area, key, str(text))

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    captured = [text for _, text in report.sections]
    if any(KEY in text for text in [*captured, str(report.longrepr or "")]):
        report.outcome = "failed"
        report.longrepr = "the key is in what was printed, logged or raised"
    return report
