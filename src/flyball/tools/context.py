"""What a tool is told about the call it serves, if it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from ..deadline import DeadlineToken
from ..snapshot import BudgetSnapshot
from .gate import Gate


class State(MutableMapping[str, Any]):
    """The run's state as one call sees it: it reads what the run has, and what it writes is kept as changes.

    The loop applies the changes of a call that succeeded, in the order asked. So a call that ends late changes nothing.
    """

    def __init__(self, run: Mapping[str, Any] | None = None) -> None:
        self._run = run or {}
        self.changes: dict[str, Any] = {}
        """What the call has set; a key it deleted is set to None."""

    def __getitem__(self, key: str) -> Any:
        value = self.changes[key] if key in self.changes else self._run[key]
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        self.changes[key] = value

    def __delitem__(self, key: str) -> None:
        self[key]
        self.changes[key] = None

    def __iter__(self) -> Iterator[str]:
        merged = {**self._run, **self.changes}
        return iter([key for key, value in merged.items() if value is not None])

    def __len__(self) -> int:
        return len(list(iter(self)))


def _say_nothing(_: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Annotate a parameter of a tool with this class to get it; the model does not see that parameter."""

    token: DeadlineToken
    """Poll it in the inner loop, and return early with what there is."""
    run_id: str
    call_id: str
    idempotency_key: str
    """The same when this call is made again after a crash, and in no other call."""
    budgets: Mapping[str, BudgetSnapshot] = field(default_factory=dict[str, BudgetSnapshot])
    state: State = field(default_factory=State)
    gate: Gate = field(default_factory=Gate)
    report: Callable[[str], None] = _say_nothing
    """Tell how far the work is."""

    def commit(self) -> None:
        """Call this right before writing outside: it raises CallClosed once the call was declared dead."""
        self.gate.commit()
