"""Option `--store`, and the store that it, a setting or the default names."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, unquote, urlsplit

import typer

from ..errors import ConfigError
from ..history import folders
from ..settings import Settings

if TYPE_CHECKING:
    from ..store import Store

_SQLITE = "sqlite:///"
_NO_STORE = "none"
"""Address that disables storage."""
_HELP = (
    "Store of the runs, such as sqlite:///PATH, or none. Default: the setting store, then a file in your home folder."
)
_EXPECTED = "an address such as sqlite:///runs.db, memory:, or the word none"

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URI", help=_HELP),
]


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Address of a store that may not exist yet."""

    uri: str
    source: str
    """Origin of the address: `--store`, a setting, or `default`."""

    @classmethod
    def resolve(cls, uri: str | None) -> StoreLocation:
        """Return the store of the option, the settings or the default."""
        if uri is not None:
            return cls(uri.strip(), "--store")
        setting = Settings.load().find("store")
        if setting is None:
            return cls(_SQLITE + quote((folders.find_data_folder() / "runs.db").as_posix()), "default")
        if not isinstance(setting.value, str):
            raise setting.error(_EXPECTED)
        return cls(setting.value.strip(), setting.source)

    @property
    def is_default(self) -> bool:
        return self.source == "default"

    @property
    def is_disabled(self) -> bool:
        return self.uri.lower() == _NO_STORE

    @property
    def path(self) -> Path | None:
        """File of the store. None if it is not a file."""
        if not self.uri.startswith(_SQLITE):
            return None
        return Path(unquote(urlsplit(self.uri).path.removeprefix("/")))

    @property
    def name(self) -> str:
        """Address as shown to the user."""
        return self.uri if self.path is None else str(self.path)

    def open(self) -> Store:
        """Open the store.

        Creates the folder of the default store, private to the user.
        """
        from ..store import open_store

        if self.is_disabled:
            raise ConfigError("store", self.uri, "a store, such as sqlite:///runs.db")
        if self.is_default and self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open_store(self.uri)

    @contextmanager
    def open_existing(self) -> Generator[Store]:
        """Open the store for reading.

        A store that does not exist reads as empty and is not created.
        """
        from ..store import MemoryStore

        missing = self.is_disabled or (self.path is not None and not self.path.exists())
        with MemoryStore() if missing else self.open() as store:
            yield store
