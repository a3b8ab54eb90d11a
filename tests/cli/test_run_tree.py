"""`flyball why` of a run with children: the tree with what each run used, its one reason, and all of them together."""

import json
import subprocess
from collections.abc import Callable
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from flyball import Agent, Limits, tool
from flyball.cli.report import render_markdown, render_report
from flyball.cli.run_tree import build_tree_rows
from flyball.history.record import RunRecord
from flyball.testing import ManualClock, ScriptDriver, ScriptedModel, call, fail, say

Typed = Callable[..., subprocess.CompletedProcess[str]]


@tool(poll=True)
def look(path: str) -> str:
    """Look."""
    return path


def delegation(*names: str) -> Any:
    return call("delegate", tasks=[{"child": name, "goal": f"Be {name}."} for name in names])


def made(prices: bool = False) -> dict[str, Any]:
    """The record of an editor with a finder that delegates to a reader, and a writer that fails."""
    clock = ManualClock()
    looks = ScriptedModel.looping(call("look", path="x"), grace=say("I looked."))
    reader = Agent(name="reader", model=looks, tools=[look], limits=Limits(turns=4), clock=clock)
    asks = ScriptedModel(delegation("reader"), say("Found."))
    finder = Agent(name="finder", model=asks, children=[reader], clock=clock)
    writer = Agent(name="writer", model=ScriptedModel(fail(RuntimeError("no\nink"))), clock=clock)
    model = ScriptedModel(delegation("finder", "writer"), say("Done."))
    editor = Agent(name="editor", model=model, children=[finder, writer], limits=Limits(turns=9), clock=clock)
    record = json.loads(json.dumps(ScriptDriver(editor).run("A page.").to_dict()))
    if prices:
        record |= {"cost_usd": {"gpt": 0.25}, "unpriced": []}
        record["children"][0] |= {"cost_usd": {"gpt": 0.5}, "unpriced": []}
    return record


@cache
def record() -> dict[str, Any]:
    return made()


def alone() -> dict[str, Any]:
    return record() | {"children": list[Any]()}


def screen(record: object, width: int = 100, every: bool = False) -> list[str]:
    console = Console(width=width, file=StringIO(), color_system=None, highlight=False, markup=False, emoji=False)
    return render_report(RunRecord.from_dict(record), console, every).splitlines()


def tree(record: object, width: int = 100) -> list[str]:
    """The lines of the tree, with one space where there are several."""
    lines = screen(record, width)
    first = next(n for n, line in enumerate(lines) if line.startswith("run "))
    return [" ".join(line.split()) for line in lines[first : lines.index("", first)]]


def test_each_run_is_drawn_under_its_parent_with_what_it_used_and_its_one_reason(
    snapshot: Callable[..., None],
) -> None:
    editor, finder, reader, writer, total = tree(record())[1:]
    assert editor.startswith("editor 2 of 9 30 ? ")
    assert finder.startswith("├─ finder 1 2 of 50 30 ? ")
    assert reader.startswith("│ └─ reader 1.1 4 of 4 75 ? ")
    assert " budget: " in reader
    assert writer.endswith(" failed: no ink")
    assert total.startswith("4 runs 8 135")
    snapshot("\n".join(tree(record())))


def test_a_tree_of_runs_fits_a_terminal_of_80_columns() -> None:
    assert max(map(len, screen(made(prices=True), 80))) <= 80


def test_costs_are_those_of_each_run_and_their_sum_says_whether_it_is_all() -> None:
    priced = made(prices=True)
    costs = [line.cells[2] for line in build_tree_rows(RunRecord.from_dict(priced))]
    assert costs == ["$0.25", "$0.5", "?", "", "$0.75 and ?"]
    priced["children"][0]["children"][0]["unpriced"] = []
    assert [line.cells[2] for line in build_tree_rows(RunRecord.from_dict(priced))] == [
        "$0.25",
        "$0.5",
        "",
        "",
        "$0.75",
    ]


def test_the_sums_are_those_that_the_record_has_of_the_whole_tree() -> None:
    usage = record()["usage_with_children"]
    [*_, total] = build_tree_rows(RunRecord.from_dict(record()))
    assert total.cells[1] == str(usage["input"] + usage["output"])


def test_a_run_without_children_has_no_tree() -> None:
    assert not [line for line in screen(alone()) if line.startswith("run ")]
    assert "| run |" not in render_markdown(RunRecord.from_dict(alone()))


