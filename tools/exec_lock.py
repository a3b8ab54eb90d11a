"""Renew the locks of the real command lines: `make lock-exec ARGS="claude llm"`, or all of them.

Versions then move in the table of known programs too; a test compares them.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from exec_install import LOCKS, NPM_OPTIONS, run_npm

_PYTHON = "3.11"


def lock_node(folder: Path) -> None:
    """Write the newest versions of the packages that `package.json` names, and all that they need."""
    names = list(json.loads((folder / "package.json").read_text())["dependencies"])
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "package.json").write_text('{"private": true}')
        packages = [f"{package}@latest" for package in names]
        run_npm("install", *NPM_OPTIONS, "--package-lock-only", "--save-exact", *packages, folder=work)
        lock = json.loads((work / "package-lock.json").read_text())
        manifest = json.loads((work / "package.json").read_text())
    lock["name"] = folder.name  # instead of the temporary folder's
    for path, entry in lock["packages"].items():
        entry.pop("resolved", None)
        _drop_missing(lock["packages"], path, entry)
    for file, content in (("package.json", manifest), ("package-lock.json", lock)):
        (folder / file).write_text(json.dumps(content, indent=2) + "\n")


def _drop_missing(packages: dict[str, Any], path: str, entry: dict[str, Any]) -> None:
    """Leave out optional packages for other platforms that the index does not have; `npm ci` would insist on them."""
    optional = entry.get("optionalDependencies", {})
    for name in list(optional):
        place, found = path, False
        while not found:
            found = f"{place}/node_modules/{name}".lstrip("/") in packages
            if not place:
                break
            place = place.rpartition("node_modules/")[0].rstrip("/")
        if not found:
            del optional[name]
    if not optional:
        entry.pop("optionalDependencies", None)


def lock_python(folder: Path) -> None:
    """Write the newest versions of the packages in `requirements.in`, with their hashes."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    options = ("--universal", "--generate-hashes", "--no-header", "--no-annotate", "--upgrade", "-q")
    command = [uv, "pip", "compile", *options, "--python-version", _PYTHON, "requirements.in", "-o", "requirements.txt"]
    subprocess.run(command, cwd=folder, env=dict(os.environ), check=True)


def main() -> int:
    """Renew the locks that are named, or all."""
    for name in sys.argv[1:] or sorted(folder.name for folder in LOCKS.iterdir()):
        folder = LOCKS / name
        lock = lock_node if (folder / "package.json").exists() else lock_python
        lock(folder)
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
