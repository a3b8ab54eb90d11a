"""Uncommitted rows, messages and events of one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from ..loop.plan import Plan
from ..message import Message
from ..outcome import Outcome
from ..store import Guard, Kind, Row, RunFinish, Start, Step, Store
from .history import JOURNAL_CODEC, encode_plan

_TASK_CHARACTERS = 200


class PendingStep:
    """Collects rows, messages and events of one run for one commit. Thread-safe; commits are in order."""

    def __init__(self, store: Store, *, is_child: bool) -> None:
        self.plan: Plan | None = None
        """Plan that the run started with."""
        self.take = 0
        """Number of times that the run was resumed."""
        self.is_stored = False
        """True once the store has the run."""
        self.is_resumed = False
        """True until the first commit after a resume."""
        self.state_changed = False
        self.earlier = 0
        """Number of messages of the plan that the transcript had before the run."""
        self._store = store
        self._is_child = is_child
        self._uncommitted: Step | None = None
        """Step that could not be written without waiting."""
        self._rows_lock = Lock()
        self._commit_lock = Lock()
        self._rows: list[Row] = []
        self._messages: list[Message] = []
        self._events: list[Mapping[str, Any]] = []

    def add_started(self, n: int, fingerprint: int, data: Mapping[str, Any], messages: Sequence[Message]) -> None:
        """Add the start of an effect, with the messages that it appends."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.STARTED, JOURNAL_CODEC.dumps(data), fingerprint, self.take))
            self._messages += messages

    def add_outcome(self, n: int, call_id: str, outcome: Outcome) -> None:
        """Add the outcome of one call of a batch."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.OUTCOME, JOURNAL_CODEC.dumps([call_id, outcome]), take=self.take))

    def add_answer(self, n: int, fingerprint: int, answer: object) -> None:
        """Add the answer to an effect."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.ANSWER, JOURNAL_CODEC.dumps(answer), fingerprint, self.take))

    def add_extended(self, n: int, signals: Sequence[object]) -> None:
        """Add signals that extend a run that had ended, at its last answer."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.EXTENDED, JOURNAL_CODEC.dumps(signals), take=self.take))

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Add messages to the transcript."""
        with self._rows_lock:
            self._messages += messages

    def add_event(self, event: Mapping[str, Any]) -> None:
        """Add an event."""
        with self._rows_lock:
            self._events.append(event)

    def commit(self, guard: Guard | None, finish: RunFinish | None = None) -> None:
        """Write what is pending. The end of a top run also releases its lease. This blocks."""
        with self._commit_lock:
            step, self._uncommitted = self._uncommitted or self._build_step(guard, finish), None
            if step.rows or step.events or step.finish is not None:
                self._store.keep(step)

    def commit_now(self, guard: Guard | None, finish: RunFinish | None = None) -> bool:
        """Write what is pending without waiting. Return False if that is not possible; then call `commit`."""
        keep_now = getattr(self._store, "keep_now", None)
        if keep_now is None or not self._commit_lock.acquire(blocking=False):
            return False
        try:
            step = self._build_step(guard, finish)
            if not (step.rows or step.events or step.finish is not None) or keep_now(step):
                return True
            self._uncommitted = step
            return False
        finally:
            self._commit_lock.release()

    def commit_outcomes(self, guard: Guard | None) -> None:
        """Write outcomes while other calls of their batch are in progress. This blocks.

        Nothing else is written: events after an answer belong to the commit of the next start, which has their number.
        If other rows are pending, the outcomes wait for that commit.
        """
        with self._commit_lock:
            with self._rows_lock:
                only_outcomes = all(row.kind is Kind.OUTCOME for row in self._rows)
                rows, self._rows = (self._rows, []) if only_outcomes else ([], self._rows)
            if rows:
                assert self.plan is not None, "a loop with effects has started"
                self._store.keep(Step(run_id=self.plan.run_id, guard=guard, rows=rows))

    def _build_step(self, guard: Guard | None, finish: RunFinish | None) -> Step:
        plan = self.plan
        assert plan is not None, "a loop with effects has started"
        with self._rows_lock:
            rows, self._rows = self._rows, []
            messages, self._messages = self._messages, []
            events, self._events = self._events, []
        start = None if self.is_stored else _build_start(plan)
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
            release=finish is not None and not self._is_child,
        )
        self.is_stored, self.is_resumed, self.state_changed = True, False, False
        return step


def _build_start(plan: Plan) -> Start:
    task = next((message.content for message in reversed(plan.messages) if message.content), "")
    return Start(
        at=plan.started_at,
        agent=plan.spec.name,
        session=plan.session_id,
        parent=plan.parent_run_id,
        task=str(task)[:_TASK_CHARACTERS],
        metadata=plan.metadata,
    )
