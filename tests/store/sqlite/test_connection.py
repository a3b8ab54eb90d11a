"""The file behind a store: what it outlives, who may read it, and what its errors say."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.errors import StoreError
from flyball.message import Message
from flyball.store import Guard, SqliteStore, Start

Hold = Callable[..., Guard]
Said = Callable[..., list[Message]]


def test_what_was_kept_is_there_when_the_file_is_opened_again(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guard = hold(store)
        store.runs.start("r", Start(at=1.0, session="s"), guard)
        store.transcript.append(guard, said("one", "two"))
    with SqliteStore(path) as store:
        assert store.transcript.read("s") == said("one", "two")
        assert [entry.run_id for entry in store.runs.list()] == ["r"]
        assert store.lease.renew(guard, 600)
        store.lease.release(guard)
        assert hold(store).fence > guard.fence


def test_what_has_returned_is_committed_for_everybody(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store, SqliteStore(path) as other:
        guard = hold(store)
        for n in range(20):
            store.transcript.append(guard, said(str(n)))
            assert len(other.transcript.read("s")) == n + 1


def test_nobody_else_may_read_it(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        store.transcript.append(hold(store), said("secret"))
        modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert len(list(path.parent.iterdir())) == 3
        assert modes == {0o600}


def test_who_may_read_a_file_that_is_there_stays_as_it_is(path: Path) -> None:
    path.touch(0o640)
    path.chmod(0o640)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_after_closing_there_is_one_file(path: Path, hold: Hold) -> None:
    with SqliteStore(path) as store:
        hold(store)
        assert store.lease.holder("s")
    assert list(path.parent.iterdir()) == [path]


def broken(path: Path, fact: str = "") -> StoreError:
    """Opening fails, with the file's name and this fact."""
    with pytest.raises(StoreError) as caught:
        SqliteStore(path)
    assert fact in caught.value.reason
    assert (caught.value.code, caught.value.where) == ("store_failed", str(path))
    return caught.value


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    broken(tmp_path / "no" / "runs.db", str(tmp_path / "no"))


def test_a_path_that_cannot_be_a_file_is_named(tmp_path: Path) -> None:
    broken(tmp_path)
    broken(tmp_path / ("x" * 300))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_named(path: Path) -> None:
    path.parent.chmod(0o500)
    broken(path)


def test_a_file_that_is_no_database_is_left_alone(path: Path, snapshot: Callable[..., None]) -> None:
    path.write_bytes(b"These are my notes, and not a database.\n" * 200)
    before = path.read_bytes()
    snapshot(broken(path, "SQLite").reason)
    assert path.read_bytes() == before


def test_a_database_of_another_program_is_left_alone(path: Path, snapshot: Callable[..., None]) -> None:
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE notes (text TEXT)")
    other.commit()
    other.close()
    snapshot(broken(path).reason)
    again = sqlite3.connect(path)
    assert again.execute("SELECT name FROM sqlite_master").fetchall() == [("notes",)]
    assert again.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    again.close()


@pytest.mark.parametrize("junk", [b"\0", b"z", b"{}", b"\xff\x81"])
@pytest.mark.parametrize("place", [20, 40])
def test_a_damaged_file_is_named(junk: bytes, place: int, path: Path, hold: Hold, said: Said) -> None:
    words = said(*("x" * 3_000 for _ in range(60)))
    with SqliteStore(path) as store:
        store.transcript.append(hold(store), words)
    with path.open("r+b") as file:
        file.seek(place * 4_096 + 100)
        file.write((junk * 8_000)[:8_000])
    with pytest.raises(StoreError, match="damaged") as caught, SqliteStore(path) as store:
        store.transcript.read("s")
    assert caught.value.where == str(path)


def test_a_row_that_nobody_can_have_written_is_named(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        store.transcript.append(hold(store), said("one"))
        for junk in ("{", "{}", "[]", '{"run": 1, "type": "text", "role": "boss"}', b"\xff"):
            store.write(lambda connection, junk=junk: connection.execute("UPDATE message SET data = ?", (junk,)))
            with pytest.raises(StoreError, match="damaged"):
                store.transcript.read("s")


def test_a_locked_file_is_waited_for_and_then_named(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path, busy_seconds=0.1) as store:
        guard = hold(store)
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"locked.*busy_seconds"):
            store.transcript.append(guard, said("one"))
        assert store.transcript.read("s") == []  # readers are not in the way
        other.execute("ROLLBACK")
        other.close()
        store.transcript.append(guard, said("two"))
        assert store.transcript.read("s") == said("two")


def test_a_full_disk_refuses_the_step_and_nothing_else(path: Path, hold: Hold, said: Said) -> None:
    with SqliteStore(path) as store:
        guard = hold(store)
        store.transcript.append(guard, said("one"))
        store.write(lambda connection: connection.execute("PRAGMA max_page_count = 30").fetchall())
        with pytest.raises(StoreError, match="SQLITE_FULL"):
            store.transcript.append(guard, said("x" * 500_000))
        assert store.transcript.read("s") == said("one")
        store.transcript.append(guard, said("two"))
        assert len(store.transcript.read("s")) == 2


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_moved_away_is_not_written_to(
    replaced: bool, path: Path, hold: Hold, said: Said, snapshot: Callable[..., None]
) -> None:
    with SqliteStore(path) as store:
        guard = hold(store)
        shutil.move(path, path.with_suffix(".old"))
        if replaced:
            path.touch()
        with pytest.raises(StoreError) as caught:
            store.transcript.append(guard, said("lost"))
        snapshot(caught.value.reason)


def test_a_file_that_is_gone_is_not_made_anew_by_a_reader(path: Path) -> None:
    with SqliteStore(path) as store:
        path.unlink()
        with pytest.raises(StoreError):
            store.transcript.read("s")
        assert not path.exists()


def test_a_name_that_is_no_text_is_a_clear_error(path: Path) -> None:
    with SqliteStore(path) as store:
        with pytest.raises(StoreError, match="text"):
            store.lease.acquire("half \ud800", "me", 10)
        with pytest.raises(StoreError, match="text"):
            store.transcript.read("half \ud800")


def test_words_of_people_that_are_no_text_are_kept_as_far_as_they_are(path: Path) -> None:
    with SqliteStore(path) as store:
        store.runs.start("r", Start(at=1.0, agent="a\ud800", task="Do \ud800 it"))
        store.transcript.title("s", "My \ud800 plan")
        assert [entry.start.task for entry in store.runs.list()] == ["Do ? it"]
        assert [session.title for session in store.transcript.sessions()] == ["My ? plan"]
