"""The six effects that the loop yields, and the signals that come with their answers.

effect   asks for                                  answer
Ask      a model's reply                           Reply, or ModelFailure
Act      a group of calls to be made               an outcome for each, in the order asked
Append   messages to be saved in the transcript    None
Grant    a claim on budgets that other runs share  None, or the Refusal
Decide   a person's answer                         Verdict
Wait     time to pass                              None
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from .._internal.jsonable import to_json_text
from ..budget.run_budget import Refusal
from ..message import Message
from ..outcome import Outcome
from ..person import Question, Verdict
from ..request import Call, ModelFailure, Reply, Request
from ..result import Result

T = TypeVar("T")
A_co = TypeVar("A_co", covariant=True)


class Effect(Generic[A_co]):
    """Something that a driver does for the loop. The type parameter is the type of its answer."""

    __slots__ = ()

    kind: ClassVar[str]
    """Name in fingerprints. It is stored data: it stays when the class is renamed."""

    def describe(self) -> tuple[Any, ...]:
        """Return the class of the effect and what is new in it, which is what a fingerprint reads.

        A run that can pause keeps this of each effect, so it must be cheap.
        """
        raise TypeError(f"a {type(self).__name__} has no fingerprint")


@dataclass(slots=True)
class Ask(Effect[Reply | ModelFailure]):
    """Ask the model. Deadlines of effects are in the run's own seconds."""

    kind = "Ask"

    request: Request
    deadline: float
    message_count: int
    """Number of messages in the request."""

    def describe(self) -> tuple[Any, ...]:
        """Return the purpose, the number of messages and the notices. The messages were new when they were appended."""
        request = self.request
        return Ask, request.purpose, self.message_count, request.notices


class Doable(Protocol):
    """Call of a tool, or of child runs."""

    @property
    def call(self) -> Call:
        """Call as the model wrote it."""
        ...


@dataclass(slots=True)
class Act(Effect[Sequence[Outcome]]):
    """Make calls in parallel."""

    kind = "Act"

    acts: Sequence[Doable]
    deadline: float

    def describe(self) -> tuple[Any, ...]:
        """Return the calls."""
        return (Act, *[act.call for act in self.acts])


@dataclass(slots=True)
class Append(Effect[None]):
    """Save messages in the transcript."""

    kind = "Append"

    messages: Sequence[Message]

    def describe(self) -> tuple[Any, ...]:
        """Return the messages."""
        rows = [(message.n, message.type, message.role, message.content, message.payload) for message in self.messages]
        return Append, *rows


@dataclass(slots=True)
class Grant(Effect[Refusal | None]):
    """Settle, refund and claim in the budgets that other runs share, in this order.

    A claim is all or nothing. A refusal concerns only the claim.
    """

    kind = "Grant"

    claim: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counts to claim, tokens and money to reserve."""
    settle: Mapping[str, int] | None = None
    """Actual use of the reservation. None means nothing to settle."""
    refund: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Amounts to refund, by reason."""

    def describe(self) -> tuple[Any, ...]:
        """Return the names of the budgets. Their amounts may differ in a replay."""
        reasons = {reason: sorted(amounts) for reason, amounts in self.refund.items()}
        return Grant, sorted(self.claim), self.settle is not None, reasons


@dataclass(slots=True)
class Decide(Effect[Verdict]):
    """Ask a person."""

    kind = "Decide"

    question: Question

    def describe(self) -> tuple[Any, ...]:
        """Return the question."""
        return Decide, self.question.id, self.question.text


@dataclass(slots=True)
class Wait(Effect[None]):
    """Let time pass, at most until child runs in the background have ended. Their results come as signals."""

    kind = "Wait"

    until: float
    runs: tuple[str, ...] = ()
    """Ids of the child runs to wait for. Empty means to wait for the time only."""
    cancel: bool = False
    """True to cancel these child runs first."""

    def describe(self) -> tuple[Any, ...]:
        """Return the kind and the child runs. The time differs in a replay."""
        return (Wait, *self.runs, self.cancel) if self.runs else (Wait,)


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run now and interrupt the current effect."""

    by: str = "caller"


@dataclass(frozen=True, slots=True)
class Steer:
    """Add a text of the user to the conversation."""

    text: str


@dataclass(frozen=True, slots=True)
class Extend:
    """Raise ceilings, and move the deadline by `seconds`."""

    amounts: Mapping[str, int]
    seconds: float = 0.0
    by: str = "caller"


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The time of day in `Limits.until` has come."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another run holds the session now."""


@dataclass(frozen=True, slots=True)
class Late:
    """A call ended after it was given up."""

    call_id: str
    tool: str
    own: bool = True
    """True for a call of this run, False for one of a child run that has ended."""


@dataclass(frozen=True, slots=True)
class Hung:
    """A model or an approver ignores its cancellation and was left behind, or has ended after all (-1)."""

    count: int


@dataclass(frozen=True, slots=True)
class Stalled:
    """The run made no progress for `seconds`. The current effect is interrupted, and the model reports."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store failed, so the run must not continue. `error` has the form of `Result.error`."""

    error: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PauseChildren:
    """Start no more child runs, or start them again. Those in progress continue."""

    paused: bool = True
    by: str = "caller"


@dataclass(frozen=True, slots=True)
class ChildDone:
    """A child run in the background has ended."""

    run_id: str
    result: Result


Signal = Cancel | Steer | Extend | TimeUp | LeaseLost | Late | Hung | Stalled | StoreFailed | PauseChildren | ChildDone
"""Input that reaches a running loop with an answer."""


@dataclass(slots=True)
class Answer(Generic[T]):
    """Answer to an effect: its value, the run's active seconds, and the signals received meanwhile."""

    value: T
    at: float
    signals: Sequence[Signal] = field(default=(), metadata={"stored_as": "mail"})

    @property
    def received(self) -> Received:
        """Parts of the answer, as the loop receives them."""
        return self.value, self.at, self.signals


Received = tuple[Any, float, Sequence[Signal]]
"""Parts of an answer in the order of its fields. The driver sends them, because a tuple costs a fifth of an object."""
Flow = Generator[Effect[Any], Received, T]
"""Part of the loop: a generator that yields effects, receives answers and returns a T."""


class Fingerprint:
    """Checksum of all effects of a run so far, to detect a replay that differs.

    It does not depend on times or remaining amounts, which may differ in a replay.
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, effect: Effect[Any]) -> int:
        """Add an effect, and return the new value."""
        self.value = self._compute(effect.describe())
        return self.value

    def add_description(self, description: tuple[Any, ...]) -> int:
        """Add an effect by its description, and return the number."""
        self.value = self._compute(description)
        return self.value

    def next(self, effect: Effect[Any]) -> int:
        """Return the value with one more effect, without adding it."""
        return self._compute(effect.describe())

    def _compute(self, description: tuple[Any, ...]) -> int:
        effect, *data = description
        if effect is Act:
            data = [(call.id, call.name, call.arguments) for call in data]
        text = to_json_text([effect.kind, (data or None) if effect is Wait else data], sort_keys=True)
        return zlib.crc32(text.encode("utf-8", "replace"), self.value)
