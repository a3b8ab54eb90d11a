"""A keepsake: what `flyball run` was called with, kept with the run, so that `flyball resume` needs nothing else.

It stands in the metadata of the run's start, under one key. What may be a secret is not in it, and must be given again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..history.record import JsonReader
from .run_config import RunConfig

if TYPE_CHECKING:
    from ..store import Entry, Step, Store

METADATA_KEY = "flyball_run"
_HIDDEN = "***"
_SECRET = re.compile(
    r"(?i)://[^/\s]*@|[?&][^#\s=?&]*=|(?:token|key|secret)(?:=|:|\s+)\S"
    r"|(?<!\w)(?>\w*?(?:passw|credential|auth))\w*+(?:=|:|\s+)\S"
)
"""What may be a secret in an address, or behind a command. Each word is read once, from its start."""
_MAY_HIDE = ("model", "mcp")
_PATHS = ("completion", "schema")


class ConfigSavingStore:
    """A store that writes the keepsake of an outfit into the start of each run at the top; all else is the store's."""

    def __init__(self, store: Store, config: RunConfig) -> None:
        self._store = store
        self._saved_config = config_to_dict(config)
        self.transcript, self.journal, self.lease = store.transcript, store.journal, store.lease
        self.state, self.runs = store.state, store.runs
        self.prune, self.close = store.prune, store.close

    def keep(self, step: Step) -> None:
        """Keep all of a step in one commit, or nothing of it."""
        start = step.start
        if start is not None and start.parent is None:
            step = replace(step, start=replace(start, metadata={**start.metadata, METADATA_KEY: self._saved_config}))
        self._store.keep(step)

    def __enter__(self) -> ConfigSavingStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """An outfit in JSON types, without what may be a secret; and the folder in which it was put on."""
    texts = {"model": _redact(config.model_name), "system": config.system}
    lists = {"toolbox": config.toolbox, "tools": config.tools, "children": config.children, "rules": config.rules}
    paths = {"completion": config.completion, "schema": config.schema}
    data: dict[str, Any] = {
        **texts,
        **{name: None if path is None else str(path) for name, path in paths.items()},
        **{name: [str(one) for one in several] for name, several in lists.items()},
        "mcp": [_redact(one) for one in config.mcp],
        "limits": dict(config.limits),
        "yes": config.yes,
    }
    return {"folder": str(Path.cwd()), **{name: value for name, value in data.items() if value}}


def _redact(text: str) -> str:
    return _HIDDEN if _SECRET.search(text) else text


def load_config(entry: Entry, overrides: Mapping[str, Any]) -> RunConfig:
    """The outfit of a run, with what is `given` anew in place of what it had; and this process goes to its folder.

    A ConfigError says what is missing: a run that a program of one's own has started can only go on there.
    """
    where = f"run {entry.run_id}"
    told = JsonReader(entry.start.metadata).nested(METADATA_KEY)
    if not told.text("folder"):
        raise ConfigError(where, "one that `flyball run` has not started", "agent.resume(run_id) in its own program")
    _change_folder(where, told.text("folder"))
    values: dict[str, Any] = {
        **{name: told.text(name) or None for name in ("model", "system")},
        **{name: tuple(told.text_list(name)) for name in ("toolbox", "tools", "children", "mcp")},
        **{name: Path(told.text(name)) if told.text(name) else None for name in _PATHS},
        "rules": tuple(Path(path) for path in told.text_list("rules")),
        "limits": told.nested("limits").raw,
        "yes": told.get("yes") is True,
    }
    values |= {name: value for name, value in overrides.items() if value}
    for name in _MAY_HIDE:
        found = values[name]
        if _HIDDEN in (found if isinstance(found, tuple) else (found,)):
            raise ConfigError(f"{where}, {name}", "one that has a secret, which is not kept", f"--{name} again")
    return RunConfig(**values)


def _change_folder(where: str, folder: str) -> None:
    """Go where the run was started: what it reads and loads is named from there."""
    try:
        if folder:
            os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"{where}, its folder {folder}", error.strerror, "the folder in which it was started"
        ) from error
