"""Check that mypy and pyright accept the programs of README, the examples, and what their types are said to be.

`make check` runs it. Pyright checks the examples with the rest of the project.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def write_program(page: Path, folder: Path) -> Path:
    """Write the Python blocks of a page as one program, each line where it is in the page."""
    text, program = page.read_text(), ""
    for block in PYTHON_BLOCK.finditer(text):
        program += "\n" * (text.count("\n", 0, block.start(1)) - program.count("\n")) + block[1]
    path = folder / f"{page.stem.lower()}.py"
    path.write_text(program)
    return path


def main() -> int:
    """Run both type checkers, and return the larger exit code."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        readme = write_program(ROOT / "README.md", folder)
        settings = {
            "typeCheckingMode": "strict",
            "venvPath": str(ROOT),
            "venv": ".venv",
            "reportUnusedExpression": False,
        }
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        commands = (
            [BIN / "mypy", "examples", "tests/house/test_types.py", readme],
            [BIN / "pyright", "--project", folder],
        )
        return max(subprocess.run(command, cwd=ROOT, check=False).returncode for command in commands)


if __name__ == "__main__":
    sys.exit(main())
