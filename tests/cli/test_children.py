"""`flyball run --children`: agents to delegate to, whose lines are told apart from those of the run itself."""

import json
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
def test_lines_of_children_stand_further_in_behind_their_names(typed: Typed) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:children")
    assert (done.returncode, done.stdout) == (0, "Done.\n")
    story = [line for line in done.stderr.splitlines() if "notice" not in line]
    for line, start in zip(
        story,
        [
            "turn 1   I hand it over.",
            "  finder 1  started  at most 50 turns, ",
            "  finder 1  turn 1   I hand it over.",
            "    reader 1.1  started  at most 2 turns, ",
            "    reader 1.1  turn 1   look(path='x'): done",
            "    reader 1.1  turn 2   look(path='x'): done",
            "    reader 1.1  refused  max_child_iterations_reached",
            "    reader 1.1  grace    one last request",
            "    reader 1.1  ended    budget: 2 of 2 turns, 45 tokens, ",
            "  finder 1  turn 1   delegate(tasks=[",
            "  finder 1  turn 2   Found.",
            "  finder 1  ended    completed: 2 of 50 turns, 30 tokens, ",
            "turn 1   delegate(tasks=[",
            "completed: It completed. It used ",
            "with its children: 3 runs, 6 turns, ",
        ],
        strict=True,
    ):
        assert line.startswith(start)


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
    assert '  pilot 2  asked    May launch be called with {"what": "A"}?' in asked.stderr
    assert "  pilot 2  ended    paused: " in asked.stderr
    done = typed("run", "Go.", *options, "--yes")
    assert "  pilot 1  turn 1   launch(what='A'): done" in done.stderr
    assert "  pilot 2  ended    completed: " in done.stderr


EXPECTED = "expected MODULE:NAME, where NAME is an Agent, a Child, or a list of them"


@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("team", f"run, --children: found 'team'; {EXPECTED}"),
        (
            "team:childern",
            f"--children team:childern: found 'no childern in team'; {EXPECTED}; did you mean children?",
        ),
        ("team:number", "child: found 7; expected an Agent"),
        (
            "nowhere:x",
            "--children nowhere:x: found \"ModuleNotFoundError: No module named 'nowhere'\"; "
            "expected a module that can be imported here",
        ),
    ],
)
@pytest.mark.usefixtures("place")
def test_what_is_no_child_is_refused_in_one_line(typed: Typed, reference: str, told: str) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", f"--children={reference}")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"flyball: {told}\n")


@pytest.mark.usefixtures("place")
def test_children_of_the_same_name_are_refused(typed: Typed) -> None:
    done = typed("run", "Go.", "--model=script:chief.toml", "--children=team:finder", "--children=team:children")
    assert done.returncode == 2
    assert done.stderr == "flyball: agent, children: found 'finder'; expected a name of its own for each child\n"


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
    assert f"with its children: 3 runs, 6 turns, {tokens:,} tokens, ${dollars:.2f}\n" in done.stderr
    [total] = [line for line in typed("why").stdout.splitlines() if line.startswith("3 runs")]
    assert total.split() == ["3", "runs", "6", f"{tokens:,}", f"${dollars:.4g}"]
