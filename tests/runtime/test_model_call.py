import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Event
from typing import Any

import anyio
import pytest

from flyball._internal.workers import WorkerPool
from flyball.budget.price import Price
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.models.model import OnText
from flyball.request import FailureKind, Finish, ModelFailure, Reply, Request
from flyball.runtime.model_call import ModelCaller

LONG = 60.0


@dataclass
class Plain:
    """A model of one function."""

    ask: Callable[[Request, OnText], Reply | Awaitable[Reply]]
    name: str = "plain"
    provider: str | None = None
    price: Price | None = None

    def ready(self) -> str | None:
        return None


def asking(ask: Any, *, is_async: bool = True, workers: WorkerPool | None = None) -> tuple[ModelCaller, list[str]]:
    told: list[str] = []
    return ModelCaller(Plain(ask), is_async, workers or WorkerPool(), told.append), told


@pytest.mark.parametrize(
    ("error", "kind", "after"),
    [
        (Retryable("busy", after=3), FailureKind.RETRYABLE, 3),
        (ContextTooLong("long"), FailureKind.CONTEXT, None),
        (ModelError("no"), FailureKind.FINAL, None),
        (ValueError("odd"), FailureKind.FINAL, None),
        (asyncio.CancelledError("own"), FailureKind.FINAL, None),
    ],
)
def test_a_failure_says_what_the_loop_may_do_about_it(
    error: BaseException, kind: FailureKind, after: float | None
) -> None:
    async def ask(request: Request, tell: OnText) -> Reply:
        raise error

    failure = asyncio.run(asking(ask)[0].ask(Request(())))
    assert isinstance(failure, ModelFailure)
    assert (failure.kind, failure.after_s, failure.error) == (kind, after, type(error).__name__)


def test_what_was_told_until_the_cut_is_kept_and_what_is_told_then_is_not() -> None:
    tells: list[OnText] = []

    async def ask(request: Request, tell: OnText) -> Reply:
        tells.append(tell)
        tell("one ")
        tell("two")
        await anyio.sleep(LONG)
        return Reply("x")

    one, told = asking(ask)

    async def work() -> Reply:
        with anyio.move_on_after(0.005):
            await one.ask(Request(()))
        cut = one.interrupt()
        tells[0]("three")
        return cut

    reply = asyncio.run(work())
    assert (reply.text, reply.finish, told) == ("one two", Finish.CUT, ["one ", "two"])


def test_a_def_model_that_is_cut_is_counted_as_hung() -> None:
    release, pool = Event(), WorkerPool()

    def ask(request: Request, tell: OnText) -> Reply:
        release.wait(LONG)
        return Reply("x")

    one, _ = asking(ask, is_async=False, workers=pool)

    async def work() -> None:
        with anyio.move_on_after(0.005):
            await one.ask(Request(()))
        one.interrupt()

    asyncio.run(work())
    assert pool.hung == 1
    release.set()


def test_where_too_many_hang_a_request_fails_for_now() -> None:
    def ask(request: Request, tell: OnText) -> Reply:
        return Reply("x")

    failure = asyncio.run(asking(ask, is_async=False, workers=WorkerPool(max_hung=0))[0].ask(Request(())))
    assert isinstance(failure, ModelFailure)
    assert failure.kind is FailureKind.RETRYABLE
