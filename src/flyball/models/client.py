"""The HTTP client: one for each event loop, so that connections are used again, and closed when the loop ends."""

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
_EXIT_S = 1.0
_OPEN_CLIENT = RunVar["tuple[httpx2.AsyncClient, AsyncGenerator[httpx2.AsyncClient]]"]("flyball_http_client")


async def get_shared_client() -> httpx2.AsyncClient:
    """The client of the event loop that runs now; it has no key, no cookie and no header of any model."""
    found = _OPEN_CLIENT.get(None)
    if found is None or found[0].is_closed:
        keeper = _hold_client_open()
        found = (await anext(keeper), keeper)
        _OPEN_CLIENT.set(found)
    return found[0]


async def _hold_client_open() -> AsyncGenerator[httpx2.AsyncClient]:
    """Holds a client open. Event loops close the generators that are left when they end, and this closes the client."""
    refuses_cookies = CookieJar(DefaultCookiePolicy(allowed_domains=[]))
    # How many runs there are at once is for whoever starts them to say, not for a pool to delay.
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=_MAX_KEEPALIVE_CONNECTIONS, keepalive_expiry=_KEEPALIVE_SECONDS
    )
    async with httpx2.AsyncClient(
        verify=_load_certificates(), limits=limits, cookies=refuses_cookies, timeout=None
    ) as client:
        end = _make_exit_handler()
        atexit.register(end)
        try:
            yield client
        finally:
            atexit.unregister(end)


def _make_exit_handler() -> Callable[[], None]:
    """What closes the client when the program ends before the event loop does, as one in a daemon thread never does."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # trio's loops always end
        return lambda: None

    async def close() -> None:
        found = _OPEN_CLIENT.get(None)
        if found is not None:
            await found[1].aclose()

    def end() -> None:
        if loop.is_running():
            with suppress(Exception):  # it is too busy to be waited for
                asyncio.run_coroutine_threadsafe(close(), loop).result(_EXIT_S)

    return end


@cache
def _load_certificates() -> ssl.SSLContext:
    """What a server must show to be trusted; reading it takes as long as dozens of requests."""
    return httpx2.create_ssl_context()
