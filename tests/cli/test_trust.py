"""Settings files of projects: until the user trusts one, it may only lower limits."""

import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from flyball import IterationBudgetRegistry, Settings
from flyball.cli.completion import complete_models
from flyball.testing import call, say
from flyball.testing.server import ModelServer

Typed = Callable[..., CompletedProcess[str]]
SCRIPT = '[[reply]]\ntext = "done"\n'


def ceiling(done: CompletedProcess[str], budget: str) -> Any:
    return next(row["ceiling"] for row in json.loads(done.stdout)["limits"] if row["name"] == budget)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('model = "http://127.0.0.1:9/v1#spy"', "model"),
        ('store = "sqlite:///spy.db"', "store"),
        ('[prices."gpt-5"]\ninput = 0.0\noutput = 0.0', "prices"),
        ("[repetition]\nsame = 50", "repetition.same"),
        ("[chain]\nservice = 'x'", "chain.service"),
        ("[rules.x]\nenabled = false", "rules.x.enabled"),
        ("max_turns = 40", "max_turns"),
        ("max_usd = 3\nmax_retries = 90", "max_retries"),
        ("[mode.chat]\nmax_turns = 40", "mode.chat.max_turns"),
        ("[mode.chat]\nmodel = 'x'", "mode.chat.model"),
        ("mode = 3", "mode"),
        ("whatever = 1", "whatever"),
    ],
)
@pytest.mark.parametrize("name", ["flyball.toml", "pyproject.toml"])
def test_a_project_file_that_does_more_than_lower_limits_is_refused_with_the_key(
    typed: Typed, tmp_path: Path, name: str, text: str, key: str
) -> None:
    if name == "pyproject.toml":
        text = "[tool.flyball]\n" + re.sub(r"(?m)^\[", "[tool.flyball.", text)
    (tmp_path / name).write_text(text)
    for command in (["limits"], ["run", "go", "--model", "script:a.toml"], ["doctor"], ["runs"], ["models"]):
        done = typed(*command, trusted=False)
        assert (done.returncode, done.stdout) == (2, "")
        assert key in done.stderr
        assert "flyball trust" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "budget", "expected"),
    [
        ("max_turns = 7", "conversation_turns", 7),
        ("max_usd = 2", "cost_usd", 2.0),
        ("[clamp]\nmax_iterations = 9", "agent_iterations", 9),
        ("[delegation]\nmax_children = 1", "children", 1),
        ("max_turns = 25", "conversation_turns", 25),
    ],
)
def test_a_project_file_may_lower_limits_without_trust(
    typed: Typed, tmp_path: Path, text: str, budget: str, expected: float
) -> None:
    (tmp_path / "flyball.toml").write_text(text)
    done = typed("limits", "--json", trusted=False)
    assert (done.returncode, ceiling(done, budget)) == (0, expected)


