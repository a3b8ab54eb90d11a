"""The ledger of a run: what happened since the last commit, and how it is committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from ..loop.plan import Plan
from ..message import Message
from ..outcome import Outcome
from ..store import Finish, Guard, Kind, Row, Start, Step, Store
from .history import CODE, plan_told

_TASK_CHARACTERS = 200


class Ledger:
    """Gathers what one run leaves, and keeps all of it in one commit. Safe between threads; commits come in order."""

    def __init__(self, store: Store, *, is_childs: bool) -> None:
        self.plan: Plan | None = None
        """What the run began with."""
        self.take = 0
        """How often it was taken up again."""
        self.entered = False
        """Whether the store knows the run."""
        self.goes_on = False
        """Whether this is the first that is written since it was taken up again."""
        self.state_changed = False
        self._store = store
        self._is_childs = is_childs
        self._unkept: Step | None = None
        """What could not be kept without waiting."""
        self._gathering = Lock()
        self._writing = Lock()
        self._rows: list[Row] = []
        self._messages: list[Message] = []
        self._events: list[Mapping[str, Any]] = []

    def started(self, n: int, print_: int, told: Mapping[str, Any], messages: Sequence[Message]) -> None:
        """An effect begins; those that say something have it said then."""
        with self._gathering:
            self._rows.append(Row(n, Kind.STARTED, CODE.dumps(told), print_, self.take))
            self._messages += messages

    def outcome(self, n: int, call_id: str, outcome: Outcome) -> None:
        """One call of a batch has come to this."""
        with self._gathering:
            self._rows.append(Row(n, Kind.OUTCOME, CODE.dumps([call_id, outcome]), take=self.take))

    def answer(self, n: int, print_: int, answer: object) -> None:
        """An effect has come to this."""
        with self._gathering:
            self._rows.append(Row(n, Kind.ANSWER, CODE.dumps(answer), print_, self.take))

    def extended(self, n: int, letters: Sequence[object]) -> None:
        """A run that had ended was given more, with its last answer."""
        with self._gathering:
            self._rows.append(Row(n, Kind.EXTENDED, CODE.dumps(letters), take=self.take))

    def say(self, messages: Sequence[Message]) -> None:
        """This was said."""
        with self._gathering:
            self._messages += messages

    def note(self, event: Mapping[str, Any]) -> None:
        """This has happened."""
        with self._gathering:
            self._events.append(event)

    def commit(self, guard: Guard | None, finish: Finish | None = None) -> None:
        """Keep all that was gathered; with the end of a run at the top its lease is given back. It blocks."""
        with self._writing:
            step, self._unkept = self._unkept or self._step(guard, finish), None
            if step.rows or step.events or step.finish is not None:
                self._store.keep(step)

    def commit_now(self, guard: Guard | None, finish: Finish | None = None) -> bool:
        """The same without waiting for anybody; False where one must, and `commit` is still to be called."""
        keep_now = getattr(self._store, "keep_now", None)
        if keep_now is None or not self._writing.acquire(blocking=False):
            return False
        try:
            step = self._step(guard, finish)
            if not (step.rows or step.events or step.finish is not None) or keep_now(step):
                return True
            self._unkept = step
            return False
        finally:
            self._writing.release()

    def commit_outcomes(self, guard: Guard | None) -> None:
        """Keep what calls have come to while others of their batch are under way. It blocks.

        Nothing else: what is told behind the answer is kept together with the beginning of what comes next, which says
        how much of it there is. When that is about to come, the outcomes wait for it.
        """
        with self._writing:
            with self._gathering:
                ready = all(row.kind is Kind.OUTCOME for row in self._rows)
                rows, self._rows = (self._rows, []) if ready else ([], self._rows)
            if rows:
                assert self.plan is not None, "a loop that does something has begun"
                self._store.keep(Step(run_id=self.plan.run_id, guard=guard, rows=rows))

    def _step(self, guard: Guard | None, finish: Finish | None) -> Step:
        plan = self.plan
        assert plan is not None, "a loop that does something has begun"
        with self._gathering:
            rows, self._rows = self._rows, []
            messages, self._messages = self._messages, []
            events, self._events = self._events, []
        start = None if self.entered else _start(plan)
        if start is not None:
            rows.insert(0, Row(0, Kind.RUN, plan_told(plan)))
        state_is_new = self.state_changed or (start is not None and bool(plan.state))
        step = Step(
            run_id=plan.run_id,
            guard=guard,
            start=start,
            rows=rows,
            messages=messages,
            state=dict(plan.state) if state_is_new and not self._is_childs else None,
            events=events,
            finish=finish,
            again=self.goes_on,
            release=finish is not None and not self._is_childs,
        )
        self.entered, self.goes_on, self.state_changed = True, False, False
        return step


def _start(plan: Plan) -> Start:
    task = next((message.content for message in reversed(plan.messages) if message.content), "")
    return Start(
        at=plan.started_at,
        agent=plan.shared.agent,
        session=plan.session_id,
        parent=plan.parent_run_id,
        task=str(task)[:_TASK_CHARACTERS],
        metadata=plan.metadata,
    )
