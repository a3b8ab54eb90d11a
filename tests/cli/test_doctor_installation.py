"""What `flyball doctor` says of an installation in which something is missing, or broken."""

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from flyball import toolbox
from flyball.doctor import Hint, installation, installation_checks
from flyball.tools import Tool


def found(name: str) -> list[str]:
    """What the one check of that name finds; hints are marked."""
    [check] = [check for check in installation_checks() if check.name == name]
    return [f"hint: {one}" if isinstance(one, Hint) else one for one in check.run()]


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLYBALL_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_python_that_is_too_old_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "OLDEST", (99, 0))
    [said] = installation_checks()[0].find_errors()
    assert "99.0" in said


def test_an_extra_that_is_missing_is_no_failure_and_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        moon = ["nowhere-to-be-found>=1; extra == 'moon'", 'anyio; python_version > "3" and extra == "moon"']
        return ["anyio>=4.8", *moon, "mcp>=2.2; extra == 'mcp'"]

    monkeypatch.setattr(metadata, "requires", requires)
    [hint] = found("extra moon")
    assert hint.startswith("hint: ")
    assert "nowhere-to-be-found" in hint
    assert hint.endswith("pip install 'flyball-ai[moon]'")
    assert found("extra mcp") == []


def test_where_flyball_is_not_installed_as_a_package_no_extra_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(_: str) -> Any:
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "requires", requires)
    assert installation.read_extras() == {}


def test_without_the_extra_mcp_no_server_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_installed(package: str) -> bool:
        return package != "mcp"

    monkeypatch.setattr(installation, "_is_installed", is_installed)
    [hint] = found("tools of an MCP server")
    assert (hint.startswith("hint: "), "'mcp'" in hint) == (True, True)


def test_a_key_is_there_or_a_hint(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    [hint] = found("key of openai")
    assert hint.startswith("hint: OPENAI_API_KEY ")
    monkeypatch.setenv("OPENAI_API_KEY", key)
    assert found("key of openai") == []


def test_the_model_of_the_settings_must_be_one_that_can_be_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, key: str
) -> None:
    name = "model that is asked by default"
    [hint] = found(name)
    assert hint.startswith("hint: ")
    assert all(word in hint for word in ("FLYBALL_MODEL", "flyball.toml", "--model")), "each way to name one"
    monkeypatch.setenv("FLYBALL_MODEL", "openai:gpt-5")
    [without_key] = found(name)
    assert without_key.startswith("openai:gpt-5 (environment variable FLYBALL_MODEL): ")
    assert "OPENAI_API_KEY" in without_key
    monkeypatch.setenv("OPENAI_API_KEY", key)
    assert found(name) == []
    monkeypatch.setenv("FLYBALL_MODEL", "opneai:gpt-5")
    [unknown] = found(name)
    assert "openai:gpt-5?" in unknown
    monkeypatch.delenv("FLYBALL_MODEL")
    (tmp_path / "flyball.toml").write_text("model = 5\n")
    [wrong] = found(name)
    assert wrong.startswith("model (flyball.toml:1): ")


def test_tools_that_do_not_work_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    for name in ("toolbox python", "toolbox shell"):
        [said] = found(name)
        assert "program" in said.partition(":")[0]
        assert "/nowhere/python" in said


def test_a_file_tool_that_looks_elsewhere_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    elsewhere = toolbox.files(tmp_path)

    def files(folder: str) -> list[Tool]:
        return elsewhere

    monkeypatch.setattr(toolbox, "files", files)
    [read] = found("toolbox files")
    assert "read" in read.partition(":")[0]
    assert "a.txt" in read


def test_an_open_fetch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    real = toolbox.fetch
    monkeypatch.setattr(toolbox, "fetch", lambda: real(allow=["127.0.0.1"]))
    [opened] = found("toolbox fetch")
    assert "address" in opened.partition(":")[0]
    assert "127.0.0.1" in opened
