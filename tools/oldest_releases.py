"""Test with the oldest release of each package that pyproject.toml claims: `make test-oldest`.

The environment is `.venv/oldest`, made from a package index.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from adapter_matrix import read_locked

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv" / "oldest"
EXTRAS = ("cli", "gateway", "mcp", "otel")
TOOLS = ("pytest", "hypothesis", "trio", "starlette")
"""Packages of the tests, in their locked versions."""
TESTS = ("tests/agent", "tests/cli", "tests/records", "tests/tools", "tests/house/test_public_names.py")
TIMEOUT_S = 1_200


def main() -> int:
    """Install and test, and return the exit code of the tests."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    project: Any = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    claimed = [*project["dependencies"]]
    for extra in EXTRAS:
        claimed += project["optional-dependencies"][extra]
    python = ENVIRONMENT / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "--clear", ENVIRONMENT], check=True)
    install = [uv, "pip", "install", "-q", "-p", python, "--resolution", "lowest-direct", "-e", ROOT]
    subprocess.run([*install, *claimed, *read_locked(TOOLS)], check=True, timeout=TIMEOUT_S)
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default", *(sys.argv[1:] or TESTS)]
    return subprocess.run(command, cwd=ROOT, check=False, timeout=TIMEOUT_S).returncode


if __name__ == "__main__":
    sys.exit(main())
