"""What the loop wants done, and what it is answered: six effects, and no other.

effect   asks for                                  is answered with
Ask      a model's reply                           Reply, or ModelFailure
Act      a group of calls to be made               an outcome for each, in the order asked
Append   messages to be kept in the transcript     None
Grant    something of a budget others share        None, or the Refusal
Decide   a person's word                           Verdict
Wait     time to pass                              None
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ..budget.run_budget import Refusal
from ..message import Message
from ..outcome import Outcome
from ..person import Question, Verdict
from ..request import Call, ModelFailure, Reply, Request

T = TypeVar("T")
A_co = TypeVar("A_co", covariant=True)


class Effect(Generic[A_co]):
    """Something to be done outside; the type says what it is answered with."""

    __slots__ = ()


@dataclass(slots=True)
class Ask(Effect[Reply | ModelFailure]):
    """Ask the model. A deadline, here and below, is in the run's own seconds."""

    request: Request
    deadline: float


class Doable(Protocol):
    """A call that may be made: a tool's, or a child's."""

    @property
    def call(self) -> Call:
        """What the model asked for."""
        ...


@dataclass(slots=True)
class Act(Effect[Sequence[Outcome]]):
    """Make calls side by side."""

    acts: Sequence[Doable]
    deadline: float


@dataclass(slots=True)
class Append(Effect[None]):
    """Keep messages."""

    messages: Sequence[Message]


@dataclass(slots=True)
class Grant(Effect[Refusal | None]):
    """Settle what the last request used of the budgets that others share, give back, and take for what comes next.

    What is taken is taken all or nothing; a refusal is of that alone.
    """

    claim: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counts to claim; tokens and money to hold."""
    settle: Mapping[str, int] | None = None
    """What was used of what is held."""
    refund: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """What is given back, by the reason."""


@dataclass(slots=True)
class Decide(Effect[Verdict]):
    """Ask a person."""

    question: Question


@dataclass(slots=True)
class Wait(Effect[None]):
    """Let time pass."""

    until: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """End the run now; what is under way is cut."""

    by: str = "caller"


@dataclass(frozen=True, slots=True)
class Steer:
    """Say this to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Extend:
    """Raise ceilings, and the time by `seconds`."""

    amounts: Mapping[str, int]
    seconds: float = 0.0
    by: str = "caller"


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The time of day that the limits name has come."""


@dataclass(frozen=True, slots=True)
class LeaseLost:
    """Another run holds the session now."""


@dataclass(frozen=True, slots=True)
class Late:
    """A call ended after it had been declared dead."""

    call_id: str
    tool: str
    own: bool = True
    """Whether it is this run's; else it is that of a child which has ended."""


@dataclass(frozen=True, slots=True)
class Stalled:
    """Nothing has come of the run for so long; what is under way is cut, and it reports."""

    seconds: float


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store cannot keep what happens, so nothing more may happen; `error` is as a result tells it."""

    error: Mapping[str, Any]


Signal = Cancel | Steer | Extend | TimeUp | LeaseLost | Late | Stalled | StoreFailed
"""What comes in while the loop waits."""


@dataclass(slots=True)
class Answer(Generic[T]):
    """What an effect came to, the run's active seconds so far, and what came in meanwhile."""

    value: T
    at: float
    signals: Sequence[Signal] = field(default=(), metadata={"stored_as": "mail"})


Flow = Generator[Effect[Any], Answer[Any], T]
"""A part of the loop: it yields effects, is sent their answers, and ends with a T."""


class Fingerprint:
    """Tells whether a run does again what it did before: one number for all effects so far.

    Nothing in it comes from the time or from what is left, as those may differ when a run is played again.
    """

    def __init__(self) -> None:
        self.value = 0

    def add(self, effect: Effect[Any]) -> int:
        """The number, with one more effect in it."""
        self.value = self.next(effect)
        return self.value

    def add_description(self, description: tuple[Any, ...]) -> int:
        """Add an effect by its description, and return the number."""
        self.value = self._compute(description)
        return self.value

    def next(self, effect: Effect[Any]) -> int:
        """What it would be with one more."""
        return self._compute(describe_effect(effect))

    def _compute(self, description: tuple[Any, ...]) -> int:
        kind, *data = description
        if kind == "Act":
            data = [(call.id, call.name, call.arguments) for call in data]
        text = json.dumps([kind, None if kind == "Wait" else data], sort_keys=True, default=str)
        return zlib.crc32(text.encode("utf-8", "replace"), self.value)


def describe_effect(effect: Effect[Any]) -> tuple[Any, ...]:
    """Return the kind of an effect and what is new in it, which is what a fingerprint reads.

    The messages of a request were new when they were appended. A run that can pause keeps this of each effect, so it
    must be cheap. The names of the kinds are stored data: a name stays when its class is renamed.
    """
    if type(effect) is Ask:  # the frequent kinds first, and without `match`, which is slower
        request = effect.request
        return "Ask", request.purpose, len(request.messages), request.notices
    if type(effect) is Act:
        acts = effect.acts
        return ("Act", acts[0].call) if len(acts) == 1 else ("Act", *[act.call for act in acts])
    match effect:
        case Append(messages):
            rows = [(message.n, message.type, message.role, message.content, message.payload) for message in messages]
            return "Append", *rows
        case Grant(take, settle, refund):
            reasons = {reason: sorted(amounts) for reason, amounts in refund.items()}
            return "Grant", sorted(take), settle is not None, reasons
        case Decide(question):
            return "Decide", question.id, question.text
        case Wait():
            return ("Wait",)
        case _:
            raise TypeError(f"a {type(effect).__name__} has no fingerprint")
