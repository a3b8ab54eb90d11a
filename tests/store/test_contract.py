"""Every store of ours keeps the contract that we ship; and the contract notices one that does not."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flyball.clock import Clock
from flyball.store import MemoryStore, SqliteStore, Store
from flyball.testing import store_contract

CHECKS = {check.__name__: check for check in store_contract()}


def open_memory(_folder: Path, clock: Clock) -> Store:
    return MemoryStore(clock)


def open_sqlite(folder: Path, clock: Clock) -> Store:
    return SqliteStore(folder / "runs.db", clock=clock)


OPENERS: dict[str, Callable[[Path, Clock], Store]] = {"memory": open_memory, "sqlite": open_sqlite}


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", OPENERS)
def test_a_store_keeps_the_contract(kind: str, name: str, tmp_path: Path) -> None:
    CHECKS[name](lambda clock: OPENERS[kind](tmp_path, clock))