def test_lower_is_measured_against_what_holds_without_the_file(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("[clamp]\nmax_turns = 20\n[mode.chat]\nmax_turns = 20\n")
    assert typed("limits", trusted=False).returncode == 0
    raised = typed("limits", trusted=False, FLYBALL_MAX_TURNS="10")  # in this mode the file wins over the environment
    assert (raised.returncode, "mode.chat.max_turns" in raised.stderr, "clamp" in raised.stderr) == (2, True, False)
    (tmp_path / "flyball.toml").write_text("max_turns = 20\n")
    assert typed("limits", trusted=False, FLYBALL_MAX_TURNS="10").returncode == 0


def test_a_trusted_file_counts_until_it_changes(typed: Typed, tmp_path: Path) -> None:
    file = tmp_path / "flyball.toml"
    file.write_text("max_turns = 40")
    shown = typed("trust", "--yes", trusted=False)
    assert (shown.returncode, "max_turns = 40" in shown.stdout, str(file) in shown.stdout) == (0, True, True)
    assert ceiling(typed("limits", "--json", trusted=False), "conversation_turns") == 40
    assert typed("trust", "--list", trusted=False).stdout.split()[-2:] == [str(file), "trusted"]
    file.write_text("max_turns = 41")
    assert typed("limits", trusted=False).returncode == 2
    assert "changed" in typed("trust", "--list", trusted=False).stdout
    file.write_text("max_turns = 40")
    assert typed("limits", trusted=False).returncode == 0
    assert typed("trust", "--remove", trusted=False).returncode == 0
    assert typed("limits", trusted=False).returncode == 2
    assert typed("trust", "--remove", trusted=False).returncode == 2
    assert typed("trust", "--list", trusted=False).stdout == "no file is trusted\n"


def test_trust_asks_on_a_terminal_and_refuses_without_one(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 40")
    assert typed("trust", trusted=False).returncode == 2
    assert "not trusted" in typed("trust", trusted=False, stdin="n\n", terminal=True).stderr
    assert typed("limits", trusted=False).returncode == 2
    assert typed("trust", trusted=False, stdin="y\n", terminal=True).returncode == 0
    assert typed("limits", trusted=False).returncode == 0


def test_trust_needs_a_file(typed: Typed) -> None:
    done = typed("trust", "--yes", trusted=False)
    assert (done.returncode, "flyball.toml" in done.stderr) == (2, True)


@pytest.mark.skipif(sys.platform == "win32", reason="no modes")
def test_the_list_of_trusted_files_is_private_and_distrusted_if_others_can_write_it(
    typed: Typed, tmp_path: Path
) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 40")
    typed("trust", "--yes", trusted=False)
    listed = tmp_path / "data" / "flyball" / "trusted.json"
    assert stat.S_IMODE(listed.stat().st_mode) == 0o600
    listed.chmod(0o666)
    done = typed("limits", trusted=False)
    assert (done.returncode, "other users" in done.stderr) == (2, True)
    listed.chmod(0o600)
    listed.write_text("no json")
    assert typed("limits", trusted=False).returncode == 2


def test_trust_is_for_one_place(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    for folder in (mine, theirs):
        folder.mkdir()
    (mine / "flyball.toml").write_text("max_turns = 40")
    monkeypatch.chdir(mine)
    typed("trust", "--yes", trusted=False)
    monkeypatch.chdir(theirs)
    (theirs / "flyball.toml").symlink_to(mine / "flyball.toml")  # the content is trusted, but not here
    assert typed("limits", trusted=False).returncode == 2
    (theirs / "flyball.toml").unlink()
    (theirs / "flyball.toml").write_text("max_turns = 40")
    assert typed("limits", trusted=False).returncode == 2
    (tmp_path / "link").symlink_to(mine)  # another name of the same folder
    monkeypatch.chdir(tmp_path / "link")
    assert typed("limits", trusted=False).returncode == 0
    below = mine / "below"
    below.mkdir()
    monkeypatch.chdir(below)
    assert typed("limits", trusted=False).returncode == 0


def test_a_file_above_the_working_directory_needs_trust_too(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flyball.toml").write_text('model = "http://127.0.0.1:9/v1#spy"')
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    done = typed("run", "go", trusted=False)
    assert (done.returncode, str(tmp_path / "flyball.toml") in done.stderr) == (2, True)


def test_a_file_that_the_user_names_counts_as_trusted(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 40")
    (tmp_path / "mine.toml").write_text("max_turns = 30")
    named = typed("limits", "--json", trusted=False, FLYBALL_CONFIG="flyball.toml")
    assert ceiling(named, "conversation_turns") == 40
    option = typed("--config", "mine.toml", "limits", "--json", trusted=False, FLYBALL_CONFIG="flyball.toml")
    assert ceiling(option, "conversation_turns") == 30
    assert typed("--config", "missing.toml", "limits", trusted=False).returncode != 0


def test_in_a_program_settings_need_no_trust(tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("max_turns = 40")
    registry = IterationBudgetRegistry(settings=Settings.load(tmp_path, {}))
    assert registry.explain("conversation_turns").value == 40


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_a_pipe_or_an_endless_file_in_place_of_a_project_file_is_refused(typed: Typed, tmp_path: Path) -> None:
    file = tmp_path / "flyball.toml"
    os.mkfifo(file)
    assert typed("limits", trusted=False).returncode == 1
    file.unlink()
    file.symlink_to("/dev/zero")
    assert typed("limits", trusted=False).returncode == 1


def test_shell_completion_ignores_an_untrusted_file(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text('[prices."spy"]\ninput = 1\noutput = 1\n')
    assert complete_models("") == []
    assert "it is trusted" in typed("trust", "--yes", trusted=False).stdout
    assert "spy" in complete_models("")


def test_the_error_names_few_of_many_keys(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "flyball.toml").write_text("\n".join(f"{'k' * 500}{n} = 1" for n in range(1_000)))
    done = typed("limits", trusted=False)
    assert (done.returncode, "more" in done.stderr, len(done.stderr) < 3_000) == (2, True, True)


def test_the_address_is_shown_and_the_key_is_not_sent_to_an_address_from_a_project_file(
    typed: Typed, tmp_path: Path, key: str
) -> None:
    with ModelServer(say("one"), say("two"), say("three")) as server:
        url = server.url
        reference = f"{server.url}/v1#m"
        (tmp_path / "flyball.toml").write_text(f'model = "{reference}"')
        assert typed("run", "go", trusted=False, FLYBALL_API_KEY=key).returncode == 2
        assert server.requests == []
        from_file = typed("run", "go", FLYBALL_API_KEY=key)
        from_option = typed("run", "go", "--model", reference, FLYBALL_API_KEY=key)
        from_named_file = typed("run", "go", trusted=False, FLYBALL_API_KEY=key, FLYBALL_CONFIG="flyball.toml")
        keys = [request.headers.get("authorization") for request in server.requests]
    assert [done.returncode for done in (from_file, from_option, from_named_file)] == [0, 0, 0]
    assert keys == [None, f"Bearer {key}", f"Bearer {key}"]
    assert all(url in done.stderr.splitlines()[0] for done in (from_file, from_option, from_named_file))


def test_a_resumed_run_does_not_send_the_key_either(typed: Typed, tmp_path: Path, key: str) -> None:
    with ModelServer(call("missing"), say("report"), say("done")) as server:
        (tmp_path / "flyball.toml").write_text(f'model = "{server.url}/v1#m"\n')
        first = typed("run", "go", "--turns", "1", FLYBALL_API_KEY=key)
        resumed = typed("resume", "last", "--turns", "+1", FLYBALL_API_KEY=key)
        keys = [request.headers.get("authorization") for request in server.requests]
    assert (first.returncode, resumed.returncode, keys) == (3, 0, [None] * 3), resumed.stderr
