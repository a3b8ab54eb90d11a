"""Base class for models reached over HTTP.

`HttpModel` sends one request and reads a whole or a streamed reply. A failure becomes a ModelError that tells the run
whether to retry, to send less or to stop.
"""

from __future__ import annotations

import json
from math import inf
from typing import ClassVar, Unpack, cast

import anyio
import httpx2

from .._internal.text import redact
from ..errors import ModelError, Retryable
from ..request import Finish, Reply, Request
from ..wire.bodies import WireRequest
from ..wire.reply_parser import Json, ReplyParser, malformed_reply
from ..wire.sse import EventReader, ServerEvent
from ..wire.wire import Wire
from .client import get_shared_client
from .endpoint import Endpoint, Provider
from .failures import Filtered, error_from_response, error_from_stream, is_unreachable, redact_and_shorten
from .model import OnText
from .options import HttpOptions, RequestOptions, Timeouts

_STREAM_END_SECONDS = 1.0
"""Seconds that a server may take to end its stream after the reply. Then the connection is closed, not reused."""
_MAX_BYTES = 64 * 2**20
"""Maximum bytes of a reply. A longer one comes from a server that never stops."""
_MAX_ERROR_BYTES = 2**20
"""Maximum bytes read of an error page. Its first 500 characters are shown."""
_EXCERPT_LENGTH = 80
_INVALID_KEY = b"API_KEY_INVALID"
"""Reason in a 400 with which Gemini refuses a key."""


