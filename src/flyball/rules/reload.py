"""Rule files that are loaded again when they change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock

from ..errors import ConfigError
from ..settings import Settings
from .ruleset import RuleSet, list_files

Stamp = tuple[str, int, int, int]
"""Path, time of change, size and inode of a file. Zeros if it cannot be read."""


class RuleReloader:
    """Loader of rule files that notices changes. Thread-safe.

    A file that has become invalid, or a given path that is gone, keeps its last valid rule.
    """

    def __init__(self, paths: Sequence[str | Path], settings: Settings) -> None:
        self._paths = tuple(paths)
        self._settings = settings
        self._lock = Lock()
        self._stamps = self._read_stamps()
        self.rules = RuleSet.load(*self._paths, settings=settings)
        """Rules of the files, without the core rules."""

    def reload(self) -> RuleSet | None:
        """Return the rules if a file has changed since the last call, otherwise None."""
        with self._lock:
            stamps = self._read_stamps()
            if stamps == self._stamps:
                return None
            self._stamps = stamps
            self.rules = self._load()
            return self.rules

    def _load(self) -> RuleSet:
        loaded = RuleSet.load(*self._paths, settings=self._settings)
        valid_ids, valid_sources = {rule.id for rule in loaded}, {rule.source for rule in loaded}
        present = {str(path) for path in list_files(self._paths)}
        gone_folders = {str(path) for path in self._paths if not Path(path).exists()}
        kept = [
            rule
            for rule in self.rules
            if rule.id not in valid_ids
            and rule.source not in valid_sources
            and (rule.source in present or str(Path(rule.source).parent) in gone_folders)
        ]
        problems = [
            ConfigError("rules", rule.source, f"a valid file; the last valid version of {rule.id} stays in use")
            for rule in kept
        ]
        return RuleSet((*loaded.rules, *kept), (*loaded.problems, *problems), loaded.warnings)

    def _read_stamps(self) -> list[Stamp]:
        return [_read_stamp(path) for path in list_files(self._paths)]


def _read_stamp(path: Path) -> Stamp:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return str(path), 0, 0, 0
    return str(path), status.st_mtime_ns, status.st_size, status.st_ino
