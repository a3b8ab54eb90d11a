"""What a tool is told about the call it serves, if it asks."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..budget.deadline import DeadlineToken
from ..budget.snapshot import BudgetSnapshot
from ..chain.caller import Position
from ..errors import CallClosed, ConfigError
from ..outcome import Outcome
from ..result import Result

if TYPE_CHECKING:
    from ..chain import Chain


class OutcomeSlot:
    """One compare-and-set: of all outcomes that a call might have, the first stands; the others came too late."""

    __slots__ = ("_lock", "outcome")

    def __init__(self, threads: bool = True) -> None:
        """`threads` is whether several may want to close it."""
        self.outcome: Outcome | None = None
        """What the call came to, or None while it is open; only `close` sets it."""
        self._lock = Lock() if threads else None

    def close(self, outcome: Outcome) -> bool:
        """End the call so; False if it has ended already, and then nothing changes."""
        if self._lock is not None:
            with self._lock:
                return self._set_outcome(outcome)
        return self._set_outcome(outcome)

    def _set_outcome(self, outcome: Outcome) -> bool:
        if self.outcome is not None:
            return False
        self.outcome = outcome
        return True

    def commit(self) -> None:
        """Do nothing while the call is open, else raise CallClosed: for a tool that is about to write outside."""
        if self.outcome is not None:
            raise CallClosed(self.outcome.status.value)


class ToolState(MutableMapping[str, Any]):
    """The run's state as one call sees it: it reads what the run has, and what it writes is kept as changes.

    The loop applies the changes of a call that succeeded, in the order asked. So a call that ends late changes nothing.
    """

    def __init__(self, run: Mapping[str, Any] | None = None) -> None:
        self._run: Mapping[str, Any] = {} if run is None else run
        self._seen: dict[str, Any] = {}
        self._set: dict[str, Any] = {}

    @property
    def changes(self) -> dict[str, Any]:
        """What the call has set, or changed inside what it read; a key it deleted is None."""
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
    """A value of its own for the call, so that what it does to it later does not reach the run."""
    try:
        return copy.deepcopy(value)
    except Exception:  # what cannot be copied is shared, as everything in Python is
        return value


def _ignore_report(_: str) -> None:
    """Nobody listens."""


async def _refuse_delegation(child: object, goal: str, context: str) -> Result:
    raise ConfigError("ctx.delegate", "a call that no agent's run makes", "an `async def` tool of an Agent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Annotate a parameter of a tool with this class to get it; the model does not see that parameter."""

    token: DeadlineToken
    """Poll it in the inner loop, and return early with what there is: it expires a little before the call is cut."""
    run_id: str
    call_id: str
    idempotency_key: str
    """The same when this call is made again after a crash, and in no other call."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the caller gave with the run: a job's id, the mode, the payload of a conversation. A copy."""
    budgets: Mapping[str, BudgetSnapshot] = field(default_factory=dict[str, BudgetSnapshot])
    answer: str = ""
    """What a person said who was asked about this call."""
    state: ToolState = field(default_factory=ToolState)
    gate: OutcomeSlot = field(default_factory=OutcomeSlot)
    may_write: Callable[[], bool] = lambda: True
    """Whether the run still holds its session."""
    report: Callable[[str], None] = _ignore_report
    """Tell how far the work is."""
    position: Position = field(default_factory=Position)
    """Where in a chain of agents the call is."""

    delegating: Callable[[object, str, str], Awaitable[Result]] = _refuse_delegation
    """Has a child do a task."""

    async def delegate(self, child: object, goal: str, context: str = "") -> Result:
        """Have another agent do a task as part of this call, and wait for its result; of an `async def` tool only.

        `child` is an Agent, or the name of one of the agent's children. It is independent, within the time of this call
        and the ceiling of the tree, and counts as a child of the run: BudgetExceeded where no more may be. What it came
        to, and cost, stands in the outcome of this call.
        """
        return await self.delegating(child, goal, context)

    def commit(self) -> None:
        """Call this right before writing outside: it raises CallClosed once the call was declared dead.

        So it does where the run has lost its session to another, or cannot be sure that it has not.
        """
        self.gate.commit()
        if not self.may_write():
            raise CallClosed("contended")

    def chain_headers(self, chain: Chain | None = None) -> dict[str, str]:
        """The headers for a call to an agent of another service: our depth, and what is left for it.

        We are who the service is that was called here, if `chain` does not say so; else who the settings say.
        """
        from ..chain.chain import headers_at  # and with it all that signs: few tools need it

        return headers_at(self.position) if chain is None else chain.headers_at(self.position)
