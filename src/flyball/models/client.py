"""The shared HTTP client: one per event loop, closed when the loop ends.

One client per loop lets requests of many runs reuse connections.
"""

from __future__ import annotations

import asyncio
import atexit
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import cache
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx2
from anyio.lowlevel import RunVar

_MAX_KEEPALIVE_CONNECTIONS, _KEEPALIVE_SECONDS = 100, 30.0
_EXIT_TIMEOUT_S = 1.0
_OPEN_CLIENT = RunVar["tuple[httpx2.AsyncClient, AsyncGenerator[httpx2.AsyncClient]]"]("flyball_http_client")


async def get_shared_client() -> httpx2.AsyncClient:
    """Return the client of the running event loop.

    The client has no key, cookie or header of any model.
    """
    current = _OPEN_CLIENT.get(None)
    if current is None or current[0].is_closed:
        keeper = _hold_client_open()
        current = (await anext(keeper), keeper)
        _OPEN_CLIENT.set(current)
    return current[0]


async def _hold_client_open() -> AsyncGenerator[httpx2.AsyncClient]:
    """Hold a client open until the event loop ends.

    An event loop closes its remaining async generators when it ends. That closes the client.
    """
    refuses_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    # The caller decides how many runs are active at once. A connection pool must not delay them.
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=_MAX_KEEPALIVE_CONNECTIONS, keepalive_expiry=_KEEPALIVE_SECONDS
    )
    async with httpx2.AsyncClient(
        verify=_load_certificates(), limits=limits, cookies=refuses_cookies, timeout=None
    ) as client:
        close_at_exit = _make_exit_handler()
        atexit.register(close_at_exit)
        try:
            yield client
        finally:
            atexit.unregister(close_at_exit)


def _make_exit_handler() -> Callable[[], None]:
    """Return a function that closes the client when the program exits.

    It is needed when the program exits before the event loop ends, as with a loop in a daemon thread.
    """
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio's loops always end
        return lambda: None

    async def close() -> None:
        current = _OPEN_CLIENT.get(None)
        if current is not None:
            await current[1].aclose()

    def close_at_exit() -> None:
        if loop.is_running():
            with suppress(Exception):  # a loop that is too busy is not waited for
                asyncio.run_coroutine_threadsafe(close(), loop).result(_EXIT_TIMEOUT_S)

    return close_at_exit


@cache
def _load_certificates() -> ssl.SSLContext:
    """Load the trusted certificates once.

    It takes as long as dozens of requests.
    """
    return httpx2.create_ssl_context()
