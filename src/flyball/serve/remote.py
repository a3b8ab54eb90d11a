"""Agents at other services, used as children of agents here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from .._internal import validation
from .._internal.text import REDACTED
from ..budget.limits import Limits, RunKind
from ..budget.registry import IterationBudgetRegistry
from ..chain import Chain
from ..chain.caller import Position
from ..chain.chain import headers_at
from ..errors import ConfigError, RemoteError, UsageError
from ..loop.child_task import ChildSpec, Mode
from ..loop.plan import AgentSpec, ModelCard, ModelSpec, ToolSpec
from ..models.endpoint import redact_url
from ..tools import Admission, Toolset
from .remote_run import RemoteRunner

Token = str | Callable[[], str]
"""Bearer token, or a function that returns it before each request and must not block."""


def remote_agent(
    url: str,
    *,
    name: str,
    description: str = "",
    token: Token | None = None,
    limits: Limits | None = None,
    chain: Chain | None = None,
    connect_seconds: float = 10.0,
    metadata: Mapping[str, Any] | None = None,
) -> RemoteAgent:
    """Return an agent at another service, for `Agent(children=[...])`.

    Its runs are child runs like any other.

    - `url`: address at which `chat_app` serves it. An empty path means `/chat`.
    - `name`, `description`: shown to the model that delegates to it.
    - `token`: bearer token, or a function that returns it before each request and must not block.
    - `limits`: limits of its runs. They are sent to the service, which can only narrow them.
    - `chain`: identity sent to the service. None means the service that runs here.
    - `connect_seconds`: maximum time to connect.
    - `metadata`: sent with each task.

    Raises `ConfigError` if an argument is not valid.
    """
    validation.check_text("remote_agent, name", name)
    validation.check_type("remote_agent, description", description, str)
    if token is not None and not callable(token) and not _is_token(token):
        raise UsageError("token of remote_agent must be ASCII text without spaces, or a function that returns it")
    for option, value, kind in (
        ("limits", limits, Limits),
        ("chain", chain, Chain),
        ("metadata", metadata, Mapping),
    ):
        if value is not None:
            validation.check_type(f"remote_agent, {option}", value, kind)
    return RemoteAgent(
        url=_parse_url(url),
        name=name,
        description=description,
        token=token,
        limits=limits or Limits(),
        chain=chain,
        connect_s=validation.parse_timeout("remote_agent, connect_seconds", connect_seconds),
        metadata=metadata or {},
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class RemoteAgent:
    """Agent at another service, made by `remote_agent(url, ...)`."""

    url: str
    name: str
    description: str = ""
    token: Token | None = field(default=None)
    limits: Limits = field(default_factory=Limits)
    chain: Chain | None = None
    """Identity sent to the service. None means the service that runs here."""
    connect_s: float = 10.0
    """Seconds to connect."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        """Build the child spec: limits here, and the runner."""
        limits = self.limits.resolve(registry, kind=RunKind.CHILD, grace=False)  # the service writes the report
        agent_spec = AgentSpec(
            name=self.name,
            limits=limits,
            model=ModelSpec(main=_RemoteModel(urlsplit(self.url).netloc), is_async=True, cards={"": ModelCard()}),
            tools=ToolSpec(admission=partial(Admission, Toolset())),
        )
        return ChildSpec(
            name=self.name,
            description=self.description,
            agent_spec=agent_spec,
            mode=mode,
            metadata=self.metadata,
            make_runner=partial(RemoteRunner, self.ask),
        )

    async def ask(
        self,
        body: Mapping[str, Any],
        position: Position,
        on_event: Callable[[dict[str, Any]], None],
        trace_headers: Mapping[str, str],
    ) -> Mapping[str, Any]:
        """Send a task to the service and return the record of its run.

        `trace_headers` are those of the sinks here. Raises `RemoteError` if no record comes back.
        """
        from .remote_request import RemoteRequest  # lazy: it imports the HTTP client

        token = self._resolve_token()
        headers = {**trace_headers, "content-type": "application/json"}
        headers["accept"] = "text/event-stream, application/json"
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        headers |= headers_at(position) if self.chain is None else self.chain.headers_at(position)
        secrets = () if token is None else (token,)
        return await RemoteRequest(self.name, self.url, headers, body, self.connect_s, secrets).send(on_event)

    def _resolve_token(self) -> str | None:
        """Return the token. Errors never quote it."""
        try:
            token = self.token() if callable(self.token) else self.token
        except Exception as error:
            raise RemoteError(self.name, f"the token function raised {type(error).__name__}", began=False) from None
        if token is not None and not _is_token(token):
            raise RemoteError(self.name, "the token must be printable ASCII text without spaces", began=False)
        return token

    def __repr__(self) -> str:
        token = "" if self.token is None else f", token {REDACTED}"
        return f"<RemoteAgent {self.name} at {self.url}{token}>"


@dataclass(frozen=True, slots=True)
class _RemoteModel:
    """Placeholder for the model of a run whose model is elsewhere."""

    name: str
    provider: None = None
    price: None = None

    def ready(self) -> str:
        """Return why it cannot be asked."""
        return "a remote agent has no local model; it needs a driver that can send requests to its service"


def _parse_url(url: object) -> str:
    expected = "an http:// or https:// URL with a host and a path, without a user or a password; use token= instead"
    shown = redact_url(url) if isinstance(url, str) else url
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        is_valid = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, is_valid = None, False
    if parts is None or not is_valid or "@" in parts.netloc or parts.fragment or parts.query:
        raise ConfigError("remote_agent, url", shown, expected)
    return parts._replace(path="/chat").geturl() if parts.path in ("", "/") else parts.geturl()


def _is_token(token: object) -> bool:
    return isinstance(token, str) and token != "" and all("!" <= char <= "~" for char in token)
