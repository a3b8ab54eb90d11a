"""Options of `flyball run`, saved for `flyball resume`.

They are in the metadata of the run's start, under one key. Values that may contain a secret are left out and must be
given again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.json_reader import JsonReader
from .._internal.text import REDACTED
from ..errors import UsageError
from ..history.record import COMMAND_METADATA
from .run_config import RunConfig

if TYPE_CHECKING:
    from ..store import Entry

_SECRET = re.compile(
    r"(?i)://[^/\s]*@|[?&][^#\s=?&]*=|(?:token|key|secret)(?:=|:|\s+)\S"
    r"|(?<!\w)(?>\w*?(?:passw|credential|auth))\w*+(?:=|:|\s+)\S"
)
"""Possible secrets in a URL or a command.

The atomic group reads each word once; plain backtracking would be quadratic in its length.
"""
_MAY_HIDE = {"model": "--model", "fallback_models": "--fallback-model", "mcp": "--mcp"}
_PATHS = ("completion", "schema")
_LISTS = ("fallback_models", "toolbox", "pass_env", "tools", "children", "mcp")


def build_start_metadata(config: RunConfig) -> dict[str, Any]:
    """Return the options as metadata of a run's start."""
    return {COMMAND_METADATA: config_to_dict(config)}


def config_to_dict(config: RunConfig) -> dict[str, Any]:
    """Return the options and the current folder in JSON types, without possible secrets."""
    model, is_project_model = config.find_model()
    texts = {"model": _redact(model), "system": config.system}
    lists = {name: getattr(config, name) for name in ("toolbox", "pass_env", "tools", "children", "rules")}
    paths = {"completion": config.completion, "schema": config.schema}
    data: dict[str, Any] = {
        **texts,
        **{name: None if path is None else str(path) for name, path in paths.items()},
        **{name: [str(value) for value in values] for name, values in lists.items()},
        "fallback_models": [_redact(model) for model in config.fallback_models],
        "mcp": [_redact(server) for server in config.mcp],
        "limits": dict(config.limits),
        "yes": config.yes,
        "is_project_model": is_project_model,
    }
    return {"folder": str(Path.cwd()), **{name: value for name, value in data.items() if value}}


def _redact(text: str) -> str:
    return REDACTED if _SECRET.search(text) else text


def load_config(entry: Entry, overrides: Mapping[str, Any]) -> RunConfig:
    """Return the saved options of a run with `overrides` applied.

    Changes to the folder of the run. Raises `UsageError` if something is missing. A run that another program started
    can only be resumed there.
    """
    where = f"run {entry.run_id}"
    if JsonReader(entry.start.metadata).text("exec_command"):
        raise UsageError(f"{where} is that of a program under flyball exec, which cannot be resumed: run it again")
    saved = _read_saved(entry)
    if not saved.text("folder"):
        raise UsageError(f"{where} was not started by flyball run: only its own program can build its agent")
    _change_folder(where, saved.text("folder"))
    values: dict[str, Any] = {
        **{name: saved.text(name) or None for name in ("model", "system")},
        **{name: tuple(saved.text_list(name)) for name in _LISTS},
        **{name: Path(saved.text(name)) if saved.text(name) else None for name in _PATHS},
        "rules": tuple(Path(path) for path in saved.text_list("rules")),
        "limits": saved.nested("limits").raw,
        "yes": saved.get("yes") is True,
        "is_project_model": saved.get("is_project_model") is True and not overrides.get("model"),
    }
    values |= {name: value for name, value in overrides.items() if value}
    for name, option in _MAY_HIDE.items():
        setting = values[name]
        if REDACTED in (setting if isinstance(setting, tuple) else (setting,)):
            raise UsageError(f"{option} of {where} may contain a secret and was not stored: pass {option} again")
    return RunConfig(**values)


def uses_mcp(entry: Entry) -> bool:
    """Check whether the run was started with MCP servers."""
    return bool(_read_saved(entry).text_list("mcp"))


def _read_saved(entry: Entry) -> JsonReader:
    return JsonReader(entry.start.metadata).nested(COMMAND_METADATA)


def _change_folder(where: str, folder: str) -> None:
    """Change to the run's folder, to which its paths are relative."""
    try:
        if folder:
            os.chdir(folder)
    except OSError as error:
        raise UsageError(f"{where} was started in {folder}, which cannot be used now: {error.strerror}") from error
