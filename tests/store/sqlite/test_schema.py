"""How tables come about: once, forward only."""

import sqlite3
from pathlib import Path

import pytest

from flyball.errors import StoreError
from flyball.store import SqliteStore
from flyball.store.sqlite import schema


def facts(path: Path) -> tuple[object, ...]:
    connection = sqlite3.connect(path)
    version, owner = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id"))
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    connection.close()
    return version, owner, tables


def test_a_new_file_says_whose_it_is_and_of_which_version(path: Path) -> None:
    SqliteStore(path).close()
    version, owner, tables = facts(path)
    assert (version, owner) == (len(schema.MIGRATIONS), schema.APPLICATION_ID)
    assert isinstance(tables, set)
    assert {"lease", "session", "message", "run", "trace"} <= tables


def test_an_older_file_is_brought_up_to_date_and_keeps_what_it_has(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteStore(path) as store:
        store.transcript.title("s", "kept")
    more = (
        "ALTER TABLE session ADD COLUMN colour TEXT; CREATE TABLE extra (x)",
        "DROP TABLE extra; CREATE TABLE more (x)",
    )
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, *more))
    with SqliteStore(path) as store:
        assert store.transcript.sessions()[0].title == "kept"
    version, _, tables = facts(path)
    assert isinstance(tables, set)
    assert (version, "more" in tables, "extra" in tables) == (3, True, False)


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(path).close()
    before = facts(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, "CREATE TABLE extra (x); NONSENSE"))
    with pytest.raises(StoreError, match="NONSENSE"):
        SqliteStore(path)
    assert facts(path) == before


def test_a_newer_file_is_refused(path: Path) -> None:
    SqliteStore(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"version 99.* version 1"):
        SqliteStore(path)
    assert facts(path)[0] == 99
