"""Stores by their address."""

from collections.abc import Callable
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
    ("uri", "found", "right"),
    [
        ("postgres://host/db", "postgres://host/db", "sqlite:///runs.db"),
        ("runs.db", "runs.db", "sqlite:///runs.db"),
        ("", "", "memory:"),
        (7, 7, "memory:"),
        ("memory:x", "memory:x", "memory:"),
        ("sqlite:runs.db#x", "sqlite:runs.db#x", "sqlite:///"),
        ("sqlite://runs.db", "sqlite://runs.db", "sqlite:///"),
        ("sqlite:///", "sqlite:///", "sqlite:///"),
        ("sqlite:///:memory:", "sqlite:///:memory:", "sqlite:///"),
        ("sqlite:///a.db?synchronus=full", "synchronus", "synchronous"),
        ("sqlite:///a.db?synchronous=off", "off", "normal, full"),
        ("sqlite:///a.db?busy_seconds=soon", "sqlite:///a.db?busy_seconds=soon", "seconds"),
        ("sqlite:///a.db?busy_seconds=-1", -1, "0"),
        ("sqlite:///a.db?full", "sqlite:///a.db?full", "synchronous"),
    ],
)
def test_an_address_that_nobody_knows_is_refused_and_creates_nothing(
    uri: str, found: object, right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        open_store(uri)
    assert caught.value.found == found
    assert right in caught.value.expected
    assert list(tmp_path.iterdir()) == []


def test_texts_of_unknown_addresses_are_as_stored(snapshot: Callable[..., None]) -> None:
    for uri in ("postgres://host/db", "sqlite://runs.db", "sqlite:///a.db?synchronus=full"):
        with pytest.raises(ConfigError) as caught:
            open_store(uri)
        snapshot(caught.value, uri)
