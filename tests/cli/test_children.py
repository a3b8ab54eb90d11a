"""`flyball run --children`: agents to delegate to, whose lines are told apart from those of the run itself."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Typed = Callable[..., subprocess.CompletedProcess[str]]

TEAM = '''
from flyball import Agent, Child, Limits, tool
from flyball.testing import ScriptedModel, call, say
@tool(poll=True)
def look(path: str) -> str:
    """Look."""
    return path
@tool(approve=True)
def launch(what: str) -> str:
    """Launch."""
    return f"{what} is gone"
looks = ScriptedModel.looping(call("look", path="x"), grace=say("I looked."))
reader = Agent(name="reader", model=looks, tools=[look], limits=Limits(turns=2))
finder = Agent(name="finder", model="script:finder.toml", children=[reader])
pilot = Agent(name="pilot", model=ScriptedModel(call("launch", what="A"), say("Off.")), tools=[launch])
children = [Child(finder, budget="shared"), pilot]
number = 7
'''


def delegates(*names: str, goal: str = "Go.", end: str = 'text = "Done."') -> str:
    tasks = ", ".join(f'{{ child = "{name}", goal = "{goal}" }}' for name in names)
    hands_over = (
        f'pieces = ["I hand ", "it over."]\ncalls = [{{ name = "delegate", arguments = {{ tasks = [{tasks}] }} }}]'
    )
    return f"[[reply]]\n{hands_over}\n[[reply]]\n{end}\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a team."""
    (tmp_path / "team.py").write_text(TEAM)
    (tmp_path / "finder.toml").write_text(delegates("reader", goal="Read.", end='pieces = ["Fou", "nd."]'))
    (tmp_path / "chief.toml").write_text(delegates("finder"))
    (tmp_path / "launches.toml").write_text(delegates("pilot", "pilot"))
    return tmp_path


@pytest.mark.usefixtures("place")
def test_lines_of_children_stand_further_in_behind_their_names(typed: Typed, snapshot: Callable[..., None]) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:children")
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    story = [line for line in done.stderr.splitlines() if "notice" not in line]
    indents = [(len(line) - len(line.lstrip()), line.split()[:2]) for line in story]
    assert {tuple(words) for indent, words in indents if indent == 2} == {("finder", "1")}
    assert {tuple(words) for indent, words in indents if indent == 4} == {("reader", "1.1")}
    assert [indent for indent, _ in indents] == [0, 2, 2, 4, 4, 4, 4, 4, 4, 2, 2, 2, 0, 0, 0, 0, 0]
    snapshot(re.sub(r"\d+\.\d+ s|in [\d.]+ s|\d[\d,.]* s\b", "N s", "\n".join(story)))


@pytest.mark.usefixtures("place")
def test_a_record_has_the_children_and_why_draws_them(typed: Typed) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:finder", "--json")
    record = json.loads(done.stdout)
    assert [child["stop"] for child in record["children"]] == ["completed"]
    why = typed("why").stdout
    assert "└─ finder 1 " in why
    assert "   └─ reader 1.1 " in why
    assert typed("why", "--child=1.1").stdout.startswith(" budget  Read.\n")


@pytest.mark.usefixtures("place")
def test_every_event_of_children_is_among_the_lines_of_json_and_the_last_is_that_of_the_run(typed: Typed) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:finder", "--jsonl")
    events: list[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    ends = [event for event in events if event["event"] == "run_ended"]
    assert len(ends) == 3
    assert (events[-1]["event"], events[-1]["parent_run_id"]) == ("run_ended", None)


@pytest.mark.usefixtures("place")
def test_calls_of_children_need_a_person_too_unless_it_is_said_that_they_do_not(typed: Typed) -> None:
    options = ("--model=script:launches.toml", "--children=team:pilot")
    asked = typed("run", "Go.", *options)
    assert re.search(r'^  pilot 2  asked .*\{"what": "A"\}', asked.stderr, re.MULTILINE)
    assert "  pilot 2  ended    paused: " in asked.stderr
    done = typed("run", "Go.", *options, "--yes")
    assert "  pilot 1  turn 1   launch(what='A'): done" in done.stderr
    assert "  pilot 2  ended    completed: " in done.stderr


@pytest.mark.parametrize(
    ("reference", "facts"),
    [
        ("team", ["--children", "'team'", "MODULE:NAME"]),
        ("team:childern", ["--children team:childern", "children"]),
        ("team:number", ["7"]),
        ("nowhere:x", ["--children nowhere:x", "ModuleNotFoundError: No module named 'nowhere'"]),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_reference_that_is_no_child_is_refused_in_one_line(
    typed: Typed, reference: str, facts: list[str], snapshot: Callable[..., None]
) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", f"--children={reference}")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert [fact for fact in facts if fact not in done.stderr] == []
    snapshot(done.stderr)


@pytest.mark.usefixtures("place")
def test_children_of_the_same_name_are_refused(typed: Typed) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:finder", "--children=team:children")
    assert (done.returncode, done.stderr.count("\n"), "'finder'" in done.stderr) == (2, 1, True)


def test_a_cost_that_is_known_in_part_is_a_lower_bound(typed: Typed, place: Path) -> None:
    (place / "flyball.toml").write_text('[prices."flyball:chief"]\ninput = 1e5\noutput = 1e5\n')
    (place / "chief.toml").write_text('name = "chief"\n' + (place / "chief.toml").read_text())
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:finder")
    record = json.loads((place / "state" / "flyball" / "last.json").read_text())
    [dollars] = record["cost_usd"].values()
    [used, tree] = [line for line in done.stderr.splitlines() if line.startswith(("used ", "tree "))]
    assert used.endswith(f", ${dollars:.2f}")
    assert tree.endswith(f" tokens, at least ${dollars:.2f}")


def test_what_children_cost_is_told_with_what_the_run_did(typed: Typed, place: Path) -> None:
    prices = "".join(f'[prices."{name}"]\ninput = 1e5\noutput = 1e5\n' for name in ("chief", "finder", "scripted"))
    (place / "flyball.toml").write_text(prices)
    for name in ("chief", "finder"):
        (place / f"{name}.toml").write_text(f'name = "{name}"\n' + (place / f"{name}.toml").read_text())
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:finder")
    record = json.loads((place / "state" / "flyball" / "last.json").read_text())
    usage, cost = record["usage_with_children"], record["cost_usd_with_children"]
    tokens, dollars = usage["input"] + usage["output"], sum(cost.values())
    assert set(cost) == {"chief", "finder", "scripted"}
    assert f"\ntree     3 runs, 6 turns, {tokens:,} tokens, ${dollars:.2f}\n" in done.stderr
    [total] = [line for line in typed("why").stdout.splitlines() if line.startswith("3 runs")]
    assert total.split() == ["3", "runs", "6", f"{tokens:,}", f"${dollars:.4g}"]
