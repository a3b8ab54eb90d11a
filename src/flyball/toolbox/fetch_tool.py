"""The tool `fetch`, which gets pages from the public Internet only.

A host name is resolved once, the addresses are checked, and the connection goes to one of them. There is no second
lookup that could give another answer. Every redirect is checked in the same way. Proxies are not used, even if the
environment names one, because the proxy would resolve the name without a check.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from pydantic import Field

from .._deprecated import accept_old_keyword
from .._internal import validation
from .._internal.workers import WorkerPool, run_and_wait, wait_for_worker
from ..errors import FetchRefused
from ..tools import Approve, Options, Tool
from .html import FetchedBody, as_text, read_body
from .public_address import AddressPolicy, Resolver, is_disguised, parse_address
from .text_page import MAX_CHARACTERS

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 4
_CONNECT_S = 10.0
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "flyball", "accept": "text/*, application/json, */*;q=0.5", "accept-encoding": "gzip"}
_MAX_ERROR_CHARACTERS = 500


@accept_old_keyword("most_bytes", "max_bytes")
def fetch(
    *,
    allow: Iterable[str] = (),
    approve: Approve = False,
    timeout: float = 30.0,
    max_bytes: int = 2_000_000,
    resolver: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
) -> list[Tool]:
    """Return the tool `fetch`, which gets a page as text.

    Args:
        allow: addresses and networks to allow besides public ones, such as 127.0.0.1 or 10.0.0.0/8.
        approve: whether a person must approve each call.
        timeout: seconds for each call.
        max_bytes: maximum size of a body; the rest is left out.
        resolver: resolves host names. None means the system's resolver.
        tls: verifies servers. None means the system's certificates.

    >>> fetch()
    [<Tool fetch(url, start)>]
    """
    validation.check_int("fetch, max_bytes", max_bytes, min_value=1)
    fetcher = _Fetcher(AddressPolicy(allow), max_bytes, resolver, tls)
    return [Tool(fetcher.fetch, **Options(effects="read", idempotent=True, approve=approve, timeout=timeout))]


class _Fetcher:
    def __init__(
        self, policy: AddressPolicy, max_bytes: int, resolver: Resolver | None, tls: ssl.SSLContext | None
    ) -> None:
        self._policy = policy
        self._max_bytes = max_bytes
        self._threads = ThreadRunner()
        self._resolver = resolver or self._threads.resolve
        self._tls = tls

    async def fetch(
        self,
        url: Annotated[str, "URL that starts with http:// or https://"],
        start: Annotated[int, Field(ge=0, description="position of the first character to return")] = 0,
    ) -> str:
        """Fetch a web page or text file. The result is its text, or a part of it."""
        target, reply = await self._follow_redirects(url)
        try:
            text = await self._threads.run(lambda: as_text(reply.body, reply.headers.get("content-type", "")))
        except OSError as error:
            raise FetchRefused(url, str(error)) from None
        if not 200 <= reply.status < 300:
            excerpt = (text or "")[:_MAX_ERROR_CHARACTERS]
            raise FetchRefused(str(target), f"the server answered {reply.status} {reply.reason}\n{excerpt}".rstrip())
        if text is None:
            kind = reply.headers.get("content-type", "binary")
            raise FetchRefused(str(target), f"its type is {kind}, which is not text")
        return self._format_page(str(target), text, start, reply.body.is_whole)

    def _format_page(self, url: str, text: str, start: int, is_whole: bool) -> str:
        end = min(len(text), start + MAX_CHARACTERS)
        notes = [url, f"characters {start} to {end} of {len(text)}"]
        if end < len(text):
            notes.append(f"more from {end}")
        if not is_whole:
            notes.append(f"only the first {self._max_bytes:,} bytes were read")
        return f"{text[start:end]}\n({'; '.join(notes)})"

    async def _follow_redirects(self, url: str) -> tuple[httpx2.URL, _Reply]:
        """Return the final URL and reply.

        Each redirect is checked like the first URL.
        """
        target = _parse_url(url)
        for _ in range(_MAX_REDIRECTS + 1):
            reply = await self._request(target)
            if reply.status not in _REDIRECT_STATUSES or "location" not in reply.headers:
                return target, reply
            target = _parse_url(reply.headers["location"], target)
        raise FetchRefused(url, f"there are more than {_MAX_REDIRECTS} redirects")

    async def _request(self, target: httpx2.URL) -> _Reply:
        import httpx2

        failure = ""
        for address in await self._resolve_addresses(target):
            try:
                return await self._request_address(target, address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = f"no connection to {address}: {error or type(error).__name__}"
            except httpx2.HTTPError as error:
                raise FetchRefused(str(target), f"the connection failed: {error or type(error).__name__}") from None
            except ValueError as error:
                raise FetchRefused(str(target), str(error)) from None
        raise FetchRefused(str(target), failure)

    async def _resolve_addresses(self, target: httpx2.URL) -> list[str]:
        """Resolve the host once and return the allowed addresses."""
        host = target.raw_host.decode().rstrip(".")
        try:
            addresses = [host] if parse_address(host) else await self._resolver(host, _get_port(target))
        except (OSError, UnicodeError) as error:
            raise FetchRefused(str(target), f"the host name cannot be resolved: {error}") from None
        allowed = self._policy.filter_allowed(addresses)
        if not allowed:
            where = ", ".join(addresses[:_MAX_ADDRESSES]) or "no address"
            raise FetchRefused(str(target), f"it resolves to {where}; expected a public or allowed address")
        return allowed[:_MAX_ADDRESSES]

    async def _request_address(self, target: httpx2.URL, address: str) -> _Reply:
        # The connection goes to the checked address; TLS server name and Host header are those of the URL.
        import httpx2

        request = httpx2.Request(
            "GET",
            target.copy_with(host=address, fragment=None),
            headers={**_HEADERS, "host": target.netloc.decode()},
            extensions={
                "sni_hostname": target.raw_host.decode().rstrip("."),
                "timeout": {"connect": _CONNECT_S},  # the tool's timeout limits the rest
            },
        )
        async with httpx2.AsyncHTTPTransport(verify=await self._get_tls_context(target), trust_env=False) as transport:
            response = await transport.handle_async_request(request)
            try:
                is_redirect = response.status_code in _REDIRECT_STATUSES
                encoding = response.headers.get("content-encoding", "")
                body = (
                    FetchedBody(b"", True)
                    if is_redirect
                    else await read_body(response.aiter_raw(), encoding, self._max_bytes)
                )
            finally:
                await response.aclose()
            return _Reply(response.status_code, response.reason_phrase, response.headers, body)

    async def _get_tls_context(self, target: httpx2.URL) -> ssl.SSLContext:
        # Loading the system's certificates is slow, so it happens in a worker and only for https.
        import httpx2

        if target.scheme == "http":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # empty: it trusts no certificate
        if self._tls is None:
            self._tls = await self._threads.run(httpx2.create_ssl_context)
        return self._tls


class _Reply(NamedTuple):
    status: int
    reason: str
    headers: httpx2.Headers
    body: FetchedBody


def _parse_url(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """Parse a URL and check everything that needs no name lookup."""
    import httpx2

    try:
        target = httpx2.URL(url) if base is None else base.join(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise FetchRefused(url, f"it is not a URL: {error}") from None
    host = target.raw_host.decode()
    if target.scheme not in ("http", "https"):
        raise FetchRefused(url, "expected a URL that starts with http:// or https://")
    if target.userinfo:
        raise FetchRefused(str(target.copy_with(userinfo=b"")), "expected no user and no password in the URL")
    if not 0 < _get_port(target) < 65_536:
        raise FetchRefused(url, "expected a port between 1 and 65535")
    if parse_address(host) is None and (
        is_disguised(host.rstrip(".")) or not re.fullmatch(r"[a-z0-9._-]{1,253}", host)
    ):
        raise FetchRefused(url, "expected a host name, or an address in the usual form, such as 192.0.2.1")
    return target


def _get_port(target: httpx2.URL) -> int:
    default = 443 if target.scheme == "https" else 80
    return default if target.port is None else target.port


class ThreadRunner:
    """Small pool of worker threads.

    A cancelled caller does not wait for its worker.
    """

    def __init__(self) -> None:
        self._workers = WorkerPool(max_workers=8, max_hung=32)

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a worker thread and return its value.

        Raises:
            OSError: no worker is free.
            Exception: any exception of `work`.
        """
        worker = await wait_for_worker(self._workers, lambda: False)
        if worker is None:
            raise OSError(f"no worker thread is free; {self._workers.hung} hang")
        values: list[T] = []
        errors: list[Exception] = []

        def capture() -> None:
            try:
                values.append(work())
            except Exception as error:
                errors.append(error)

        try:
            await run_and_wait(worker, capture, math.inf)
        finally:
            self._workers.abandon(worker)
        if errors:
            raise errors[0]
        return values[0]

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host from the system's resolver."""
        infos = await self.run(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return [str(address[0]) for *_, address in infos]
