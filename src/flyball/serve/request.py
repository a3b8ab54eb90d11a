"""Body of a chat request: reading it within limits, parsing and validating it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from .._internal.jsonable import to_json_text
from ..budget.deadline import Clock, Deadline
from ..budget.run_budget import TurnBudget
from ..errors import MessageError, suggest_names
from ..message import Role
from ..unit import Unit
from ..wire import normalize
from .asgi import Problem, Receive

LIMITS: Mapping[str, Unit] = {
    "turns": Unit.COUNT,
    "tokens": Unit.COUNT,
    "usd": Unit.USD,
    "seconds": Unit.SECONDS,
}
_KEYS = ("message", "messages", "session", "metadata", "limits")
_MAX_SESSION_CHARS = 200
_MAX_LIMIT = 2**53
MAX_METADATA_BYTES = 16_384
"""Maximum size of the metadata of a request, which a store keeps with each event."""
_CLIENT_GONE = Problem(400, "client_gone", "The client disconnected before the request was complete.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """Validated request of a client."""

    messages: Sequence[Any]
    """Earlier messages and, last, the task, as the client sent them."""
    session: str | None = None
    """Session to continue. None means a single run."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Mapping[str, int | float] = field(default_factory=dict[str, int | float])
    """Limits of the run, in internal units. They can only narrow the agent's own."""

    def build_envelope(self, max_seconds: float, clock: Clock) -> TurnBudget | None:
        """Build the budget that bounds the run and all runs below it.

        Return None if neither the app nor the client sets a limit.
        """
        seconds = min(max_seconds, self.limits.get("seconds", math.inf))
        if seconds == math.inf and not self.limits:
            return None
        ceilings = {name: int(amount) for name, amount in self.limits.items() if name != "seconds"}
        return TurnBudget.of(ceilings, Deadline.after(seconds, clock), seconds=seconds)


async def read_body(receive: Receive, content_length: str | None, max_bytes: int, timeout_s: float) -> bytes | Problem:
    """Read the whole body, or return why it is refused."""
    too_large = Problem(413, "body_too_large", f"The body is larger than {max_bytes:,} bytes.")
    if (
        content_length is not None
        and content_length.isdecimal()
        and len(content_length) < 20
        and int(content_length) > max_bytes
    ):
        return too_large
    parts: list[bytes] = []
    remaining = max_bytes
    with anyio.move_on_after(timeout_s):
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return _CLIENT_GONE
            part: bytes = message.get("body", b"")
            remaining -= len(part)
            if remaining < 0:
                return too_large
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)
    return Problem(408, "body_too_slow", f"The body did not arrive within {timeout_s:g} s.", {"connection": "close"})


def parse_request(body: bytes) -> ChatRequest | Problem:
    """Parse a body, or return what is wrong with it."""
    try:
        data: object = json.loads(body, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return Problem(400, "body_not_json", "The body is not valid JSON.")
    if not isinstance(data, dict):
        return Problem(400, "body_not_json", "The body must be a JSON object.")
    try:
        return _parse_fields(cast("dict[str, Any]", data))
    except MessageError as error:
        return _build_invalid_problem(str(error))
    except ValueError as error:
        return _build_invalid_problem(str(error))


def _parse_fields(data: Mapping[str, Any]) -> ChatRequest:
    for key in data:
        if key not in _KEYS:
            raise ValueError(
                f"{key[:100]!r} is unknown; did you mean {(suggest_names(key[:100], _KEYS) or _KEYS)[0]!r}?"
            )
    session, metadata = data.get("session"), data.get("metadata")
    if session is not None and not (_is_name(session) and len(session) <= _MAX_SESSION_CHARS):
        raise ValueError(f"`session` must be a printable text of 1 to {_MAX_SESSION_CHARS} characters.")
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("`metadata` must be an object.")
    if not has_valid_size(cast("object", metadata)):
        raise ValueError(f"`metadata` may have at most {MAX_METADATA_BYTES:,} bytes as JSON.")
    return ChatRequest(
        messages=_parse_messages(data),
        session=session,
        metadata=cast("dict[str, Any]", metadata or {}),
        limits=_parse_limits(data.get("limits")),
    )


def _parse_messages(data: Mapping[str, Any]) -> Sequence[Any]:
    message, messages = data.get("message"), data.get("messages")
    if (message is None) == (messages is None):
        raise ValueError("Send either `message`, a text, or `messages`, a conversation that ends with the task.")
    if messages is None and not (isinstance(message, str) and message.strip()):
        raise ValueError("`message` must be a non-empty text.")
    if messages is not None and not (isinstance(messages, list) and messages):
        raise ValueError("`messages` must be a list of messages with role and content.")
    conversation = cast("list[Any]", [message] if messages is None else messages)
    normalized = normalize(conversation, run="request")
    if any(message.role is Role.SYSTEM for message in normalized):
        raise ValueError("`messages` may not have the role `system` or `developer`: the service sets the instructions.")
    if normalized[-1].role is not Role.USER:
        raise ValueError("The last of the `messages` must have the role `user`.")
    return conversation


def _parse_limits(data: object) -> dict[str, int | float]:
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ValueError("`limits` must be an object.")
    limits: dict[str, int | float] = {}
    for name, amount in cast("dict[str, object]", data).items():
        unit = LIMITS.get(name)
        if unit is None:
            raise ValueError(f"`limits` may have {', '.join(LIMITS)}, but not {name[:100]!r}.")
        try:
            limits[name] = unit.parse(None if isinstance(amount, str) else amount)
        except ValueError:
            limits[name] = 0
        if not 0 < limits[name] <= unit.parse(_MAX_LIMIT):
            raise ValueError(f"`limits.{name}` must be {unit.expected} above 0, at most 2^53.")
    return limits


def has_valid_size(metadata: object) -> bool:
    """Check whether metadata from outside are small enough to be repeated."""
    return not metadata or len(to_json_text(metadata)) <= MAX_METADATA_BYTES


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value.strip() != ""


def _build_invalid_problem(message: str) -> Problem:
    return Problem(422, "request_invalid", message)


def _reject_constant(name: str) -> None:
    raise ValueError(name)
