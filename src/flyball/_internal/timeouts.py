"""Calls that are abandoned when their time is over, on asyncio, trio and in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from math import inf
from threading import Thread
from typing import TypeVar

import anyio

from .workers import copy_context_for_thread

T = TypeVar("T")

sleep = anyio.sleep
_SCOPES: list[type[anyio.CancelScope]] = []
"""Class of asyncio's cancel scopes, after its first use."""


class TimeIsOver(Exception):
    """The time for a call is over."""


def call_within(seconds: float, function: Callable[[], T]) -> T:
    """Call a blocking function in a daemon thread, or raise TimeIsOver after `seconds`.

    A thread cannot be interrupted, so a late call runs to its end. Its result is dropped.
    """
    future: Future[T] = Future()
    context = copy_context_for_thread()

    def work() -> None:
        try:
            future.set_result(context.run(function))
        except BaseException as error:
            future.set_exception(error)

    Thread(target=work, name="flyball-call", daemon=True).start()
    if not wait([future], None if seconds == inf else seconds).done:
        raise TimeIsOver
    return future.result(0)


async def await_within(seconds: float, function: Callable[[], Awaitable[T]]) -> T:
    """Await the result of a function, or cancel it after `seconds` and raise TimeIsOver."""
    with create_scope(seconds):
        return await function()
    raise TimeIsOver


def create_scope(seconds: float = inf) -> anyio.CancelScope:
    """Return a scope that ends after `seconds`. On asyncio its class is cached, because anyio looks it up each time."""
    loop = asyncio._get_running_loop()  # pyright: ignore[reportPrivateUsage]
    if loop is None:  # trio
        return anyio.move_on_after(seconds)
    if not _SCOPES:
        _SCOPES.append(type(anyio.CancelScope()))
    return _SCOPES[0](deadline=loop.time() + seconds)
