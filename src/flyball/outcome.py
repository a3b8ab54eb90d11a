"""What a call came to: exactly one of five outcomes, on every path."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, ClassVar

from ._internal.jsonable import to_jsonable


class Status(StrEnum):
    """The five ends of a call."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    DENIED = "denied"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a call was denied before it ran."""

    UNKNOWN = "unknown"
    VALIDATION = "validation"
    DUPLICATE = "duplicate"
    """An equal call succeeded before, and nothing was changed since."""
    REPEATED = "repeated"
    """It goes on with a loop that the model was told of."""
    BLOCKED = "blocked"
    RULE = "rule"
    DEADLINE = "deadline"
    BUDGET = "budget"
    APPROVAL = "approval"
    OVERLOAD = "overload"
    REFUSED = "refused"
    """The service that was asked to do it has refused."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A handle for an output that is too large to show whole."""

    id: str
    size: int
    """In characters."""


@dataclass(slots=True, kw_only=True)
class BaseOutcome:
    """What all outcomes have. Not frozen, because a run makes many and freezing would double their cost."""

    status: ClassVar[Status]

    call_id: str
    tool: str
    seconds: float = 0.0
    artifact: Artifact | None = None
    note: str = ""
    """What the model must know of it beside the result: that it is an earlier one's, or whose arguments they were."""
    same_as: str | None = None
    """The call whose result this is, where an equal call was not made again."""
    children: tuple[Any, ...] = ()
    """The results of the runs that it was delegated to."""

    @property
    def ok(self) -> bool:
        """Whether the call did what it was asked for."""
        return self.status is Status.DONE

    def to_dict(self) -> dict[str, Any]:
        """The same in JSON types."""
        row = {field.name: to_jsonable(getattr(self, field.name)) for field in fields(self) if field.name != "children"}
        children = {"children": [child.run_id for child in self.children]} if self.children else {}
        return {"status": self.status.value, "ok": self.ok, "text": self.text, **row, **children}

    @property
    def text(self) -> str:
        """What the model is told."""
        return f"({self.note})\n{self.text_without_note}" if self.note else self.text_without_note

    @property
    def text_without_note(self) -> str:
        """The same without the note."""
        raise NotImplementedError


@dataclass(slots=True, kw_only=True)
class Success(BaseOutcome):
    """The call ran and gave a value."""

    status = Status.DONE
    content: str
    """The value as the model sees it; an excerpt where there is an artifact."""
    value: object = None
    changes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the call set in the run's state."""

    @classmethod
    def create(
        cls,
        call_id: str,
        tool: str,
        seconds: float,
        content: str,
        value: object,
        changes: Mapping[str, Any],
        children: tuple[Any, ...],
    ) -> Success:
        """A success of a call that was made, in a third of the time."""
        made = object.__new__(cls)
        made.call_id, made.tool, made.seconds, made.content, made.value = call_id, tool, seconds, content, value
        made.changes, made.children, made.artifact, made.note, made.same_as = changes, children, None, "", None
        return made

    @property
    def text(self) -> str:
        """What the model is told."""
        return f"({self.note})\n{self.content}" if self.note else self.content

    @property
    def text_without_note(self) -> str:
        """What the model is told: the content."""
        return self.content


@dataclass(slots=True, kw_only=True)
class Failure(BaseOutcome):
    """The call raised."""

    status = Status.FAILED
    kind: str
    """The name of the exception's class."""
    error: str

    @property
    def text_without_note(self) -> str:
        """What the model is told: the kind of error and its words."""
        return f"{self.kind}: {self.error}"


@dataclass(slots=True, kw_only=True)
class Timeout(BaseOutcome):
    """The call did not end in time; whether it had an effect is not known."""

    status = Status.TIMED_OUT
    cap_s: float
    hung: bool = False
    """Whether a thread was still at work, and was given up."""

    @property
    def text_without_note(self) -> str:
        """What the model is told: that nobody knows."""
        return f"No result within {self.cap_s:g} s. Whether it had an effect is not known."


@dataclass(slots=True, kw_only=True)
class Denied(BaseOutcome):
    """The call was not made."""

    status = Status.DENIED
    reason: Reason
    message: str

    @property
    def text_without_note(self) -> str:
        """What the model is told: that it was not run, and why."""
        return f"Not run ({self.reason.value}): {self.message}"


@dataclass(slots=True, kw_only=True)
class Cancelled(BaseOutcome):
    """The run was cancelled while the call was under way or waiting."""

    status = Status.CANCELLED
    hung: bool = False
    """Whether a thread was still at work, and was given up."""

    @property
    def text_without_note(self) -> str:
        """What the model is told."""
        return "Cancelled. Whether it had an effect is not known."


Outcome = Success | Failure | Timeout | Denied | Cancelled
"""What a call can come to."""
