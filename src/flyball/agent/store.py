"""Stored runs of an agent: opening their journals, and resuming them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from .._internal import validation
from ..budget.deadline import Clock
from ..errors import ConfigError, ResumeError
from ..loop.effects import Extend
from ..loop.plan import AgentSpec, Plan
from ..person import About, Question, Verdict, parse_answers
from ..runtime.history import restore_plan
from ..runtime.journal import Resumption, RunJournal
from ..runtime.lease import SessionLease
from ..store import Entry, Store, open_store
from .options import ResumeOptions
from .run import build_extension

CONTINUE_PROMPT = "Continue this task from where it stopped. Use what is already done."
"""Task of a new run that continues from the messages of an earlier one."""


@dataclass(slots=True)
class RunStore:
    """Store of an agent, opened when the first run needs it."""

    store_or_uri: Store | str
    lease_seconds: float
    clock: Clock
    start_metadata: Mapping[str, Any]
    """Added to the metadata of the stored start of each run."""
    _opened: Store | None = None
    _lock: Lock = field(default_factory=Lock)
    """Guards `_opened`. It is not held while a store is opened, which may take long."""

    def __post_init__(self) -> None:
        if not isinstance(self.store_or_uri, str) and not callable(getattr(self.store_or_uri, "keep", None)):
            raise ConfigError("agent, store", self.store_or_uri, "a Store, or an address such as sqlite:///runs.db")
        validation.parse_timeout("agent, lease_seconds", self.lease_seconds)

    @property
    def store(self) -> Store:
        """The open store. The first access opens it."""
        if self._opened is not None:
            return self._opened
        opened = open_store(self.store_or_uri) if isinstance(self.store_or_uri, str) else self.store_or_uri
        with self._lock:
            if self._opened is None:
                self._opened = opened
        if self._opened is not opened:  # another thread was first
            opened.close()
        return self._opened

    def open_journal(self, plan: Plan, wait_s: float) -> RunJournal:
        """Return the journal of a new run. A run without a session gets one with its own id."""
        plan.session_id = plan.session_id or plan.run_id
        lease = SessionLease(self.store, plan.session_id, self.lease_seconds, wait_s)
        return RunJournal(lease, self.clock, start_metadata=self.start_metadata)

    def read_entry(self, run_id: str) -> Entry:
        """Return the stored run. Raise ResumeError if it is missing or a child run."""
        entry = self.store.runs.get(run_id)
        if entry is None:
            raise ResumeError(f"run {run_id}", "the store has no run with this id")
        if entry.start.parent is not None:
            raise ResumeError(f"run {run_id}", f"it is a child run; resume its parent, run {entry.start.parent}")
        return entry

    def reopen_journal(self, entry: Entry, spec: AgentSpec, options: ResumeOptions) -> tuple[Plan, RunJournal]:
        """Return the plan and the journal of a stored run that is resumed."""
        validation.check_options("resume", options, ResumeOptions.__annotations__)
        rows = self.store.journal.read(entry.run_id)
        if not rows:
            raise ResumeError(f"run {entry.run_id}", "the store has no journal of it; start a new run")
        plan = restore_plan(Plan(spec=spec, run_id=entry.run_id, messages=()), rows[0].data, self.store.transcript)
        if plan.has_shared_budget and options.get("within") is None:
            raise ResumeError(f"run {entry.run_id}", "it shares a budget with other runs; pass that budget as within=")
        lease = SessionLease(
            self.store, plan.session_id or plan.run_id, self.lease_seconds, read_wait_seconds("resume", options)
        )
        return plan, RunJournal(lease, self.clock, Resumption(_build_extension(plan, options)))


def read_wait_seconds(where: str, options: Mapping[str, Any]) -> float:
    """Return the seconds to wait for another run that holds the session."""
    return validation.parse_duration(f"{where}, wait_seconds", options.get("wait_seconds", 0.0))


def _build_extension(plan: Plan, options: ResumeOptions) -> Extend | None:
    if not options.get("extend"):
        return None
    more = dict(options.get("extend") or {})
    return build_extension(plan.spec.limits.budgets, more.pop("seconds", 0.0), "caller", more)


def parse_verdicts(entry: Entry, answers: Mapping[str, Any] | None) -> dict[str, Verdict]:
    """Return the answers to the questions of a paused run. Raise for an answer to anything else."""
    record: Mapping[str, Any] = {} if entry.finish is None else entry.finish.record or {}
    asked = {
        row["id"]: Question(row["id"], row["text"], About(row.get("about", About.CALL)))
        for row in record.get("questions", ())
    }
    return parse_answers({} if answers is None else answers, asked)
