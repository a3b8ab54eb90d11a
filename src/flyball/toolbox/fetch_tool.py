"""The tool that fetches pages: only from the public Internet, whatever a name, a redirect or a second look-up says.

A name is looked up once, and what is connected to is one of the addresses that were checked: there is no second
look-up that could give another answer. Every redirect goes the same way. No proxy is used, also none that the
environment names: it would do the look-up, where nobody checks it.
"""

from __future__ import annotations

import math
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from pydantic import Field

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


class ThreadRunner:
    """A few workers. Who is cancelled while one of them works does not wait for it."""

    def __init__(self) -> None:
        self._workers = WorkerPool(max_workers=8, max_hung=32)

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` gives, or raises; OSError where no worker is to be had."""
        worker = await wait_for_worker(self._workers, lambda: False)
        if worker is None:
            raise OSError(f"no worker is free; {self._workers.hung} hang")
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
        """The addresses of a host, as the system knows them."""
        found = await self.run(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return [str(address[0]) for *_, address in found]


_MAX_REDIRECTS = 5
_MAX_ADDRESSES = 4
_CONNECT_S = 10.0
_REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})
_HEADERS = {"user-agent": "flyball", "accept": "text/*, application/json, */*;q=0.5", "accept-encoding": "gzip"}
_MAX_ERROR_CHARACTERS = 500


def fetch(
    *,
    allow: Iterable[str] = (),
    approve: Approve = False,
    timeout: float = 30.0,
    most_bytes: int = 2_000_000,
    resolver: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
) -> list[Tool]:
    """A tool that gets a page over http or https, as text, from public addresses and those of `allow`.

    `allow` has addresses and networks, such as 127.0.0.1 or 10.0.0.0/8. `resolver` and `tls` take the place of the
    system's look-up of names and of its certificates.

    >>> fetch()
    [<Tool fetch(url, start)>]
    """
    most = validation.check_int("fetch, most_bytes", most_bytes, min_value=1)
    fetcher = _Fetcher(AddressPolicy(allow), most, resolver, tls)
    return [Tool(fetcher.fetch, **Options(effects="read", idempotent=True, approve=approve, timeout=timeout))]


class _Reply(NamedTuple):
    status: int
    reason: str
    headers: httpx2.Headers
    body: FetchedBody


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
        url: Annotated[str, "begins with http:// or https://"],
        start: Annotated[int, Field(ge=0, description="the character of the text to begin with")] = 0,
    ) -> str:
        """Get a page or a text file from the Internet. The result is its text, or a part of it."""
        target, reply = await self._follow_redirects(url)
        try:
            text = await self._threads.run(lambda: as_text(reply.body, reply.headers.get("content-type", "")))
        except OSError as error:
            raise FetchRefused(url, str(error)) from None
        if not 200 <= reply.status < 300:
            said = (text or "")[:_MAX_ERROR_CHARACTERS]
            raise FetchRefused(str(target), f"the server says {reply.status} {reply.reason}\n{said}".rstrip())
        if text is None:
            kind = reply.headers.get("content-type", "binary")
            raise FetchRefused(str(target), f"it is {kind}; expected a page or another text")
        return self._format_page(str(target), text, start, reply.body.is_whole)

    def _format_page(self, url: str, text: str, start: int, is_whole: bool) -> str:
        end = min(len(text), start + MAX_CHARACTERS)
        notes = [url, f"characters {start} to {end} of {len(text)}"]
        if end < len(text):
            notes.append(f"more follow, from {end} on")
        if not is_whole:
            notes.append(f"what came after {self._max_bytes:,} bytes was left out")
        return f"{text[start:end]}\n({'; '.join(notes)})"

    async def _follow_redirects(self, url: str) -> tuple[httpx2.URL, _Reply]:
        """What is at the end of all redirects, each of which is checked as if it had been asked for."""
        target = _parse_url(url)
        for _ in range(_MAX_REDIRECTS + 1):
            reply = await self._request(target)
            if reply.status not in _REDIRECT_STATUSES or "location" not in reply.headers:
                return target, reply
            target = _parse_url(reply.headers["location"], target)
        raise FetchRefused(url, f"it is redirected more than {_MAX_REDIRECTS} times")

    async def _request(self, target: httpx2.URL) -> _Reply:
        import httpx2

        complaint = ""
        for address in await self._resolve_addresses(target):
            try:
                return await self._request_address(target, address)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                complaint = f"no connection to {address}: {error or type(error).__name__}"
            except httpx2.HTTPError as error:
                raise FetchRefused(str(target), f"the server broke off: {error or type(error).__name__}") from None
            except ValueError as error:
                raise FetchRefused(str(target), str(error)) from None
        raise FetchRefused(str(target), complaint)

    async def _resolve_addresses(self, target: httpx2.URL) -> list[str]:
        """Where to connect to: looked up now, once, and checked."""
        host = target.raw_host.decode().rstrip(".")
        try:
            found = [host] if parse_address(host) else await self._resolver(host, _get_port(target))
        except (OSError, UnicodeError) as error:
            raise FetchRefused(str(target), f"the name cannot be looked up: {error}") from None
        opened = self._policy.filter_allowed(found)
        if not opened:
            where = ", ".join(found[:_MAX_ADDRESSES]) or "nowhere"
            raise FetchRefused(str(target), f"it leads to {where}; expected a public address, or one that is allowed")
        return opened[:_MAX_ADDRESSES]

    async def _request_address(self, target: httpx2.URL, address: str) -> _Reply:
        """One request on one connection to one address; server name and Host header are those of the URL."""
        import httpx2

        request = httpx2.Request(
            "GET",
            target.copy_with(host=address, fragment=None),
            headers={**_HEADERS, "host": target.netloc.decode()},
            extensions={
                "sni_hostname": target.raw_host.decode().rstrip("."),
                "timeout": {"connect": _CONNECT_S},  # the call has its own time
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
        """What a server must show. Over http it shows nothing, and reading the system's certificates takes its time."""
        import httpx2

        if target.scheme == "http":
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # which trusts nobody
        if self._tls is None:
            self._tls = await self._threads.run(httpx2.create_ssl_context)
        return self._tls


def _parse_url(url: str, base: httpx2.URL | None = None) -> httpx2.URL:
    """A URL that may be asked for, as far as one sees without looking up its name."""
    import httpx2

    try:
        target = httpx2.URL(url) if base is None else base.join(url)
    except (httpx2.InvalidURL, ValueError) as error:
        raise FetchRefused(url, f"it is no URL: {error}") from None
    host = target.raw_host.decode()
    if target.scheme not in ("http", "https"):
        raise FetchRefused(url, "expected a URL that begins with http:// or https://")
    if target.userinfo:
        raise FetchRefused(str(target.copy_with(userinfo=b"")), "expected no user and no password in the URL")
    if not 0 < _get_port(target) < 65_536:
        raise FetchRefused(url, "expected a port between 1 and 65535")
    if parse_address(host) is None and (
        is_disguised(host.rstrip(".")) or not re.fullmatch(r"[a-z0-9._-]{1,253}", host)
    ):
        raise FetchRefused(url, "expected a host's name, or an address in its usual form, such as 192.0.2.1")
    return target


def _get_port(target: httpx2.URL) -> int:
    usual = 443 if target.scheme == "https" else 80
    return usual if target.port is None else target.port
