"""ASGI app that serves an agent over HTTP.

`POST /chat` takes a JSON request and returns the record of one run, as JSON or as a stream of events. Rejected requests
get `application/problem+json` with a stable `code`.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import anyio

from .._internal import validation
from ..agent.agent import Agent
from ..agent.run import Run
from ..chain import Chain, ChainDepthMiddleware, current
from ..errors import ConfigError, UsageError
from ..otel import continue_trace
from ..result import Result, Stop
from .asgi import (
    CANCELLED_BY_CLIENT,
    Client,
    ClientGone,
    Problem,
    Receive,
    Scope,
    Send,
    cancel_on_disconnect,
    send_json,
)
from .request import ChatRequest, parse_request, read_body
from .sessions import ChatSession, ChatSessions
from .stream import send_events, send_problem, send_result, to_response

log = logging.getLogger(__name__)

TokenCheck = Callable[[str], "bool | Awaitable[bool]"]
"""Function that returns True for a valid bearer token.

It may be async, within the time limit for reading a body. It must not block. An exception counts as no.
"""

_SHUTDOWN_S = 10.0
"""Maximum seconds to wait for cancelled runs when the server shuts down."""
_INTERNAL_ERROR = Problem(500, "internal_error", "An internal error occurred; see the log of the service.")
_UNPRICED = Problem(
    422, "limit_not_held", "A money limit cannot be enforced, because the price of the agent's model is unknown."
)
_BUSY = Problem(409, "session_busy", "Another run holds this session; wait until it has ended.")
_TOO_MANY_RUNS = Problem(
    503, "too_many_runs", "The maximum number of runs is reached; try again later.", {"retry-after": "1"}
)
_SHUTTING_DOWN = Problem(503, "shutting_down", "The service is shutting down.")
_NO_TOKEN = Problem(401, "token_refused", "A valid bearer token is required.", {"www-authenticate": "Bearer"})
_NOT_JSON = Problem(415, "media_type_unknown", "The body must be application/json, in UTF-8.")


def chat_app(
    agent: Agent,
    *,
    token: TokenCheck | None = None,
    chain: Chain | None = None,
    path: str = "/chat",
    runs: int = 32,
    sessions: int = 1_000,
    session_bytes: int = 64_000_000,
    body_bytes: int = 1_000_000,
    read_seconds: float = 10.0,
    run_seconds: float | None = None,
) -> ChatApp:
    """Serve an agent over HTTP, as an app for any ASGI server.

    `POST /chat` with a JSON body returns the record of the run.

    - `token`: function that accepts or rejects a bearer token. None serves everyone.
    - `chain`: checks each request as a hop of this chain, as `ChainDepthMiddleware(chat_app(agent), chain)` would.
    - `path`: route of the agent.
    - `runs`: maximum number of runs at a time.
    - `sessions`: maximum number of sessions in memory; unused if the agent has a store, which then holds them.
    - `session_bytes`: maximum size of all sessions in memory together. The least recently used ones are dropped.
    - `body_bytes`: maximum size of a request body.
    - `read_seconds`: maximum time to receive a body, and for an async `token` check.
    - `run_seconds`: maximum time of a run, within the agent's own limits. None means no further limit.

    Raises `ConfigError` if an argument is not valid.
    """
    validation.check_type("chat_app, agent", agent, Agent)
    validation.check_text("chat_app, path", path)
    if chain is not None:
        validation.check_type("chat_app, chain", chain, Chain)
    if token is not None and not callable(token):
        raise UsageError("token of chat_app must be a function that returns True for a valid token")
    limits = AppLimits(
        path=path if path.startswith("/") else f"/{path}",
        token=token,
        max_runs=validation.check_int("chat_app, runs", runs, min_value=1),
        max_sessions=validation.check_int("chat_app, sessions", sessions, min_value=1),
        max_session_bytes=validation.check_int("chat_app, session_bytes", session_bytes, min_value=1),
        max_bytes=validation.check_int("chat_app, body_bytes", body_bytes, min_value=1),
        read_s=validation.parse_timeout("chat_app, read_seconds", read_seconds),
        run_s=validation.parse_timeout("chat_app, run_seconds", run_seconds),
    )
    return ChatApp(agent, limits, chain)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppLimits:
    """Limits and access check of a chat app."""

    path: str = "/chat"
    token: TokenCheck | None = None
    """Checks bearer tokens. None serves everyone."""
    max_runs: int = 32
    max_sessions: int = 1_000
    """Maximum number of sessions in memory."""
    max_session_bytes: int = 64_000_000
    """Maximum size of all sessions in memory."""
    max_bytes: int = 1_000_000
    """Maximum size of a request body."""
    read_s: float = 10.0
    """Seconds to receive a body or check a token."""
    send_s: float = 30.0
    """Seconds for the client to accept one chunk."""
    run_s: float = math.inf
    """Seconds that a run may take. Infinity means no further limit."""


class ChatApp:
    """ASGI app that runs an agent per request; made by `chat_app(agent)`.

    It may be mounted in another app. If that app does not forward ASGI lifespan events, call `close` on shutdown.
    """

    def __init__(self, agent: Agent, limits: AppLimits, chain: Chain | None = None) -> None:
        self._agent = agent
        self._handler = self._serve if chain is None else ChainDepthMiddleware(self._serve, chain)
        self._limits = limits
        self._sessions = ChatSessions(limits.max_sessions, limits.max_session_bytes)
        self._runs: set[Run] = set()
        self._closing = False

    @property
    def runs(self) -> int:
        """Number of runs in progress."""
        return len(self._runs)

    def close(self) -> None:
        """Refuse new requests and cancel the runs in progress."""
        self._closing = True
        for run in tuple(self._runs):
            run.cancel("shutdown")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._handle_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._handler(scope, receive, send)
        else:  # a web socket: refused before the handshake completes
            await send({"type": f"{scope['type']}.close"})

    async def _handle_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._closing = False
            elif message["type"] == "lifespan.shutdown":
                self.close()
                with anyio.move_on_after(_SHUTDOWN_S):
                    while self._runs:
                        await anyio.sleep(0.01)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; turn any failure into a problem response."""
        client = Client(send, self._limits.send_s)
        try:
            problem = await self._handle_request(scope, receive, client)
        except ClientGone:
            return
        except Exception:
            log.exception("a request failed")
            problem = _INTERNAL_ERROR
        if problem is not None:
            try:
                await (send_problem(problem, client) if client.started else problem.send(client))
            except ClientGone:
                return

    async def _handle_request(self, scope: Scope, receive: Receive, client: Client) -> Problem | None:
        """Run the request, or return why it is refused."""
        headers = _parse_headers(scope)
        refusal = self._check_route(scope) or await self._check_token(headers) or self._check_capacity()
        if refusal is not None:
            return refusal
        if not _is_json(headers.get("content-type", "")):
            return _NOT_JSON
        limits = self._limits
        body = await read_body(receive, headers.get("content-length"), limits.max_bytes, limits.read_s)
        request = body if isinstance(body, Problem) else parse_request(body)
        if isinstance(request, Problem):
            return request
        streams = "text/event-stream" in headers.get("accept", "").lower()
        with continue_trace(headers):
            return self._check_capacity() or await self._run_in_session(
                request, _identify_caller(headers), receive, client, streams
            )

    def _check_route(self, scope: Scope) -> Problem | None:
        path = str(scope["path"]).removeprefix(scope.get("root_path", "").rstrip("/"))
        if path.rstrip("/") != self._limits.path.rstrip("/"):
            return Problem(404, "not_found", f"Not found; the agent is at {self._limits.path}.")
        if scope["method"] != "POST":
            return Problem(405, "method_not_allowed", "Only POST is allowed.", {"allow": "POST"})
        return None

    async def _check_token(self, headers: Mapping[str, str]) -> Problem | None:
        """Refuse the request unless the token check returns True.

        An exception or a timeout of the check counts as no.
        """
        check_token = self._limits.token
        if check_token is None:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _NO_TOKEN
        try:
            verdict = check_token(token.strip())
            with anyio.fail_after(self._limits.read_s):
                accepted = await verdict if inspect.isawaitable(verdict) else verdict
        except Exception as error:
            log.warning("the token check raised %s, so the token was rejected", type(error).__name__)
            return _NO_TOKEN
        return None if accepted is True else _NO_TOKEN

    def _check_capacity(self) -> Problem | None:
        if self._closing:
            return _SHUTTING_DOWN
        return _TOO_MANY_RUNS if len(self._runs) >= self._limits.max_runs else None

    async def _run_in_session(
        self, request: ChatRequest, caller_id: str, receive: Receive, client: Client, wants_stream: bool
    ) -> Problem | None:
        """Run the request while holding its session.

        With a store, the store's lease protects the session, so no session is held in memory.
        """
        in_memory = request.session is not None and self._agent.store is None
        session = self._sessions.open((caller_id, str(request.session))) if in_memory else ChatSession()
        if session.is_busy:
            return _BUSY
        session.is_busy = True
        try:
            opened = self._open_run(request, session, caller_id)
            if isinstance(opened, Problem):
                return opened
            result = await self._run_to_end(opened, receive, client, wants_stream)
            if in_memory:
                self._sessions.store(session, result.messages)
        finally:
            session.is_busy = False
        if result.stop is Stop.CONTENDED:
            return _BUSY
        # Send only after the session is free: the client may send its next request at once.
        if result.stopped_by != CANCELLED_BY_CLIENT:
            await (
                send_result(result, client)
                if wants_stream
                else send_json(client, 200, "application/json", to_response(result))
            )
        return None

    def _open_run(self, request: ChatRequest, session: ChatSession, caller_id: str) -> Run | Problem:
        agent, options = self._agent, dict[str, Any]()
        within = request.build_envelope(self._limits.run_s, agent.clock)
        if within is not None:
            options["within"] = within
        if request.session is not None:
            options["session"] = self._qualify_session(request.session, caller_id)
        # A client may add metadata but not replace the agent's own.
        metadata = {key: value for key, value in request.metadata.items() if key not in agent.metadata}
        try:
            return agent.open([*session.messages, *request.messages], metadata=metadata, **options)
        except ConfigError:
            caller = current()
            if "usd" in request.limits or (caller is not None and "usd" in caller.left):
                return _UNPRICED
            raise

    def _qualify_session(self, session: str, caller_id: str) -> str:
        """Return the session's name in the agent's store.

        With tokens, the name is prefixed per caller, so that callers cannot read each other's sessions.
        """
        shared = self._agent.store is not None and self._limits.token is not None
        return f"{caller_id[:32]}:{session}" if shared else session

    async def _run_to_end(self, run: Run, receive: Receive, client: Client, wants_stream: bool) -> Result:
        """Drive the run to its end; cancel it if the client disconnects."""
        self._runs.add(run)
        try:
            async with run, anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_on_disconnect, receive, run)
                if wants_stream:
                    await self._stream_events(run, client)
                await run.aresult()
                tasks.cancel_scope.cancel()
        finally:
            self._runs.discard(run)
        return await run.aresult()

    async def _stream_events(self, run: Run, client: Client) -> None:
        try:
            await send_events(run, client)
        except ClientGone:
            run.cancel(CANCELLED_BY_CLIENT)


def _parse_headers(scope: Scope) -> dict[str, str]:
    """Return headers by lower-case name; the first of duplicates wins."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
    return headers


def _is_json(content_type: str) -> bool:
    kind, _, parameters = content_type.lower().partition(";")
    charset = parameters.replace(" ", "").replace('"', "").partition("charset=")[2]
    return kind.strip() == "application/json" and charset in ("", "utf-8", "utf8")


def _identify_caller(headers: Mapping[str, str]) -> str:
    """Return a hash that identifies the caller, to keep callers' sessions apart.

    The token itself is not stored.
    """
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return hashlib.sha256(f"{scheme.lower()} {token.strip()}".encode("latin-1")).hexdigest()