class HttpModel:
    """Base of the adapters for providers.

    `ask` makes one attempt; the run retries.
    """

    _provider_spec: ClassVar[Provider]
    _wire: Wire
    """Format of the provider's requests and replies."""

    def __init__(self, name: str, **options: Unpack[HttpOptions]) -> None:
        self._endpoint = Endpoint(self._provider_spec, options)
        self._request_options = RequestOptions(name, options)
        self._timeouts = options.get("patience", Timeouts())
        self._stream = options.get("stream", True)
        self._client = options.get("client")
        self.name = name
        self.provider: str | None = self._endpoint.provider
        self.price = options.get("price")
        self.max_output_tokens = options.get("max_output_tokens", self._endpoint.max_output_tokens)
        self.context_tokens = options.get("context_tokens")

    @property
    def service_tier(self) -> str | None:
        """Service tier that the user asks for, which has a price of its own. None means the usual one."""
        tier = self._request_options.body.get("service_tier", self._request_options.body.get("serviceTier"))
        return tier if isinstance(tier, str) else None

    @property
    def address(self) -> str:
        """Base URL of the API that is asked."""
        return self._endpoint.url

    @property
    def min_output_tokens(self) -> int:
        """Lowest limit for the tokens of a reply that the provider accepts."""
        return self._wire.min_output_tokens

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self._endpoint.url}>"

    def ready(self) -> str | None:
        """Return None, or the message about a missing key."""
        return self._endpoint.describe_missing()

    def secrets(self) -> tuple[str, ...]:
        """Return the texts that must not appear in logs or recordings."""
        return self._endpoint.secrets()

    def build_body(self, request: Request) -> Json:
        """Return the request body, including the user's `body=` fields."""
        return self._write_body(self._prepare(request))

    def _prepare(self, request: Request) -> WireRequest:
        """Return the request with this model's options."""
        options = self._request_options
        return WireRequest(
            messages=request.messages,
            instructions=request.instructions,
            tools=request.tools,
            max_output_tokens=request.max_output_tokens,
            output_schema=request.output_schema,
            notices=request.notices,
            model=self.name,
            stream=self._stream,
            tool_choice=options.tool_choice,
            parallel_calls=options.parallel,
        )

    def _write_body(self, request: WireRequest) -> Json:
        return self._request_options.merge_into(self._wire.write_request(request))

    def create_parser(self, on_text: OnText | None = None) -> ReplyParser:
        """Return a parser for one reply."""
        return self._wire.create_parser(self.provider, on_text)

    async def ask(self, request: Request, tell: OnText | None = None, /) -> Reply:
        """Send the request once and return the reply."""
        parser = self.create_parser(tell)
        prepared = self._prepare(request)
        content, path = _encode_json(self._write_body(prepared)), self._wire.build_path(prepared)
        try:
            await self._send_and_receive(content, path, parser)
            return parser.build_reply()
        except Filtered as error:
            detail = _redact_error(error, self.secrets()).message
            return Reply(parser.text, finish=Finish.CONTENT_FILTER, provider=self.provider, detail=detail)
        except ModelError as error:
            raise _redact_error(error, self.secrets()) from None

    async def _send_and_receive(self, content: bytes, path: str, parser: ReplyParser) -> None:
        """Send the request and read the reply until a deadline passes."""
        timer = ReplyTimer(self._timeouts)
        try:
            with timer.scope:
                await self._send(content, path, parser, timer)
        except httpx2.ConnectError as error:
            message = f"{self._host} cannot be reached: {_describe_error(error)}"
            if is_unreachable(error):  # waiting does not help
                address = self._endpoint.describe_address()
                raise ModelError(f"{message}; check the network, and that a server runs at {address}") from None
            raise Retryable(message) from None
        except (httpx2.ConnectTimeout, httpx2.PoolTimeout):
            raise Retryable(f"{self._host} cannot be reached within {self._timeouts.connect} s") from None
        except httpx2.DecodingError as error:
            raise malformed_reply(_describe_error(error)) from None
        except httpx2.UnsupportedProtocol as error:
            raise ModelError(f"the request to {self._host} is not possible: {_describe_error(error)}") from None
        except httpx2.TransportError as error:
            if parser.finish is None:
                raise Retryable(
                    f"{self._host} did not complete the reply: {_describe_error(error)}", began=parser.has_started
                ) from None
        if timer.scope.cancelled_caught and parser.finish is None:
            raise Retryable(f"{self._host} {timer.describe_timeout()}", began=True)

    @property
    def _host(self) -> str:
        return self._endpoint.host

    async def _send(self, content: bytes, path: str, parser: ReplyParser, timer: ReplyTimer) -> None:
        client = self._client or await get_shared_client()
        timeout = httpx2.Timeout(None, connect=self._timeouts.connect)
        request = client.build_request(
            "POST",
            f"{self._endpoint.url}{path}",
            content=content,
            headers=self._endpoint.build_headers(),
            timeout=timeout,
        )
        response = await client.send(request, stream=True, follow_redirects=False)
        try:
            if response.status_code != 200:
                raise await self._error_from_response(response)
            if self._stream and not response.headers.get("content-type", "").startswith("application/json"):
                await self._receive_stream(response, parser, timer)
            else:
                self._parse_body(await _read_bounded(response, parser), parser)
        finally:
            await response.aclose()

    async def _error_from_response(self, response: httpx2.Response) -> ModelError:
        status, body = response.status_code, await _read_bounded(response, max_bytes=_MAX_ERROR_BYTES)
        is_about_key = status in (401, 403) or (status == 400 and _INVALID_KEY in body)
        hint = self._endpoint.describe_key_source() if is_about_key else ""
        if status == 404:
            hint = f"; check the model's name {self.name!r}, and the URL {self._endpoint.describe_address()}"
        return error_from_response(self._host, status, response.headers, body, hint, self.secrets())

    def _parse_body(self, body: bytes, parser: ReplyParser) -> None:
        reply = self._parse_json(body)
        error = parser.find_error(reply)
        if error:
            raise self._error_from_stream(error, parser)
        parser.parse_reply(reply)
        if parser.finish is None:
            raise malformed_reply("it is empty")

    async def _receive_stream(self, response: httpx2.Response, parser: ReplyParser, timer: ReplyTimer) -> None:
        reader, size = EventReader(), 0
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > _MAX_BYTES:
                raise ModelError(f"the reply of {self._host} is too long: {size} bytes so far", began=True)
            self._parse_events(reader.feed(chunk), parser, timer)
        self._parse_events(reader.close(), parser, timer)
        if parser.finish is None:
            raise Retryable(f"{self._host} ended the stream before the end of the reply", began=parser.has_started)

    def _parse_events(self, events: list[ServerEvent], parser: ReplyParser, timer: ReplyTimer) -> None:
        before = parser.piece_count
        for _, data, _ in events:
            if data is None:
                continue
            if data == b"[DONE]":
                parser.is_ended = True
                continue
            event = self._parse_json(data)
            error = parser.find_error(event)
            if error:
                raise self._error_from_stream(error, parser)
            parser.parse_event(event)
        if parser.is_ended:
            timer.expect_end()
        elif parser.piece_count > before:
            timer.note_token()

    def _error_from_stream(self, error: object, parser: ReplyParser) -> ModelError:
        fields = cast("Json", error) if isinstance(error, dict) else {"message": str(error)}
        model_error = error_from_stream(self._host, fields, self.secrets())
        model_error.began = parser.has_started
        return model_error

    def _parse_json(self, data: bytes) -> Json:
        try:
            value: object = json.loads(data)
        except (ValueError, RecursionError):
            excerpt = redact_and_shorten(data.decode("utf-8", "replace"), self.secrets(), _EXCERPT_LENGTH)
            raise malformed_reply(f"it is not complete JSON: {excerpt!r}") from None
        if not isinstance(value, dict):
            raise malformed_reply(f"found a {type(value).__name__}; expected an object")
        return cast("Json", value)


