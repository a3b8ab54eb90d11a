"""Asking a person: the answers that are there already, else whoever the agent names for that, for a while."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

import anyio
import anyio.lowlevel

from .._internal.workers import Worker, WorkerPool, context_elsewhere, free_worker, hand_over, is_being_cancelled
from ..person import Approver, Question, Verdict, verdict_of
from .history import PausedRun


@dataclass(frozen=True, slots=True)
class Person:
    """Who is asked, and for how long; what was answered already; and the pause in which it was."""

    approver: Approver | None = None
    seconds: float = inf
    verdicts: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])
    paused: PausedRun | None = None


_DESKS = WorkerPool(workers=1_000, most_hung=1_000)
"""Where approvers that block wait for a person, for minutes: in the workers of tools and models nobody else could work.
"""
NOBODY = Person()
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

    async def decide(self, question: Question, most_s: float = inf) -> Verdict:
        """What a person says; no answer in time means no. It raises only when it is cut."""
        await anyio.lowlevel.checkpoint()  # who was cancelled before must not have the call made by an answer of before
        known = self._verdicts.pop(question.id, None)
        if known is not None:
            return known
        if self._approver is None:
            return Verdict(None)
        seconds = max(0.0, min(self._seconds, most_s))
        try:
            if self._is_async:
                return await self._awaited(question, seconds)
            return await self._in_a_worker(question, seconds)
        except anyio.get_cancelled_exc_class() as error:
            if is_being_cancelled():
                raise
            return _failed(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # what guards fails closed
            return _failed(error)

    def cut(self) -> Verdict:
        """Nobody waits for the answer any more."""
        if self._worker is not None:
            _DESKS.give_up(self._worker)
            self._worker = None
        return Verdict(None)

    async def _awaited(self, question: Question, seconds: float) -> Verdict:
        with anyio.move_on_after(seconds):
            return verdict_of(await self._approver(question))
        return _nobody(seconds)

    async def _in_a_worker(self, question: Question, seconds: float) -> Verdict:
        late = anyio.current_time() + seconds
        worker = await free_worker(_DESKS, lambda: anyio.current_time() >= late)
        if worker is None:
            return Verdict(False, f"nobody could be asked: no worker is free; {_DESKS.hung} hang")
        self._worker = worker
        came, context = list[Verdict](), context_elsewhere()

        def work() -> None:
            try:
                came.append(verdict_of(context.run(self._approver, question)))
            except BaseException as error:
                came.append(_failed(error))

        if not await hand_over(worker, work, seconds):
            self.cut()
            return _nobody(seconds)
        self._worker = None
        return came[0]


def is_async(approver: Approver | None) -> bool:
    """Whether it is awaited; else it may block, in a thread of its own."""
    call = getattr(approver, "__call__", None)  # noqa: B004
    return inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(call)


def _nobody(seconds: float) -> Verdict:
    return Verdict(False, f"nobody answered within {seconds:g} s")


def _failed(error: BaseException) -> Verdict:
    return Verdict(False, f"nobody could be asked ({type(error).__name__})")
