"""Where runs and sessions outlive their process: transcripts, journals, leases, state. See docs/store.md.

open_store(uri)                       a store by its address: "sqlite:///runs.db", "memory:"
Store                                 the five below, and `keep(step)`: one commit
Transcript Journal Lease State Runs   the contracts; `flyball.testing.store_contract` tries them
Code                                  the JSON of a journal
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .codec import Code
from .memory import MemoryStore
from .records import Entry, Finish, Guard, Holder, Kind, Pruned, Query, Row, Session, Start, Step
from .store import Journal, Lease, Runs, State, Store, Transcript
from .uri import open_store

if TYPE_CHECKING:
    from .sqlite import SqliteStore

__all__ = [
    "Code",
    "Entry",
    "Finish",
    "Guard",
    "Holder",
    "Journal",
    "Kind",
    "Lease",
    "MemoryStore",
    "Pruned",
    "Query",
    "Row",
    "Runs",
    "Session",
    "SqliteStore",
    "Start",
    "State",
    "Step",
    "Store",
    "Transcript",
    "open_store",
]


def __getattr__(name: str) -> object:
    """SqliteStore on first use: most programs that have agents have no store, and need no SQLite."""
    if name != "SqliteStore":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .sqlite import SqliteStore

    return SqliteStore
