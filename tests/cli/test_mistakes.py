"""Mistakes of the user: one line that says what was found and what would be right, exit code 2, and no traceback."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.testing import ModelServer, status

Typed = Callable[..., subprocess.CompletedProcess[str]]

FILES = {
    "answer.toml": '[[reply]]\ntext = "{\\"a\\": \\"x\\"}"\n[[reply]]\ntext = "{\\"a\\": 3}"\n',
    "broken.toml": "[[reply\n",
    "broken.json": "{",
    "list.json": "[1]",
    "wrong.json": '{"type": "objekt"}',
    "form.json": '{"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}',
    "raises.py": "raise RuntimeError('not\\nnow')",
    "leaves.py": "raise SystemExit(0)",
    "kit.py": "number = 7\ndef duoble(n: int) -> int:\n    return n\n",
}
MODEL = "--model=script:answer.toml"
MISTAKES = {
    "": "--model",
    "--model=gpt": "'gpt'",
    "--model=opneai:gpt-5": "openai:gpt-5",
    "--model=http://127.0.0.1:9/v1": "'http://127.0.0.1:9/v1'",
    "--model=script:missing.toml": "missing.toml: ",
    "--model=script:broken.toml": "broken.toml:1: ",
    f"{MODEL} --toolbox=fils": "files",
    f"{MODEL} --toolbox=files:missing": "'missing'",
    f"{MODEL} --tools=kit": "--tools",
    f"{MODEL} --tools=missing_module:x": "ModuleNotFoundError",
    f"{MODEL} --tools=raises:x": "RuntimeError: not now",
    f"{MODEL} --tools=leaves:x": "SystemExit: 0",
    f"{MODEL} --tools=kit:double": "duoble",
    f"{MODEL} --tools=kit:number": " 7",
    f"{MODEL} --rules=missing": "'missing'",
    f"{MODEL} --assert=missing": "missing: ",
    f"{MODEL} --assert=broken.toml": "broken.toml:1: ",
    f"{MODEL} --output-schema=missing": "schema missing ",
    f"{MODEL} --output-schema=broken.json": "schema broken.json ",
    f"{MODEL} --output-schema=list.json": "list.json: ",
    f"{MODEL} --output-schema=wrong.json": "'objekt'",
    f"{MODEL} --usd=1": "$1.00",
    f"{MODEL} --session=": "--session needs a name",
    f"{MODEL} --json --jsonl": "--json or --jsonl",
}
"""For what is typed behind `flyball run`, what the line that refuses it must name."""


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("options", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(
    options: str, typed: Typed, place: Path, snapshot: Callable[..., None]
) -> None:
    done = typed("run", "Go.", *options.split())
    [line] = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith("flyball: ")
    assert MISTAKES[options] in line
    snapshot(line)
    assert not (place / "state").exists(), "nothing ran, so nothing is kept"


PYTHON_WORDS = re.compile(r"\w=(?:\W|$)|[A-Z]\w+\(|\.\w+\(|=True|None\b")
"""Arguments and calls of Python, which nobody types at a prompt."""
TYPED_WRONGLY = {
    "run Go. --turns=many": "--turns",
    "run Go. --turns=0": "--turns",
    "run Go. --seconds=nan": "--seconds",
    "run Go. --tokens=-1": "--tokens",
    "run Go. --seconds=inf": "--seconds: found 'inf'",
    "run Go. --seconds=1e300": "--seconds: found '1e+300'",
    "run Go. --usd=x": "--usd",
    "exec --usd=inf -- true": "--usd: found 'inf'",
    "export last --format=xml": "expected jsonl or md;",
    "run Go. --no-such-option": "--no-such-option",
    "run Go. --turn=3": "--turns",
    "run Go. --turns": "see flyball run --help",
    "run Go. --tunrs=3": "did you mean --turns?",
    "status --json": "there is no option --json; see",
    "run Go. --quiet=3": "--quiet",
    "run Go. on": "unexpected argument: on;",
    "run Go. on and": "unexpected arguments: on and;",
    "run": "TASK",
    "rnu": "run",
    "resume": "RUN",
    "runs --limit=0": "--limit",
    "sessions titel": "title",
}
"""For what is typed behind `flyball`, what the line that refuses it must name."""


@pytest.mark.parametrize("line", TYPED_WRONGLY)
def test_a_wrong_option_or_argument_is_one_line_like_every_error(
    line: str, typed: Typed, snapshot: Callable[..., None]
) -> None:
    done = typed(*line.split())
    [told] = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"flyball: .*(; s|\? S)ee flyball.* --help \[usage_error\]", told)
    assert TYPED_WRONGLY[line] in told
    assert not re.search("Input should|Value error", told)
    snapshot(told)


def test_a_group_without_a_command_shows_its_help(typed: Typed) -> None:
    done = typed("rules")
    assert (done.returncode, "Usage: flyball rules" in done.stderr, "flyball: " in done.stderr) == (2, True, False)


def test_no_error_of_the_command_line_has_words_of_python() -> None:
    texts = json.loads((Path(__file__).parents[1] / "snapshots" / "cli.json").read_text())
    errors = [line for text in texts.values() for line in text.splitlines() if line.startswith("flyball: ")]
    assert len(errors) > 50
    assert [line for line in errors if PYTHON_WORDS.search(line)] == []


def test_a_task_must_be_given(typed: Typed) -> None:
    assert typed("run").returncode == 2
    empty = typed("run", " ", MODEL)
    assert (empty.returncode, empty.stderr.count("\n"), "task" in empty.stderr) == (2, 1, True)


@pytest.mark.parametrize(
    "text", ["max_iterations = 'many'\n", "max_iterations\n", "[rules.last-turn-warning]\nx = 1\n"]
)
def test_a_wrong_setting_is_refused_before_anything_runs(text: str, typed: Typed, place: Path) -> None:
    (place / "flyball.toml").write_text(text)
    done = typed("run", "Go.", MODEL)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "flyball.toml" in done.stderr


def test_a_model_that_is_no_text_in_the_settings_is_refused(typed: Typed, place: Path) -> None:
    (place / "flyball.toml").write_text("model = 5\n")
    done = typed("run", "Go.")
    assert (done.returncode, " 5" in done.stderr, "model (flyball.toml:1)" in done.stderr) == (2, True, True)


def test_a_missing_key_fails_the_run_and_says_which(typed: Typed) -> None:
    done = typed("run", "Go.", "--model=openai:gpt-5")
    assert done.returncode == 1
    assert "\nfailed   there is no key for openai: set OPENAI_API_KEY.\n" in done.stderr


def test_a_server_that_rejects_or_is_gone_is_explained_without_words_of_python(typed: Typed) -> None:
    with ModelServer(status(401, "No key.")) as server:
        url = f"{server.url}/v1"
        rejected = typed("run", "Go.", f"--model={url}#m")
    gone = typed("run", "Go.", f"--model={url}#m")
    hints = "(no key was sent; set FLYBALL_API_KEY)", f"a server runs at {url} (given with the model)"
    for done, hint in zip((rejected, gone), hints, strict=True):
        [failed] = [line for line in done.stderr.splitlines() if line.startswith("failed ")]
        assert (done.returncode, hint in failed, PYTHON_WORDS.search(failed)) == (1, True, None), failed


def test_an_address_from_the_environment_is_named_with_its_variable(typed: Typed) -> None:
    with ModelServer() as server:
        url = f"{server.url}/v1"
    done = typed("run", "Go.", "--model=openai:m", OPENAI_BASE_URL=url)
    assert f"that a server runs at {url} (from OPENAI_BASE_URL)" in done.stderr


def test_an_answer_must_fit_the_schema_and_the_model_is_told_why_not(typed: Typed) -> None:
    done = typed("run", "Go.", MODEL, "--output-schema=form.json")
    assert (done.returncode, done.stdout) == (0, '{"a": 3}\n')
    assert "nudge " in done.stderr
    assert "$.a: 'x' is not of type" in done.stderr


def test_a_schema_that_points_elsewhere_is_not_fetched_and_ends_the_run_with_the_reason(
    typed: Typed, place: Path
) -> None:
    with ModelServer() as server:
        (place / "away.json").write_text(f'{{"$ref": "{server.url}/form.json"}}')
        done = typed("run", "Go.", MODEL, "--output-schema=away.json")
        assert server.connections == 0
    assert done.returncode == 1
    assert "/form.json" in done.stderr
    assert "is not fetched" in done.stderr


def test_a_model_that_never_finds_the_form_ends_unfinished(typed: Typed, place: Path) -> None:
    (place / "stubborn.toml").write_text('loop = true\n[[reply]]\ntext = "no JSON"\n')
    done = typed("run", "Go.", "--model=script:stubborn.toml", "--output-schema=form.json", FLYBALL_MAX_NUDGES="1")
    assert (done.returncode, done.stdout) == (5, "no JSON\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        '{"stop": "tired"}',
        '{"stop": "budget", "events": []}',
        '{"stop": "budget", "events": [], "explanation": "", "budgets": {"turns": {}}}',
    ],
    ids=["empty", "deep", "list", "stop", "fields", "budgets"],
)
def test_a_file_that_is_no_record_is_refused_in_one_line(
    text: str, typed: Typed, place: Path, snapshot: Callable[..., None]
) -> None:
    (place / "record.json").write_text(text)
    for name, done in {"file": typed("why", "record.json"), "stdin": typed("why", "-", stdin=text)}.items():
        [line] = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        assert line.startswith("flyball: ")
        assert "--json" in line
        snapshot(line, name)


def test_why_without_a_run_or_a_file_says_what_to_do(typed: Typed, snapshot: Callable[..., None]) -> None:
    first = typed("why")
    assert first.returncode == 2
    assert "flyball run" in first.stderr
    snapshot(first.stderr)
    missing = typed("why", "missing.json")
    assert (missing.returncode, "missing.json" in missing.stderr) == (2, True)


def test_a_user_without_a_home_folder_is_told_and_keeps_nothing(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    done = typed("run", "Go.", MODEL, "-q", XDG_STATE_HOME="relative/is/ignored")
    assert (done.returncode, "home" in done.stderr) == (0, True)
    why = typed("why", XDG_STATE_HOME="")
    assert (why.returncode, "home" in why.stderr) == (2, True)
