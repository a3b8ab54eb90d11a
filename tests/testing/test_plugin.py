import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from flyball import IterationBudgetRegistry, Settings
from flyball.testing import ManualClock
from flyball.testing.plugin import clear_settings

TESTS = """
from flyball import Agent, IterationBudgetRegistry
from flyball.testing import ScriptedModel, say

def test_settings(flyball_settings):
    flyball_settings({"max_iterations": 7})
    assert IterationBudgetRegistry().create("agent_iterations").ceiling == 7
    assert IterationBudgetRegistry().create("retries").ceiling == 10

def test_afterwards_all_is_as_before():
    assert IterationBudgetRegistry().create("retries").ceiling == 99
    assert IterationBudgetRegistry().create("agent_iterations").ceiling == 90

def test_recorded(flyball_recorded):
    models = ScriptedModel(say("one")), ScriptedModel(say("two"))
    agents = [Agent(model=flyball_recorded(model), settings={}) for model in models]
    assert [agent.run("Go.").text for agent in agents] == ["one", "two"]
    print("asked", sum(len(model.requests) for model in models))
"""


def pytest_in(folder: Path) -> str:
    environ = {**os.environ, "FLYBALL_MAX_RETRIES": "99"}
    others = ["no:cacheprovider", "no:anyio", "no:hypothesispytest", "no:langsmith_plugin", "no:faker"]
    command = [sys.executable, "-m", "pytest", "-q", "-rP", "--assert=plain", *[f"-p{name}" for name in others]]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class TestInAStrangersProject:
    def test_the_fixtures_are_found_and_work(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text(TESTS)
        assert "asked 2" in pytest_in(tmp_path)
        folder = tmp_path / "recordings" / "test_it"
        assert sorted(path.name for path in folder.iterdir()) == ["test_recorded-2.json", "test_recorded.json"]
        assert "asked 0" in pytest_in(tmp_path)

    def test_the_fixtures_do_nothing_unless_a_test_asks(self, tmp_path: Path) -> None:
        (tmp_path / "test_it.py").write_text(
            "import os, sys\n"
            "def test_it():\n"
            "    assert os.environ['FLYBALL_MAX_RETRIES'] == '99'\n"
            "    ours = {name for name in sys.modules if name.startswith('flyball.')}\n"
            "    assert 'flyball.testing.plugin' in ours\n"
            "    heavy = {'flyball.agent.agent', 'flyball.models.scripted', 'anyio._core'}\n"
            "    print('heavy', sorted(heavy & set(sys.modules)))\n"
        )
        assert "heavy []" in pytest_in(tmp_path)


class TestSettings:
    @pytest.fixture
    def dirty(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "flyball.toml").write_text("max_turns = 40\n")
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("FLYBALL_CONFIG")
        monkeypatch.setenv("FLYBALL_MAX_RETRIES", "3")

    def test_the_settings_of_a_test_that_asks_are_empty(self, dirty: None, request: pytest.FixtureRequest) -> None:
        assert len(list(Settings.load())) == 2
        request.getfixturevalue("flyball_settings")
        assert list(Settings.load()) == []

    def test_a_test_gives_its_own(self, flyball_settings: Callable[[Mapping[str, object]], None]) -> None:
        flyball_settings({"max_turns": 7, "delegation.max_iterations": 9})
        registry = IterationBudgetRegistry()
        assert registry.create("conversation_turns").ceiling == 7
        assert registry.create("child_iterations").ceiling == 9

    def test_the_next_test_does_not_see_them(self) -> None:
        assert list(Settings.load()) == []


def test_an_environment_is_cleared_of_our_variables_only() -> None:
    environ = {"FLYBALL_MAX_TURNS": "3", "FLYBALL_CONFIG": "x.toml", "HOME": "/root"}
    clear_settings(environ)
    assert environ == {"FLYBALL_CONFIG": os.devnull, "HOME": "/root"}


def test_the_clock_stands_still(flyball_clock: ManualClock) -> None:
    flyball_clock.move(5)
    assert flyball_clock.now() == 5
