"""Asking a person: the answers that are there already, else whoever the agent names for that, for a while."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import anyio
import anyio.lowlevel

from .._internal.workers import (
    Worker,
    WorkerPool,
    copy_context_for_thread,
    is_being_cancelled,
    run_and_wait,
    wait_for_worker,
)
from ..person import Approver, Question, Verdict, to_verdict


@dataclass(frozen=True, slots=True)
class Person:
    """Who is asked, and for how long; what was answered already; and the pause in which it was."""

    approver: Approver | None = None
    seconds: float = inf
    verdicts: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])


_APPROVER_WORKERS = WorkerPool(max_workers=1_000, max_hung=1_000)
"""Where approvers that block wait for a person, for minutes: in the workers of tools and models nobody else could work.
"""
NO_PERSON = Person()
"""Nobody is asked."""


class ApprovalCaller:
    """The questions of one run, one at a time."""

    __slots__ = ("_approver", "_is_async", "_seconds", "_verdicts", "_worker")

    def __init__(self, person: Person) -> None:
        self._approver: Any = person.approver
        self._is_async = is_async(person.approver)
        self._seconds = person.seconds
        self._verdicts = dict(person.verdicts)
        self._worker: Worker | None = None

    async def decide(self, question: Question, max_seconds: float = inf) -> Verdict:
        """What a person says; no answer in time means no. It raises only when it is cut."""
        await anyio.lowlevel.checkpoint()  # who was cancelled before must not have the call made by an answer of before
        known = self._verdicts.pop(question.id, None)
        if known is not None:
            return known
        if self._approver is None:
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
        except BaseException as error:  # what guards fails closed
            return _build_failed_verdict(error)

    def interrupt(self) -> Verdict:
        """Nobody waits for the answer any more."""
        if self._worker is not None:
            _APPROVER_WORKERS.abandon(self._worker)
            self._worker = None
        return Verdict(None)

    async def _ask_async(self, question: Question, seconds: float) -> Verdict:
        with anyio.move_on_after(seconds):
            return to_verdict(await self._approver(question))
        return _build_timeout_verdict(seconds)

    async def _ask_in_worker(self, question: Question, seconds: float) -> Verdict:
        late = anyio.current_time() + seconds
        worker = await wait_for_worker(_APPROVER_WORKERS, lambda: anyio.current_time() >= late)
        if worker is None:
            return Verdict(
                False, f"the approver was not called: no worker thread is free; {_APPROVER_WORKERS.hung} hang"
            )
        self._worker = worker
        came, context = list[Verdict](), copy_context_for_thread()

        def work() -> None:
            try:
                came.append(to_verdict(context.run(self._approver, question)))
            except BaseException as error:
                came.append(_build_failed_verdict(error))

        if not await run_and_wait(worker, work, seconds):
            self.interrupt()
            return _build_timeout_verdict(seconds)
        self._worker = None
        return came[0]


def is_async(approver: Approver | None) -> bool:
    """Whether it is awaited; else it may block, in a thread of its own."""
    call = getattr(approver, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(call)


def _build_timeout_verdict(seconds: float) -> Verdict:
    return Verdict(False, f"the approver did not answer within {seconds:g} s")


def _build_failed_verdict(error: BaseException) -> Verdict:
    return Verdict(False, f"the approver failed ({type(error).__name__})")
