"""Several processes and one session: one works, and whoever lost it changes nothing any more."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from flyball.store import Store, open_store

LONG = 60.0
NAMES = ("ann", "bob", "cy", "dee")


def store_in(folder: Path) -> Store:
    return open_store(f"sqlite:///{folder / 'runs.db'}")


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def wait_for(path: Path, line: str) -> None:
    until = time.monotonic() + LONG
    while line not in lines(path):
        assert time.monotonic() < until, f"no {line} in {path.name}"
        time.sleep(0.005)


def test_one_of_four_processes_runs_and_the_others_are_told_who_does(nursery: Any, tmp_path: Path) -> None:
    born = [nursery.start(tmp_path, "talk", name=name, waits_for="contended 3") for name in NAMES]
    said = {name: one.said() for name, one in zip(NAMES, born, strict=True)}
    (winner,) = lines(tmp_path / "completed")
    pid = born[NAMES.index(winner)].pid
    for name in set(NAMES) - {winner}:
        assert (said[name]["stop"], said[name]["requests"]) == ("contended", 0)
        assert f":{pid} has held session 'desk' for " in said[name]["warning"]
    assert lines(tmp_path / "requests") == [winner] * 2
    with store_in(tmp_path) as store:
        assert {message.run for message in store.transcript.read("desk")} == {winner}
        assert [entry.run_id for entry in store.runs.list()] == [winner]
        assert store.lease.holder("desk") is None


def test_four_processes_that_wait_for_a_session_have_it_one_after_the_other(nursery: Any, tmp_path: Path) -> None:
    born = [nursery.start(tmp_path, "talk", name=name, wait_seconds=LONG) for name in NAMES]
    assert [one.said()["stop"] for one in born] == ["completed"] * 4
    order = lines(tmp_path / "begun")
    assert lines(tmp_path / "requests") == [name for name in order for _ in range(2)]
    assert lines(tmp_path / "ended") == order
    with store_in(tmp_path) as store:
        said = store.transcript.read("desk")
        assert [message.content for message in said if message.type == "text"] == [
            text for name in order for text in (f"Go, {name}.", f"{name} is done.")
        ]


def test_a_process_that_slept_past_its_lease_changes_nothing_any_more(nursery: Any, tmp_path: Path) -> None:
    sleeper = nursery.start(tmp_path, "talk", name="ann", waits_for="awake 1", lease_seconds=4.0)
    wait_for(tmp_path / "begun", "ann")
    sleeper.kill(signal.SIGSTOP)
    heir = nursery.start(tmp_path, "talk", name="bob", waits_for="contended 1", lease_seconds=30.0, wait_seconds=LONG)
    wait_for(tmp_path / "begun", "bob")
    with store_in(tmp_path) as store:
        before, holder = store.transcript.read("desk"), store.lease.holder("desk")
        (tmp_path / "awake").write_text("now\n")
        sleeper.kill(signal.SIGCONT)
        said = sleeper.said()
        assert (said["stop"], said["requests"]) == ("contended", 1)
        (refused,) = lines(tmp_path / "refused")
        assert refused.startswith("ann the call has ended")
        assert heir.said()["stop"] == "completed"
        assert store.transcript.read("desk")[: len(before)] == before
        assert [message.run for message in store.transcript.read("desk")][len(before) :] == ["bob"] * 3
        entry = store.runs.get("ann")
        assert entry is not None
        assert entry.finish is None, "it wrote its end into a session that was another's"
        assert holder is not None
        assert f":{heir.pid}:" in holder.owner
    assert lines(tmp_path / "ended") == ["bob"]


@pytest.mark.parametrize("is_reaped", [True, False])
def test_the_session_of_a_process_that_was_killed_is_free_at_once(
    is_reaped: bool, nursery: Any, tmp_path: Path
) -> None:
    dead = nursery.start(tmp_path, "talk", name="ann", waits_for="never 1")
    wait_for(tmp_path / "begun", "ann")
    dead.kill()
    if is_reaped:  # else it is still in the list of processes, but does nothing any more
        assert dead.ended() == -signal.SIGKILL
    assert nursery.start(tmp_path, "talk", name="bob").said()["stop"] == "completed"
    if not is_reaped:
        dead.ended()
