"""The file of a SQLite store: opening it, and translating SQLite's errors."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from ...errors import StoreError
from .schema import migrate, read_version

_OWNER_ONLY = 0o600
"""File mode: conversations with agents are private to the user."""
_ERROR_TEXTS = {
    sqlite3.SQLITE_FULL: "the disk is full and the step was not stored: free some space",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written, and the step was not stored: the disk is full "
    "or faulty, or the file has reached a size limit",
    sqlite3.SQLITE_CORRUPT: "the file is damaged: restore a backup, or recover what is readable with "
    "`sqlite3 FILE .recover`",
    sqlite3.SQLITE_NOTADB: "the file is damaged or not a SQLite database: use a new file, or one that Flyball made",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: check that the file and its folder are writable",
    sqlite3.SQLITE_READONLY: "the file is read-only: check that the file and its folder are writable",
    sqlite3.SQLITE_PERM: "the file is read-only: check that the file and its folder are writable",
}


@dataclass(frozen=True, slots=True)
class File:
    """A database file and the options to open it with."""

    path: Path
    synchronous: str = "normal"
    """With `normal` a commit survives the end of any process, with `full` also a power loss."""
    busy_seconds: float = 30.0
    """Seconds to wait for other processes that write."""

    @property
    def options(self) -> str:
        """Options that all stores on this file must share, as in an address."""
        return f"synchronous={self.synchronous}&busy_seconds={self.busy_seconds:g}"

    def open(self) -> sqlite3.Connection:
        """Connect for writing, and migrate the tables if needed."""
        with self.translate_errors():
            connection = self.connect()
            try:
                read_version(connection, self.path)  # raises before anything changes the file of another program
                self._use_wal(connection)
                migrate(connection, self.path)
                connection.execute(f"PRAGMA synchronous = {self.synchronous}")
            except BaseException:
                connection.close()
                raise
        return connection

    def read(self) -> sqlite3.Connection:
        """Connect for reading."""
        connection = self.connect()
        connection.execute("PRAGMA query_only = 1")
        return connection

    @contextmanager
    def translate_errors(self) -> Generator[None]:
        """Raise errors of the block as StoreError with the file and a remedy."""
        try:
            yield
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise self.to_store_error(error) from error
        except (ValueError, KeyError, TypeError) as error:  # a row that no version of Flyball writes
            text = f"{_ERROR_TEXTS[sqlite3.SQLITE_CORRUPT]} ({type(error).__name__}: {error})"
            raise StoreError(str(self.path), text) from error

    def to_store_error(self, error: sqlite3.Error | UnicodeEncodeError) -> StoreError:
        """Return the StoreError for an error of SQLite."""
        if isinstance(error, UnicodeEncodeError):
            return StoreError(str(self.path), f"a text is not valid Unicode ({error})")
        # The sqlite3 module raises some errors without a code, such as text that is not UTF-8.
        default_code = sqlite3.SQLITE_CORRUPT if "decode" in str(error) else sqlite3.SQLITE_ERROR
        primary_code = getattr(error, "sqlite_errorcode", default_code) & 0xFF
        if primary_code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            text = (
                f"another process has locked the file for {self.busy_seconds:g} seconds: end that process, "
                "or wait longer (?busy_seconds=60)"
            )
        else:
            text = _ERROR_TEXTS.get(primary_code, "SQLite failed")
        return StoreError(str(self.path), f"{text} ({getattr(error, 'sqlite_errorname', 'SQLite')}: {error})")

    def identity(self) -> tuple[int, int]:
        """Return device and inode of the path.

        Raises StoreError if it is gone.
        """
        try:
            # It runs at every commit, and Path.stat takes twice as long.
            status = os.stat(str(self.path))  # noqa: PTH116
        except OSError as error:
            raise StoreError(
                str(self.path), f"the file is gone ({error.strerror}): restore it, or open the store again"
            ) from error
        return status.st_dev, status.st_ino

    def create(self) -> None:
        """Create a missing file, readable by its owner only.

        SQLite would let every user read it. A file that exists is left to SQLite: closing another descriptor of it
        would drop the locks of this process.
        """
        folder = self.path.parent
        if not folder.is_dir():
            raise StoreError(str(self.path), f"the folder {folder} does not exist: create it first")
        try:
            descriptor = os.open(os.path.realpath(self.path), os.O_RDWR | os.O_CREAT | os.O_EXCL, _OWNER_ONLY)
        except FileExistsError:
            return
        except OSError as error:
            problem = f"the file cannot be opened for writing ({error.strerror})"
            raise StoreError(str(self.path), f"{problem}: check that the file and its folder are writable") from error
        os.close(descriptor)

    def connect(self) -> sqlite3.Connection:
        """Connect without looking at the tables."""
        return sqlite3.connect(
            f"file:{quote(str(self.path))}?mode=rw",  # not rwc: a file that was moved away must not be recreated empty
            uri=True,
            timeout=self.busy_seconds,
            isolation_level=None,
            check_same_thread=False,
        )

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # When several connections switch to WAL at once, SQLite refuses some of them without waiting.
        deadline = time.monotonic() + self.busy_seconds
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = wal").fetchone()
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise StoreError(str(self.path), f"WAL mode is not available here (found {mode}): use a local disk")
