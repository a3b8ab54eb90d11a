"""Steps encoded as text. The caller's thread encodes, before it takes any lock of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .codec import Codec, encode_json, replace_surrogates, to_line, to_line_text, to_text, to_value
from .encoded_events import EncodedEvents
from .records import Guard, Kind, Row, RunFinish, Start, Step

STATE_CODEC = Codec()
"""Codec for session states."""


@dataclass(slots=True)
class EncodedStep:
    """All parts of a step, in types that a database accepts.

    Not frozen, for speed. Treat it as a value.
    """

    run_id: str | None
    guard: Guard | None
    start: Start | None
    metadata: str
    """`start.metadata` as JSON. Empty without a start."""
    rows: Sequence[Row]
    lines: Sequence[str]
    """The messages as JSON, one line each."""
    state: str | None
    """The session's new state as JSON. None means unchanged."""
    events: str | None
    """All events as one JSON array. None means no events."""
    seqs: Sequence[int]
    """The `seq` of each event."""
    answers: Sequence[tuple[int, int]]
    """`(take, n)` of each row that is an answer."""
    finish: RunFinish | None
    record: str | None
    """`finish.record` as JSON. None without a finish or a record."""
    again: bool
    release: bool
    drop_events_after: int | None
    """Events above this `seq` are removed first. None means none."""

    @classmethod
    def of(cls, step: Step) -> EncodedStep:
        """Encode a step.

        Raises ConfigError where a part lacks its run or guard.
        """
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
            [to_line(message) for message in step.messages] if step.messages else (),
            None if step.state is None else STATE_CODEC.dumps(dict(step.state)),
            _encode_events(step.events) if step.events else None,
            step.seqs if step.events else (),
            [(row.take, row.n) for row in step.rows if row.kind is Kind.ANSWER],
            finish,
            to_line_text(finish.record) if finish and finish.record is not None else None,
            step.again,
            step.release,
            step.drop_events_after,
        )


def _encode_events(events: Sequence[Mapping[str, Any]]) -> str:
    return events.text if isinstance(events, EncodedEvents) else encode_json(events)


def is_increasing(last: tuple[int, int] | None, answers: Sequence[tuple[int, int]]) -> bool:
    """Check whether each answer has a higher `(take, n)` than the one before.

    This order makes a second answer to one effect impossible.
    """
    for answer in answers:
        if last is not None and answer <= last:
            return False
        last = answer
    return True


def filter_events_after(events: str, seq: int) -> str:
    """Return the encoded events whose `seq` is above the given one."""
    return to_text([event for event in to_value(events) if event["seq"] > seq])
