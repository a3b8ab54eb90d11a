"""Mistakes of the user: one line that says what was found and what would be right, exit code 2, and no traceback."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.testing import ModelServer

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
    "": "run, model: found 'nothing'; expected --model with openai:NAME, ",
    "--model=gpt": "agent, model: found 'gpt'; expected openai:NAME, ",
    "--model=opneai:gpt-5": "agent, model: found 'opneai:gpt-5'; expected ",
    "--model=http://127.0.0.1:9/v1": "agent, model: found 'http://127.0.0.1:9/v1'; expected the model's name",
    "--model=script:missing.toml": "missing.toml: found 'No such file or directory'; expected a file that can be read",
    "--model=script:broken.toml": "broken.toml:1: found '[[reply'; expected valid TOML",
    f"{MODEL} --toolbox=fils": "there is no tool 'fils'; did you mean files?",
    f"{MODEL} --toolbox=files:missing": "files, root: found 'missing'; expected a folder that exists",
    f"{MODEL} --tools=kit": "run, --tools: found 'kit'; expected MODULE:NAME, ",
    f"{MODEL} --tools=missing_module:x": "--tools missing_module:x: found \"ModuleNotFoundError: ",
    f"{MODEL} --tools=raises:x": "--tools raises:x: found 'RuntimeError: not\\nnow'; expected a module that ",
    f"{MODEL} --tools=leaves:x": "--tools leaves:x: found 'SystemExit: 0'; expected a module that ",
    f"{MODEL} --tools=kit:double": "--tools kit:double: found 'no double in kit'; expected MODULE:NAME, ",
    f"{MODEL} --tools=kit:number": "tool: found 7; expected a function",
    f"{MODEL} --rules=missing": "agent, rules: found 'missing'; expected a file or folder that exists",
    f"{MODEL} --assert=missing": "missing: found 'No such file or directory'; expected a file that can be read",
    f"{MODEL} --assert=broken.toml": "broken.toml:1: found '[[reply'; expected valid TOML",
    f"{MODEL} --output-schema=missing": "run, missing: found 'No such file or directory'; expected the file of a JSON",
    f"{MODEL} --output-schema=broken.json": "run, broken.json: found 'no JSON (",
    f"{MODEL} --output-schema=list.json": "run, list.json: found 'list'; expected a JSON schema, which is an object",
    f"{MODEL} --output-schema=wrong.json": "run, wrong.json: found \"'objekt' is not valid under any of",
    f"{MODEL} --usd=1": "agent, limits.usd: found '$1.00'; expected a model with a price; ",
    f"{MODEL} --json --jsonl": "--json and --jsonl: found both; expected one of them",
}  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("options", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(options: str, typed: Typed, place: Path) -> None:
    done = typed("run", "Go.", *options.split())
    [line] = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert line.startswith(f"flyball: {MISTAKES[options]}")
    assert not (place / "state").exists(), "nothing ran, so nothing is kept"


@pytest.mark.parametrize(
    "options", ["--turns=many", "--turns=0", "--seconds=nan", "--tokens=-1", "--usd=x", "--no-such-option"]
)
def test_a_wrong_number_or_option_is_told_with_the_usage(options: str, typed: Typed) -> None:
    done = typed("run", "Go.", MODEL, options)
    assert (done.returncode, done.stdout) == (2, "")
    assert options.partition("=")[0] in done.stderr.splitlines()[-1]


def test_a_task_must_be_given(typed: Typed) -> None:
    assert typed("run").returncode == 2
    empty = typed("run", " ", MODEL)
    assert (empty.returncode, empty.stderr) == (2, "flyball: the task: found nothing; expected what to do\n")


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
    assert typed("run", "Go.").stderr.startswith("flyball: run, model: found 5; expected --model with ")


def test_a_missing_key_fails_the_run_and_says_which(typed: Typed) -> None:
    done = typed("run", "Go.", "--model=openai:gpt-5")
    assert done.returncode == 1
    assert "there is no key for openai: set OPENAI_API_KEY" in done.stderr


def test_an_answer_must_fit_the_schema_and_the_model_is_told_why_not(typed: Typed) -> None:
    done = typed("run", "Go.", MODEL, "--output-schema=form.json")
    assert (done.returncode, done.stdout) == (0, '{"a": 3}\n')
    assert "nudge    The answer does not have the form that was asked for. - $.a: 'x' is not of type" in done.stderr


def test_a_schema_that_points_elsewhere_is_not_fetched_and_ends_the_run_with_the_reason(
    typed: Typed, place: Path
) -> None:
    with ModelServer() as server:
        (place / "away.json").write_text(f'{{"$ref": "{server.url}/form.json"}}')
        done = typed("run", "Go.", MODEL, "--output-schema=away.json")
        assert server.connections == 0
    assert done.returncode == 1
    assert "/form.json" in done.stderr
    assert "which is not in the schema and is never fetched" in done.stderr


def test_a_model_that_never_finds_the_form_ends_unfinished(typed: Typed, place: Path) -> None:
    (place / "stubborn.toml").write_text('loop = true\n[[reply]]\ntext = "no JSON"\n')
    done = typed("run", "Go.", "--model=script:stubborn.toml", "--output-schema=form.json", FLYBALL_MAX_NUDGES="1")
    assert (done.returncode, done.stdout) == (5, "no JSON\n")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "no JSON ("),
        ("[" * 100_000, ""),
        ("[]", "no record of a run: it has no `stop` that is known here"),
        ('{"stop": "tired"}', "no record of a run: it has no `stop` that is known here"),
        ('{"stop": "budget", "events": []}', "no record of a run: it has no `events` and `explanation`"),
        ('{"stop": "budget", "events": [], "explanation": "", "budgets": {"turns": {}}}', "budget snapshot"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(text: str, found: str, typed: Typed, place: Path) -> None:
    (place / "record.json").write_text(text)
    for done in (typed("why", "record.json"), typed("why", "-", stdin=text)):
        [line] = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        assert line.startswith("flyball: why, ")
        assert found in line
        assert line.endswith("expected a record as `flyball run --json` prints it")


def test_why_without_a_run_or_a_file_says_what_to_do(typed: Typed) -> None:
    assert typed("why").stderr == (
        "flyball: why: found 'no run yet'; expected `flyball run TASK` first, or the file of a saved --json record\n"
    )
    missing = typed("why", "missing.json")
    assert (missing.returncode, "No such file or directory" in missing.stderr) == (2, True)


def test_a_user_without_a_home_folder_is_told_and_keeps_nothing(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nowhere)
    done = typed("run", "Go.", MODEL, "-q", XDG_STATE_HOME="relative/is/ignored")
    assert (done.returncode, "not kept for `flyball why`: this user has no home folder" in done.stderr) == (0, True)
    why = typed("why", XDG_STATE_HOME="")
    assert (why.returncode, why.stderr) == (2, "flyball: this user has no home folder\n")
