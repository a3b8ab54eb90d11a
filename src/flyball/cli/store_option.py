"""The place where runs are kept: the store that an option, a setting, or nobody has named."""

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
"""The word for no store at all."""
_EXPECTED = "an address such as sqlite:///runs.db, memory:, or the word none"

StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URI", help="Where runs are kept: sqlite:///PATH; else the setting `store`."),
]


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """A store by its address, whether or not it is there yet."""

    uri: str
    source: str
    """Who named it: an option, a setting, or the default."""

    @classmethod
    def resolve(cls, uri: str | None) -> StoreLocation:
        """The store that is meant: the one given, else that of the settings, else a file of the user's own."""
        if uri is not None:
            return cls(uri.strip(), "--store")
        told = Settings.load().find("store")
        if told is None:
            return cls(_SQLITE + quote((folders.find_data_folder() / "runs.db").as_posix()), "default")
        if not isinstance(told.value, str):
            raise told.error(_EXPECTED)
        return cls(told.value.strip(), told.source)

    @property
    def is_default(self) -> bool:
        """Whether nobody has asked for it."""
        return self.source == "default"

    @property
    def is_disabled(self) -> bool:
        """Whether runs are not to be kept at all."""
        return self.uri.lower() == _NO_STORE

    @property
    def path(self) -> Path | None:
        """The file, if it is one."""
        if not self.uri.startswith(_SQLITE):
            return None
        return Path(unquote(urlsplit(self.uri).path.removeprefix("/")))

    @property
    def name(self) -> str:
        """It as a person would write it."""
        return self.uri if self.path is None else str(self.path)

    def open(self) -> Store:
        """Open it; the default one may have to be made first, and only its user may look into its folder."""
        from ..store import open_store

        if self.is_disabled:
            raise ConfigError("store", self.uri, "one that keeps something, such as sqlite:///runs.db")
        if self.is_default and self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open_store(self.uri)

    @contextmanager
    def open_existing(self) -> Generator[Store]:
        """Open it for a while. One that is not there yet has nothing in it, and looking does not make it."""
        from ..store import MemoryStore

        missing = self.is_disabled or (self.path is not None and not self.path.exists())
        with MemoryStore() if missing else self.open() as store:
            yield store
