"""A step as texts: made where the step comes from, before anybody waits for the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .code import Code
from .record import ONCE, Finish, Guard, Kind, Row, Start, Step
from .text import clean, to_line, to_text

CODE = Code()
"""In which states are kept."""


@dataclass(frozen=True, slots=True)
class Pack:
    """All that a step brings, in the types that a database knows."""

    run_id: str | None
    guard: Guard | None
    start: Start | None
    metadata: str
    """Of the start."""
    rows: Sequence[Row]
    lines: Sequence[str]
    """The messages."""
    state: str | None
    events: Sequence[tuple[int, str]]
    """Each with its number."""
    finish: Finish | None
    record: str | None
    """Of the finish."""
    again: bool
    release: bool

    @classmethod
    def of(cls, step: Step) -> Pack:
        """That of a step; a ConfigError where a part of it belongs to nobody."""
        step.check()
        start, finish = step.start, step.finish
        if start is not None:
            start = replace(start, agent=clean(start.agent), task=clean(start.task))
        return cls(
            step.run_id,
            step.guard,
            start,
            to_text(start.metadata) if start else "",
            step.rows,
            [to_line(message) for message in step.messages],
            None if step.state is None else CODE.dumps(dict(step.state)),
            [(event["seq"], to_text(event)) for event in step.events],
            finish,
            to_text(finish.record) if finish and finish.record is not None else None,
            step.again,
            step.release,
        )


def keys_of(rows: Sequence[Row]) -> list[tuple[Kind, int, int]]:
    """What of these rows there may be only once."""
    return [(row.kind, row.n, row.take) for row in rows if row.kind in ONCE]
