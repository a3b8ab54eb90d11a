"""The body of a request: read within its limits, and understood or refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from ..budget.budget import IterationBudget
from ..budget.deadline import Clock, Deadline
from ..budget.run_budget import TurnBudget
from ..errors import MessageError, nearest
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
_NAMES = {"turns": "agent_iterations", "tokens": "tokens", "usd": "cost_usd"}
_KEYS = ("message", "messages", "session", "metadata", "limits")
_LONGEST_SESSION = 200
_GONE = Problem(400, "client_gone", "The client went away before its request was whole.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """What a client asks for."""

    messages: Sequence[Any]
    """The task, behind what was said before, as the client wrote it."""
    session: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    limits: Mapping[str, int | float] = field(default_factory=dict[str, int | float])
    """What it allows the run, as counted inside; that can only narrow."""

    def envelope(self, most_s: float, clock: Clock) -> TurnBudget | None:
        """What the run, and all runs below it, must stay within; None where nobody says so."""
        seconds = min(most_s, self.limits.get("seconds", math.inf))
        if seconds == math.inf and not self.limits:
            return None
        turns = IterationBudget(_NAMES["turns"], self._ceiling("turns"))
        budgets = {"turns": turns}
        for name in ("tokens", "usd"):
            budgets[name] = IterationBudget(_NAMES[name], self._ceiling(name), beside=turns, unit=LIMITS[name])
        return TurnBudget(budgets, Deadline.after(seconds, clock), seconds=seconds)

    def _ceiling(self, name: str) -> int | None:
        return int(self.limits[name]) if name in self.limits else None


async def read(receive: Receive, length: str | None, most_bytes: int, seconds: float) -> bytes | Problem:
    """The whole body, if it is not too long and comes in time."""
    too_large = Problem(413, "body_too_large", f"The body is larger than {most_bytes:,} bytes.")
    if length is not None and length.isdecimal() and len(length) < 20 and int(length) > most_bytes:
        return too_large
    parts: list[bytes] = []
    left = most_bytes
    with anyio.move_on_after(seconds):
        while True:
            said = await receive()
            if said["type"] == "http.disconnect":
                return _GONE
            part: bytes = said.get("body", b"")
            left -= len(part)
            if left < 0:
                return too_large
            parts.append(part)
            if not said.get("more_body", False):
                return b"".join(parts)
    return Problem(408, "body_too_slow", f"The body did not come within {seconds:g} s.", {"connection": "close"})


def wish_of(body: bytes) -> ChatRequest | Problem:
    """What a body asks for, or what is wrong with it."""
    try:
        given: object = json.loads(body, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return Problem(400, "body_not_json", "The body is no JSON.")
    if not isinstance(given, dict):
        return Problem(400, "body_not_json", "The body must be a JSON object.")
    try:
        return _wish(cast("dict[str, Any]", given))
    except MessageError as error:
        return _wrong(str(error))
    except ValueError as error:
        return _wrong(str(error))


def _wrong(message: str) -> Problem:
    return Problem(422, "request_invalid", message)


def _no_number(name: str) -> None:
    raise ValueError(name)


def _wish(given: Mapping[str, Any]) -> ChatRequest:
    for key in given:
        if key not in _KEYS:
            raise ValueError(f"{key[:100]!r} is not known; did you mean {(nearest(key[:100], _KEYS) or _KEYS)[0]!r}?")
    session, metadata = given.get("session"), given.get("metadata")
    if session is not None and not (_is_name(session) and len(session) <= _LONGEST_SESSION):
        raise ValueError(f"`session` must be a printable text of 1 to {_LONGEST_SESSION} characters.")
    if metadata is not None and not isinstance(metadata, dict):
        raise ValueError("`metadata` must be an object.")
    return ChatRequest(
        messages=_messages(given),
        session=session,
        metadata=cast("dict[str, Any]", metadata or {}),
        limits=_limits(given.get("limits")),
    )


def _messages(given: Mapping[str, Any]) -> Sequence[Any]:
    message, messages = given.get("message"), given.get("messages")
    if (message is None) == (messages is None):
        raise ValueError("Give `message`, a text, or `messages`, a conversation whose last message is the task.")
    if messages is None and not (isinstance(message, str) and message.strip()):
        raise ValueError("`message` must be a text that is not empty.")
    if messages is not None and not (isinstance(messages, list) and messages):
        raise ValueError("`messages` must be a list of messages with role and content.")
    said = cast("list[Any]", [message] if messages is None else messages)
    read = normalize(said, run="request")
    if any(one.role is Role.SYSTEM for one in read):
        raise ValueError("The instructions are the agent's: `messages` may have no role `system` or `developer`.")
    if read[-1].role is not Role.USER:
        raise ValueError("The last of the `messages` must be the user's.")
    return said


def _limits(given: object) -> dict[str, int | float]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ValueError("`limits` must be an object.")
    limits: dict[str, int | float] = {}
    for name, amount in cast("dict[str, object]", given).items():
        unit = LIMITS.get(name)
        if unit is None:
            raise ValueError(f"`limits` knows {', '.join(LIMITS)}; {name[:100]!r} is none of them.")
        try:
            limits[name] = unit.parse(None if isinstance(amount, str) else amount)
        except ValueError:
            limits[name] = 0
        if limits[name] <= 0:
            raise ValueError(f"`limits.{name}` must be {unit.expected}, more than 0.")
    return limits


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.isprintable() and value.strip() != ""