def test_markdown_has_the_same_lines(snapshot: Callable[..., None]) -> None:
    lines = render_markdown(RunRecord.from_dict(record())).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| run |"))
    names = [line.split(" | ")[0] for line in lines[start + 2 : start + 7]]
    assert names == ["| editor", "| finder 1", "| reader 1.1", "| writer 2", "| 4 runs"]
    snapshot("\n".join(lines[start : start + 7]))


def test_the_middle_of_a_big_tree_is_one_line_that_is_counted() -> None:
    [reader] = record()["children"][0]["children"]
    many = record() | {"children": [reader] * 50}
    lines = build_tree_rows(RunRecord.from_dict(many))
    assert len(lines) == 12 + 1 + 24 + 1
    assert (lines[12].name[:3], lines[12].cells[:2], "--all" in lines[12].cells[4]) == ("15 ", ("60", "1,125"), True)
    assert lines[-1].name == "51 runs"
    everyone = build_tree_rows(RunRecord.from_dict(many), show_all=True)
    assert len(everyone) == 52
    assert everyone[-1] == lines[-1]


def test_children_are_placed_and_named_by_what_their_parent_announced() -> None:
    turned = record() | {"children": record()["children"][::-1]}
    assert [one.label for one in RunRecord.from_dict(turned).iter_tree()] == [
        "editor",
        "finder 1",
        "reader 1.1",
        "writer 2",
    ]
    forgotten = record() | {"events": list[Any]()}
    assert [one.label for one in RunRecord.from_dict(forgotten).iter_tree()] == [
        "agent",
        "finder 1",
        "reader 1.1",
        "writer 2",
    ]
    silent = record() | {"children": [child | {"events": list[Any]()} for child in record()["children"]]}
    assert [one.label for one in RunRecord.from_dict(silent).iter_tree()] == [
        "editor",
        "finder 1",
        "reader 1.1",
        "writer 2",
    ]


def test_one_child_may_be_shown_by_itself_with_what_would_let_it_go_on(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(record()))
    done = typed("why", "run.json", "--child", "1.1")
    assert done.returncode == 0
    assert done.stdout.startswith(" budget  Be reader.\n")
    assert "depth" not in done.stdout
    assert "turns=8" in done.stdout.splitlines()[-1]
    assert "reader" in done.stdout.splitlines()[-1]
    late = record()["children"][1] | {"stop": "deadline", "seconds": 5.0}
    (tmp_path / "late.json").write_text(json.dumps(record() | {"children": [record()["children"][0], late]}))
    assert typed("why", "late.json", "--child=2").stdout.splitlines()[-1].startswith("  set seconds=1160 ")


@pytest.mark.parametrize("place", ["3", "1.2", "finder", ""])
def test_a_place_where_nobody_stands_is_refused_with_those_that_there_are(typed: Typed, place: str) -> None:
    done = typed("why", "-", "--child", place, stdin=json.dumps(record()))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("flyball: why, --child: ")
    assert "1, 1.1, 2" in done.stderr


def test_a_child_of_a_run_without_children_is_refused(typed: Typed) -> None:
    done = typed("why", "-", "--child=1", stdin=json.dumps(alone()))
    assert (done.returncode, done.stderr.count("\n"), "--child" in done.stderr) == (2, 1, True)


def test_a_child_that_is_no_record_is_refused(typed: Typed) -> None:
    done = typed("why", "-", stdin=json.dumps(record() | {"children": [{"stop": "completed"}]}))
    assert done.returncode == 2
    assert "events" in done.stderr


def test_more_children_than_were_allowed_are_a_setting() -> None:
    model = ScriptedModel(delegation("x", "x"), say("Done."))
    child = Agent(name="x", model=ScriptedModel(say("Yes.")))
    told = ScriptDriver(Agent(model=model, children=[child], limits=Limits(children=1))).run("Go.").to_dict()
    assert "FLYBALL_DELEGATION__MAX_CHILDREN=2" in screen(told)[-1]


def test_what_a_child_was_told_by_others_does_not_steer_the_terminal() -> None:
    rude = json.loads(json.dumps(record()))
    rude["events"] = []
    rude["children"][1]["error"]["message"] = "no\x1b[2J ink"
    rude["children"][1]["events"][0]["agent"] = "x\x1b[2J"
    shown = "\n".join([*screen(rude), render_markdown(RunRecord.from_dict(rude))])
    assert "\x1b" not in shown
    assert "x\\x1b[2J 2" in shown
