"""Worker process that matches a regular expression and can be killed.

Some expressions take practically forever, and `re` does not release the interpreter: no other thread runs, and no
deadline is kept. So `search.py` runs this file as a program of its own. It uses only the standard library. It reads a
pattern and texts as JSON from stdin, and writes for each text the numbers of its matching lines.
"""

import json
import re
import sys

_MAX_CPU_SECONDS = 60
"""CPU limit, which ends the worker if its parent was killed first."""


def main() -> None:
    """Read the request from stdin and write the answer to stdout."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_SECONDS, _MAX_CPU_SECONDS))
    request = json.load(sys.stdin)
    try:
        answer = {"numbers": find_matching_lines(request["pattern"], request["texts"], request["most"])}
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        answer = {"error": str(error) or type(error).__name__}
    json.dump(answer, sys.stdout)


def find_matching_lines(pattern: str, texts: list[str], max_lines: int) -> list[list[int]]:
    """Return for each text the numbers of at most `max_lines` matching lines."""
    compiled = re.compile(pattern)
    numbers: list[list[int]] = []
    for text in texts:
        matching = (number for number, line in enumerate(text.split("\n"), 1) if compiled.search(line))
        numbers.append([number for number, _ in zip(matching, range(max_lines), strict=False)])
    return numbers


if __name__ == "__main__":
    main()
