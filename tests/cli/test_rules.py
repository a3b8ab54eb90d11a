"""`flyball rules` as a person types it: whole lines, exit codes."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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


def test_list_shows_the_core_rules_and_those_of_files_in_their_order(place: Place) -> None:
    off = GOOD.replace("late-hint", "off-hint").replace("trigger", "enabled = false\ntrigger", 1)
    place.write("good.toml", GOOD).write("off.toml", off)
    place.write("flyball.toml", "[rules.late-hint]\nafter = 9\n")
    done, as_json = place.rules("list good.toml off.toml", "list good.toml off.toml --json")
    assert (done.code, done.err, as_json.code) == (0, "", 0)
    assert done.lines[:3] == [
        "late-hint                 on_turn_end        100  on    Say so when it is late.",
        "off-hint                  on_turn_end        100  off   Say so when it is late.",
        "last-turn-warning         on_turn_start       95  core  Tell the model that this is its last turn.",
    ]
    assert [line.split()[0] for line in done.lines[2:]] == CORE_IDS
    record = as_json.json
    assert [rule["id"] for rule in record["rules"]] == ["late-hint", "off-hint", *CORE_IDS]
    assert record["problems"] == []
    assert record["rules"][0] == {
        "id": "late-hint",
        "trigger": "on_turn_end",
        "name": "",
        "description": "Say so\nwhen it is late.",
        "version": "",
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


def test_check_tells_every_mistake_of_every_file_with_its_line(place: Place) -> None:
    place.write("bad.toml", BAD).write("bytes.toml", b"[rule]\nid = '\xff'\n").write("good.toml", GOOD)
    place.write("shadow.toml", GOOD.replace("late-hint", "last-turn-warning")).write("again.toml", GOOD)
    paths = "good.toml bad.toml bytes.toml missing.toml shadow.toml again.toml"
    done, as_json = place.rules(f"check {paths}", f"check --json {paths}")
    assert (done.code, done.out) == (1, "")
    problems = [line.removeprefix("flyball: ") for line in done.err.splitlines()]
    assert [line.split(" found ")[0] for line in problems] == [
        "rule.colour (bad.toml:5):",
        "rule.id (bad.toml:3):",
        "rule.trigger (bad.toml:4):",
        "condition.expression, column 1 (bad.toml:7):",
        "action.type (bad.toml:9):",
        "bytes.toml:2:",
        "missing.toml:",
        "rule.id (again.toml):",
        "rule.id (shadow.toml):",
    ]
    assert problems[2].endswith("found 'on_trun_start'; expected one of on_turn_start, on_query_start")
    assert problems[4].endswith("found 'notify_slef'; expected an action: notify_self")
    assert problems[7].endswith("expected an id of its own; good.toml has it")
    assert problems[8].endswith("expected an id that no core rule has; it is ignored")
    assert (as_json.code, as_json.json) == (1, {"rules": ["late-hint"], "problems": problems})


def test_check_counts_the_rules_that_are_right(place: Place) -> None:
    place.write("good.toml", GOOD)
    one, core, too_long = place.rules("check good.toml", "check", f"check {'x' * 300}")
    assert (one.code, one.out, one.err) == (0, "1 rule is right.\n", "")
    assert (core.code, core.out, core.err) == (0, "7 rules are right.\n", "")
    assert (too_long.code, too_long.out, len(too_long.err.splitlines())) == (1, "", 1)
    assert too_long.err.startswith("flyball: ")


def test_test_tells_which_tests_of_the_files_fail_and_why(place: Place) -> None:
    place.write("good.toml", GOOD).write("wrong.toml", WRONG_TESTS)
    done, as_json = place.rules("test good.toml wrong.toml", "test --json good.toml wrong.toml")
    assert (done.code, done.err) == (1, "")
    missing = "context has no field 'state' (in context.state.none)"
    assert done.lines == [
        f"wrong.toml:11: test 1 of wrong-tests: {missing}",
        "wrong.toml:13: test 2 of wrong-tests: it does not fire; expected it to fire",
        f"wrong.toml:15: test 3 of wrong-tests: it fires; expected it not to ({missing})",
        "wrong.toml:18: test 4 of wrong-tests: it says ['Turn 4 of x.']; expected 'late'",
        "3 of 7 tests passed.",
    ]
    assert (as_json.code, as_json.json) == (1, {"tests": 7, "failed": done.lines[:-1], "problems": []})


def test_test_passes_a_right_file_and_the_core_rules_and_refuses_a_bad_one(place: Place) -> None:
    place.write("good.toml", GOOD).write("bad.toml", b"\xff")
    good, core, bad = place.rules("test good.toml", "test", "test good.toml bad.toml")
    assert (good.code, good.out, good.err) == (0, "2 of 2 tests passed.\n", "")
    passed, _, count, *_ = core.out.split()
    assert (core.code, core.err, passed) == (0, "", count)
    assert int(count) >= 3 * len(CORE_IDS)
    assert (bad.code, bad.out) == (1, "2 of 2 tests passed.\n")
    assert bad.err == "flyball: bad.toml:1: found b'\\xff'; expected text in UTF-8\n"


def test_explain_tells_whether_a_rule_fires_and_what_it_would_do(place: Place) -> None:
    place.write("good.toml", GOOD)
    place.write("late.toml", "[context.turn]\niteration_count = 4\n")
    place.write("early.json", '{"turn": {"iteration_count": 3}}')
    explain = "explain late-hint --rules good.toml --context"
    late, early, as_json = place.rules(f"{explain} late.toml", f"{explain} early.json", f"{explain} late.toml --json")
    assert (late.code, late.err, early.code, early.err) == (0, "", 0, "")
    assert late.lines == [
        "late-hint: fires (on_turn_end, context.turn.iteration_count > params.after)",
        "  Notice(text='Turn 4 is over.', category='notice', priority='high', deliver_at='turn_start')",
    ]
    assert early.lines == [
        "late-hint: does not fire (on_turn_end, context.turn.iteration_count > params.after)",
        "  because its condition is false",
    ]
    notice = {"text": "Turn 4 is over.", "by": "late-hint", "category": "notice", "priority": "high"}
    finding = {
        "rule": "late-hint",
        "trigger": "on_turn_end",
        "condition": "context.turn.iteration_count > params.after",
        "fires": True,
        "reason": None,
        "orders": [{"order": "Notice", "deliver_at": "turn_start"} | notice],
    }
    assert as_json.json == {"findings": [finding], "problems": []}


def test_explain_all_looks_at_every_rule_and_says_why_each_does_not_fire(place: Place) -> None:
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
    assert told["late-hint"] == "because it is switched off"
    assert told["event-hint"] == "because it listens to the event 'ping', and this is 'pong'"
    assert told["last-turn-warning"] == "because its condition is false"
    assert told["iteration-budget-warning"].startswith("but context.")
    assert told["large-result-hint"] == "because context has no field 'result' (in context.result.characters)"
    reasons = {finding["rule"]: finding["reason"] for finding in as_json.json["findings"]}
    assert {id_: told[id_].partition(" ")[2] for id_ in reasons} == reasons
    assert len(as_json.json["problems"]) == 5
    assert (heard.code, heard.lines[0].split(" (")[0]) == (0, "event-hint: fires")


def test_explain_says_in_one_line_what_it_cannot_use(place: Place) -> None:
    place.write("broken.toml", "turn = \n")
    place.write("broken.json", '{"turn": ').write("ok.toml", "")
    said = {
        "broken.toml": "flyball: broken.toml:1: found 'turn ='; expected valid TOML",
        "broken.json": "flyball: broken.json: found ",
    }
    *broken, unknown = place.rules(
        *[f"explain all --context {name}" for name in said],
        "explain last-turn-warnin --context ok.toml --rules missing.toml",
    )
    for done, line in zip(broken, said.values(), strict=True):
        assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert done.err.startswith(line)
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err.splitlines() == [
        "flyball: missing.toml: found 'No such file or directory'; expected a file that can be read",
        "flyball: rules explain: found 'last-turn-warnin'; expected the id of a rule, such as last-turn-warning",
    ]


def test_a_rule_that_cannot_do_what_it_says_is_told(place: Place) -> None:
    action = '[action]\ntype = "extend"\nbudget = "turns"\namount = 1.5\n[[test]]\n'
    place.write("half.toml", f'[rule]\nid = "half-turn"\ntrigger = "on_turn_end"\n{action}').write("ok.toml", "")
    for done in place.rules("test half.toml", "explain half-turn --rules half.toml --context ok.toml"):
        assert "a whole number" in done.out + done.err  # told when it is tried, or when the file is read


def test_what_would_steer_the_terminal_is_shown_and_not_sent(place: Place) -> None:
    rude = GOOD.replace("Say so\nwhen", "Say \\u001b[31mso \\u202e when").replace("Turn {{", "\\u001b[2J {{")
    name = os.fsdecode(b"\x1b\xff.toml")
    listed, tested = place.write(name, rude).rules(f"list {name}", f"test {name}")
    assert listed.lines[0].endswith("Say \\x1b[31mso \\u202e when it is late.")
    assert (tested.code, "\x1b" in tested.out) == (1, False)
    assert tested.out.startswith("\\x1b\\udcff.toml:")


def test_help_names_what_is_to_be_given(place: Place) -> None:
    explain, check = place.rules("explain --help", "check --help")
    assert (explain.code, check.code) == (0, 0)
    assert "--context FILE" in explain.out
    assert "--rules PATH" in explain.out
    assert "check [OPTIONS] [PATH]..." in check.out