class ReplyTimer:
    """Deadlines for one reply."""

    __slots__ = ("_between", "_first", "_max_seconds", "_reason", "_until", "scope")

    def __init__(self, timeouts: Timeouts) -> None:
        start = anyio.current_time()
        self._max_seconds, self._first, self._between = timeouts.whole, timeouts.first, timeouts.between
        self._until = start + (inf if timeouts.whole is None else timeouts.whole)
        self.scope = anyio.CancelScope()
        self._reason = ""
        self._set_deadline(start, timeouts.first, f"sent nothing for {timeouts.first} s")

    def note_token(self) -> None:
        """Restart the deadline for the next token."""
        self._set_deadline(
            anyio.current_time(), self._between, f"sent nothing for {self._between} s in the middle of a reply"
        )

    def expect_end(self) -> None:
        """Shorten the deadline: only the end of the stream is missing."""
        self.scope.deadline = min(self.scope.deadline, anyio.current_time() + _STREAM_END_SECONDS)

    def describe_timeout(self) -> str:
        """Return a description of the deadline that passed."""
        return self._reason

    def _set_deadline(self, start: float, seconds: float | None, reason: str) -> None:
        deadline = start + (inf if seconds is None else seconds)
        self.scope.deadline = min(deadline, self._until)
        self._reason = reason if deadline <= self._until else f"needs more than {self._max_seconds} s for a reply"


async def _read_bounded(
    response: httpx2.Response, parser: ReplyParser | None = None, max_bytes: int = _MAX_BYTES
) -> bytes:
    """Return the body, cut off soon after `max_bytes`."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.aiter_bytes():
        if parser is not None:
            parser.piece_count += 1
        chunks.append(chunk)
        size += len(chunk)
        if size > max_bytes:
            break
    return b"".join(chunks)


def _encode_json(body: Json) -> bytes:
    """Encode the body as UTF-8 JSON.

    A lone surrogate, which some models and tools produce, becomes a question mark.
    """
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")


def _describe_error(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _redact_error(error: ModelError, secrets: tuple[str, ...]) -> ModelError:
    """Remove the secrets from an error's message.

    A provider may echo them.
    """
    error.message = redact(error.message, secrets)
    error.args = (error.message, *error.args[1:])
    return error
