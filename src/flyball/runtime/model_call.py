"""Asking a model: awaited, or called in a worker; what it tells on the way is kept for the case that it is cut."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from threading import get_ident
from typing import Any

import anyio

from .._internal.workers import (
    Worker,
    WorkerPool,
    call_soon,
    context_elsewhere,
    free_worker,
    hand_over,
    is_being_cancelled,
)
from ..budget.usage import Usage
from ..errors import ModelError, Retryable, shown
from ..models import Model
from ..request import Call, Finish, ModelFailure, Reply, Request


class ModelCaller:
    """The requests of one run, one at a time."""

    __slots__ = (
        "_is_async",
        "_model",
        "_others",
        "_request",
        "_said",
        "_soon",
        "_tell",
        "_thread",
        "_worker",
        "_workers",
    )

    def __init__(
        self,
        model: Model,
        is_async: bool,
        workers: WorkerPool,
        tell: Callable[[str], None],
        others: Mapping[str, Any] | None = None,
    ) -> None:
        self._model: Any = model
        self._others = others or {}
        """Other models that may be asked, by name."""
        self._is_async = is_async
        self._workers = workers
        self._tell: Callable[[str], None] | None = tell
        self._request: Request | None = None
        self._said: list[str] | None = None
        self._worker: Worker | None = None
        self._soon: Callable[[Callable[[], object]], object] | None = None
        self._thread = 0

    def here(self, soon: Callable[[Callable[[], object]], object], thread: int) -> None:
        """What is told from other threads is to be heard in this one."""
        self._soon, self._thread = soon, thread

    async def ask(self, request: Request) -> Reply | ModelFailure:
        """One attempt. It raises only when it is cut; `cut` then gives what there is."""
        self._request, self._said = request, None
        if self._soon is None:
            self._soon, self._thread = call_soon(), get_ident()
        model = self._others.get(request.model, self._model)
        try:
            if self._is_async if model is self._model else inspect.iscoroutinefunction(model.ask):
                reply: Reply | ModelFailure = await model.ask(request, partial(self._told, request))
            else:
                reply = await self._in_a_worker(model, request)
        except anyio.get_cancelled_exc_class() as error:
            if is_being_cancelled():
                raise
            return ModelFailure.of(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also asyncio's CancelledError in trio
            return ModelFailure.of(error)
        self._request = None
        if isinstance(reply, ModelFailure):
            return reply
        flaw = None if _is_plain(reply) else _flaw(reply)
        return reply if flaw is None else ModelFailure.of(ModelError(f"the model gave {flaw}"))

    def cut(self) -> Reply:
        """What there is of a reply that is not waited for any longer; one that was never asked for has used nothing."""
        if self._request is None:
            return Reply(usage=Usage(), finish=Finish.CUT)
        self._request = None
        if self._worker is not None:
            self._workers.give_up(self._worker)
            self._worker = None  # the next model may be one that is awaited
        return Reply("".join(self._said or ()), finish=Finish.CUT)

    def leave(self) -> None:
        """Nobody listens any more."""
        self._tell = None

    def _told(self, request: Request, text: str) -> None:
        """From any thread; events are told on the run's own."""
        if get_ident() == self._thread:
            self._heard(request, text)
        elif self._soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and nobody listens any more
                self._soon(partial(self._heard, request, text))

    def _heard(self, request: Request, text: str) -> None:
        if request is self._request:  # else it was cut
            if self._said is None:
                self._said = []
            self._said.append(text)
            if self._tell is not None:
                self._tell(text)

    async def _in_a_worker(self, model: Any, request: Request) -> Reply | ModelFailure:
        worker = await free_worker(self._workers, lambda: False)
        if worker is None:
            raise Retryable(f"no worker is free; {self._workers.hung} hang")
        self._worker = worker
        came, context = list[Reply | BaseException](), context_elsewhere()

        def work() -> None:
            try:
                came.append(context.run(model.ask, request, partial(self._told, request)))
            except BaseException as error:
                came.append(error)

        await hand_over(worker, work, inf)
        self._worker = None
        return ModelFailure.of(came[0]) if isinstance(came[0], BaseException) else came[0]


def _is_plain(reply: Any) -> bool:
    """Whether nothing can be wrong with a reply, told fast."""
    if type(reply) is not Reply or type(reply.text) is not str or type(reply.finish) is not Finish:
        return False
    for call in reply.calls if type(reply.calls) is tuple else (None,):
        if type(call) is not Call or type(call.id) is not str or type(call.name) is not str:
            return False
    return reply.usage is None or type(reply.usage) is Usage


def _flaw(reply: Any) -> str | None:
    """What is wrong with what a model gave: the loop must be able to rely on it."""
    if not isinstance(reply, Reply):
        return f"a {type(reply).__name__}; expected a Reply"
    kinds = {"text": str, "calls": tuple, "usage": Usage | None, "finish": Finish}
    parts = [(name, getattr(reply, name), kind) for name, kind in kinds.items()]
    for call in reply.calls if isinstance(reply.calls, tuple) else ():  # pyright: ignore[reportUnnecessaryIsInstance]
        parts += [("call", call, Call), ("call's id", getattr(call, "id", ""), str)]
        parts += [("call's name", getattr(call, "name", ""), str)]
    wrong = [(name, found, kind) for name, found, kind in parts if not isinstance(found, kind)]
    return next((f"the {name} {shown(found)}; expected {kind}" for name, found, kind in wrong), None)
