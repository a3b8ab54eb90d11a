"""Run the benchmarks of two checkouts interleaved and print both: `python benchmarks/compare.py REV [NAME ...]`.

REV is checked out into a temporary folder. Each script runs there and here by turns, with the same interpreter and
packages, three times; the best of each figure is printed. Names such as `loop` choose scripts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from figures import Figure, read_figure, run_script, scripts

PROJECT = Path(__file__).parents[1]
ROUNDS = int(os.environ.get("ROUNDS", "3"))


def best(figures: dict[str, Figure], project: Path, name: str) -> None:
    """Run one script of a checkout, and keep what is better than before."""
    environment = {**os.environ, "PYTHONPATH": str(project / "src")}
    for line in run_script(project / "benchmarks" / f"{name}.py", environment):
        found = read_figure(line)
        if found is None:
            continue
        known = figures.get(found.name)
        more_is_better = found.unit.endswith("a second")
        if known is None or (found.value > known.value if more_is_better else found.value < known.value):
            figures[found.name] = found


def compare(name: str, other: Path, revision: str) -> None:
    """Print the figures of one script at both places."""
    before, after = dict[str, Figure](), dict[str, Figure]()
    for _ in range(ROUNDS):
        if (other / "benchmarks" / f"{name}.py").exists():
            best(before, other, name)
        best(after, PROJECT, name)
    print(f"== {name:38} {revision[:12]:>14} {'here':>14}")
    for figure in after.values():
        old = before.get(figure.name)
        shown = "" if old is None else f"{old.value:,.2f} {old.unit.split()[0]}"
        print(f"{figure.name[:41]:41} {shown:>14} {figure.value:>9,.2f} {figure.unit.split()[0]}", flush=True)


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: python benchmarks/compare.py REV [NAME ...]", file=sys.stderr)
        return 2
    revision = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        subprocess.run(["git", "worktree", "add", "-q", "--detach", other, revision], cwd=PROJECT, check=True)
        try:
            for path in scripts(names=sys.argv[2:]):
                compare(path.stem, other, revision)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", other], cwd=PROJECT, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
