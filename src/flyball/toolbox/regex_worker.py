"""Finds the lines that match a regular expression, in a process of its own, which can be killed.

Some expressions take longer than the universe will last, and Python can do nothing else in the meantime: no thread
runs, no deadline is kept. So this file is run by itself, with nothing but the standard library: a pattern and texts
come in as JSON, and for each text the numbers of its matching lines go out.
"""

import json
import re
import sys

_MAX_CPU_SECONDS = 60
"""Nobody would kill it if the process that started it were killed first."""


def find_matching_lines(pattern: str, texts: list[str], max_lines: int) -> list[list[int]]:
    """For each text the numbers of the lines that match, `most` at most."""
    compiled = re.compile(pattern)
    numbers: list[list[int]] = []
    for text in texts:
        matching = (number for number, line in enumerate(text.split("\n"), 1) if compiled.search(line))
        numbers.append([number for number, _ in zip(matching, range(max_lines), strict=False)])
    return numbers


def main() -> None:
    """Read the wish, write the answer."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
    wish = json.load(sys.stdin)
    try:
        answer = {"numbers": find_matching_lines(wish["pattern"], wish["texts"], wish["most"])}
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        answer = {"error": str(error) or type(error).__name__}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
