"""Model requests: awaited, or called in a worker thread. Streamed text is kept in case the request is interrupted."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from threading import get_ident
from typing import Any

import anyio

from .._internal.workers import (
    Worker,
    WorkerPool,
    copy_context_for_thread,
    get_call_soon,
    is_being_cancelled,
    run_and_wait,
    wait_for_worker,
)
from ..budget.usage import Usage
from ..errors import ModelError, Retryable, quote_value
from ..models import Model
from ..request import Call, Finish, ModelFailure, Reply, Request

_NO_PARTS: tuple[Mapping[str, Any], ...] = ()


class ModelCaller:
    """Makes the requests of one run, one at a time."""

    __slots__ = (
        "_call_soon",
        "_chunks",
        "_is_async",
        "_model",
        "_on_text",
        "_other_models",
        "_owner",
        "_request",
        "_thread",
        "_worker",
        "_workers",
    )

    def __init__(
        self,
        model: Model,
        is_async: bool,
        workers: WorkerPool,
        on_text: Callable[[str], None],
        other_models: Mapping[str, Any] | None = None,
        owner: object = None,
    ) -> None:
        self._model: Any = model
        self._other_models = other_models or {}
        """Other models that a request may name."""
        self._is_async = is_async
        self._workers = workers
        self._owner = owner
        """Identity of the agent, for its share of the workers."""
        self._on_text = on_text
        self._request: Request | None = None
        self._chunks: list[str] | None = None
        self._worker: Worker | None = None
        self._call_soon: Callable[[Callable[[], object]], object] | None = None
        self._thread = 0

    async def ask(self, request: Request) -> Reply | ModelFailure:
        """Make one attempt. Raises only if it is cancelled; `interrupt` then returns the partial reply."""
        self._request, self._chunks = request, None
        if self._call_soon is None:
            self._call_soon, self._thread = get_call_soon(), get_ident()
        model, is_async = self._model, self._is_async
        if request.model in self._other_models:
            model = self._other_models[request.model]
            is_async = inspect.iscoroutinefunction(model.ask)
        try:
            if is_async:
                reply: Reply | ModelFailure = await model.ask(request, partial(self._receive_text, request))
            else:
                reply = await self._ask_in_worker(model, request)
        except anyio.get_cancelled_exc_class() as error:
            if is_being_cancelled():
                raise
            return ModelFailure.from_error(error)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # also asyncio's CancelledError in trio
            return ModelFailure.from_error(error)
        if self._request is request:  # otherwise this call was left behind, and another is in progress
            self._request = None
        if isinstance(reply, ModelFailure):
            return reply
        if _is_well_formed(reply):
            return reply
        flaw = _find_flaw(reply)
        return reply if flaw is None else ModelFailure.from_error(ModelError(f"the model returned {flaw}"))

    def interrupt(self) -> Reply:
        """Stop waiting, and return the partial reply. A request that was not made has no usage."""
        if self._request is None:
            return Reply(usage=Usage(), finish=Finish.CUT)
        self._request = None
        if self._worker is not None:
            self._workers.abandon(self._worker)
            self._worker = None  # the next model may be awaited
        return Reply("".join(self._chunks or ()), finish=Finish.CUT)

    def _receive_text(self, request: Request, text: str) -> None:
        """Receive text on any thread, and add it on the run's own."""
        if get_ident() == self._thread:
            self._add_text(request, text)
        elif self._call_soon is not None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._call_soon(partial(self._add_text, request, text))

    def _add_text(self, request: Request, text: str) -> None:
        if request is self._request:  # otherwise it was interrupted
            if self._chunks is None:
                self._chunks = []
            self._chunks.append(text)
            self._on_text(text)

    async def _ask_in_worker(self, model: Any, request: Request) -> Reply | ModelFailure:
        worker = await wait_for_worker(self._workers, lambda: False, self._owner)
        if worker is None:
            raise Retryable(f"no worker thread is free; {self._workers.hung} hang")
        self._worker = worker
        replies, context = list[Reply | BaseException](), copy_context_for_thread()

        def work() -> None:
            try:
                replies.append(context.run(model.ask, request, partial(self._receive_text, request)))
            except BaseException as error:
                replies.append(error)

        await run_and_wait(worker, work, inf)
        self._worker = None
        return ModelFailure.from_error(replies[0]) if isinstance(replies[0], BaseException) else replies[0]


def _is_well_formed(reply: Any) -> bool:
    """Return True if a reply is certainly valid. Fast; `_find_flaw` is exact."""
    if type(reply) is not Reply:
        return False
    calls, usage = reply.calls, reply.usage
    if type(reply.text) is not str or type(reply.finish) is not Finish or type(calls) is not tuple:
        return False
    for call in calls:
        if type(call) is not Call or type(call.id) is not str or type(call.name) is not str:
            return False
    return reply.parts is _NO_PARTS and (usage is None or type(usage) is Usage)


def _find_flaw(reply: Any) -> str | None:
    """Describe what is wrong with a model's reply, because the loop relies on its types. None means nothing."""
    if not isinstance(reply, Reply):
        return f"a {type(reply).__name__}; expected a Reply"
    kinds = {"text": str, "calls": tuple, "usage": Usage | None, "finish": Finish, "parts": Sequence}
    parts = [(name, getattr(reply, name), kind) for name, kind in kinds.items()]
    for call in reply.calls if isinstance(reply.calls, tuple) else ():  # pyright: ignore[reportUnnecessaryIsInstance]
        parts += [("call", call, Call), ("call's id", getattr(call, "id", ""), str)]
        parts += [("call's name", getattr(call, "name", ""), str)]
    for part in reply.parts if isinstance(reply.parts, Sequence) else ():  # pyright: ignore[reportUnnecessaryIsInstance]
        parts += [("part", part, Mapping)]
    wrong = [(name, found, kind) for name, found, kind in parts if not isinstance(found, kind)]
    return next((f"the {name} {quote_value(found)}; expected {kind}" for name, found, kind in wrong), None)
