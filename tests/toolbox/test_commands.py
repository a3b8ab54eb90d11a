import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent
from flyball.errors import ConfigError
from flyball.outcome import Failure, Outcome, Status
from flyball.person import Question, Verdict, allow, deny
from flyball.request import Call as Request
from flyball.testing import ScriptedModel, say
from flyball.testing import call as calls
from flyball.toolbox import python, shell
from flyball.tools import BoundedToolExecutor, Tool

Call = Callable[..., Outcome]


@pytest.fixture
def call(tmp_path: Path, made: Callable[[list[Tool]], Call]) -> Call:
    return made([*shell(tmp_path, approve=False), *python(tmp_path, approve=False)])


def test_shell_and_python_are_writes_that_a_person_must_agree_to(tmp_path: Path) -> None:
    for tools in (shell(tmp_path), python(tmp_path)):
        assert [(tool.writes, tool.idempotent, tool.may_need_approval, tool.cheap) for tool in tools] == [
            (True, False, True, False)
        ]


def test_a_folder_to_work_in_must_be_there(tmp_path: Path) -> None:
    for make in (shell, python):
        with pytest.raises(ConfigError, match=f"{make.__name__}, cwd.*missing"):
            make(tmp_path / "missing")


def test_the_result_of_a_command_is_exit_code_output_and_errors(call: Call, tmp_path: Path) -> None:
    assert call("shell", command="pwd; echo oh >&2").text == f"exit code 0\n{tmp_path}\nstderr:\noh"
    assert call("shell", command="true").text.startswith("exit code 0")
    assert call("python", code="import os\nprint(os.getcwd())").text == f"exit code 0\n{tmp_path}"


@pytest.mark.parametrize(
    ("command", "end"),
    [("echo half; exit 3", "exit code 3\nhalf"), ("kill -9 $$", "exit code 137"), ("nonsense-4711", "exit code 127\n")],
)
def test_a_command_that_does_not_end_well_is_a_failure_that_the_model_can_read(
    call: Call, command: str, end: str
) -> None:
    outcome = call("shell", command=command)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.error.startswith(end)) == ("CommandFailed", True)


def test_an_error_in_python_is_shown_with_its_line(call: Call) -> None:
    outcome = call("python", code="print('before')\n1 / 0")
    assert outcome.status is Status.FAILED
    assert outcome.text.startswith("CommandFailed: exit code 1\nbefore\nstderr:\nTraceback")
    assert 'File "<string>", line 2' in outcome.text


def test_python_sees_neither_our_modules_nor_its_variables(call: Call, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('mine')")
    found = call("python", code="import json, sys; print(json.dumps(sys.flags.isolated), '' in sys.path)").text
    assert found == "exit code 0\n1 False"


def test_the_input_of_a_command_is_closed(call: Call) -> None:
    assert call("shell", command="cat; read line || echo nothing").text == "exit code 0\nnothing"
    assert "EOFError" in call("python", code="input()").text


def test_a_pipe_that_nobody_reads_ends_a_command_quietly(call: Call) -> None:
    assert call("shell", command="yes | head -1").text == "exit code 0\ny"


def test_long_output_is_shown_by_both_ends(call: Call) -> None:
    found = call("python", code="print('first'); print('x' * 5_000_000); print('last')").text
    assert found.startswith("exit code 0\nfirst\n")
    assert found.endswith("x\nlast")
    assert "bytes" in found
    assert len(found) < 12_000
    both = call("python", code="import sys\nfor f in (sys.stdout, sys.stderr): print('x' * 1_000_000, file=f)").text
    assert len(both) < 12_000


def test_binary_output_is_shown_as_well_as_it_goes(call: Call) -> None:
    assert call("shell", command=r"printf 'a\000\377\033[31mb\n'").text == "exit code 0\na\ufffd\ufffd\ufffd[31mb"


@pytest.mark.parametrize("text", ["x\0y", "#" * 3_000_000])
def test_a_command_that_cannot_be_started_fails(call: Call, text: str) -> None:
    assert call("shell", command=text).text.startswith("CommandFailed: ")


def test_secrets_are_not_in_the_environment_of_a_command(
    tmp_path: Path, made: Callable[[list[Tool]], Call], monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("HARMLESS", key)
    monkeypatch.setenv("DB_PW", key)
    monkeypatch.setenv("PASSED", "visible")
    given = shell(tmp_path, approve=False, env={"GIVEN_TOKEN": "meant"}, pass_env=["PASSED"])
    call = made([*given, *python(tmp_path, approve=False, pass_env=["PASSED", "ABSENT"])])
    for found in (call("shell", command="env"), call("python", code="import os; print(os.environ)")):
        assert found.ok
        assert key not in found.text
        assert "visible" in found.text
    assert "GIVEN_TOKEN=meant" in call("shell", command="env").text
    assert os.environ["OPENAI_API_KEY"] == key


class TestApproval:
    def run(self, tools: list[Tool], approver: Callable[[Question], Verdict | None], **call: Any) -> Outcome:
        model = ScriptedModel(calls(tools[0].name, **call), say("Done."))
        return Agent(model=model, tools=tools, approver=approver).run("Go.").tool_results[0]

    def test_a_person_sees_the_command_and_may_deny_it(self, tmp_path: Path) -> None:
        asked: list[str] = []

        def approver(question: Question) -> Verdict:
            asked.append(question.text)
            return deny("Not here.")

        outcome = self.run(shell(tmp_path), approver, command="touch made")
        assert outcome.status is Status.DENIED
        assert "Not here." in outcome.text
        [question] = asked
        assert '{"command": "touch made"}' in question
        assert self.run(python(tmp_path), approver, code="open('made', 'w')").status is Status.DENIED
        assert list(tmp_path.iterdir()) == []

    def test_a_yes_runs_the_command(self, tmp_path: Path) -> None:
        assert self.run(shell(tmp_path), lambda _: allow(), command="echo ran").text == "exit code 0\nran"

    def test_without_anybody_to_ask_nothing_runs(self, tmp_path: Path) -> None:
        result = Agent(model=ScriptedModel(calls("shell", command="touch made")), tools=shell(tmp_path)).run("Go.")
        assert result.stop == "paused"
        [outcome] = BoundedToolExecutor(shell(tmp_path)).execute(Request("1", "shell", {"command": "touch made"}))
        assert outcome.status is Status.DENIED
        assert list(tmp_path.iterdir()) == []

    def test_told_otherwise_nobody_is_asked(self, tmp_path: Path) -> None:
        outcome = self.run(shell(tmp_path, approve=False), lambda _: deny("never"), command="echo ran")
        assert outcome.text == "exit code 0\nran"

    def test_a_function_may_decide_what_needs_a_person(self, tmp_path: Path) -> None:
        tools = shell(tmp_path, approve=lambda arguments: not arguments["command"].startswith("ls"))
        assert self.run(tools, lambda _: deny("no"), command="ls").ok
        assert not self.run(tools, lambda _: deny("no"), command="rm -r .").ok


def test_the_interpreter_is_the_one_that_runs_us(call: Call) -> None:
    assert call("python", code="import sys; print(sys.version)").text == f"exit code 0\n{sys.version}"
