"""Outcomes of tool calls: each call has exactly one of five."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar

from ._internal.jsonable import to_jsonable


class Status(StrEnum):
    """Kind of an outcome."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    DENIED = "denied"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Reason why a call was denied before it ran."""

    UNKNOWN = "unknown"
    VALIDATION = "validation"
    DUPLICATE = "duplicate"
    """An equal call succeeded before, and nothing changed since."""
    REPEATED = "repeated"
    """The call continues a loop that the model was warned about."""
    BLOCKED = "blocked"
    RULE = "rule"
    DEADLINE = "deadline"
    BUDGET = "budget"
    APPROVAL = "approval"
    OVERLOAD = "overload"
    REFUSED = "refused"
    """The service that should do the work refused."""
    PAUSED = "paused"
    """No child run may start now: the caller has paused them."""


_NO_CHANGES: Mapping[str, Any] = {}
"""One for all successes that change nothing. Not a read-only view, because results are pickled."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """Handle for an output that is too large to show in full."""

    id: str
    size: int
    """Characters."""


@dataclass(slots=True, kw_only=True)
class BaseOutcome:
    """Fields and methods that all outcomes share.

    Not frozen, because a run creates many and freezing doubles their cost.
    """

    status: ClassVar[Status]

    call_id: str
    tool: str
    seconds: float = 0.0
    artifact: Artifact | None = None
    note: str = ""
    """Text for the model besides the result, such as that an earlier result was reused. Empty means none."""
    same_as: str | None = None
    """Id of the earlier equal call whose result was reused. None if the call was made."""
    children: tuple[Any, ...] = ()
    """Results of the child runs that the call started."""

    @property
    def ok(self) -> bool:
        """True if the call succeeded."""
        return self.status is Status.DONE

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome in JSON types."""
        row: dict[str, Any] = {"status": self.status.value, "ok": self.ok, "text": to_jsonable(self.text)}
        for name in _list_names(type(self)):
            value = getattr(self, name)
            row[name] = value if value is None or value is False else to_jsonable(value)
        if self.children:
            row["children"] = [child.run_id for child in self.children]
        return row

    def add_note(self, note: str) -> None:
        """Add text for the model, once. A replayed outcome may have it already."""
        if note not in self.note:
            self.note = f"{self.note}; {note}" if self.note else note

    @property
    def text(self) -> str:
        """Return the text that the model sees, with the note."""
        return f"({self.note})\n{self.text_without_note}" if self.note else self.text_without_note

    @property
    def text_without_note(self) -> str:
        """Return the text that the model sees, without the note."""
        raise NotImplementedError


@cache
def _list_names(kind: type[BaseOutcome]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name != "children")


@dataclass(slots=True, kw_only=True)
class Success(BaseOutcome):
    """Call that ran and returned a value."""

    status = Status.DONE
    content: str
    """Value as the model sees it; an excerpt if there is an artifact."""
    value: object = None
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values that the call set in the run's state."""
    ends_run: bool = False
    """True if the result is the answer of the run."""

    @classmethod
    def create(
        cls, call_id: str, tool: str, seconds: float, content: str, value: object, ends_run: bool = False
    ) -> Success:
        """Create a success in a third of the time of the constructor."""
        success = object.__new__(cls)
        success.call_id, success.tool, success.seconds, success.content = call_id, tool, seconds, content
        success.value, success.ends_run, success.changes, success.children = value, ends_run, _NO_CHANGES, ()
        success.artifact = success.same_as = None
        success.note = ""
        return success

    @property
    def text(self) -> str:
        """Return the text that the model sees, with the note."""
        return f"({self.note})\n{self.content}" if self.note else self.content

    @property
    def text_without_note(self) -> str:
        """Return the content."""
        return self.content


@dataclass(slots=True, kw_only=True)
class Failure(BaseOutcome):
    """Call that raised, or whose result says that it failed."""

    status = Status.FAILED
    kind: str
    """Name of the exception class, or `UnsuccessfulResult`."""
    error: str
    """Message of the exception, or the result as JSON, as the model sees it; an excerpt if there is an artifact."""
    whole_error: str | None = None
    """Whole message, if `error` is an excerpt. None otherwise."""

    @property
    def text_without_note(self) -> str:
        """Return the exception class and its message."""
        return f"{self.kind}: {self.error}"


@dataclass(slots=True, kw_only=True)
class Timeout(BaseOutcome):
    """Call that did not end in time; its effects are unknown."""

    status = Status.TIMED_OUT
    cap_s: float
    """Seconds that the call was allowed."""
    hung: bool = False
    """True if a thread was still running and was abandoned."""

    @property
    def text_without_note(self) -> str:
        """Return the text that the model sees, without the note."""
        return f"No result within {self.cap_s:g} s. Whether it had an effect is not known."


@dataclass(slots=True, kw_only=True)
class Denied(BaseOutcome):
    """Call that was not made."""

    status = Status.DENIED
    reason: Reason
    message: str

    @property
    def text_without_note(self) -> str:
        """Return the reason and message of the denial."""
        return f"Not run ({self.reason.value}): {self.message}"


@dataclass(slots=True, kw_only=True)
class Cancelled(BaseOutcome):
    """Call that was running or waiting when the run was cancelled."""

    status = Status.CANCELLED
    hung: bool = False
    """True if a thread was still running and was abandoned."""

    @property
    def text_without_note(self) -> str:
        """Return the text that the model sees, without the note."""
        return "Cancelled. Whether it had an effect is not known."


Outcome = Success | Failure | Timeout | Denied | Cancelled
"""Any outcome of a call."""
