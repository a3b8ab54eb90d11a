"""Uncommitted rows and messages of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from types import MappingProxyType
from typing import Any

from ..loop.plan import Plan
from ..message import Message
from ..outcome import Outcome
from ..store import Guard, Kind, Row, RunFinish, Start, Step
from .history import JOURNAL_CODEC, encode_plan

_TASK_CHARACTERS = 200


class PendingStep:
    """Collects rows and messages of one run for one commit. Outcomes may be added on any thread.

    `start_metadata` is added to the metadata of the run's start. Results and events do not have it.
    """

    def __init__(self, *, is_child: bool, start_metadata: Mapping[str, Any] = MappingProxyType({})) -> None:
        self.plan: Plan | None = None
        """Plan that the run started with."""
        self.take = 0
        """Number of times that the run was resumed."""
        self.is_stored = False
        """True once the store has the run."""
        self.is_resumed = False
        """True until the first commit after a resume."""
        self.drop_events_after: int | None = None
        """Number of the last event that counts, until the first commit after a resume. None means all count."""
        self.state_changed = False
        self.earlier = 0
        """Number of messages of the plan that the transcript had before the run."""
        self._is_child = is_child
        self._start_metadata = start_metadata
        self._rows_lock = Lock()
        self._rows: list[Row] = []
        self._messages: list[Message] = []

    def add_started(self, n: int, fingerprint: int, data: str, messages: Sequence[Message]) -> None:
        """Add the start of an effect, with the messages that it appends."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.STARTED, data, fingerprint, self.take))
            self._messages += messages

    def add_outcome(self, n: int, call_id: str, outcome: Outcome) -> None:
        """Add the outcome of one call of a batch."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.OUTCOME, JOURNAL_CODEC.dumps([call_id, outcome]), take=self.take))

    def add_answer(self, n: int, fingerprint: int, answer: object) -> None:
        """Add the answer to an effect."""
        row = Row(n, Kind.ANSWER, JOURNAL_CODEC.dumps(answer), fingerprint, self.take)
        with self._rows_lock:
            self._rows.append(row)

    def add_extended(self, n: int, signals: Sequence[object]) -> None:
        """Add signals that extend a run that had ended, at its last answer."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.EXTENDED, JOURNAL_CODEC.dumps(signals), take=self.take))

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Add messages to the transcript."""
        with self._rows_lock:
            self._messages += messages

    def build(
        self, guard: Guard | None, finish: RunFinish | None = None, events: Sequence[Mapping[str, Any]] = ()
    ) -> Step | None:
        """Return what is pending as one step, with the events since the last one. None if there is nothing to write.

        The end of a top run releases its lease.
        """
        step = self._build_step(guard, finish, events)
        return step if step.rows or events or finish is not None else None

    def build_outcomes(self, guard: Guard | None) -> Step | None:
        """Return outcomes while other calls of their batch are in progress, or None if there are none.

        Nothing else is written: events after an answer belong to the commit of the next start, which has their number.
        If other rows are pending, the outcomes wait for that commit.
        """
        assert self.plan is not None, "a loop with effects has started"
        with self._rows_lock:
            if not self._rows or any(row.kind is not Kind.OUTCOME for row in self._rows):
                return None
            rows, self._rows = self._rows, []
        return Step(run_id=self.plan.run_id, guard=guard, rows=rows)

    def _build_step(self, guard: Guard | None, finish: RunFinish | None, events: Sequence[Mapping[str, Any]]) -> Step:
        plan = self.plan
        assert plan is not None, "a loop with effects has started"
        with self._rows_lock:
            rows, self._rows = self._rows, []
            messages, self._messages = self._messages, []
        start = None if self.is_stored else _build_start(plan, {} if self._is_child else self._start_metadata)
        if start is not None:
            rows.insert(0, Row(0, Kind.RUN, encode_plan(plan, self.earlier)))
        has_new_state = self.state_changed or (start is not None and bool(plan.state))
        step = Step(
            run_id=plan.run_id,
            guard=guard,
            start=start,
            rows=rows,
            messages=messages,
            state=dict(plan.state) if has_new_state and not self._is_child else None,
            events=events,
            finish=finish,
            again=self.is_resumed,
            drop_events_after=self.drop_events_after,
            release=finish is not None and not self._is_child,
        )
        self.is_stored, self.is_resumed, self.state_changed, self.drop_events_after = True, False, False, None
        return step


def _build_start(plan: Plan, more_metadata: Mapping[str, Any]) -> Start:
    task = next((message.content for message in reversed(plan.messages) if message.content), "")
    return Start(
        at=plan.started_at,
        agent=plan.spec.name,
        session=plan.session_id,
        parent=plan.parent_run_id,
        task=str(task)[:_TASK_CHARACTERS],
        metadata={**plan.metadata, **more_metadata},
    )
