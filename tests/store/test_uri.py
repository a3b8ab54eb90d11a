"""Stores by their address."""

from pathlib import Path

import pytest

from flyball.errors import ConfigError
from flyball.store import MemoryStore, SqliteStore, open_store


def test_a_store_in_memory_is_opened_by_its_address() -> None:
    with open_store("memory:") as store:
        assert isinstance(store, MemoryStore)


def test_a_file_is_named_from_this_folder_or_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for uri, path in (
        ("sqlite:///runs.db", tmp_path / "runs.db"),
        (f"sqlite:///{tmp_path / 'a.db'}", tmp_path / "a.db"),
        ("sqlite:///odd%3F name%23.db?synchronous=full&busy_seconds=2.5", tmp_path / "odd? name#.db"),
    ):
        with open_store(uri) as store:
            assert isinstance(store, SqliteStore)
            assert store.path == path
            assert path.exists()


def test_synchronous_is_what_the_address_says(tmp_path: Path) -> None:
    for word, level in (("", 1), ("?synchronous=full", 2)):
        with open_store(f"sqlite:///{tmp_path}/runs.db{word}") as store:
            assert isinstance(store, SqliteStore)
            assert store.write(lambda connection: connection.execute("PRAGMA synchronous").fetchone()) == (level,)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("postgres://host/db", "memory:, sqlite:///runs.db"),
        ("runs.db", "memory:, sqlite:///runs.db"),
        ("", "an address"),
        (7, "an address"),
        ("memory:x", "an address"),
        ("sqlite:runs.db#x", "three slashes"),
        ("sqlite://runs.db", "three slashes"),
        ("sqlite:///", "three slashes"),
        ("sqlite:///:memory:", "three slashes"),
        ("sqlite:///a.db?synchronus=full", "an option such as synchronous"),
        ("sqlite:///a.db?synchronous=off", "one of normal, full"),
        ("sqlite:///a.db?busy_seconds=soon", "a number of seconds"),
        ("sqlite:///a.db?busy_seconds=-1", "0 or more"),
        ("sqlite:///a.db?full", "options such as"),
    ],
)
def test_an_address_that_nobody_knows_is_refused_and_creates_nothing(
    uri: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=words):
        open_store(uri)
    assert list(tmp_path.iterdir()) == []
