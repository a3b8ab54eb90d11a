"""Steps of a governed request: what its decisions wait for, in blocking code and on an event loop."""

from __future__ import annotations

from collections.abc import Generator
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..governor.client_call import ClientCall
from .model_port import Edits, ModelPort
from .tool_threads import TOOL_THREADS

if TYPE_CHECKING:
    from ..governor.governed_run import GovernedRun
    from ..governor.reservation import Need
    from ..governor.reserved_turn import ReservedTurn
    from ..person import Approver, Question, Verdict
    from ..request import Reply

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Answered:
    """Reply of a framework's model, in its own form and in Flyball's. A ClientCall reads the usage."""

    raw: Any
    reply: Reply
    service_tier: str | None = None

    @property
    def usage(self) -> object:
        """Usage of the reply. None if it reports none."""
        return self.reply.usage


@dataclass(frozen=True, slots=True)
class ReserveStep:
    """Wait until a turn is reserved. The answer is the turn, or None if it is refused."""

    conversation: int
    need: Need
    is_last: bool

    def perform(self, run: GovernedRun) -> ReservedTurn | None:
        """Block until it is known."""
        reserve = run.reserve_grace if self.is_last else run.reserve_turn
        return reserve(self.conversation, self.need)

    async def aperform(self, run: GovernedRun) -> ReservedTurn | None:
        """Wait until it is known."""
        reserve = run.areserve_grace if self.is_last else run.areserve_turn
        return await reserve(self.conversation, self.need)


@dataclass(frozen=True, slots=True)
class SendStep:
    """Wait for the reply. The answer is None if the time is over, or if there is no room for a reply."""

    turn: ReservedTurn
    port: ModelPort[Any]
    edits: Edits

    def perform(self, run: GovernedRun) -> Answered | None:
        """Block until the model replies."""
        return ClientCall(self.turn, self._send).run()

    async def aperform(self, run: GovernedRun) -> Answered | None:
        """Wait until the model replies."""
        return await ClientCall(self.turn, self._asend).arun()

    def _send(self) -> Answered:
        return self._read(self.port.send(self.edits))

    async def _asend(self) -> Answered:
        return self._read(await self.port.send(self.edits))

    def _read(self, raw: Any) -> Answered:
        return Answered(raw, self.port.read(raw))


@dataclass(frozen=True, slots=True)
class AskStep:
    """Wait for the answer of a person. The answer is a Verdict; a failure or no answer in time means no."""

    question: Question
    approver: Approver
    seconds: float

    def perform(self, run: GovernedRun) -> Verdict:
        """Block until the person answers."""
        import anyio

        # In a thread of its own, because the caller may be in an event loop.
        return TOOL_THREADS.submit(copy_context().run, anyio.run, self.aperform, run).result()

    async def aperform(self, run: GovernedRun) -> Verdict:
        """Wait until the person answers."""
        from ..runtime.approval import ApprovalCaller, Person

        return await ApprovalCaller(Person(self.approver, self.seconds)).decide(self.question)


Step = ReserveStep | SendStep | AskStep
StepGenerator = Generator[Step, Any, R]
"""Decisions without I/O: they yield steps and receive the answers."""


class Steps(Generic[R]):
    """Generator of steps, with the step that is due and the value at its end."""

    def __init__(self, generator: StepGenerator[R]) -> None:
        self._generator = generator
        self.step: Step | None = None
        """Step to perform next. None means that `value` is there."""
        self.send(None)

    def send(self, answer: Any) -> None:
        """Continue with the answer to a step."""
        try:
            self.step = self._generator.send(answer)
        except StopIteration as end:
            self.step, self.value = None, end.value

    def throw(self, error: BaseException) -> None:
        """Continue with the error of a step."""
        try:
            self.step = self._generator.throw(error)
        except StopIteration as end:
            self.step, self.value = None, end.value

    value: R
