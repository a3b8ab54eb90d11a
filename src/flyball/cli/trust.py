"""Project files that the user has trusted, and what the other ones may contain.

A `flyball.toml` in a foreign folder could name the model's address, and so receive the prompt. Until the user trusts
it, it may only lower limits. Trust is for one location and one content.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .._internal.json_reader import JsonReader
from ..budget.model_limits import TABLE
from ..budget.registry import BUILT_IN, BudgetSpec, IterationBudgetRegistry
from ..errors import SettingError, UntrustedSettings, quote_value
from ..history import folders
from ..settings import ProjectFile, Setting, Settings

_LIMITS = {spec.setting: spec for spec in BUILT_IN if spec.setting}
_MAX_KEYS = 5
"""Maximum number of keys that an error names."""


class TrustStore:
    """Locations of trusted files with the digest of their content, in a file that only the user can write."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or folders.find_data_folder() / "trusted.json"

    def read(self) -> dict[str, str]:
        """Return the digest of each trusted file by location.

        Raises UntrustedSettings if the list is damaged, or if another user could have written it.
        """
        try:
            with self.path.open(encoding="utf-8") as file:
                is_private, text = _is_private(os.fstat(file.fileno())), file.read()
            data: Any = json.loads(text) if is_private else None
        except FileNotFoundError:
            return {}
        except (ValueError, RecursionError):
            is_private, data = True, None
        if data is None:
            why = "is damaged" if is_private else "can be written by other users"
            raise UntrustedSettings(f"{self.path} {why}: delete it, and trust your files again")
        files = JsonReader(data).nested("files").raw
        return {location: digest for location, digest in files.items() if isinstance(digest, str)}

    def is_trusted(self, file: ProjectFile) -> bool:
        """Return True if the user has trusted this content at this location."""
        return self.read().get(file.location) == file.digest

    def add(self, file: ProjectFile) -> None:
        """Trust a file until its content changes."""
        self._write({**self.read(), file.location: file.digest})

    def remove(self, location: str) -> bool:
        """Withdraw the trust in a file. Return False if it had none."""
        files = self.read()
        if files.pop(location, None) is None:
            return False
        self._write(files)
        return True

    def _write(self, files: dict[str, str]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix="trusted-")  # readable by the user only
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"files": files}, file, indent=2)
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink()
            raise


def _is_private(status: os.stat_result) -> bool:
    """Return True if only the user can write the file."""
    return os.name != "posix" or (status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def check_project_file(settings: Settings) -> None:
    """Raise UntrustedSettings if a project file without trust does more than lower limits."""
    file = settings.project_file
    if file is None or TrustStore().is_trusted(file):
        return
    refused = list(find_refused(settings))
    if refused:
        more = f", and {len(refused) - _MAX_KEYS:,} more" if len(refused) > _MAX_KEYS else ""
        keys = ", ".join(refused[:_MAX_KEYS]) + more
        raise UntrustedSettings(
            f"{file.label} may only lower limits, because you have not trusted it, but it sets {keys}: "
            "read the file, then use `flyball trust`; or name a file of yours with --config"
        )


def find_refused(settings: Settings) -> Iterator[str]:
    """Yield the settings of the project file that do more than lower a limit, each with its source."""
    for setting in settings:
        if setting.is_from_project and not _only_lowers(settings, setting):
            yield f"{quote_value(setting.key)} ({setting.source})"


def _only_lowers(settings: Settings, setting: Setting) -> bool:
    key, mode = setting.key, None
    if key.startswith("mode."):
        _, mode, key = key.split(".", 2) if key.count(".") > 1 else (key, "", "")
    spec = _LIMITS.get(key.removeprefix("clamp.") if mode is None else key)
    if spec is None:
        return key.startswith(f"{TABLE}.")  # a limit per model comes in addition
    with_file, without_file = settings, settings.without_file()
    if mode is not None:
        with_file, without_file = with_file.for_mode(mode), without_file.for_mode(mode)
    try:
        return _resolve(with_file, spec) <= _resolve(without_file, spec)
    except SettingError:
        return True  # the limit cannot be read, so every run that needs it fails


def _resolve(settings: Settings, spec: BudgetSpec) -> float:
    value = IterationBudgetRegistry(settings=settings).explain(spec.name).value
    return float("inf") if value is None else value
