"""`flyball spend` and `flyball status`: what stored runs used, exactly, by agent, model and day."""

import csv
import io
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Limits, TokenPrice, tool
from flyball.testing import ManualClock, ScriptedModel, call, say

Typed = Callable[..., subprocess.CompletedProcess[str]]
DAY = 86_400.0


@tool(effects="read", poll=True)
def look(path: str) -> str:
    """Look."""
    return f"{path} is fine"


def agent(clock: ManualClock, name: str, model: str, usd: float | None, *replies: Any, **options: Any) -> Agent:
    """An agent whose model has a price, or none."""
    price = None if usd is None else TokenPrice(input=usd, output=usd)
    scripted = ScriptedModel(*replies, grace=say("I looked."), name=model, price=price)
    return Agent(name=name, model=scripted, clock=clock, tools=[look], **options)


@pytest.fixture
def filled(stock: Any) -> Any:
    """Three days with runs of two agents: one ended, one with a child, one killed."""
    clock = stock.clock
    looks = (call("look", path="a"), call("look", path="b"))
    limits = Limits(turns=2, usd=1)
    stock.keep(agent(clock, "stoker", "big", 100.0, *looks, limits=limits).run("Go.", run_id="aaaa1111"))
    clock.move(DAY)
    child = agent(clock, "finder", "free", None, say("Found."))
    chief = ScriptedModel(
        call("delegate", tasks=[{"child": "finder", "goal": "Look."}]),
        say("Done."),
        name="big",
        price=TokenPrice(input=100.0, output=100.0),
    )
    stock.keep(Agent(name="chief", model=chief, children=[child], clock=clock).run("Go.", run_id="bbbb2222"))
    clock.move(DAY)
    killed = agent(clock, "stoker", "big", 100.0, *looks, limits=Limits(turns=3)).run("Go on.", run_id="cccc3333")
    stock.keep(killed, killed=(8, 3))
    return stock


@pytest.mark.usefixtures("filled")
def test_spend_sums_up_runs_and_their_children_by_model(typed: Typed, snapshot: Callable[..., None]) -> None:
    done = typed("spend")
    assert (done.returncode, done.stderr) == (0, "")
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()[1:]}
    assert rows["free"] == ["1", "1", "10", "5", "?"]
    assert rows["big"][0] == "3"
    assert rows["total"][0] == "4", "a run counts once"
    snapshot(done.stdout)


@pytest.mark.usefixtures("filled")
def test_csv_has_exact_sums_of_every_group(typed: Typed) -> None:
    done = typed("spend", "--by", "agent,model,day", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    keys = [(row["agent"], row["model"], row["day"]) for row in rows]
    assert keys == sorted(keys)
    assert keys == [
        ("chief", "big", "2023-11-15"), ("finder", "free", "2023-11-15"),
        ("stoker", "big", "2023-11-14"), ("stoker", "big", "2023-11-16"),
    ]  # fmt: skip
    chief, finder, stoker, killed = rows
    tokens = [int(row["input_tokens"]) + int(row["output_tokens"]) for row in rows]
    assert float(chief["usd"]) == pytest.approx(tokens[0] * 100 / 1e6)
    assert float(stoker["usd"]) == pytest.approx(tokens[2] * 100 / 1e6)
    assert (finder["usd"], finder["unpriced_requests"]) == ("0", "1"), "a model without a price"
    assert (killed["usd"], killed["unpriced_requests"]) == ("0", killed["requests"]), "a run that did not end"
    assert (chief["unpriced_requests"], stoker["unpriced_requests"]) == ("0", "0")


def test_a_name_is_no_formula_for_a_spreadsheet(typed: Typed, stock: Any) -> None:
    stock.keep(agent(stock.clock, "=cmd", "big", 1.0, say("Done.")).run("Go.", run_id="aaaa1111"))
    assert typed("spend", "--by=agent", "--csv").stdout.splitlines()[1].startswith("'=cmd,")


@pytest.mark.parametrize(
    ("options", "words"),
    [("--by=agnt", "'agnt'"), ("--by=", "''"), ("--by=day,day", "each name once"), ("--since=soon", "'soon'")],
)
def test_an_option_that_cannot_be_meant_is_refused(typed: Typed, options: str, words: str) -> None:
    done = typed("spend", options)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert options.partition("=")[0] in done.stderr
    assert words in done.stderr


@pytest.mark.usefixtures("filled")
def test_old_runs_are_left_out(typed: Typed) -> None:
    assert typed("spend", "--since=1h").stdout == "no matching runs\n"


def test_without_runs_there_is_nothing_to_sum_up_or_to_show(typed: Typed, tmp_path: Path) -> None:
    assert typed("spend").stdout == "no runs yet\n"
    assert typed("spend", "--csv").stdout.count("\n") == 1
    line = typed("status", "--line")
    assert (line.returncode, line.stdout, line.stderr) == (0, "", ""), "a prompt stays clean"
    long = typed("status")
    assert (long.returncode, long.stdout, long.stderr.count("\n")) == (2, "", 1)
    assert not (tmp_path / "data").exists()


def test_the_line_tells_what_is_spent_and_left_of_the_newest_run(typed: Typed, stock: Any) -> None:
    looks = (call("look", path="a"), call("look", path="b"), call("look", path="c"))
    limits = Limits(turns=2, tokens=9_000, usd=1)
    stock.keep(agent(stock.clock, "stoker", "big", 100.0, *looks, limits=limits).run("Go.", run_id="aaaa1111"))
    done = typed("status", "--line", f"--store=sqlite:///{stock.path}")
    assert done.stdout == (
        "budget · 2 of 2 turns, 0 left · 45 of 9,000 tokens, 8,955 left · $0.0045 of $1.00, $0.9955 left\n"
    )
    whole = typed("status", f"--store=sqlite:///{stock.path}").stdout
    assert whole.startswith("budget: Go.\n")
    assert re.search(r"^ +turns ━+ 2 of 2$", whole, re.MULTILINE)


@pytest.mark.usefixtures("filled")
def test_the_line_shows_a_run_that_was_killed(typed: Typed) -> None:
    assert typed("status", "--line").stdout.startswith("interrupted · 2 of 3 turns, 1 left · ")
