"""Persistent storage of runs and sessions. See docs/store.md.

open_store(uri)                       open a store by its address: "sqlite:///runs.db", "memory:"
Store                                 the five parts below, and `keep(step)`, which writes to all in one commit
Transcript Journal Lease State Runs   protocols of the parts; `flyball.testing.store_contract` tests them
Codec                                 the JSON format of a journal
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from .._internal import validation
from ..budget.deadline import SYSTEM, Clock
from ..errors import ConfigError
from .codec import Codec
from .memory import MemoryStore
from .records import Entry, Guard, Holder, Kind, Pruned, Query, Row, RunFinish, Session, Start, Step
from .store import Journal, Lease, Runs, State, Store, Transcript

if TYPE_CHECKING:
    from .sqlite import SqliteStore

_KNOWN = "memory:, sqlite:///runs.db (in this folder) or sqlite:////var/lib/runs.db"


def open_store(uri: str, *, clock: Clock = SYSTEM) -> Store:
    """Open the store at an address. Close it after use, or use it in a `with`.

    memory:                      in this process
    sqlite:///runs.db            a file, from this folder
    sqlite:////var/lib/runs.db   a file, from the root

    A file may be followed by options. `?synchronous=full` makes a commit survive a power loss. `?busy_seconds=60` is
    how long to wait for other processes that write. In a path, write the characters ? # % as %3F, %23, %25.

    Raises ConfigError for an unknown address or option, and StoreError when the file cannot be opened.
    """
    if not isinstance(uri, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("store", uri, f"an address: {_KNOWN}")
    scheme, _, rest = uri.partition(":")
    if scheme == "memory" and rest in ("", "//"):
        return MemoryStore(clock)
    if scheme != "sqlite":
        raise ConfigError("store", uri, f"the address of a store: {_KNOWN}")
    parts = urlsplit(uri)
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or parts.fragment or not path or path == ":memory:":
        raise ConfigError("store", uri, f"an address with three slashes and a path: {_KNOWN}")
    from .sqlite import SqliteStore  # imported here because few programs need SQLite

    options = _parse_options(uri, parts.query)
    seconds = options.get("busy_seconds", "30")
    return SqliteStore(
        path, synchronous=options.get("synchronous", "normal"), busy_seconds=_parse_seconds(uri, seconds), clock=clock
    )


def _parse_options(uri: str, query: str) -> dict[str, str]:
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, strict_parsing=True)) if query else {}
    except ValueError:
        raise ConfigError("store", uri, "options such as ?synchronous=full") from None
    validation.check_options("store", options, ("synchronous", "busy_seconds"))
    return options


def _parse_seconds(uri: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError("store", uri, "a number of seconds for busy_seconds") from None


__all__ = [
    "Codec",
    "Entry",
    "Guard",
    "Holder",
    "Journal",
    "Kind",
    "Lease",
    "MemoryStore",
    "Pruned",
    "Query",
    "Row",
    "RunFinish",
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


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        """Import SqliteStore on first use: most programs have no store and need no SQLite."""
        if name == "SqliteStore":
            from .sqlite import SqliteStore

            return SqliteStore
        from .._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))
