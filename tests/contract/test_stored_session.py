"""Long sessions in a store: each run stores what is new, and reads as if it had stored everything."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, Limits, Result, tool
from flyball.history.archive import Archive
from flyball.runtime.history import JOURNAL_CODEC
from flyball.store import Kind, MemoryStore, SqliteStore, Store, open_store
from flyball.testing import ScriptedModel, call, say

LONG_TEXT = "It was a long story. " * 50


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@tool(approve=True)
def sell(price: int) -> str:
    """Sell."""
    return f"sold for {price}"


@tool(sensitive=["password"])
def login(password: str) -> str:
    """Log in."""
    return "welcome"


def talk(store: Store, *lines: Any, **options: Any) -> Agent:
    given: dict[str, Any] = {"tools": [sell, login], "settings": {}, **options}
    return Agent(model=ScriptedModel(*lines, grace=say("Reported.")), store=store, **given)


def fill(store: Store, runs: int) -> list[Result]:
    agent = talk(store, *[say(LONG_TEXT)] * runs)
    return [agent.run("Go on.", session="talk") for _ in range(runs)]


def measure(store: Store, result: Result) -> int:
    """Return the size of what the store has of a run, beside its messages and events."""
    entry = store.runs.get(result.run_id)
    assert entry is not None
    assert entry.finish is not None
    return sum(len(row.data) for row in store.journal.read(result.run_id)) + len(json.dumps(entry.finish.record))


def test_a_late_run_of_a_session_stores_no_more_than_an_early_one(store: Store) -> None:
    results = fill(store, 20)
    assert measure(store, results[-1]) < measure(store, results[1]) + 200


def test_the_record_of_a_run_in_a_session_has_all_messages_again(store: Store) -> None:
    talk(store, call("login", password="secret"), say("You are in.")).run("Log in.", session="talk")
    result = talk(store, call("login", password="hidden"), say("Again.")).run("Log in again.", session="talk")
    entry = Archive(store, "store").find_run(result.run_id)
    record = Archive(store, "store").build_record(entry).data.raw
    told = result.to_dict()
    assert {key: record[key] for key in told if key != "events"} == {
        key: value for key, value in told.items() if key != "events"
    }
    assert len(record["messages"]) == 8
    assert "secret" not in json.dumps(record)
    assert "transcript" not in record


def test_a_run_of_a_session_resumes_with_the_earlier_messages(store: Store) -> None:
    fill(store, 3)
    seller = talk(store, call("sell", price=4), say("Sold."))
    asked = seller.run("Sell it.", session="talk")
    result = seller.resume(asked.run_id, {asked.questions[0].id: True})
    assert (asked.stop, result.stop) == ("paused", "completed")
    said = [message.content for message in result.messages if message.content]
    assert said == ["Go on.", LONG_TEXT] * 3 + ["Sell it.", "sold for 4", "Sold."]
    assert store.transcript.read("talk") == list(result.messages)


def test_an_extended_run_of_a_session_has_all_messages_in_its_record(store: Store) -> None:
    fill(store, 2)
    agent = talk(store, call("login", password="x"), say("Done."), limits=Limits(turns=1))
    first = agent.run("Log in.", session="talk")
    result = agent.resume(first.run_id, extend={"turns": 3})
    assert (first.stop, result.stop) == ("budget", "completed")
    archive = Archive(store, "store")
    assert archive.build_record(archive.find_run(result.run_id)).data.raw["messages"] == result.to_dict()["messages"]


def test_a_journal_that_repeats_the_earlier_messages_is_resumed(store: Store) -> None:
    """Format 1 had the whole conversation in the first row of every run."""
    fill(store, 2)
    seller = talk(store, call("sell", price=4), say("Sold."))
    asked = seller.run("Sell it.", session="talk")
    rows = store.journal.read(asked.run_id)
    data = JOURNAL_CODEC.loads(rows[0].data)
    assert (rows[0].kind, data.pop("earlier"), len(data["messages"])) == (Kind.RUN, 4, 1)
    data |= {"format": 1, "messages": [*store.transcript.read("talk")[:4], *data["messages"]]}
    text = JOURNAL_CODEC.dumps(data)
    if isinstance(store, MemoryStore):
        store.tables.runs[asked.run_id].rows[0] = replace(rows[0], data=text)
    elif isinstance(store, SqliteStore):
        store.write(lambda one: one.execute("UPDATE trace SET data = ? WHERE data = ?", (text, rows[0].data)))
    result = seller.resume(asked.run_id, {asked.questions[0].id: True})
    assert (result.stop, len(result.messages)) == ("completed", 8)
