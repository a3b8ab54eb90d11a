"""A step as texts: made where the step comes from, before anybody waits for the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from .codec import Codec, replace_surrogates, to_events_text, to_line, to_text, to_value
from .records import Guard, Kind, Row, RunFinish, Start, Step

STATE_CODEC = Codec()
"""In which states are kept."""


@dataclass(slots=True)
class EncodedStep:
    """All that a step brings, in the types that a database knows. Not frozen, for speed; treat it as a value."""

    run_id: str | None
    guard: Guard | None
    start: Start | None
    metadata: str
    """Of the start."""
    rows: Sequence[Row]
    lines: Sequence[str]
    """The messages."""
    state: str | None
    events: str | None
    """All of them."""
    seqs: Sequence[int]
    """Their numbers."""
    answers: Sequence[tuple[int, int]]
    """To which effects the rows have answers: take and n."""
    finish: RunFinish | None
    record: str | None
    """Of the finish."""
    again: bool
    release: bool

    @classmethod
    def of(cls, step: Step) -> EncodedStep:
        """That of a step; a ConfigError where a part of it belongs to nobody."""
        step.check()
        start, finish = step.start, step.finish
        if start is not None:
            start = replace(start, agent=replace_surrogates(start.agent), task=replace_surrogates(start.task))
        return cls(
            step.run_id,
            step.guard,
            start,
            to_text(start.metadata) if start else "",
            step.rows,
            [to_line(message) for message in step.messages],
            None if step.state is None else STATE_CODEC.dumps(dict(step.state)),
            to_events_text(step.events) if step.events else None,
            [event["seq"] for event in step.events],
            [(row.take, row.n) for row in step.rows if row.kind is Kind.ANSWER],
            finish,
            to_text(finish.record) if finish and finish.record is not None else None,
            step.again,
            step.release,
        )


def is_increasing(last: tuple[int, int] | None, answers: Sequence[tuple[int, int]]) -> bool:
    """Whether each answer is to a later effect, or in a later take, than the one before: so none comes twice."""
    return all(before < after for before, after in pairwise(answers if last is None else (last, *answers)))


def filter_events_after(events: str, seq: int) -> str:
    """Of these events, those behind a number."""
    return to_text([event for event in to_value(events) if event["seq"] > seq])
