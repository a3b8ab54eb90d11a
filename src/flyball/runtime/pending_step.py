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
    """Gathers what one run leaves, and keeps all of it in one commit. Safe between threads; commits come in order."""

    def __init__(self, store: Store, *, is_child: bool) -> None:
        self.plan: Plan | None = None
        """What the run began with."""
        self.take = 0
        """How often it was taken up again."""
        self.is_stored = False
        """Whether the store knows the run."""
        self.is_resumed = False
        """Whether this is the first that is written since it was taken up again."""
        self.state_changed = False
        self._store = store
        self._is_child = is_child
        self._uncommitted: Step | None = None
        """What could not be kept without waiting."""
        self._rows_lock = Lock()
        self._commit_lock = Lock()
        self._rows: list[Row] = []
        self._messages: list[Message] = []
        self._events: list[Mapping[str, Any]] = []

    def add_started(self, n: int, fingerprint: int, data: Mapping[str, Any], messages: Sequence[Message]) -> None:
        """An effect begins; those that say something have it said then."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.STARTED, JOURNAL_CODEC.dumps(data), fingerprint, self.take))
            self._messages += messages

    def add_outcome(self, n: int, call_id: str, outcome: Outcome) -> None:
        """One call of a batch has come to this."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.OUTCOME, JOURNAL_CODEC.dumps([call_id, outcome]), take=self.take))

    def add_answer(self, n: int, fingerprint: int, answer: object) -> None:
        """An effect has come to this."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.ANSWER, JOURNAL_CODEC.dumps(answer), fingerprint, self.take))

    def add_extended(self, n: int, signals: Sequence[object]) -> None:
        """A run that had ended was given more, with its last answer."""
        with self._rows_lock:
            self._rows.append(Row(n, Kind.EXTENDED, JOURNAL_CODEC.dumps(signals), take=self.take))

    def add_messages(self, messages: Sequence[Message]) -> None:
        """This was said."""
        with self._rows_lock:
            self._messages += messages

    def add_event(self, event: Mapping[str, Any]) -> None:
        """This has happened."""
        with self._rows_lock:
            self._events.append(event)

    def commit(self, guard: Guard | None, finish: RunFinish | None = None) -> None:
        """Keep all that was gathered; with the end of a run at the top its lease is given back. It blocks."""
        with self._commit_lock:
            step, self._uncommitted = self._uncommitted or self._build_step(guard, finish), None
            if step.rows or step.events or step.finish is not None:
                self._store.keep(step)

    def commit_now(self, guard: Guard | None, finish: RunFinish | None = None) -> bool:
        """The same without waiting for anybody; False where one must, and `commit` is still to be called."""
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
        """Keep what calls have come to while others of their batch are under way. It blocks.

        Nothing else: what is told behind the answer is kept together with the beginning of what comes next, which says
        how much of it there is. When that is about to come, the outcomes wait for it.
        """
        with self._commit_lock:
            with self._rows_lock:
                ready = all(row.kind is Kind.OUTCOME for row in self._rows)
                rows, self._rows = (self._rows, []) if ready else ([], self._rows)
            if rows:
                assert self.plan is not None, "a loop that does something has begun"
                self._store.keep(Step(run_id=self.plan.run_id, guard=guard, rows=rows))

    def _build_step(self, guard: Guard | None, finish: RunFinish | None) -> Step:
        plan = self.plan
        assert plan is not None, "a loop that does something has begun"
        with self._rows_lock:
            rows, self._rows = self._rows, []
            messages, self._messages = self._messages, []
            events, self._events = self._events, []
        start = None if self.is_stored else _build_start(plan)
        if start is not None:
            rows.insert(0, Row(0, Kind.RUN, encode_plan(plan)))
        state_is_new = self.state_changed or (start is not None and bool(plan.state))
        step = Step(
            run_id=plan.run_id,
            guard=guard,
            start=start,
            rows=rows,
            messages=messages,
            state=dict(plan.state) if state_is_new and not self._is_child else None,
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
        agent=plan.spec.agent,
        session=plan.session_id,
        parent=plan.parent_run_id,
        task=str(task)[:_TASK_CHARACTERS],
        metadata=plan.metadata,
    )
