"""Stores that hang or are locked: a run ends in its own time, says what is not stored, and delays no other run."""

import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, tool
from flyball.runtime import store_calls
from flyball.runtime.lease import LEASE_RENEWER, SessionLease
from flyball.store import Guard, Holder, MemoryStore, SqliteStore, Step
from flyball.store.memory import MemoryLease
from flyball.testing import ScriptedModel, call, say

LONG = 60.0
LIMIT_S = 0.5
IN_TIME_S = 20.0
"""Seconds that no run here may need, with much room for a busy machine; the stores hang for longer."""


class HangingLease(MemoryLease):
    """Leases that hang in the calls that a test names."""

    def __init__(self, store: "HangingStore") -> None:
        super().__init__(store.tables)
        self._store = store

    def acquire(self, session: str, owner: str, seconds: float) -> Guard | Holder:
        self._store.hang_in("acquire")
        return super().acquire(session, owner, seconds)

    def renew(self, guard: Guard, seconds: float) -> bool:
        self._store.hang_in("renew")
        return super().renew(guard, seconds)


class HangingStore(MemoryStore):
    """A store whose named call hangs until the test is over."""

    def __init__(self, released: Event) -> None:
        super().__init__()
        self.lease = HangingLease(self)
        self.hangs = ""
        self.hung = Event()
        self._released = released

    def hang_in(self, name: str) -> None:
        if name == self.hangs:
            self.hung.set()
            self._released.wait(LONG)

    def keep(self, step: Step) -> None:
        self.hang_in("keep" if step.finish is None else "finish")
        super().keep(step)


@pytest.fixture
def released(release: Event, monkeypatch: pytest.MonkeyPatch) -> Event:
    monkeypatch.setattr(store_calls, "CLOSING_S", 0.3)
    return release


@pytest.fixture
def store(released: Event) -> HangingStore:
    return HangingStore(released)


@tool
def work() -> str:
    """Work."""
    return "worked"


def agent(store: Any, *lines: Any, **options: Any) -> Agent:
    given: dict[str, Any] = {"limits": Limits(seconds=LIMIT_S), "settings": {}, **options}
    return Agent(model=ScriptedModel(*(lines or (call("work"), say("Done.")))), tools=[work], store=store, **given)


def in_time(started_at: float) -> bool:
    return time.monotonic() - started_at < IN_TIME_S


def code(error: Mapping[str, Any] | None) -> str | None:
    return None if error is None else error["code"]


@pytest.mark.parametrize("hangs", ["acquire", "keep"])
def test_a_run_whose_store_hangs_fails_within_its_deadline(hangs: str, store: HangingStore, run: Any) -> None:
    store.hangs, started_at = hangs, time.monotonic()
    result: Result = run(agent(store), session="talk")
    assert (result.stop, code(result.error), code(result.store_error)) == ("failed", "store_failed", "store_failed")
    assert in_time(started_at)
    assert "not stored" in result.explain()


@pytest.mark.one_door
def test_a_run_whose_end_cannot_be_stored_says_so(store: HangingStore, run: Any) -> None:
    store.hangs = "finish"
    result: Result = run(agent(store), session="talk")
    assert (result.stop, result.text, code(result.store_error)) == ("completed", "Done.", "store_failed")
    assert result.to_dict()["store_error"]["code"] == "store_failed"
    assert "not stored" in result.explain()
    entry = store.runs.get(result.run_id)
    assert entry is not None
    assert entry.finish is None


@pytest.mark.parametrize("hangs", ["acquire", "keep"])
def test_a_run_whose_store_hangs_ends_when_it_is_cancelled(hangs: str, store: HangingStore) -> None:
    store.hangs = hangs
    handle = agent(store, limits=Limits(seconds=LONG)).start("go", session="talk")
    assert store.hung.wait(LONG)
    started_at = time.monotonic()
    assert handle.cancel()
    result = handle.result(LONG)
    assert (result.stop, code(result.store_error), in_time(started_at)) == ("cancelled", "store_failed", True)


def test_a_task_whose_store_hangs_ends_when_it_is_cancelled(store: HangingStore, here: Any) -> None:
    store.hangs, started_at = "keep", time.monotonic()

    async def cancelled() -> None:
        with anyio.move_on_after(LIMIT_S):
            await agent(store, limits=Limits(seconds=3.0)).arun("go", session="talk")

    here(cancelled)
    assert in_time(started_at)


@pytest.mark.parametrize("hangs", ["acquire", "keep"])
def test_a_hanging_store_does_not_keep_runs_of_other_stores_from_starting(hangs: str, store: HangingStore) -> None:
    store.hangs = hangs
    handle = agent(store, limits=Limits(seconds=LONG)).start("go", session="talk")
    assert store.hung.wait(LONG)
    assert agent(MemoryStore(), limits=Limits(seconds=LONG)).start("go").result(IN_TIME_S).stop == "completed"
    handle.cancel()
    handle.result(LONG)


def test_a_lease_that_arrives_after_its_run_gave_up_is_released(store: HangingStore, released: Event) -> None:
    store.hangs = "acquire"
    assert agent(store).run("go", session="talk").stop == "failed"
    released.set()
    store.hangs, until = "", time.monotonic() + LONG
    while isinstance(guard := store.lease.acquire("talk", "elsewhere", 60), Holder):
        assert time.monotonic() < until, guard
        time.sleep(0.005)


def test_a_lease_whose_renewal_hangs_is_lost_and_renews_no_second_time(store: HangingStore) -> None:
    lost = Event()
    lease = SessionLease(store, "talk", 0.6)
    lease.on_lost = lost.set
    assert lease.acquire() is None
    store.hangs = "renew"
    assert lost.wait(LONG)
    assert lease.guard is not None
    assert (lease.is_held, LEASE_RENEWER.is_renewing(lease.guard)) == (False, False)


def test_two_runs_that_acquire_a_session_at_once_do_not_take_it_from_each_other() -> None:
    """The second finds a lease of this process that is not renewed yet: it belongs to the first."""
    store = MemoryStore()
    first, second = SessionLease(store, "talk", 300), SessionLease(store, "talk", 300)
    with LEASE_RENEWER.acquiring(first):
        assert isinstance(store.lease.acquire("talk", "elsewhere", 300), Guard)
        holder = store.lease.holder("talk")
        assert holder is not None
        assert not LEASE_RENEWER.is_abandoned(holder, "elsewhere", second)
    assert LEASE_RENEWER.is_abandoned(holder, "elsewhere", second)


def test_a_run_on_a_locked_file_ends_within_its_deadline(tmp_path: Path, released: Event, run: Any) -> None:
    path, held = tmp_path / "runs.db", list[sqlite3.Connection]()

    @tool
    def lock() -> str:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        held.append(other)
        return "locked"

    with SqliteStore(path, busy_seconds=LONG) as store:
        model, started_at = ScriptedModel(call("lock"), say("Done.")), time.monotonic()
        limits = Limits(seconds=2 * LIMIT_S)
        result: Result = run(Agent(model=model, tools=[lock], store=store, limits=limits, settings={}))
        is_in_time = in_time(started_at)
        held[0].close()
    assert (result.stop, code(result.store_error), is_in_time) == ("failed", "store_failed", True)
    assert str(path) in (result.store_error or {})["message"]
