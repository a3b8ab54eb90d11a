"""Run all benchmarks, and then list the targets that were missed: `python benchmarks/figures.py [NAME ...]`.

Every script prints one line per figure, such as `a turn of a run of 10   9.1 us  7.1x bare  (target 8x)`. This module
reads those lines, for itself and for compare.py.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
_TOOLS = {"figures", "compare"}
_NUMBER = r"([0-9][0-9,]*\.?[0-9]*)"
_TARGET = re.compile(rf"\(target {_NUMBER} ?(\S+?)\)")
_UNITS = r"(x|ns|us|µs|ms|KiB|steps a second|turns a second)"
_FIGURE = re.compile(rf"(?<![\w.]){_NUMBER} ?{_UNITS}(?!\w)")


class Figure(NamedTuple):
    """One printed figure."""

    name: str
    value: float
    unit: str
    target: float | None

    @property
    def is_missed(self) -> bool:
        """Whether it is above its target."""
        return self.target is not None and self.value > self.target


def read_figure(line: str) -> Figure | None:
    """Return the figure of a printed line; a ratio is preferred to an amount.

    >>> read_figure("a turn of a run of 10   9.1 us  7.10x bare (1.3 us)  (target 7x)")
    Figure(name='a turn of a run of 10', value=7.1, unit='x', target=7.0)
    """
    target = _TARGET.search(line)
    found = list(_FIGURE.finditer(line[: target.start()] if target else line))
    unit = target[2] if target else "x"
    if not found:
        return None
    chosen = next((match for match in found if match[2] == unit), found[0])
    name = line[: found[0].start()].strip()
    return Figure(name, _number(chosen[1]), chosen[2], _number(target[1]) if target else None)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def scripts(folder: Path = FOLDER, names: Sequence[str] = ()) -> list[Path]:
    """Return the benchmark scripts of a folder, or those of these names."""
    return [
        path for path in sorted(folder.glob("*.py")) if path.stem not in _TOOLS and (not names or path.stem in names)
    ]


def run_script(path: Path, environment: dict[str, str] | None = None) -> Iterator[str]:
    """Run one script and yield its lines as it prints them; an error of its own is printed and raised."""
    with subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        yield from (line.rstrip("\n") for line in process.stdout)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{path.name} failed with exit code {process.returncode}")


def main() -> int:
    missed: list[str] = []
    for path in scripts(names=sys.argv[1:]):
        print(f"== {path.stem}", flush=True)
        for line in run_script(path):
            print(line, flush=True)
            figure = read_figure(line)
            if figure is not None and figure.is_missed:
                missed.append(f"{path.stem}: {line.strip()}")
    print("", *(["missed:", *missed] if missed else ["every target was met"]), sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
