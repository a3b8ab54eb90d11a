"""Runs that are kept in a store: what they leave there, and how they go on from it."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, Result, UnknownBudget, run_conversation, tool
from flyball.errors import CallClosed, ResumeError, StoreError
from flyball.event import Event
from flyball.message import Message
from flyball.runtime.lease import build_owner
from flyball.store import Guard, Holder, Kind, MemoryStore, Store, open_store
from flyball.store.memory import MemoryLease
from flyball.testing import Line, ScriptedModel, call, say, together
from flyball.tools import ToolContext

Running = Callable[..., Result]


STORE_AT_EACH_DOOR = pytest.mark.parametrize(
    ("store", "door"), [("sqlite", "sync"), ("memory", "asyncio"), ("sqlite", "trio")], indirect=["store"]
)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/runs.db") as opened:
        yield opened


@tool(effects="read", poll=True)
def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


@tool
def count(ctx: ToolContext) -> int:
    """Count up."""
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    return ctx.state["count"]


@tool(approve=True)
def risky() -> str:
    """Do what a person must agree to."""
    return "done"


def agent(store: Store | None, *lines: Line, grace: str = "Reported.", **options: Any) -> Agent:
    given: dict[str, Any] = {"tools": [look, count, risky], "settings": {}, **options}
    return Agent(model=ScriptedModel(*lines, grace=say(grace)), store=store, **given)


def again(agent: Agent, **options: Any) -> Agent:
    """The same agent, as another process has it; only its script knows where it is."""
    given: dict[str, Any] = {"tools": [look, count, risky], "settings": {}, "limits": agent.limits, **options}
    return Agent(model=agent.model, store=agent.store, **given)


def kept(store: Store, result: Result) -> list[Message]:
    return store.transcript.read(result.session_id or "")


class TestAKeptRun:
    def test_a_stored_run_leaves_its_messages_journal_events_and_record(self, store: Store, run: Running) -> None:
        result = run(agent(store, call("look"), say("Done."), metadata={"job": 7}), session="talk")
        assert kept(store, result) == list(result.messages)
        entry = store.runs.get(result.run_id)
        assert entry is not None
        assert (entry.start.session, entry.start.task, entry.start.metadata) == ("talk", "go", {"job": 7})
        assert entry.finish is not None
        assert (entry.finish.stop, (entry.finish.record or {})["text"]) == ("completed", "Done.")
        assert [event["seq"] for event in store.runs.events(result.run_id)] == [event.seq for event in result.events]
        rows = store.journal.read(result.run_id)
        assert rows[0].kind is Kind.RUN
        assert [row.kind for row in rows[1:]] == [Kind.STARTED, Kind.ANSWER] * ((len(rows) - 1) // 2)
        assert store.lease.holder("talk") is None

    @pytest.mark.one_door
    def test_start_metadata_is_in_the_stored_start_only(self, store: Store, run: Running) -> None:
        result = run(agent(store, say("Done."), metadata={"job": 7}, start_metadata={"program": "x"}))
        entry = store.runs.get(result.run_id)
        assert entry is not None
        assert entry.start.metadata == {"job": 7, "program": "x"}
        assert (result.metadata, result.events[0].to_dict()["metadata"]) == ({"job": 7}, {"job": 7})

    @pytest.mark.one_door
    def test_a_stored_run_without_a_session_gets_one_of_its_own(self, store: Store, run: Running) -> None:
        result = run(agent(store, say("Done.")))
        assert result.session_id == result.run_id
        assert [session.id for session in store.transcript.sessions()] == [result.run_id]

    @pytest.mark.one_door
    def test_a_stored_run_continues_the_messages_and_state_of_its_session(self, store: Store, run: Running) -> None:
        first = run(agent(store, call("count"), say("One.")), "First?", session="talk")
        model = ScriptedModel(call("count"), say("Two."))
        second = run(Agent(model=model, tools=[count], store=store), "Second?", session="talk")
        assert (first.state, second.state) == ({"count": 1}, {"count": 2})
        said = [message.content for message in model.requests[0].messages if message.content]
        assert said == ["First?", "1", "One.", "Second?"]
        assert [message.content for message in kept(store, second)] == [one.content for one in second.messages]
        assert store.state.get("talk") == {"count": 2}

    @pytest.mark.one_door
    def test_a_stored_run_knows_its_number_in_the_session(self, store: Store, run: Running) -> None:
        seen: list[int] = []

        def hook(point: object, progress: Any, about: object = None) -> None:
            if point == "run_started":
                seen.append(progress.number)

        for _ in range(3):
            run(agent(store, say("x"), hooks=[hook]), session="talk")
        assert seen == [1, 2, 3]

    @pytest.mark.one_door
    def test_a_run_on_a_busy_session_ends_at_once_and_names_the_holder(self, store: Store, run: Running) -> None:
        assert not isinstance(store.lease.acquire("talk", "elsewhere:7:x", 300), Holder)
        busy = agent(store, say("x"))
        result = run(busy, session="talk")
        assert (result.stop, result.requests, result.messages[-1].content) == ("contended", 0, "go")
        assert "elsewhere:7" in (result.warning or "")
        assert "elsewhere:7" in result.explain()
        assert store.runs.get(result.run_id) is None
        assert store.transcript.read("talk") == []

    @STORE_AT_EACH_DOOR
    def test_a_run_with_wait_seconds_waits_for_a_busy_session(self, store: Store, run: Running) -> None:
        assert not isinstance(store.lease.acquire("talk", "elsewhere:7:x", 0.5), Holder)
        result = run(agent(store, say("x")), session="talk", wait_seconds=60)
        assert (result.stop, result.seconds < 30) == ("completed", True)

    @pytest.mark.one_door
    def test_a_run_takes_over_the_session_of_a_dead_local_process_at_once(self, store: Store, run: Running) -> None:
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
            owner = build_owner(process.pid)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)
        assert not isinstance(store.lease.acquire("talk", owner, 300), Holder)
        assert run(agent(store, say("x")), session="talk").stop == "completed"

    @pytest.mark.one_door
    def test_a_run_whose_store_fails_ends_as_failed_and_keeps_its_outcomes(self, run: Running) -> None:
        class Full(MemoryStore):
            def keep(self, step: Any) -> None:
                if any(row.n >= 2 for row in step.rows):
                    raise StoreError("runs.db", "the disk is full")
                super().keep(step)

        full = Full()
        result = run(agent(full, call("look"), say("x")))
        assert result.stop == "failed"
        assert result.error is not None
        assert (result.error["code"], result.error["kind"]) == ("store_failed", "StoreError")
        assert len(result.tool_results) == 1


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
class TestGoingOn:
    def test_resuming_after_a_limit_needs_more_of_it_and_keeps_the_report(self, store: Store, snapshot: Any) -> None:
        lines = [call("look", n=n) for n in range(9)]
        stubborn = agent(store, *lines, say("All seen."), limits=Limits(turns=3))
        first = stubborn.run("go", run_id="r")
        assert (first.stop, first.text, first.requests) == ("budget", "Reported.", 4)
        with pytest.raises(ResumeError) as refused:
            stubborn.resume("r")
        snapshot(refused.value, "no more given")
        second = stubborn.resume(first.run_id, extend={"turns": 20})
        assert (second.stop, second.text, second.run_id) == ("completed", "All seen.", first.run_id)
        assert (second.turns, second.requests, second.budgets["turns"].ceiling) == (10, 11, 23)
        assert "Reported." in [message.content for message in second.messages]
        assert kept(store, second) == list(second.messages)
        with pytest.raises(ResumeError) as refused:
            stubborn.resume("r", extend={"turns": 1})
        snapshot(refused.value, "completed")

    def test_resuming_after_a_deadline_needs_more_seconds(self, store: Store) -> None:
        slow = agent(store, say("late").after(60.0), say("Done."), limits=Limits(seconds=1.5))
        first = slow.run("go")
        assert (first.stop, first.text) == ("deadline", "Reported.")
        with pytest.raises(UnknownBudget):
            slow.resume(first.run_id, extend={"second": 60})
        second = slow.resume(first.run_id, extend={"seconds": 600})
        assert (second.stop, second.text, second.flags) == ("completed", "Done.", ("max_seconds_reached",))
        assert second.seconds >= first.seconds

    def test_resuming_in_an_event_loop_continues_the_run_and_its_events(self, store: Store, here: Any) -> None:
        stubborn = agent(store, call("look"), call("look", n=1), say("Done."), limits=Limits(turns=1))

        async def work() -> tuple[Result, Result, list[str]]:
            first = await stubborn.arun("go")
            second = await stubborn.aresume(first.run_id, extend={"turns": 1})
            async with stubborn.reopen(second.run_id, extend={"turns": 5}) as run:
                kinds = [event.kind async for event in run]
                return second, await run.aresult(), kinds

        second, third, kinds = here(work)
        assert (second.stop, third.stop, third.text, third.turns) == ("budget", "completed", "Done.", 3)
        assert (kinds[0], kinds[-1], kinds.count("turn_started")) == ("extended", "run_ended", 1)

    def test_resuming_several_times_keeps_the_counts(self, store: Store) -> None:
        stubborn = agent(store, *[call("look", n=n) for n in range(9)], limits=Limits(turns=1))
        result = stubborn.run("go")
        for turns in (2, 3, 4):
            result = stubborn.resume(result.run_id, extend={"turns": 1})
            assert (result.stop, result.turns) == ("budget", turns)
        events = store.runs.events(result.run_id)
        assert [event["event"] for event in events].count("run_ended") == 4
        assert [event["seq"] for event in events] == sorted({event["seq"] for event in events})

    @pytest.mark.parametrize("answer", [True, False])
    def test_resuming_after_a_pause_applies_the_answer(self, store: Store, answer: bool) -> None:
        asks = agent(store, together(call("look"), call("risky")), say("Done."))
        paused = asks.run("go", session="talk")
        assert (paused.stop, [question.id for question in paused.questions]) == ("paused", ["call-1"])
        assert [message.content for message in kept(store, paused)] == ["go"]
        result = again(asks).resume(paused.run_id, {"call-1": answer})
        assert (result.stop, result.text) == ("completed", "Done.")
        assert [outcome.ok for outcome in result.tool_results] == [True, answer]
        assert kept(store, result) == list(result.messages)

    def test_resuming_after_a_pause_stores_and_emits_each_end_once(self, store: Store) -> None:
        seen = list[Event]()
        asks = agent(store, together(call("look"), call("risky")), say("Done."), sinks=[seen.append])
        paused = asks.run("go")
        result = asks.resume(paused.run_id, {"call-1": True})
        events = store.runs.events(result.run_id)
        assert [(event["seq"], event["event"]) for event in events] == [(one.seq, one.kind) for one in result.events]
        kinds = Counter(event["event"] for event in events)
        assert (kinds["run_ended"], kinds["turn_started"], kinds["turn_ended"]) == (1, 2, 2)
        ended = Counter(event["call_id"] for event in events if event["event"] == "tool_ended")
        assert ended == {"call-0": 1, "call-1": 1}
        numbers = [event.seq for event in seen]
        assert numbers == sorted(set(numbers)), "a sink got a number twice"

    def test_resuming_after_a_pause_accepts_the_result_too(self, store: Store) -> None:
        asks = agent(store, call("risky"), say("Done."))
        paused = asks.run("go")
        assert asks.resume(paused, {"call-0": True}).completed
        with pytest.raises(ResumeError):
            asks.resume(paused, {})

    def test_resuming_with_an_answer_to_no_question_is_refused(self, store: Store) -> None:
        asks = agent(store, call("risky"), say("Done."))
        paused = asks.run("go")
        with pytest.raises(ConfigError) as refused:
            asks.resume(paused.run_id, {"call-7": True})
        assert refused.value.found == "call-7"
        assert asks.resume(paused.run_id, {"call-0": True}).completed

    def test_resuming_an_unknown_run_or_without_a_store_is_refused(self, store: Store, snapshot: Any) -> None:
        with pytest.raises(ResumeError) as unknown:
            agent(store, say("x")).resume("nobody")
        with pytest.raises(ConfigError) as without:
            agent(None, say("x")).resume("nobody")
        snapshot(f"{unknown.value}\n{without.value}")

    def test_resuming_with_a_changed_program_is_refused_but_starts_from_the_messages(self, store: Store) -> None:
        asks = agent(store, call("look"), call("risky"), say("Done."))
        paused = asks.run("go", session="talk")
        other = agent(store, say("x"), tools=[look], limits=Limits(tool_calls=0))
        with pytest.raises(ResumeError):
            other.resume(paused.run_id, {paused.questions[0].id: True})
        assert store.lease.holder("talk") is None
        result = other.resume(paused.run_id, from_messages=True)
        assert (result.text, result.session_id, result.run_id == paused.run_id) == ("x", "talk", False)
        assert result.messages[0].content == "go"

    def test_resuming_keeps_the_limits_the_run_started_with(self, store: Store) -> None:
        asks = agent(store, call("risky"), *[call("look", n=n) for n in range(9)], limits=Limits(turns=3))
        paused = asks.run("go")
        result = again(asks, limits=Limits(turns=50)).resume(paused.run_id, {"call-0": True})
        assert (result.stop, result.turns, result.budgets["turns"].ceiling) == ("budget", 3, 3)


class TestALostSession:
    @pytest.mark.one_door
    def test_a_run_that_lost_its_session_is_contended_and_writes_nothing_more(self, store: Store, run: Running) -> None:
        @tool
        def steal(ctx: ToolContext) -> str:
            """Have another take the session."""
            holder = store.lease.holder("talk")
            assert holder is not None
            store.lease.release(Guard("talk", holder.fence))
            assert not isinstance(store.lease.acquire("talk", "another", 300), Holder)
            return "stolen"

        thief = agent(store, call("look"), call("steal"), call("look", n=1), say("x"), tools=[look, steal])
        result = run(thief, session="talk")
        assert (result.stop, [outcome.tool for outcome in result.tool_results]) == ("contended", ["look", "steal"])
        assert [message.content for message in kept(store, result)] == ["go", "", "seen 0"]
        entry = store.runs.get(result.run_id)
        assert entry is not None
        assert entry.finish is None
        holder = store.lease.holder("talk")
        assert holder is not None
        assert holder.owner == "another"

    def test_a_run_whose_lease_is_not_renewed_lets_its_tools_write_nothing(self, run: Running) -> None:
        refused: list[str] = []

        @tool
        def write(ctx: ToolContext) -> str:
            """Write when it is too late."""
            clock_until(lambda: not ctx.may_write())
            try:
                ctx.commit()
            except CallClosed as error:
                refused.append(error.code)
            return "tried"

        class Stubborn(MemoryLease):
            def renew(self, guard: Guard, seconds: float) -> bool:
                raise StoreError("runs.db", "it is locked")

        store = MemoryStore()
        store.lease = Stubborn(store.tables)
        result = run(agent(store, call("write"), say("x"), tools=[write], lease_seconds=0.5), session="talk")
        assert result.stop == "contended"
        clock_until(lambda: bool(refused))  # it was given up, and goes on in its thread
        assert refused == [CallClosed.code]


def clock_until(wanted: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not wanted() and time.monotonic() < end:
        time.sleep(0.01)


@pytest.mark.one_door
def test_each_outcome_of_a_batch_is_stored_as_it_comes(store: Store, run: Running) -> None:
    seen: list[list[str]] = []

    @tool(effects="read")
    def slow(ctx: ToolContext) -> str:
        """Wait until the others are kept."""
        clock_until(lambda: outcomes(ctx.run_id) == ["call-0", "call-1"])
        seen.append(outcomes(ctx.run_id))
        return "slow"

    def outcomes(run_id: str) -> list[str]:
        return sorted(row.data.split('"')[1] for row in store.journal.read(run_id) if row.kind is Kind.OUTCOME)

    batch = together(call("look", n=1), call("look", n=2), call("slow"))
    assert run(agent(store, batch, say("x"), tools=[look, slow])).completed
    assert seen == [["call-0", "call-1"]]


def test_a_conversation_with_a_store_is_stored(store: Store) -> None:
    for text in ("One.", "Two."):
        result = run_conversation("Go.", [], ScriptedModel(say(text)), store=store, session_id="talk")
        assert result.completed
    assert [message.content for message in store.transcript.read("talk")] == ["Go.", "One.", "Go.", "Two."]
    with pytest.raises(ConfigError):
        run_conversation("Go.", [], ScriptedModel(say("x")), store="memory:")  # pyright: ignore[reportArgumentType]
