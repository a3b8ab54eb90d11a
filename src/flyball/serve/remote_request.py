"""HTTP request to a remote agent, and the parsing of its response."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import anyio
import httpx2

from .._internal.text import redact
from ..errors import RemoteError, RemoteRefused, truncate
from ..models.client import get_shared_client
from ..wire.sse import EventReader

_MAX_BYTES = 64 * 2**20
_MAX_JSON_BYTES = 16 * 2**20
"""Maximum size of one JSON document; parsed, it takes several times the memory."""
_MAX_ERROR_CHARS = 500
_CLOSE_WAIT_S = 1.0
_REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 413, 415, 422, 429, 503})
"""Status codes that a service sends before it starts a run.

After any other status the run may have started, so its whole reservation counts as used.
"""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """Request to a remote agent.

    Cancelling it closes the connection, which ends the run at the service.
    """

    remote: str
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    connect_s: float
    """Seconds to connect. Infinity means no limit."""
    secrets: tuple[str, ...] = ()
    """Texts that error messages must not contain."""

    async def send(self, on_event: Callable[[Json], None]) -> Json:
        """Send the request and return the record of the run.

        `on_event` receives each event as it arrives. Raises `RemoteError` if no record comes back.
        """
        try:
            return await self._send(on_event)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise RemoteError(
                self.remote, f"it cannot be reached: {self._describe_error(error)}", began=False
            ) from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise RemoteError(self.remote, f"the connection failed: {self._describe_error(error)}") from None

    async def _send(self, on_event: Callable[[Json], None]) -> Json:
        client = await get_shared_client()
        timeout = httpx2.Timeout(None, connect=None if self.connect_s == math.inf else self.connect_s)
        content = json.dumps(self.body).encode()
        request = client.build_request("POST", self.url, content=content, headers=dict(self.headers), timeout=timeout)
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            if response.status_code != 200:
                raise self._build_error(response.status_code, await self._read_body(response))
            if response.headers.get("content-type", "").startswith("text/event-stream"):
                return await self._read_stream(response, on_event)
            return self._parse_json(await self._read_body(response))
        finally:
            await response.aclose()

    async def _read_body(self, response: httpx2.Response) -> bytes:
        parts: list[bytes] = []
        await self._read_chunks(response, parts.append)
        return b"".join(parts)

    async def _read_stream(self, response: httpx2.Response, on_event: Callable[[Json], None]) -> Json:
        reader, records = EventReader(), list[Json]()

        def consume(part: bytes) -> bool:
            for event in reader.feed(part):
                if event.data is None:
                    continue
                record = self._parse_json(event.data)
                if "event" in record:
                    on_event(record)
                elif "stop" in record:
                    records.append(record)
                else:
                    raise RemoteError(self.remote, f"it stopped the stream: {self._sanitize(record.get('detail'))}")
            return bool(records)

        await self._read_chunks(response, consume)
        if not records:
            raise RemoteError(self.remote, "the stream ended before the run did")
        return records[0]

    async def _read_chunks(self, response: httpx2.Response, consume: Callable[[bytes], object]) -> None:
        """Pass the body to `consume`, chunk by chunk.

        Once `consume` returns a true value, the rest of the body may take `_CLOSE_WAIT_S` longer. The loop has no
        `break`: leaving it early would leave the async iterator open, and trio warns about that.
        """
        size, failures = 0, list[RemoteError]()
        with anyio.CancelScope() as scope:
            async for part in response.aiter_bytes():
                size += len(part)
                try:
                    if size > _MAX_BYTES:
                        raise RemoteError(self.remote, f"its reply is too long: {size:,} bytes so far")
                    if not failures and consume(part):
                        scope.deadline = anyio.current_time() + _CLOSE_WAIT_S
                except RemoteError as error:
                    failures.append(error)
                    scope.cancel()
        if failures:
            raise failures[0]

    def _build_error(self, status: int, body: bytes) -> RemoteError:
        """Build the error for a response that has no result.

        The response may come from Flyball or from any server in between.
        """
        try:
            data = self._parse_json(body)
        except RemoteError:
            data = Json()
        reason = self._sanitize(data.get("message") or data.get("detail") or data.get("title") or "no reason given")
        code = data.get("code")
        head = f"{status} {self._sanitize(code)}" if isinstance(code, str) and code else f"{status}"
        if status in _REFUSALS:
            return RemoteRefused(self.remote, f"it refused ({head}): {reason}", began=False)
        return RemoteError(self.remote, f"it failed ({head}): {reason}")

    def _parse_json(self, data: bytes) -> Json:
        if len(data) > _MAX_JSON_BYTES:
            raise RemoteError(self.remote, f"its reply is too long: {len(data):,} bytes")
        try:
            parsed: object = json.loads(data)
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            raise RemoteError(
                self.remote, f"its reply is not a JSON object: {self._sanitize(data.decode('utf-8', 'replace'))}"
            )
        return cast("Json", parsed)

    def _sanitize(self, value: object) -> str:
        """Return foreign text on one line, shortened and without secrets."""
        return truncate(redact(" ".join(str(value).split()), self.secrets), _MAX_ERROR_CHARS)

    def _describe_error(self, error: Exception) -> str:
        return self._sanitize(error) or type(error).__name__
