"""A model behind HTTP: one attempt, a whole or a streamed reply, and an error that says what to do about it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from math import inf
from typing import ClassVar, Unpack, cast

import anyio
import httpx2

from ..errors import ModelError, Retryable
from ..request import Reply, Request
from .client import shared_client
from .endpoint import Endpoint, Provider, without
from .failures import broken_off, refused, shortened
from .model import Tell
from .options import HttpOptions, RequestOptions, Timeouts
from .reply import Json, ReplyParser, malformed
from .sse import EventReader

_END_S = 1.0
"""How long a server that has said everything may take to end its stream; then its connection is not used again."""


class Waiting:
    """The time that is left for one reply."""

    __slots__ = ("_between", "_complaint", "_first", "_until", "_whole", "scope")

    def __init__(self, patience: Timeouts) -> None:
        now = anyio.current_time()
        self._whole, self._first, self._between = patience.whole, patience.first, patience.between
        self._until = now + (inf if patience.whole is None else patience.whole)
        self.scope = anyio.CancelScope()
        self._complaint = ""
        self._expect(now, patience.first, f"said nothing for {patience.first} s")

    def heard(self) -> None:
        """A token came; the next must come in time too."""
        self._expect(anyio.current_time(), self._between, f"fell silent for {self._between} s in the middle of a reply")

    def finish(self) -> None:
        """Everything was said; only the end of the stream is to come."""
        self.scope.deadline = min(self.scope.deadline, anyio.current_time() + _END_S)

    def complaint(self) -> str:
        """What it was that took too long."""
        return self._complaint

    def _expect(self, now: float, seconds: float | None, complaint: str) -> None:
        at = now + (inf if seconds is None else seconds)
        self.scope.deadline = min(at, self._until)
        self._complaint = complaint if at <= self._until else f"needs more than {self._whole} s for a reply"


_MOST_BYTES = 64 * 2**20
"""More than any reply has: what is longer comes from a server that does not know its end."""
_MOST_ERROR_BYTES = 2**20
"""Bytes of an error page that are read. Its first 500 characters are shown."""
_EXCERPT = 80


class HttpModel(ABC):
    """What the two wires share. `ask` makes one attempt; a run asks again by itself."""

    _house: ClassVar[Provider]

    def __init__(self, name: str, **options: Unpack[HttpOptions]) -> None:
        self._address = Endpoint(self._house, options)
        self._wish = RequestOptions(name, options)
        self._patience = options.get("patience", Timeouts())
        self._stream = options.get("stream", True)
        self._client = options.get("client")
        self.name = name
        self.provider: str | None = self._address.provider
        self.price = options.get("price")
        self.max_output_tokens = options.get("max_output_tokens", self._address.max_output_tokens)
        self.context_tokens = options.get("context_tokens")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._address.url}>"

    def ready(self) -> str | None:
        """Why it cannot be asked: no key, where one is needed."""
        return self._address.lacks()

    def secrets(self) -> tuple[str, ...]:
        """What must not be written anywhere."""
        return self._address.secrets()

    def body(self, request: Request) -> Json:
        """What is sent for a request, with the user's own fields."""
        return self._wish.added(self._body(request))

    @abstractmethod
    def _body(self, request: Request) -> Json:
        """The request as the provider wants it."""

    @abstractmethod
    def ear(self, tell: Tell | None = None) -> ReplyParser:
        """Something to hear the reply with."""

    async def ask(self, request: Request, tell: Tell | None = None, /) -> Reply:
        """Ask once."""
        ear = self.ear(tell)
        content = _written(self.body(request))
        try:
            await self._exchange(content, ear)
            return ear.reply()
        except ModelError as error:
            raise _cleaned(error, self.secrets()) from None

    async def _exchange(self, content: bytes, ear: ReplyParser) -> None:
        """Send, and hear all of the reply, for as long as patience lasts."""
        waiting = Waiting(self._patience)
        try:
            with waiting.scope:
                await self._send(content, ear, waiting)
        except httpx2.ConnectError as error:
            raise Retryable(f"{self._who} cannot be reached: {_words(error)}") from None
        except (httpx2.ConnectTimeout, httpx2.PoolTimeout):
            raise Retryable(f"{self._who} cannot be reached: no connection in {self._patience.connect} s") from None
        except httpx2.DecodingError as error:
            raise malformed(_words(error)) from None
        except httpx2.UnsupportedProtocol as error:
            raise ModelError(f"{self._who} cannot be asked: {_words(error)}") from None
        except httpx2.TransportError as error:
            if ear.finish is None:
                raise Retryable(f"{self._who} broke off: {_words(error)}", began=ear.began) from None
        if waiting.scope.cancelled_caught and ear.finish is None:
            raise Retryable(f"{self._who} {waiting.complaint()}", began=True)

    @property
    def _who(self) -> str:
        return self._address.host

    async def _send(self, content: bytes, ear: ReplyParser, waiting: Waiting) -> None:
        client = self._client or await shared_client()
        timeout = httpx2.Timeout(None, connect=self._patience.connect)
        request = client.build_request(
            "POST", self._address.endpoint, content=content, headers=self._address.headers(), timeout=timeout
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            if response.status_code != 200:
                raise await self._refused(response)
            if self._stream and not response.headers.get("content-type", "").startswith("application/json"):
                await self._hear_stream(response, ear, waiting)
            else:
                self._hear(await _bounded(response, ear), ear)
        finally:
            await response.aclose()

    async def _refused(self, response: httpx2.Response) -> ModelError:
        status, body = response.status_code, await _bounded(response, most=_MOST_ERROR_BYTES)
        hint = self._address.hint() if status in (401, 403) else ""
        return refused(self._who, status, response.headers, body, hint, self.secrets())

    def _hear(self, body: bytes, ear: ReplyParser) -> None:
        reply = self._read(body)
        if reply.get("error"):
            raise self._broken_off(reply["error"], ear)
        ear.hear_whole(reply)
        if ear.finish is None:
            raise malformed("there is nothing in it")

    async def _hear_stream(self, response: httpx2.Response, ear: ReplyParser, waiting: Waiting) -> None:
        reader, size = EventReader(), 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > _MOST_BYTES:
                raise ModelError(f"{self._who} does not end: {size} bytes came", began=True)
            self._hear_events(reader.feed(chunk), ear, waiting)
        self._hear_events(reader.close(), ear, waiting)
        if ear.finish is None:
            raise Retryable(f"{self._who} broke off: the stream ended before the reply did", began=ear.began)

    def _hear_events(self, events: list[bytes], ear: ReplyParser, waiting: Waiting) -> None:
        before = ear.pieces
        for data in events:
            if data == b"[DONE]":
                ear.ended = True
                continue
            event = self._read(data)
            if event.get("error"):
                raise self._broken_off(event["error"], ear)
            ear.hear(event)
        if ear.ended:
            waiting.finish()
        elif ear.pieces > before:
            waiting.heard()

    def _broken_off(self, error: object, ear: ReplyParser) -> ModelError:
        fields = cast("Json", error) if isinstance(error, dict) else {"message": str(error)}
        told = broken_off(self._who, fields, self.secrets())
        told.began = ear.began
        return told

    def _read(self, data: bytes) -> Json:
        try:
            found: object = json.loads(data)
        except (ValueError, RecursionError):
            excerpt = shortened(data.decode("utf-8", "replace"), self.secrets(), _EXCERPT)
            raise malformed(f"no JSON, or half of it: {excerpt!r}") from None
        if not isinstance(found, dict):
            raise malformed(f"a {type(found).__name__} where an object belongs")
        return cast("Json", found)


async def _bounded(response: httpx2.Response, ear: ReplyParser | None = None, most: int = _MOST_BYTES) -> bytes:
    """The whole body, as far as it is of any sensible size."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        if ear is not None:
            ear.pieces += 1
        chunks.append(chunk)
        size += len(chunk)
        if size > most:
            break
    return b"".join(chunks)


def _written(body: Json) -> bytes:
    """JSON in UTF-8; half a character, which some models and tools let slip, becomes a question mark."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")


def _words(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _cleaned(error: ModelError, secrets: tuple[str, ...]) -> ModelError:
    """The same error, whose message has none of the secrets; a provider may have said them back."""
    error.message = without(secrets, error.message)
    error.args = (error.message, *error.args[1:])
    return error
