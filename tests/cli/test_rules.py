"""`flyball rules` as a person types it: whole lines, exit codes."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flyball.rules

GOOD = """
[rule]
id = "late-hint"
trigger = "on_turn_end"
description = \"\"\"Say so
when it is late.\"\"\"
[params]
after = 3
[condition]
expression = "context.turn.iteration_count > params.after"
[action]
type = "notify_self"
message = "Turn {{ context.turn.iteration_count }} is over."
priority = "high"
[[test]]
context.turn.iteration_count = 4
message = "Turn 4 is over."
[[test]]
context.turn.iteration_count = 3
fires = false
"""
WRONG_TESTS = """
[rule]
id = "wrong-tests"
trigger = "on_turn_end"
[condition]
expression = "context.turn.iteration_count > 3"
[action]
type = "notify_self"
message = "Turn {{ context.turn.iteration_count }} of {{ context.state.none }}."
category = "late"
[[test]]
context.turn.iteration_count = 4
[[test]]
context.turn.iteration_count = 3
[[test]]
context.turn.iteration_count = 4
fires = false
[[test]]
context = { turn.iteration_count = 4, state.none = "x" }
message = "late"
[[test]]
context = { turn.iteration_count = 4, state.none = "x" }
message = "Turn 4 of x."
"""
BAD = """
[rule]
id = "Not Kebab"
trigger = "on_trun_start"
colour = "red"
[condition]
expression = "context.trun.number > 1"
[action]
type = "notify_slef"
"""
CORE_IDS = [
    "last-turn-warning",
    "iteration-budget-warning",
    "cost-budget-warning",
    "deadline-budget-warning",
    "token-budget-warning",
    "repeated-failure-warning",
    "large-result-hint",
]


Typed = Callable[..., subprocess.CompletedProcess[str]]


class Done:
    """What a command came to."""

    def __init__(self, ended: subprocess.CompletedProcess[str]) -> None:
        self.out, self.err, self.code = ended.stdout, ended.stderr, ended.returncode

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        assert self.err == ""
        return json.loads(self.out)


class Place:
    """A folder in which somebody types commands."""

    def __init__(self, folder: Path, typed: Typed) -> None:
        self.folder = folder
        self.typed = typed

    def write(self, name: str, text: str | bytes) -> "Place":
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return self

    def rules(self, *lines: str) -> list[Done]:
        """Type commands."""
        return [Done(self.typed("rules", *line.split())) for line in lines]


@pytest.fixture
def place(tmp_path: Path, typed: Typed) -> Place:
    return Place(tmp_path, typed)


def test_list_shows_the_core_rules_and_those_of_files_in_their_order(
    place: Place, snapshot: Callable[..., None]
) -> None:
    off = GOOD.replace("late-hint", "off-hint").replace("trigger", "enabled = false\ntrigger", 1)
    place.write("good.toml", GOOD).write("off.toml", off)
    place.write("flyball.toml", "[rules.late-hint]\nafter = 9\n")
    done, as_json = place.rules("list good.toml off.toml", "list good.toml off.toml --json")
    assert (done.code, done.err, as_json.code) == (0, "", 0)
    assert [line.split()[:4] for line in done.lines[:4]] == [
        ["rule", "trigger", "priority", "state"],
        ["late-hint", "on_turn_end", "100", "on"],
        ["off-hint", "on_turn_end", "100", "off"],
        ["last-turn-warning", "on_turn_start", "95", "core"],
    ]
    snapshot(done.out)
    assert [line.split()[0] for line in done.lines[3:]] == CORE_IDS
    record = as_json.json
    assert [rule["id"] for rule in record["rules"]] == ["late-hint", "off-hint", *CORE_IDS]
    assert record["problems"] == []
    assert record["rules"][0] == {
        "id": "late-hint",
        "trigger": "on_turn_end",
        "name": "late-hint",
        "description": "Say so\nwhen it is late.",
        "version": "1.0.0",
        "priority": 100,
        "enabled": True,
        "core": False,
        "fire": "always",
        "cooldown_turns": 0,
        "event": None,
        "source": "good.toml",
        "condition": "context.turn.iteration_count > params.after",
        "action": "notify_self",
        "params": {"after": 9},
    }


def test_check_tells_every_mistake_of_every_file_with_its_line(place: Place, snapshot: Callable[..., None]) -> None:
    place.write("bad.toml", BAD).write("bytes.toml", b"[rule]\nid = '\xff'\n").write("good.toml", GOOD)
    place.write("shadow.toml", GOOD.replace("late-hint", "last-turn-warning")).write("again.toml", GOOD)
    paths = "good.toml bad.toml bytes.toml missing.toml shadow.toml again.toml"
    done, as_json = place.rules(f"check {paths}", f"check --json {paths}")
    assert (done.code, done.out) == (1, "")
    problems = [line.removeprefix("flyball: ").rpartition(" [")[0] for line in done.err.splitlines()]
    places = ["bad.toml:5", "bad.toml:3", "bad.toml:4", "bad.toml:7", "bad.toml:9", "bytes.toml:2", "missing.toml"]
    for problem, place_ in zip(problems, [*places, "again.toml", "shadow.toml"], strict=True):
        assert place_ in problem
    for n, name in {2: "on_turn_start", 4: "notify_self", 7: "good.toml", 8: "last-turn-warning"}.items():
        assert name in problems[n], "what would be right, or who has it"
    snapshot(done.err)
    warning = problems.pop().removeprefix("warning: ")
    rules = ["late-hint", "last-turn-warning"]
    assert (as_json.code, as_json.json) == (1, {"rules": rules, "warnings": [warning], "problems": problems})


def test_check_accepts_a_rule_that_a_core_rule_replaces_unless_it_is_strict(place: Place) -> None:
    place.write("shadow.toml", GOOD.replace("late-hint", "last-turn-warning"))
    loose, strict = place.rules("check shadow.toml", "check --strict shadow.toml")
    assert (loose.code, strict.code) == (0, 1)
    for done in (loose, strict):
        assert (done.out[:2], done.err.startswith("flyball: warning: ")) == ("1 ", True)


def test_check_accepts_a_copy_of_a_core_rule_in_silence_even_if_it_is_strict(place: Place) -> None:
    core = Path(flyball.rules.__file__).parent / "core" / "last_turn.toml"
    place.write("copy.toml", core.read_text().replace("Last turn warning", "Mine"))
    [done] = place.rules("check --strict copy.toml")
    assert (done.code, done.out[:2], done.err) == (0, "1 ", "")


def test_check_counts_the_rules_that_are_right(place: Place, snapshot: Callable[..., None]) -> None:
    place.write("good.toml", GOOD)
    one, core, too_long = place.rules("check good.toml", "check", f"check {'x' * 300}")
    assert (one.code, one.out[:2], one.err) == (0, "1 ", "")
    assert (core.code, core.out[:2], core.err) == (0, "7 ", "")
    snapshot(one.out + core.out)
    assert (too_long.code, too_long.out, len(too_long.err.splitlines())) == (1, "", 1)
    assert too_long.err.startswith("flyball: ")


def test_test_tells_which_tests_of_the_files_fail_and_why(place: Place, snapshot: Callable[..., None]) -> None:
    place.write("good.toml", GOOD).write("wrong.toml", WRONG_TESTS)
    done, as_json = place.rules("test good.toml wrong.toml", "test --json good.toml wrong.toml")
    assert (done.code, done.err) == (1, "")
    places = [line.split(": ")[0] for line in done.lines]
    assert places[:-1] == ["wrong.toml:11", "wrong.toml:13", "wrong.toml:15", "wrong.toml:18"]
    assert places[-1].startswith("3 of 7 ")
    snapshot(done.out)
    assert (as_json.code, as_json.json) == (1, {"tests": 7, "failed": done.lines[:-1], "problems": []})


def test_test_passes_a_right_file_and_the_core_rules_and_refuses_a_bad_one(place: Place) -> None:
    place.write("good.toml", GOOD).write("bad.toml", b"\xff")
    good, core, bad = place.rules("test good.toml", "test", "test good.toml bad.toml")
    assert (good.code, good.out[:7], good.err) == (0, "2 of 2 ", "")
    passed, _, count, *_ = core.out.split()
    assert (core.code, core.err, passed) == (0, "", count)
    assert int(count) >= 3 * len(CORE_IDS)
    assert (bad.code, bad.out) == (1, good.out)
    assert bad.err.startswith("flyball: bad.toml:1: ")


def test_explain_tells_whether_a_rule_fires_and_what_it_would_do(place: Place, snapshot: Callable[..., None]) -> None:
    place.write("good.toml", GOOD)
    place.write("late.toml", "[context.turn]\niteration_count = 4\n")
    place.write("early.json", '{"turn": {"iteration_count": 3}}')
    explain = "explain late-hint --rules good.toml --context"
    late, early, as_json = place.rules(f"{explain} late.toml", f"{explain} early.json", f"{explain} late.toml --json")
    assert (late.code, late.err, early.code, early.err) == (0, "", 0, "")
    assert "Turn 4 is over." in late.out
    snapshot(late.out + early.out)
    notice = {"text": "Turn 4 is over.", "by": "late-hint", "category": "info", "priority": "high"}
    finding = {
        "rule": "late-hint",
        "trigger": "on_turn_end",
        "condition": "context.turn.iteration_count > params.after",
        "fires": True,
        "reason": None,
        "orders": [{"order": "Notice", "deliver_at": "turn_start"} | notice],
    }
    assert as_json.json == {"findings": [finding], "problems": []}


def test_explain_all_looks_at_every_rule_and_says_why_each_does_not_fire(
    place: Place, snapshot: Callable[..., None]
) -> None:
    place.write("bad.toml", BAD).write("off.toml", GOOD.replace("trigger", "enabled = false\ntrigger", 1))
    event = GOOD.replace("late-hint", "event-hint").replace('"on_turn_end"', '"on_event"\nevent = "ping"')
    now = "turn.iteration_count = 8\nbudget.turns = { ratio = 0.8, remaining = 2 }\n"
    place.write("event.toml", event).write("now.toml", f"{now}event.name = 'pong'")
    place.write("ping.toml", f"{now}event.name = 'ping'")
    files = "--rules off.toml --rules event.toml --rules bad.toml"
    done, as_json, heard = place.rules(
        f"explain all --context now.toml {files}",
        f"explain all --context now.toml {files} --json",
        "explain event-hint --context ping.toml --rules event.toml",
    )
    assert (done.code, len(done.err.splitlines()), as_json.code) == (1, 5, 1)
    told = {line.split(":")[0]: why.strip() for line, why in zip(done.lines, done.lines[1:], strict=False)}
    assert "'pong'" in told["event-hint"]
    assert "context.result.characters" in told["large-result-hint"]
    snapshot(done.out)
    reasons = {finding["rule"]: finding["reason"] for finding in as_json.json["findings"]}
    assert {id_: told[id_].partition(" ")[2] for id_ in reasons} == reasons
    assert len(as_json.json["problems"]) == 5
    assert (heard.code, heard.lines[0].split(" (")[0]) == (0, "event-hint: fires")


def test_explain_says_in_one_line_what_it_cannot_use(place: Place) -> None:
    place.write("broken.toml", "turn = \n")
    place.write("broken.json", '{"turn": ').write("ok.toml", "")
    said = {"broken.toml": "flyball: broken.toml:1: ", "broken.json": "flyball: the context broken.json "}
    *broken, unknown = place.rules(
        *[f"explain all --context {name}" for name in said],
        "explain last-turn-warnin --context ok.toml --rules missing.toml",
    )
    for done, line in zip(broken, said.values(), strict=True):
        assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert done.err.startswith(line)
    assert (unknown.code, unknown.out) == (1, "")
    missing, misspelt = unknown.err.splitlines()
    assert "missing.toml" in missing
    assert "last-turn-warning" in misspelt


def test_a_rule_that_cannot_do_what_it_says_is_told(place: Place) -> None:
    action = '[action]\ntype = "extend"\nbudget = "turns"\namount = 1.5\n[[test]]\n'
    place.write("half.toml", f'[rule]\nid = "half-turn"\ntrigger = "on_turn_end"\n{action}').write("ok.toml", "")
    for done in place.rules("test half.toml", "explain half-turn --rules half.toml --context ok.toml"):
        assert "1.5" in done.out + done.err  # told when it is tried, or when the file is read


def test_what_would_steer_the_terminal_is_shown_and_not_sent(place: Place) -> None:
    rude = GOOD.replace("Say so\nwhen", "Say \\u001b[31mso \\u202e when").replace("Turn {{", "\\u001b[2J {{")
    name = os.fsdecode(b"\x1b\xff.toml")
    listed, tested = place.write(name, rude).rules(f"list {name}", f"test {name}")
    assert listed.lines[1].endswith("Say \\x1b[31mso \\u202e when it is late.")
    assert (tested.code, "\x1b" in tested.out) == (1, False)
    assert tested.out.startswith("\\x1b\\udcff.toml:")


def test_help_names_what_is_to_be_given(place: Place) -> None:
    explain, check = place.rules("explain --help", "check --help")
    assert (explain.code, check.code) == (0, 0)
    assert "--context FILE" in explain.out
    assert "--rules PATH" in explain.out
    assert "check [OPTIONS] [PATH]..." in check.out
