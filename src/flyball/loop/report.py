"""A report without a model: what the record says, and nothing else."""

from __future__ import annotations

from ..progress import Progress
from .fit import line_of

_LAST_CALLS = 5


def report(progress: Progress, turns: int, warning: str | None) -> str:
    """What was done, what failed, what came last; the same for the same record."""
    done = _counted(progress.successes)
    failed = _counted(progress.failures)
    parts = [warning or "The run was stopped before it was finished."]
    parts.append(f"It took {_many(turns, 'turn')} and {_many(progress.requests, 'request')} to the model.")
    parts.append(f"Calls that succeeded: {done or 'none'}.")
    parts.append(f"Calls that did not: {failed or 'none'}.")
    text = " ".join(parts)
    if progress.results:
        newest = "\n".join(map(line_of, progress.results[-_LAST_CALLS:]))
        text += f"\nThe last calls:\n{newest}"
    if progress.text:
        text += f"\nThe model last said: {progress.text}"
    return text + "\nThe model gave no report; this one is made from the record."


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())
