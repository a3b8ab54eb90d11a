"""`flyball run` through pipes: what goes where, each way to outfit it, and every exit code."""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flyball.cli.output import EXIT_CODES
from flyball.event import event_schema
from flyball.result import Stop
from flyball.testing import ModelServer, call, say

Typed = Callable[..., subprocess.CompletedProcess[str]]

KIT = '''
from itertools import count
from flyball import tool
ticks = count()
@tool(poll=True)
def look(path: str) -> str:
    """Look."""
    return f"{path} {next(ticks)}"
@tool
def stay() -> str:
    """Stay."""
    return "here"
@tool(approve=True)
def launch() -> str:
    """Launch."""
    return "gone"
def double(n: int) -> int:
    """Double."""
    return 2 * n
tools = [look, stay, launch]
number = 7
'''
LOOKS = '[[reply]]\npieces = ["Let me", " see."]\ncalls = [{ name = "look", arguments = { path = "a" } }]\n'
RUNAWAY = f'loop = true\n{LOOKS}[grace]\ntext = "I looked."\n'
ANSWER = '[[reply]]\ntext = "Two lines,\\nand no more."\n'


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with tools and scripts."""
    (tmp_path / "kit.py").write_text(KIT)
    for name, text in {"runaway": RUNAWAY, "answer": ANSWER, "looks": LOOKS + ANSWER}.items():
        (tmp_path / f"{name}.toml").write_text(text)
    return tmp_path


def script(place: Path, *replies: str, name: str = "own.toml") -> str:
    (place / name).write_text("\n".join(f"[[reply]]\n{reply}" for reply in replies))
    return f"--model=script:{name}"


@pytest.mark.usefixtures("place")
def test_the_answer_goes_to_standard_output_and_the_story_to_standard_error(
    typed: Typed, snapshot: Callable[..., None]
) -> None:
    done = typed("run", "Look.", "--model=script:looks.toml", "--tools=kit:tools")
    assert (done.returncode, done.stdout) == (0, "Two lines,\nand no more.\n")
    *story, ended, used, following = done.stderr.splitlines()
    assert story == ["turn 1   Let me see.", "turn 1   look(path='a'): done"]
    assert ended.startswith("completed ")
    assert used.startswith("used     2 of 90 turns, 1 tool call, 30 tokens, ")
    assert following == "next     flyball why"
    snapshot(re.sub(r"[\d.]+ s\b", "N s", done.stderr))


@pytest.mark.usefixtures("place")
def test_quiet_prints_the_answer_and_nothing_else(typed: Typed) -> None:
    done = typed("run", "Look.", "--model=script:looks.toml", "--tools=kit:tools", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Two lines,\nand no more.\n", "")


def test_json_is_the_whole_record_and_the_one_that_is_kept(typed: Typed, place: Path) -> None:
    done = typed("run", "Look.", "--model=script:runaway.toml", "--tools=kit:tools", "--turns=2", "--json")
    record = json.loads(done.stdout)
    kept = place / "state" / "flyball" / "last.json"
    assert (done.returncode, record["stop"], record["text"]) == (3, "budget", "I looked.")
    assert json.loads(kept.read_text()) == record
    assert [path.name for path in kept.parent.iterdir()] == ["last.json"]
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "refused  max_agent_iterations_reached" in done.stderr


@pytest.mark.usefixtures("place")
def test_jsonl_is_every_event_of_the_published_schema_and_the_last_is_run_ended(typed: Typed) -> None:
    done = typed("run", "Look.", "--model=script:runaway.toml", "--tools=kit:tools", "--turns=2", "--jsonl")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    validator = jsonschema.Draft202012Validator(event_schema())
    for event in events:
        validator.validate(event)  # pyright: ignore[reportUnknownMemberType]
    assert (done.returncode, done.stderr) == (3, "")
    kept = [event["seq"] for event in events if event["event"] != "delta"]
    assert kept == list(range(len(kept)))
    assert len(kept) < len(events), "what streams in is told, too"
    assert (events[0]["event"], events[-1]["event"], events[-1]["stop"]) == ("run_started", "run_ended", "budget")


@pytest.mark.usefixtures("place")
def test_the_task_may_come_from_standard_input(typed: Typed) -> None:
    done = typed("run", "-", "--model=script:answer.toml", "--json", stdin="  Sweep\nthe floor.\n")
    assert json.loads(done.stdout)["messages"][0]["content"] == "Sweep\nthe floor."
    empty = typed("run", "-", "--model=script:answer.toml", stdin=" \n")
    assert (empty.returncode, empty.stdout) == (2, "")
    assert empty.stderr.count("\n") == 1


def test_every_stop_has_its_exit_code() -> None:
    assert {stop.value: code for stop, code in EXIT_CODES.items()} == {
        "completed": 0, "failed": 1, "budget": 3, "deadline": 4, "stalled": 5, "unfinished": 5, "halted": 5,
        "contended": 6, "paused": 7, "cancelled": 130,
    }  # fmt: skip
    assert set(EXIT_CODES) == set(Stop)


STOPS: dict[str, tuple[int, str, list[str]]] = {
    "completed": (0, ANSWER, []),
    "failed": (1, '[[reply]]\nerror = { message = "gone" }\n', []),
    "budget": (3, RUNAWAY, ["--tools=kit:tools", "--turns=2"]),
    "deadline": (4, '[[reply]]\ntext = "late"\nafter = 30\n', ["--seconds=1"]),
    "stalled": (5, 'loop = true\n[[reply]]\ncalls = [{ name = "stay" }]\n', ["--tools=kit:tools"]),
    "unfinished": (5, f"loop = true\n{ANSWER}", ["--tools=kit:tools", "--assert=done.toml"]),
    "halted": (5, RUNAWAY, ["--tools=kit:tools", "--rules=stop.toml"]),
    "paused": (7, '[[reply]]\ncalls = [{ name = "launch" }]\n', ["--tools=kit:launch"]),
}


def test_a_limit_that_is_clamped_is_said(typed: Typed, place: Path) -> None:
    done = typed("run", "Go.", script(place, 'text = "Done."'), "--turns=100000")
    assert (done.returncode, "clamped from 100,000" in done.stderr) == (0, True)
    warning = "warning  turns is limited to 500, not 100,000 as --turns says: allowed is from 1 to 500"
    assert done.stderr.splitlines()[0] == warning


def test_a_setting_that_is_clamped_is_said_even_where_only_the_answer_is_wanted(typed: Typed, place: Path) -> None:
    (place / "flyball.toml").write_text("max_tool_calls = 9\n[clamp]\nmax_tool_calls = 4\n")
    done = typed("run", "Go.", f"--model=script:{place / 'answer.toml'}", "--quiet")
    [warning] = done.stderr.splitlines()
    assert warning.startswith(
        "warning  tool_calls is limited to 4, not 9 as flyball.toml:1 says: allowed is from 0 to 4"
    )


def test_the_message_of_a_rule_that_stops_a_run_is_shown(typed: Typed, place: Path) -> None:
    rule = '[rule]\nid = "enough"\ntrigger = "on_turn_end"\n[action]\ntype = "stop"\nmessage = "Too many lookups."\n'
    (place / "stop.toml").write_text(rule)
    (place / "model.toml").write_text(RUNAWAY)
    done = typed("run", "Go.", "--model=script:model.toml", "--tools=kit:tools", "--rules=stop.toml")
    assert (done.returncode, "Too many lookups" in done.stderr) == (5, True)
    assert "Too many lookups" in typed("why").stdout


@pytest.mark.parametrize("stop", STOPS)
def test_the_exit_code_tells_why_it_ended(stop: str, typed: Typed, place: Path) -> None:
    code, text, options = STOPS[stop]
    (place / "own.toml").write_text(text)
    (place / "done.toml").write_text('required_tool_names = ["look"]\n')
    rule = '[rule]\nid = "enough"\ntrigger = "on_turn_end"\n[action]\ntype = "stop"\nmessage = "Enough."\n'
    (place / "stop.toml").write_text(rule)
    done = typed("run", "Go.", "--model=script:own.toml", *options)
    assert done.returncode == code
    *_, ended, used, following = [line for line in done.stderr.splitlines() if not line.startswith("question ")]
    assert ended.startswith(f"{stop:8} ")
    assert re.fullmatch(r"used {5}.*\d s, .*", used)
    assert following.startswith("next     ")
    why = typed("why")
    assert (why.returncode, why.stderr, why.stdout.split()[0]) == (0, "", stop)


@pytest.mark.usefixtures("place")
def test_a_run_that_must_ask_where_nobody_can_answer_says_what_it_waits_for(
    typed: Typed, place: Path, snapshot: Callable[..., None]
) -> None:
    asks = script(place, 'calls = [{ name = "launch" }]', 'text = "Launched."')
    done = typed("run", "Go.", asks, "--tools=kit:tools", "--store=none")
    assert "\npaused   " in done.stderr
    question, following = done.stderr.splitlines()[-2:]
    assert "launch" in question
    assert "--yes" in following
    snapshot(f"{question}\n{following}")
    agreed = typed("run", "Go.", asks, "--tools=kit:tools", "--yes")
    assert (agreed.returncode, agreed.stdout) == (0, "Launched.\n")
    assert "turn 1   launch(): done" in agreed.stderr


def test_the_toolbox_is_opted_in_by_name_and_yes_approves_its_programs(typed: Typed, place: Path) -> None:
    reads = 'calls = [{ name = "read_file", arguments = { path = "kit.py" } }]'
    runs = 'calls = [{ name = "shell", arguments = { command = "echo $((6 * 7))" } }]'
    done = typed("run", "Go.", script(place, reads, runs, 'text = "ok"'), "--toolbox=files,shell", "-y", "--json")
    texts = [one["text"] for one in json.loads(done.stdout)["tool_execution_results"]]
    assert (done.returncode, "ticks = count()" in texts[0], "42" in texts[1]) == (0, True, True)


@pytest.mark.parametrize(
    ("given", "offered"),
    [("kit:tools", "look stay launch"), ("kit:double", "double"), ("kit:stay", "stay")],
)
@pytest.mark.usefixtures("place")
def test_tools_come_from_modules_one_by_one_or_in_a_list(typed: Typed, given: str, offered: str) -> None:
    done = typed("run", "Go.", "--model=script:answer.toml", f"--tools={given}", "--jsonl")
    asked = [json.loads(line) for line in done.stdout.splitlines() if '"model_requested"' in line]
    assert (done.returncode, asked[0]["tools"]) == (0, offered.split())


def test_the_tools_of_an_mcp_server_are_offered(typed: Typed, place: Path) -> None:
    (place / "server.py").write_text(
        "from mcp.server.mcpserver import MCPServer\nserver = MCPServer('n', log_level='ERROR')\n"
        "@server.tool()\ndef add(a: int, b: int) -> int:\n    return a + b\nserver.run()\n"
    )
    adds = script(place, 'calls = [{ name = "add", arguments = { a = 40, b = 2 } }]', 'text = "It is 42."')
    done = typed("run", "Add.", adds, f"--mcp={sys.executable} {place / 'server.py'}")
    assert (done.returncode, done.stdout) == (0, "It is 42.\n")
    assert "turn 1   add(a=40, b=2): done" in done.stderr


@pytest.mark.usefixtures("place")
def test_a_model_may_be_anywhere_and_instructions_reach_it(typed: Typed) -> None:
    with ModelServer(call("double", n=21), say("It is 42.")) as server:
        url = f"--model={server.url}/v1#qwen"
        done = typed("run", "What is twice 21?", url, "--tools=kit:double", "--system=Be brief.", "--tokens=9000")
        body: Any = server.requests[0].body
    assert (done.returncode, done.stdout, body["model"]) == (0, "It is 42.\n", "qwen")
    assert "turn 1   double(n=21): done" in done.stderr
    assert [(one["role"], one["content"]) for one in body["messages"]] == [
        ("system", "Be brief."),
        ("user", "What is twice 21?"),
    ]


@pytest.mark.usefixtures("place")
def test_the_model_may_stand_in_the_environment_or_in_a_file(typed: Typed, place: Path) -> None:
    assert typed("run", "Go.", FLYBALL_MODEL="script:answer.toml").returncode == 0
    (place / "flyball.toml").write_text('model = "script:runaway.toml"\nmax_iterations = 1\n')
    assert typed("run", "Go.").returncode == 3
    assert typed("run", "Go.", FLYBALL_MODEL="script:answer.toml").returncode == 0
    assert typed("run", "Go.", "--model=script:answer.toml", FLYBALL_MODEL="nobody").returncode == 0


def test_rules_act_and_what_they_tell_is_shown(typed: Typed, place: Path) -> None:
    rule = '[rule]\nid = "{0}"\ntrigger = "on_turn_start"\n[action]\ntype = "{1}"\nmessage = "Mind the gap."\n'
    (place / "mine").mkdir()
    (place / "mine" / "a.toml").write_text(rule.format("gap", "notify_self"))
    (place / "b.toml").write_text(rule.format("diary", "log"))
    done = typed("run", "Go.", "--model=script:answer.toml", "--rules=mine", "--rules=b.toml")
    assert done.returncode == 0
    assert "notice   Mind the gap.\n" in done.stderr
    assert re.search(r"^rule     diary .*: Mind the gap\.$", done.stderr, re.MULTILINE)


def test_a_rule_file_with_mistakes_is_refused_and_each_is_a_line(typed: Typed, place: Path) -> None:
    (place / "bad.toml").write_text('[rule]\nid = "Bad Id"\ntrigger = "never"\n[action]\ntype = "stop"\n')
    done = typed("run", "Go.", "--model=script:answer.toml", "--rules=bad.toml")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line.split("): ")[0] for line in done.stderr.splitlines()] == [
        "flyball: rule.id (bad.toml:2",
        "flyball: rule.trigger (bad.toml:3",
        "flyball: action.message (bad.toml:4",
    ]


def test_a_state_folder_that_cannot_be_written_is_told_and_changes_no_exit_code(typed: Typed, place: Path) -> None:
    (place / "state").write_text("in the way")
    done = typed("run", "Go.", "--model=script:answer.toml", "-q")
    assert (done.returncode, done.stdout) == (0, "Two lines,\nand no more.\n")
    [line] = done.stderr.splitlines()
    assert line.startswith("flyball: ")
    assert "flyball why" in line


def test_what_would_steer_the_terminal_is_shown_and_not_sent(typed: Typed, place: Path) -> None:
    esc = "\\u001b[2J\\u009b31m\\u202e"
    rude = script(
        place,
        f'text = "{esc}a"\ncalls = [{{ name = "look{esc}", arguments = {{ path = "{esc}" }} }}]',
        f'calls = [{{ name = "look", arguments = {{ path = "{esc}" }} }}]',
        f'error = {{ kind = "retryable", message = "{esc}" }}',
        f'text = "gone{esc}\\n\\tfor good \U0001f469\u200d\U0001f52c"',
    )
    done = typed("run", f"Go\x1b[2J {'x' * 9}.", rude, "--tools=kit:tools")
    why = typed("why")
    page = typed("why", "--markdown")
    assert (done.returncode, why.returncode) == (0, 0)
    assert done.stdout == "gone\\x1b[2J\\x9b31m\\u202e\n\tfor good \U0001f469\u200d\U0001f52c\n"
    for text in (done.stdout, done.stderr, why.stdout, page.stdout):
        assert not {"\x1b", "\x9b", "\u202e"} & set(text)
        assert "\\x9b31m" in text.replace("\\\\", "\\")


def test_what_a_run_kept_is_that_of_the_last_run_only(typed: Typed, place: Path) -> None:
    typed("run", "First.", "--model=script:answer.toml", "-q")
    typed("run", "Second.", "--model=script:answer.toml", "-q")
    assert json.loads((place / "state" / "flyball" / "last.json").read_text())["messages"][0]["content"] == "Second."
    assert os.listdir(place / "state" / "flyball") == ["last.json"]  # noqa: PTH208
