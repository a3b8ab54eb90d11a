"""The context of a tool call: deadline, state, budgets and delegation."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..budget.deadline import DeadlineToken
from ..budget.snapshot import BudgetSnapshot
from ..chain.caller import Position
from ..errors import CallClosed, UsageError
from ..outcome import Outcome
from ..result import Result

if TYPE_CHECKING:
    from ..chain import Chain


class OutcomeSlot:
    """Slot for the outcome of a call.

    The first outcome wins, later ones are dropped.
    """

    __slots__ = ("_lock", "outcome")

    def __init__(self) -> None:
        self.outcome: Outcome | None = None
        """Outcome of the call. None while it is open. Only `close` sets it."""
        self._lock: Lock | None = Lock()
        """None if only one thread sets the outcome."""

    def close(self, outcome: Outcome) -> bool:
        """Set the outcome.

        Return False, and change nothing, if there is one already.
        """
        lock = self._lock
        if lock is not None:
            lock.acquire()
        try:
            if self.outcome is not None:
                return False
            self.outcome = outcome
            return True
        finally:
            if lock is not None:
                lock.release()

    def commit(self) -> None:
        """Raise CallClosed if the call has ended.

        Tools call this before external writes.
        """
        if self.outcome is not None:
            raise CallClosed(self.outcome.status.value)


class ToolState(MutableMapping[str, Any]):
    """View of the run's state that collects a call's changes.

    The loop applies the changes of successful calls, in the order of the calls. So a call that ends too late changes
    nothing.
    """

    def __init__(self, run: Mapping[str, Any] | None = None) -> None:
        self._run: Mapping[str, Any] = {} if run is None else run
        self._seen: dict[str, Any] = {}
        self._set: dict[str, Any] = {}

    @property
    def changes(self) -> dict[str, Any]:
        """Return the keys that the call set or changed in place.

        None marks a deleted key.
        """
        changed = {key: value for key, value in self._seen.items() if value != self._run.get(key)}
        return {**changed, **self._set}

    def __getitem__(self, key: str) -> Any:
        if key not in self._set and key not in self._seen:
            self._seen[key] = _copy_value(self._run[key])
        value = self._set[key] if key in self._set else self._seen[key]
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self._set[key] = value

    def __delitem__(self, key: str) -> None:
        self[key]
        self._set[key] = None

    def __iter__(self) -> Iterator[str]:
        merged = {**self._run, **self._set}
        return iter([key for key, value in merged.items() if value is not None])

    def __len__(self) -> int:
        return len(list(iter(self)))


def _copy_value(value: Any) -> Any:
    # The call gets a copy, so that its later changes do not reach the run.
    try:
        return copy.deepcopy(value)
    except Exception:  # a value that cannot be copied is shared
        return value


def _ignore_report(_: str) -> None:
    pass


async def _refuse_delegation(child: object, goal: str, context: str) -> Result:
    raise UsageError("ctx.delegate works only in an async tool that the run of an Agent calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Context of a tool call.

    A tool gets it by annotating a parameter with this class. The model does not see that parameter.
    """

    token: DeadlineToken
    """Deadline, which expires shortly before the call times out. Poll it in inner loops to return partial results."""
    run_id: str
    call_id: str
    idempotency_key: str
    """Key that is unique to this call, and the same if the call is repeated after a crash."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Copy of the metadata that the caller passed to the run, such as a job id."""
    budgets: Mapping[str, BudgetSnapshot] = field(default_factory=dict[str, BudgetSnapshot])
    answer: str = ""
    """Answer of the person who was asked about this call. Empty if no person was asked."""
    state: ToolState = field(default_factory=ToolState)
    gate: OutcomeSlot = field(default_factory=OutcomeSlot)
    may_write: Callable[[], bool] = lambda: True
    """Returns False if the run has lost its session to another run, or may have."""
    report: Callable[[str], None] = _ignore_report
    """Reports progress as a short text."""
    position: Position = field(default_factory=Position)
    """Position of the call in a chain of services."""

    delegating: Callable[[object, str, str], Awaitable[Result]] = _refuse_delegation
    """Runs a child agent; `delegate` calls it."""

    async def delegate(self, child: object, goal: str, context: str = "") -> Result:
        """Run another agent within this call and return its result.

        Only `async def` tools can delegate. The child run is independent, but bounded by the deadline of this call and
        the shared budgets of the tree. It counts as a child of the run. Its result and cost become part of the outcome
        of this call.

        Args:
            child: an Agent, or the name of one of the agent's children.
            goal: the child's task.
            context: more text for the child.

        Raises:
            BudgetExceeded: the run may have no more children.
        """
        return await self.delegating(child, goal, context)

    def commit(self) -> None:
        """Raise CallClosed if the call may no longer write.

        Tools call this right before external writes.

        Raises:
            CallClosed: the call has ended, or the run has lost its session or cannot be sure to hold it.
        """
        self.gate.commit()
        if not self.may_write():
            raise CallClosed("contended")

    def chain_headers(self, chain: Chain | None = None) -> dict[str, str]:
        """Return the headers for a call to another service.

        They carry the depth and the remaining budget. Without `chain` they identify the service that received the
        current call, or else the one in the settings.
        """
        from ..chain.chain import headers_at  # imports the signing code, which few tools need

        return headers_at(self.position) if chain is None else chain.headers_at(self.position)
