"""Questions to a person: answered by a known verdict, or by the agent's approver within a time limit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import anyio
import anyio.lowlevel

from .._internal.detach import run_detachable
from .._internal.workers import (
    Worker,
    WorkerPool,
    copy_context_for_thread,
    is_being_cancelled,
    run_and_wait,
    wait_for_worker,
)
from ..person import About, Approver, Question, Verdict, to_verdict


@dataclass(frozen=True, slots=True)
class Person:
    """Approver of a run, the seconds that it may take, and verdicts that are known already."""

    approver: Approver | None = None
    seconds: float = inf
    verdicts: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])


_APPROVER_WORKERS = WorkerPool(max_workers=1_000, max_hung=1_000)
"""Threads of blocking approvers, which wait for minutes. They must not occupy the threads of tools and models."""
NO_PERSON = Person()
"""No approver: every question stays open."""


class ApprovalCaller:
    """Asks the questions of one run, one at a time."""

    __slots__ = ("_approver", "_is_async", "_on_hung", "_seconds", "_verdicts", "_worker")

    def __init__(self, person: Person, on_hung: Callable[[], object] = lambda: None) -> None:
        self._on_hung = on_hung
        """Called when an async approver ignores its cancellation and is left behind."""
        self._approver: Any = person.approver
        self._is_async = is_async(person.approver)
        self._seconds = person.seconds
        self._verdicts = dict(person.verdicts)
        self._worker: Worker | None = None

    async def decide(self, question: Question, max_seconds: float = inf) -> Verdict:
        """Return the verdict on a question. No answer in time means no. Raises only if it is cancelled."""
        await anyio.lowlevel.checkpoint()  # after a cancel, a known verdict must not let the call happen
        known = self._verdicts.pop(question.id, None)
        if known is not None:
            return known
        if self._approver is None or question.about is About.CLIENT_TOOL:
            return Verdict(None)
        seconds = max(0.0, min(self._seconds, max_seconds))
        try:
            if self._is_async:
                return await self._ask_async(question, seconds)
            return await self._ask_in_worker(question, seconds)
        except anyio.get_cancelled_exc_class() as error:
            if is_being_cancelled():
                raise
            return _build_failed_verdict(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # guards fail closed
            return _build_failed_verdict(error)

    def interrupt(self) -> Verdict:
        """Stop waiting for the approver, and leave the question open."""
        if self._worker is not None:
            _APPROVER_WORKERS.abandon(self._worker)
            self._worker = None
        return Verdict(None)

    async def _ask_async(self, question: Question, seconds: float) -> Verdict:
        deadline = anyio.current_time() + seconds
        said = await run_detachable(partial(self._call, question), seconds, self._on_hung)
        # An approver that ignores its cancellation answers too late.
        return said if said is not None and anyio.current_time() < deadline else _build_timeout_verdict(seconds)

    async def _call(self, question: Question) -> Verdict:
        return to_verdict(await self._approver(question))

    async def _ask_in_worker(self, question: Question, seconds: float) -> Verdict:
        deadline = monotonic() + seconds
        worker = await wait_for_worker(_APPROVER_WORKERS, lambda: monotonic() >= deadline)
        if worker is None:
            return Verdict(
                False, f"the approver was not called: no worker thread is free; {_APPROVER_WORKERS.hung} hang"
            )
        self._worker = worker
        verdicts, context = list[Verdict](), copy_context_for_thread()

        def work() -> None:
            try:
                verdict = to_verdict(context.run(self._approver, question))
            except BaseException as error:
                verdict = _build_failed_verdict(error)
            # The event loop may notice the end late, so the time counts at which the approver answered.
            verdicts.append(verdict if monotonic() < deadline else _build_timeout_verdict(seconds))

        if not await run_and_wait(worker, work, deadline - monotonic()):
            self.interrupt()
            return _build_timeout_verdict(seconds)
        self._worker = None
        return verdicts[0]


def is_async(approver: Approver | None) -> bool:
    """Return True if the approver is awaited. Otherwise it runs in a thread and may block."""
    call = getattr(approver, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(call)


def _build_timeout_verdict(seconds: float) -> Verdict:
    return Verdict(False, f"the approver did not answer within {seconds:g} s")


def _build_failed_verdict(error: BaseException) -> Verdict:
    return Verdict(False, f"the approver failed ({type(error).__name__})")
