"""`flyball runs`, `flyball sessions` and `flyball why RUN`: what is found in a store, also of runs that were killed."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Limits, Result, tool
from flyball.store import Guard
from flyball.testing import Line, ManualClock, ScriptedModel, call, say

Typed = Callable[..., subprocess.CompletedProcess[str]]
IDS = ("aaaa1111", "aaaa2222", "bbbb3333")


@tool(effects="read", poll=True, sensitive=("key",))
def look(path: str, key: str = "") -> str:
    """Look."""
    return f"{path} is fine"


def ran(run_id: str, *lines: Line, task: str = "See to the boiler.", clock: Any = None, **options: Any) -> Result:
    model = ScriptedModel(*lines, grace=say("I looked."))
    agent = Agent(model=model, tools=[look], clock=clock or ManualClock(), **options)
    return agent.run(task, run_id=run_id)


@pytest.fixture
def three(stock: Any) -> Any:
    """A store with three runs: one completed, one that met a limit, and one that was killed while it looked."""
    stock.keep(ran(IDS[0], say("All is well."), name="stoker"), session="boiler")
    stock.clock.move(60)
    busy = [call("look", path=str(n)) for n in range(3)]
    stock.keep(ran(IDS[1], *busy, task="Never\nstop.", limits=Limits(turns=2), clock=stock.clock), session="boiler")
    stock.clock.move(60)
    killed = ran(IDS[2], call("look", path="a", key="secret"), say("Fine."), clock=stock.clock)
    stock.keep(killed, killed=(5, 2))
    return stock


def test_where_there_is_no_store_yet_there_are_no_runs_and_none_is_made(
    typed: Typed, tmp_path: Path, snapshot: Callable[..., None]
) -> None:
    commands = ["runs", "sessions", "prune --yes", "runs --store=memory:", "runs --store=none"]
    for command in commands:
        done = typed(*command.split())
        assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")
        snapshot(done.stdout, command)
    assert json.loads(typed("runs", "--json").stdout) == {"runs": []}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("three")
def test_runs_are_listed_with_the_newest_first_and_why_each_ended(typed: Typed, snapshot: Callable[..., None]) -> None:
    done = typed("runs")
    assert (done.returncode, done.stderr) == (0, "")
    _, *lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["bbbb3333", "aaaa2222", "aaaa1111"]
    assert "budget" in lines[1]
    assert "completed" in lines[2]
    snapshot(done.stdout)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--session=boiler", [IDS[1], IDS[0]]),
        ("--agent=stoker", [IDS[0]]),
        ("--stop=budget", [IDS[1]]),
        ("--unended", [IDS[2]]),
        ("--limit=1", [IDS[2]]),
        ("--session=kitchen", []),
    ],
)
def test_runs_can_be_selected(typed: Typed, options: str, wanted: list[str]) -> None:
    listed = json.loads(typed("runs", options, "--json").stdout)["runs"]
    assert [one["run_id"] for one in listed] == wanted
    assert typed("runs", options).stdout.count("\n") == max(1, len(wanted) + bool(wanted))


@pytest.mark.usefixtures("three")
def test_a_reason_that_nobody_knows_is_refused_with_those_that_there_are(typed: Typed) -> None:
    done = typed("runs", "--stop=tired")
    assert done.returncode == 2
    assert "'tired'" in done.stderr
    assert "contended, cancelled, " in done.stderr


def test_a_run_whose_session_is_held_is_going_on(typed: Typed, three: Any) -> None:
    with three.open() as store:
        three.clock.move(10**9)  # so that it is held for commands, which have another clock
        assert isinstance(store.lease.acquire(IDS[2], "the night shift", 10.0**9), Guard)
    [run] = json.loads(typed("runs", "--unended", "--json").stdout)["runs"]
    assert (run["going_on"], run["killed"], run["stop"]) == (True, False, None)
    shown = typed("why", IDS[2]).stdout
    assert shown.splitlines()[0].endswith("  See to the boiler.")
    assert "the night shift" in shown


def test_only_the_newer_of_two_unended_runs_of_a_session_can_be_going_on(typed: Typed, stock: Any) -> None:
    for run_id in IDS[:2]:
        stock.keep(ran(run_id, say("Fine."), clock=stock.clock), session="boiler", killed=(2, 1))
        stock.clock.move(60)
    stock.clock.move(10**9)
    with stock.open() as store:
        store.lease.acquire("boiler", "the night shift", 10.0**9)
    runs = json.loads(typed("runs", "--json").stdout)["runs"]
    assert [(run["run_id"], run["going_on"], run["killed"]) for run in runs] == [
        (IDS[1], True, False),
        (IDS[0], False, True),
    ]


@pytest.mark.usefixtures("three")
def test_a_run_is_found_by_as_much_of_its_id_as_no_other_has(
    typed: Typed, tmp_path: Path, snapshot: Callable[..., None]
) -> None:
    assert typed("why", "aaaa2").stdout == typed("why", IDS[1]).stdout
    assert typed("why", "aaaa2").stdout.splitlines()[0] == " budget  Never stop."
    assert typed("why", "last").stdout == typed("why", IDS[2]).stdout
    several = typed("why", "aaaa")
    assert (several.returncode, several.stdout) == (2, "")
    assert "aaaa2222, aaaa1111" in several.stderr
    unknown = typed("why", "bbbb3334")
    assert "bbbb3333" in unknown.stderr
    assert "run.json cannot be read" in typed("why", "run.json").stderr
    assert "--store" in typed("why", "--store=none").stderr
    snapshot((several.stderr + unknown.stderr).replace(str(tmp_path), "PLACE"))


@pytest.mark.usefixtures("three")
def test_the_same_screen_comes_from_the_store_and_from_a_record(typed: Typed, tmp_path: Path) -> None:
    result = ran(IDS[0], say("All is well."), name="stoker")
    (tmp_path / "saved.json").write_text(json.dumps(result.to_dict()))
    assert typed("why", IDS[0]).stdout == typed("why", "saved.json").stdout


@pytest.mark.usefixtures("three")
def test_a_killed_run_is_shown_with_all_that_is_known_and_nothing_made_up(
    typed: Typed, snapshot: Callable[..., None]
) -> None:
    done = typed("why", "bbbb")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert (done.returncode, done.stderr) == (0, "")
    assert any("look(path='a', key='***')" in line for line in lines)
    assert any(line.endswith("1 of 90") and line.startswith("turns ") for line in lines)
    assert lines[-1] == f"flyball resume {IDS[2]}"
    assert "secret" not in done.stdout
    snapshot(done.stdout)
    assert " · scripted" in typed("why", "bbbb", "--markdown").stdout.splitlines()[2]


def test_sessions_are_listed_named_and_deleted(typed: Typed, three: Any) -> None:
    def listed(*options: str) -> list[tuple[str, str, int]]:
        found = json.loads(typed("sessions", "--json", *options).stdout)["sessions"]
        return [(one["id"], one["title"], one["messages"]) for one in found]

    assert listed() == [("boiler", "", 9)]
    assert [name for name, _, _ in listed("--all")] == [IDS[2], "boiler"]
    assert typed("sessions", "title", "boil", "The boiler room").returncode == 0
    assert listed() == [("boiler", "The boiler room", 9)]
    assert "boiler   The boiler room  2" in typed("sessions").stdout
    typed("sessions", "title", IDS[2], "A hole")
    assert [title for _, title, _ in listed()] == ["A hole", "The boiler room"], "what has a title is shown"
    typed("sessions", "title", IDS[2], "")
    refused = typed("sessions", "delete", "boiler")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    assert "boiler" in typed("sessions", "delete", "boiler", "--yes").stdout
    assert "--all" in typed("sessions").stdout
    assert [one["run_id"] for one in json.loads(typed("runs", "--json").stdout)["runs"]] == [IDS[2]]
    missing = typed("sessions", "delete", "kitchen", "--yes")
    assert (missing.returncode, "bbbb3333" in missing.stderr) == (2, True)


def test_a_session_of_which_a_second_run_has_made_more_is_listed(typed: Typed, stock: Any) -> None:
    stock.keep(ran(IDS[0], say("Fine.")))
    assert "--all" in typed("sessions").stdout
    stock.keep(ran(IDS[1], say("Fine.")), session=IDS[0])
    assert typed("sessions").stdout.splitlines()[1].startswith(f"{IDS[0]}  2023-11-14 22:13  4")


def test_a_session_that_is_held_is_not_deleted(typed: Typed, three: Any) -> None:
    three.clock.move(10**9)
    with three.open() as store:
        store.lease.acquire("boiler", "the night shift", 10.0**9)
    refused = typed("sessions", "delete", "boiler", "--yes")
    assert refused.returncode == 2
    assert "the night shift" in refused.stderr
    assert typed("sessions").stdout.splitlines()[1].endswith("the night shift")


def test_a_store_of_another_program_or_version_is_named(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"no database at all, but long enough to be looked at" * 9)
    for command in (["runs"], ["sessions"], ["why", "aaaa"], ["export", "aaaa"], ["prune", "--yes"]):
        done = typed(*command, "--store=sqlite:///other.db")
        assert (done.returncode, done.stdout) == (2, "")
        assert "other.db: " in done.stderr
    assert "'mysql://x'" in typed("runs", "--store=mysql://x").stderr


def test_the_store_may_be_a_setting(typed: Typed, three: Any, tmp_path: Path) -> None:
    three.path.rename(tmp_path / "mine.db")
    (tmp_path / "flyball.toml").write_text('store = "sqlite:///mine.db"\n')
    assert len(json.loads(typed("runs", "--json").stdout)["runs"]) == 3
    assert typed("runs", FLYBALL_STORE="none").stdout.count("\n") == 1
    assert typed("limits").stderr == ""
    (tmp_path / "flyball.toml").write_text("store = 5\n")
    done = typed("runs")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("flyball: store (flyball.toml:1): ")
