"""An exchange: one request to a remote agent, and what comes back, told apart."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import anyio
import httpx2

from ..errors import RemoteError, RemoteRefused
from ..models.client import get_shared_client
from ..models.endpoint import redact
from ..models.sse import EventReader

_MAX_BYTES = 64 * 2**20
_MAX_JSON_BYTES = 16 * 2**20
"""Of one piece of JSON, which takes many times as much when it is read."""
_MAX_ERROR_CHARS = 500
_CLOSE_WAIT_S = 1.0
_REFUSALS = frozenset({400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 413, 415, 422, 429, 503})
"""What a service says before it begins to run anything. Behind any other status nobody knows what was done."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RemoteRequest:
    """What is sent, and where. Cancelling it closes the connection, and so ends the run at its other end."""

    remote: str
    url: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    connect_s: float
    secrets: tuple[str, ...] = ()

    async def send(self, on_event: Callable[[Json], None]) -> Json:
        """The record of the run; its events are heard as they come. RemoteError says what came instead."""
        try:
            return await self._send(on_event)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout) as error:
            raise RemoteError(
                self.remote, f"it cannot be reached: {self._describe_error(error)}", began=False
            ) from None
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise RemoteError(self.remote, f"it broke off: {self._describe_error(error)}") from None

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
            for data in reader.feed(part):
                said = self._parse_json(data)
                if "event" in said:
                    on_event(said)
                elif "stop" in said:
                    records.append(said)
                else:
                    raise RemoteError(self.remote, f"it broke off: {self._sanitize(said.get('detail'))}")
            return bool(records)

        await self._read_chunks(response, consume)
        if not records:
            raise RemoteError(self.remote, "it broke off: the stream ended before the run did")
        return records[0]

    async def _read_chunks(self, response: httpx2.Response, consume: Callable[[bytes], object]) -> None:
        """Hand over what comes. When `take` has all it wants, the end of the body is waited for, but not for long.

        The loop is never left by hand: that would leave what it goes over open, of which trio complains.
        """
        size, failures = 0, list[RemoteError]()
        with anyio.CancelScope() as scope:
            async for part in response.aiter_bytes():
                size += len(part)
                try:
                    if size > _MAX_BYTES:
                        raise RemoteError(self.remote, f"it does not end: {size:,} bytes came")
                    if not failures and consume(part):
                        scope.deadline = anyio.current_time() + _CLOSE_WAIT_S
                except RemoteError as error:
                    failures.append(error)
                    scope.cancel()
        if failures:
            raise failures[0]

    def _build_error(self, status: int, body: bytes) -> RemoteError:
        """What a service says instead of a result, ours or any other."""
        try:
            said = self._parse_json(body)
        except RemoteError:
            said = Json()
        words = self._sanitize(said.get("message") or said.get("detail") or said.get("title") or "it does not say why")
        code = said.get("code")
        head = f"{status} {self._sanitize(code)}" if isinstance(code, str) and code else f"{status}"
        if status in _REFUSALS:
            return RemoteRefused(self.remote, f"it refused ({head}): {words}", began=False)
        return RemoteError(self.remote, f"it failed ({head}): {words}")

    def _parse_json(self, data: bytes) -> Json:
        if len(data) > _MAX_JSON_BYTES:
            raise RemoteError(self.remote, f"it says too much at once: {len(data):,} bytes")
        try:
            said: object = json.loads(data)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise RemoteError(
                self.remote, f"it says what is no record: {self._sanitize(data.decode('utf-8', 'replace'))}"
            )
        return cast("Json", said)

    def _sanitize(self, value: object) -> str:
        """Somebody else's words, in one line, as far as they are of any use, and without our secrets."""
        text = redact(self.secrets, " ".join(str(value).split()))
        return text if len(text) <= _MAX_ERROR_CHARS else f"{text[:_MAX_ERROR_CHARS]}…"

    def _describe_error(self, error: Exception) -> str:
        """Those of the client, which may quote what came."""
        return self._sanitize(error) or type(error).__name__
