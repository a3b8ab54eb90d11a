"""The driver: performs the effects of one run on asyncio or trio. It decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from threading import get_ident
from typing import TYPE_CHECKING, Any, cast

import anyio

from .._internal.detach import CHECK_EVERY_S, CHECKS, DetachableTask, leave_behind
from .._internal.timeouts import create_scope
from .._internal.workers import WorkerPool, get_call_soon
from ..budget.budget import IterationBudget
from ..budget.deadline import SYSTEM, Clock
from ..budget.run_budget import TurnBudget
from ..errors import SourceError, describe_error
from ..loop.clock import LoopClock
from ..loop.effects import Act, Answer, Append, Ask, Cancel, Effect, Grant, Stalled, TimeUp
from ..loop.ending import End
from ..loop.plan import Plan
from ..loop.player import LoopPlayer
from ..models import Model
from ..recorder import Recorder
from ..request import Purpose
from ..result import Result, Stop
from ..tools.runner import ToolRunner
from .approval import NO_PERSON, Person
from .effect_journal import EffectJournal, build_journal
from .effects import METHODS, RunEffects
from .history import PausedRun
from .model_call import ModelCaller
from .resume import resume_run
from .runner import Runner, SignalQueue
from .shared_budget import SharedBudgetClient
from .store_calls import CLOSING_S
from .timer import RunTimer
from .tool_events import CallSoon, ToolEvents
from .tool_sources import OpenSources, open_sources

if TYPE_CHECKING:
    from .children import ChildRunner  # cycle: it builds drivers

_CHILD_CHECKS = 100
"""Checks that a call with child runs has to end after its cancel."""
_WORKERS = WorkerPool()
_GRACE = Purpose.GRACE  # looked up once: see loop/state.py


class RunDriver:
    """Drives one run: `await RunDriver(plan, recorder).drive()` returns its result.

    If the task is cancelled, the run ends as cancelled, `result` has the partial result, and the cancellation is raised
    again.
    """

    __slots__ = (
        "_call_soon",
        "_events",
        "_initial_state",
        "_is_stored",
        "_is_storing",
        "_journal",
        "_next_check",
        "_plan",
        "_scope",
        "_shared_budget",
        "_task",
        "_times_left",
        "_until",
        "_watched",
        "effects",
        "player",
        "recorder",
        "signals",
        "timer",
    )

    def __init__(
        self,
        plan: Plan,
        recorder: Recorder,
        signals: SignalQueue | None = None,
        *,
        clock: Clock = SYSTEM,
        shared_budget: TurnBudget | None = None,
        workers: WorkerPool = _WORKERS,
        person: Person = NO_PERSON,
        journal: EffectJournal | None = None,
        parent_signals: SignalQueue | None = None,
        make_tool_runner: Callable[..., ToolRunner] = ToolRunner,
    ) -> None:
        spec = plan.spec
        self.recorder = recorder
        self.signals = signals = signals or SignalQueue()
        self.timer = timer = RunTimer(clock)
        self._plan = plan
        self._until = plan.until
        self._initial_state = dict(plan.state)
        self._shared_budget = shared_budget
        self._journal = journal = journal or build_journal(spec)
        self._is_stored = journal.is_stored
        self.player = LoopPlayer(plan, recorder, journal.described)
        self._events = events = ToolEvents(plan.run_id, recorder, signals, timer, journal, parent_signals)
        self.effects = RunEffects(
            timer,
            signals,
            ModelCaller(
                cast("Model", spec.model.main),
                spec.model.is_async,
                workers,
                events.on_text,
                spec.model.others,
                spec.origin,
            ),
            make_tool_runner(
                workers=workers,
                owner=spec.origin,
                clock=timer,
                run_id=plan.run_id,
                state=plan.state,
                metadata=plan.metadata,
                watcher=events,
                may_write=journal.may_write,
            ),
            person,
            None if shared_budget is None else SharedBudgetClient(shared_budget),
        )
        self.effects.until = plan.until
        self._scope: anyio.CancelScope | None = None
        self._call_soon: CallSoon | None = None
        self._task: DetachableTask | None = None
        self._times_left = 0
        """Number of tasks of this run that were left behind."""
        self._watched: Effect[Any] | None = None
        self._next_check: asyncio.TimerHandle | None = None
        self._is_storing = False
        """True while the start of an effect is recorded."""
        if self._is_stored:
            journal.attach(recorder, signals.send, timer.now)

    @property
    def agent(self) -> str:
        """Name of the agent."""
        return self._plan.spec.name

    @property
    def answers(self) -> Sequence[Answer[Any]]:
        """Answers that the loop has received. The run can be replayed from them."""
        return self.player.answers

    @property
    def ceilings(self) -> Mapping[str, IterationBudget]:
        """Budgets with the ceilings that the run starts with."""
        return self._plan.spec.limits.budgets

    @property
    def children(self) -> Mapping[str, Runner]:
        """Child runs in progress, by run id."""
        return self.effects.tool_runner.running_children

    @property
    def result(self) -> Result | None:
        """Result of the run. None until the loop has ended."""
        return self.player.result

    @property
    def idle_s(self) -> float:
        """Seconds since the last reply, outcome or piece of text of the run or of its child runs."""
        own = self.timer.now() - self.recorder.at
        return min([own, *(child.idle_s for child in tuple(self.children.values()))])

    def stall(self, idle_s: float) -> None:
        """Interrupt an effect that makes no progress. The run then reports, and may be interrupted again."""
        if self.signals.send(Stalled(idle_s)):
            self._cancel_scope()

    def drive(self) -> Coroutine[Any, Any, Result]:
        """Perform the effects of the loop until it ends, and return its result."""
        if self._is_stored:
            return self._drive_stored()
        if self._journal.history is not None:
            self.timer.set_elapsed(0.0)  # the time before a resume does not count
        return self._drive()

    async def _drive_stored(self) -> Result:
        journal = self._journal
        self.timer.set_elapsed(0.0)
        self._bind_thread()
        if self.signals.is_cancelling:
            journal.cancel()
        try:
            self._set_plan(await journal.open(self._plan))
            self.timer.set_elapsed(journal.opened_s)  # waiting for another run that holds the session does not count
            return await self._drive()
        finally:
            await journal.close()

    def _drive(self) -> Coroutine[Any, Any, Result]:
        return self._drive_with_sources() if self._plan.spec.tools.sources else self._play()

    def _set_plan(self, plan: Plan) -> None:
        self._plan, self.player = plan, LoopPlayer(plan, self.recorder, self._journal.described)
        self._until = self.effects.until = plan.until
        self.effects.tool_runner.state = plan.state

    async def _play_with_background(self) -> Result:
        """Perform effects while child runs work in the background. All have ended afterwards."""
        error: BaseException | None = None
        async with anyio.create_task_group() as tasks:
            cast("ChildRunner", self.effects.tool_runner).open_background(tasks)
            try:
                await self._play_alone()
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as found:  # the task group would put it into a group
                error = found
            tasks.cancel_scope.cancel()
        if error is not None:
            raise error
        assert self.result is not None, "a loop that has ended has its result"
        return self.result

    def _play(self) -> Coroutine[Any, Any, Result]:
        return self._play_with_background() if self._plan.spec.children.in_background else self._play_alone()

    async def _play_alone(self) -> Result:
        """Perform effects until the loop ends or the run is cancelled. On asyncio a task that hangs is replaced."""
        self._bind_thread()
        if self.timer.is_on_trio():
            return await self._perform_effects(self._start_loop)
        self._task = DetachableTask()
        self.timer.on_alarm = self._watch_for_hang
        return await self._task.run(self._perform_effects(self._start_loop), self)

    async def _perform_effects(self, begin: Callable[[], Effect[Any] | None]) -> Result:
        """Perform effects until the loop ends or the run is cancelled. `begin` returns the first effect."""
        signals, timer, effects, is_stored = self.signals, self.timer, self.effects, self._is_stored
        effect: Effect[Any] | None = None
        times_left = self._times_left
        try:
            effect = begin()
            while effect is not None and not signals.is_cancelling:
                with create_scope() as scope:
                    self._scope = scope
                    is_trio = timer.enter(scope)
                    # An effect that ends exactly at its deadline, or ignores it, leaves a cancelled scope. The next
                    # effect gets a new one.
                    while effect is not None and not signals.is_cancelling and not timer.was_cancelled:
                        performed = (
                            self._perform_stored(effect) if is_stored else METHODS[type(effect)](effects, effect)
                        )
                        effect = self.send_answer(effect, await performed)
                        if is_trio:
                            timer.check_scope()
                if effect is not None and scope.cancelled_caught:  # at its deadline, or on request
                    effect = self.send_answer(effect, effects.interrupt(effect))
        except BaseException:
            if times_left != self._times_left:  # this task was left behind, and another one drives the run
                raise
            self.signal_cancelled()
            await self._close(effect)
            raise
        await self._close(effect)
        result = self.player.result
        assert result is not None, "a loop that has ended has its result"
        return result

    def _watch_for_hang(self) -> None:
        """Check after the cancel of an effect that foreign code ends, which is awaited directly."""
        effect = self.player.effect
        if self._task is not None and isinstance(effect, Ask | Act) and effect is not self._watched:
            self._watched = effect
            self._check_hang(effect, CHECKS)

    def _check_hang(self, effect: Ask | Act, checks_left: int) -> None:
        if self._task is None or self.player.effect is not effect or not self.effects.may_hang(effect):
            return
        # A child run ends by its own checks. But a call that starts one after another is not waited for.
        if checks_left > 0 or self._is_storing or (self.children and checks_left > -_CHILD_CHECKS):
            loop = asyncio.get_running_loop()
            self._next_check = loop.call_later(CHECK_EVERY_S, self._check_hang, effect, checks_left - 1)
        else:
            self._task.leave()

    def continue_without(self, task: asyncio.Task[Any]) -> Coroutine[Any, Any, Result]:
        """Leave the task behind. The effect that hangs gets its answer, as at a deadline or on a cancel."""
        leave_behind(task, self._scope)
        self._times_left += 1
        effect = self.player.effect
        assert effect is not None, "only an effect hangs"
        return self._perform_effects(lambda: self.send_answer(effect, self.effects.abandon(effect, task)))

    def _bind_thread(self) -> None:
        call_soon, thread = get_call_soon(), get_ident()
        self._call_soon = call_soon
        self._events.bind_thread(call_soon, thread)
        self.signals.on_cancel = self._request_cancel

    def _perform_stored(self, effect: Effect[Any]) -> Awaitable[Any]:
        """Perform an effect after its start is recorded. If that fails, interrupt it instead."""
        self.timer.set_deadline(math.inf)  # that of the last effect must not interrupt this one
        recorded = self._journal.record_start(self.player.answer_count, effect)
        return self.effects.perform(effect) if recorded is True else self._perform_recorded(effect, recorded)

    async def _perform_recorded(self, effect: Effect[Any], recorded: bool | Awaitable[bool]) -> Any:
        self._is_storing = True
        is_recorded = recorded if isinstance(recorded, bool) else await recorded
        self._is_storing = False
        if is_recorded:
            return await self.effects.perform(effect)
        return self.effects.interrupt(effect)

    def send_answer(self, effect: Effect[Any], value: Any) -> Effect[Any] | None:
        """Send the loop the answer to an effect, with the time and the signals so far. Return the next effect."""
        signals, timer, player = self.signals, self.timer, self.player
        if effect is not player.effect:
            raise RuntimeError("this task was left behind, and its effect has been answered")
        signals.lock.acquire()
        try:
            if self._until is not None and timer.wall() >= self._until:
                signals.send(TimeUp())
            received = value, timer.now(), signals.drain() if signals.pending else ()
            if self._is_stored:
                self._journal.record_answer(player.answer_count, effect, Answer(*received))
            following = player.receive(received)
            if type(following) is Ask:
                signals.in_grace_turn = following.request.purpose is _GRACE
            elif following is None:
                self._end()
            return following
        except BaseException:
            signals.ended = signals.ended or player.effect is None  # Ctrl-C in a callback has ended the loop
            raise
        finally:
            signals.lock.release()

    def _start_loop(self) -> Effect[Any] | None:
        """Start the loop, or replay the recorded part of a resumed run. Return the first effect to perform."""
        journal = self._journal
        journal.set_plan(self._plan)
        if journal.history is not None:
            return resume_run(self, journal.history, journal)
        try:
            self.player.start()
        finally:
            self.read_player()
        return self.player.effect

    def read_player(self) -> None:
        """Update the signal queue after steps of the player without `send_answer`."""
        effect = self.player.effect
        if isinstance(effect, Ask):
            self.signals.in_grace_turn = effect.request.purpose is _GRACE
        elif effect is None:
            self._end()

    def _end(self) -> None:
        """Refuse further signals. Attach the history to the result of a paused run."""
        self.signals.ended = True
        result = self.player.result
        if result is not None and result.stop is Stop.PAUSED:
            history = self._journal.read_history(self.player.answers)
            plan = replace(self._plan, state=self._initial_state)
            pause = PausedRun(plan, history, result, self.signals.drain(), self._shared_budget)
            self.player.result = replace(result, pause=pause)

    async def _close(self, effect: Effect[Any] | None) -> None:
        """End the loop after a cancel: save messages and settle budgets for a limited time, interrupt the rest."""
        if effect is not None and not self.signals.ended:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSING_S):
                await self.effects.tool_runner.close_background()
                while effect is not None:
                    saves = isinstance(effect, Append | Grant)
                    answer = await self._perform_stored(effect) if saves else self.effects.interrupt(effect)
                    effect = self.send_answer(effect, answer)
            while effect is not None:
                effect = self.send_answer(effect, self.effects.interrupt(effect))
        self.effects.close()
        result = self.player.result
        if result is not None and self._is_stored:
            await self._journal.finish(result)
            failure = self._journal.failure
            if failure is not None:
                self.player.result = replace(result, store_error=failure)
        self._break_cycles()

    def _break_cycles(self) -> None:
        """Drop references to this driver: with a thousand runs, the garbage collector's work would be noticeable."""
        self.timer.leave()
        self.timer.on_alarm = self._task = None
        if self._next_check is not None:
            self._next_check.cancel()
        self.signals.on_cancel = None

    def signal_cancelled(self) -> None:
        """Signal that the task was cancelled. The task of a child run is part of its parent's."""
        self.signals.send(Cancel("task" if self._plan.parent_run_id is None else "parent"))

    def _request_cancel(self) -> None:
        """Interrupt the effect in progress, from any thread."""
        if self._call_soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and the run has ended with it
                self._call_soon(self._on_cancel)

    def _on_cancel(self) -> None:
        self._journal.cancel()
        self._cancel_scope()

    def _cancel_scope(self) -> None:
        if self._scope is not None:
            self._scope.cancel()
        self.timer.was_cancelled = True
        self._watch_for_hang()

    async def _drive_with_sources(self) -> Result:
        """Open the tool sources, which takes the run's time, and drive the run while they are open.

        If a source cannot be opened, a new run fails. A resumed run raises the error and can be resumed later.
        """
        self._bind_thread()
        async with open_sources(self._plan.spec.tools.sources) as sources:
            try:
                error = await self._open_tools(sources)
            except BaseException:  # the task was cancelled
                self.signal_cancelled()
                await self._play()
                raise
            if error is not None and self._journal.history is not None:
                self._journal.release()
                self._break_cycles()
                raise error
            return await self._play()

    async def _open_tools(self, sources: OpenSources) -> Exception | None:
        """Add the tools of the sources to the plan. Return the error that prevented it, unless the run is cancelled."""
        plan, error, is_new = self._plan, None, self._journal.history is None
        limit_s = _compute_work_s(plan) if is_new else math.inf
        with anyio.CancelScope(deadline=anyio.current_time() + limit_s) as scope:
            self._scope = scope
            try:
                if limit_s > 0 and not self.signals.is_cancelling:  # otherwise the loop ends at once
                    assert plan.spec.tools.resolve is not None, "an agent with sources can resolve their tools"
                    plan = replace(plan, spec=plan.spec.tools.resolve(plan.spec, await sources.open()))
            except Exception as found:
                error = found
        if self.signals.is_cancelling:
            return None
        if scope.cancelled_caught:
            error = SourceError(sources.missing, f"not open within {limit_s:g} s, the time limit of this run")
        if is_new:
            not_started = None if error is None else End(Stop.FAILED, error=describe_error(error))
            plan = replace(plan, elapsed_s=self.timer.now(), not_started=not_started)
        self._set_plan(plan)
        return error


def _compute_work_s(plan: Plan) -> float:
    """Return the seconds that a run has for its work."""
    with plan.spec.limits.open(LoopClock(plan.started_at), plan.max_seconds, plan.max_amounts) as budget:
        return budget.work_at
