"""Effects of one run, performed: model requests, tool calls, questions, waits and shared budgets."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import anyio
import anyio.lowlevel

from ..budget.run_budget import Refusal
from ..loop.effects import Act, Append, Ask, Decide, Effect, Grant, Hung, Wait
from ..outcome import Outcome
from ..person import Verdict
from ..request import ModelFailure, Reply
from ..tools.call import ToolCallRun
from ..tools.runner import ToolRunner
from .approval import ApprovalCaller, Person
from .model_call import ModelCaller
from .runner import SignalQueue
from .shared_budget import SharedBudgetClient
from .timer import RunTimer

_YIELD_EVERY = 16
"""Requests. A model and tools that never wait would otherwise keep other tasks from running."""


class RunEffects:
    """Performs effects, with one method per kind, each until its deadline.

    The caller cancels an effect that takes too long. `interrupt` then returns its answer.
    """

    __slots__ = (
        "_approval_caller",
        "_budget_client",
        "_model_caller",
        "_person",
        "_requests_until_yield",
        "_signals",
        "_timer",
        "tool_runner",
        "until",
    )

    def __init__(
        self,
        timer: RunTimer,
        signals: SignalQueue,
        model_caller: ModelCaller,
        tool_runner: ToolRunner,
        person: Person,
        budget_client: SharedBudgetClient | None,
    ) -> None:
        self.tool_runner = tool_runner
        self.until: float | None = None
        """Time of day at which the work must end, in seconds since the epoch. None means no limit."""
        self._timer = timer
        self._signals = signals
        self._model_caller = model_caller
        self._person = person
        self._budget_client = budget_client
        self._approval_caller: ApprovalCaller | None = None
        self._requests_until_yield = _YIELD_EVERY

    def perform(self, effect: Effect[Any]) -> Awaitable[Any]:
        """Perform an effect and return its answer. The deadline is set before this returns."""
        return METHODS[type(effect)](self, effect)

    def ask(self, effect: Ask) -> Awaitable[Reply | ModelFailure]:
        """Ask the model."""
        self._timer.set_deadline(effect.deadline)
        self._requests_until_yield -= 1
        if self._requests_until_yield:
            return self._model_caller.ask(effect.request)
        return self._ask_after_checkpoint(effect)

    async def _ask_after_checkpoint(self, effect: Ask) -> Reply | ModelFailure:
        """Let other tasks run, then ask."""
        self._requests_until_yield = _YIELD_EVERY
        await anyio.lowlevel.checkpoint()
        return await self._model_caller.ask(effect.request)

    def act(self, effect: Act) -> Awaitable[Sequence[Outcome | None]]:
        """Make tool calls, in parallel if there are several."""
        tool_calls: Sequence[Any] = effect.acts  # ToolCallRun; a cast would cost a call
        if len(tool_calls) > 1 or tool_calls[0].outcome is not None:
            return self._make_calls(tool_calls, effect.deadline)
        tool_call = tool_calls[0]
        tool_call.start(self._timer.now(), effect.deadline)
        self._timer.set_deadline(tool_call.deadline)
        return self.tool_runner.run_call(tool_call)

    async def _make_calls(self, tool_calls: Sequence[ToolCallRun], deadline: float) -> Sequence[Outcome | None]:
        self._timer.set_deadline(math.inf)  # each call has its own cancel scope
        await self.tool_runner.perform([one for one in tool_calls if one.outcome is None], deadline)
        return [one.outcome for one in tool_calls]

    async def append(self, effect: Append) -> None:
        """Do nothing: the journal has written the messages when the effect started."""

    async def grant(self, effect: Grant) -> Refusal | None:
        """Claim from a shared budget, and settle and refund earlier claims."""
        return self._apply_grant(effect)

    def _apply_grant(self, effect: Grant) -> Refusal | None:
        return None if self._budget_client is None else self._budget_client.apply(effect)

    def reapply_grant(self, effect: Grant) -> None:
        """Repeat a recorded grant in a shared budget that does not know it."""
        if self._budget_client is not None:
            self._budget_client.reapply(effect)

    async def decide(self, effect: Decide) -> Verdict:
        """Ask a person. The run's time stands still meanwhile."""
        self._timer.set_deadline(math.inf)
        max_seconds = math.inf if self.until is None else self.until - self._timer.wall()
        self._timer.pause()
        try:
            return await self._get_approval_caller().decide(effect.question, max_seconds)
        finally:
            self._timer.resume()

    async def wait(self, effect: Wait) -> None:
        """Wait until the given time."""
        self._timer.set_deadline(math.inf)
        if effect.runs:
            seconds = effect.until - self._timer.now()
            await self.tool_runner.wait_for_children(effect.runs, seconds, cancel=effect.cancel)
            return
        await anyio.sleep(max(0.0, effect.until - self._timer.now()))

    def interrupt(self, effect: Effect[Any], *, hung: bool = False) -> Any:
        """Stop an effect in progress and return its answer so far."""
        match effect:
            case Ask():
                return self._model_caller.interrupt()
            case Act():
                tool_calls = cast("Sequence[ToolCallRun]", effect.acts)
                self.tool_runner.interrupt(tool_calls, timed_out=not self._signals.is_cancelling, hung=hung)
                return [one.outcome for one in tool_calls]
            case Decide():
                return self._get_approval_caller().interrupt()
            case Grant():
                return self._apply_grant(effect)
            case _:
                return None

    def may_hang(self, effect: Ask | Act) -> bool:
        """Return True if the effect awaits foreign code directly. Otherwise it ends by itself after its cancel."""
        if isinstance(effect, Ask):
            return True
        tool_calls = cast("Sequence[ToolCallRun]", effect.acts)
        return len(tool_calls) == 1 and tool_calls[0].tool.is_async and not tool_calls[0].tasks

    def abandon(self, effect: Effect[Any], task: asyncio.Task[Any]) -> Any:
        """Return the answer to an effect in a task that was left behind. What the task does later has no effect."""
        if isinstance(effect, Act):
            return self.interrupt(effect, hung=True)
        self._note_hung()
        task.add_done_callback(lambda _: self._signals.send(Hung(-1)))
        return self.interrupt(effect)

    def _note_hung(self) -> None:
        self._signals.send(Hung(1))

    def add_verdicts(self, verdicts: Mapping[str, Verdict]) -> None:
        """Add recorded verdicts. A verdict that the caller passed takes precedence."""
        self._person = replace(self._person, verdicts={**verdicts, **self._person.verdicts})

    def close(self) -> None:
        """Settle what the run still holds of a shared budget."""
        if self._budget_client is not None:
            self._budget_client.close()

    def _get_approval_caller(self) -> ApprovalCaller:
        # made when first needed, because most runs ask no person
        if self._approval_caller is None:
            self._approval_caller = ApprovalCaller(self._person, self._note_hung)
        return self._approval_caller


METHODS: Mapping[type[Effect[Any]], Callable[[RunEffects, Any], Awaitable[Any]]] = {
    Ask: RunEffects.ask,
    Act: RunEffects.act,
    Append: RunEffects.append,
    Grant: RunEffects.grant,
    Decide: RunEffects.decide,
    Wait: RunEffects.wait,
}
"""Method for each kind of effect. The driver looks it up itself, which saves a call per effect."""
