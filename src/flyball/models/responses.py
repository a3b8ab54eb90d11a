"""OpenAI's Responses API."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import ClassVar, Unpack

from .._internal import validation
from .._internal.jsonable import to_json_text
from ..errors import ModelError, Retryable
from ..message import RESPONSES, Message, MessageType
from ..request import Reply, Request
from ..wire.bodies import Json, WireRequest
from ..wire.responses import ResponsesWire
from ..wire.responses_items import write_responses
from .endpoint import Provider
from .http import HttpModel
from .model import OnText
from .openai import OPENAI
from .options import HttpOptions

_WITHOUT_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt|gpt-[5-9][\d.]*-chat)")
"""Names of models that refuse to be asked for reasoning."""
_FORGOTTEN = re.compile(r"previous[ _]response.{0,200}not[ _]found", re.IGNORECASE)
_ENCRYPTED = "reasoning.encrypted_content"
_STATE = "state"
"""Type of the part that remembers where the provider's own copy of a conversation ends."""


class ResponsesOptions(HttpOptions, total=False):
    """Options of a model that is asked over the Responses API."""

    keeps_state: bool
    """Whether the provider stores the conversation, so that a request carries only what is new. Default False."""


class ResponsesModel(HttpModel):
    """OpenAI model over the Responses API, which returns the model's reasoning to it between turns.

    The key is `key=` or OPENAI_API_KEY. With `url=` it is `key=` or FLYBALL_API_KEY, and may be missing.
    """

    _provider_spec: ClassVar[Provider] = OPENAI
    _wire = ResponsesWire()

    def __init__(self, name: str, **options: Unpack[ResponsesOptions]) -> None:
        self._keeps_state = options.pop("keeps_state", False)
        validation.check_type(f"model {name}, keeps_state", self._keeps_state, bool)
        self._lost: set[str] = set()
        """Ids of replies that the provider does not know any more."""
        super().__init__(name, **options)

    def _prepare(self, request: Request) -> WireRequest:
        """Return the request: whole, or only what is new since the reply that the provider keeps."""
        prepared = super()._prepare(request)
        if not self._keeps_state:
            prepared.messages = [message for message in request.messages if not _is_lost_reasoning(message)]
            return prepared
        found = _find_state(request.messages)
        if found is not None:
            (start, end), state = found
            if state["id"] not in self._lost and state["digest"] == _digest(request.messages[:start]):
                prepared.messages, prepared.previous_id = request.messages[end:], state["id"]
                return prepared
        prepared.messages = [message for message in request.messages if not _is_state(message)]
        return prepared

    def _write_body(self, request: WireRequest) -> Json:
        body = super()._write_body(request)
        body.setdefault("store", self._keeps_state)
        included = body.get("include", (_ENCRYPTED,))
        if included and not self._keeps_state and not _WITHOUT_REASONING.match(self.name):
            body["include"] = list(dict.fromkeys([*included, _ENCRYPTED]))
        return body

    async def ask(self, request: Request, tell: OnText | None = None, /) -> Reply:
        """Send the request once and return the reply.

        If the provider has lost the earlier reply, the next attempt sends the whole conversation.
        """
        try:
            reply = await super().ask(request, tell)
        except ModelError as error:
            state = self._prepare(request).previous_id if self._keeps_state else None
            if state is None or not _FORGOTTEN.search(error.message):
                raise
            self._lost.add(state)
            raise Retryable(f"{error.message}; the whole conversation is sent again", 0.0) from None
        if self._keeps_state and reply.id and "" not in {call.id for call in reply.calls}:
            state_part = {"type": _STATE, "id": reply.id, "digest": _digest(request.messages)}
            reply.parts = (*reply.parts, {"part": state_part, "shape": RESPONSES, "calls": _list_ids(reply)})
        return reply


def _list_ids(reply: Reply) -> list[str]:
    return [call.id for call in reply.calls]


def _is_state(message: Message) -> bool:
    return message.type is MessageType.MULTIMODAL_PART and (message.payload or {})["part"]["type"] == _STATE


def _is_lost_reasoning(message: Message) -> bool:
    """Check for reasoning that the provider has not stored and did not send, so it would refuse its id."""
    if message.type is not MessageType.MULTIMODAL_PART:
        return False
    payload = message.payload or {}
    part = payload["part"]
    if payload["shape"] != RESPONSES:
        return False
    is_empty = part["type"] == "reasoning" and not part.get("encrypted_content") and not part.get("content")
    return is_empty or part["type"] == _STATE


def _find_state(messages: Sequence[Message]) -> tuple[tuple[int, int], Json] | None:
    """Return where the last reply that the provider keeps begins and ends, and its state."""
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if not _is_state(message):
            continue
        start, end = place, place + 1
        while start and _is_same_reply(messages[start - 1], message):
            start -= 1
        while end < len(messages) and _is_same_reply(messages[end], message):
            end += 1
        payload = message.payload or {}
        calls = [(one.payload or {})["call_id"] for one in messages[start:end] if one.type is MessageType.TOOL_CALL]
        return ((start, end), payload["part"]) if calls == payload.get("calls") else None
    return None


def _is_same_reply(message: Message, other: Message) -> bool:
    return message.group is not None and (message.run, message.group) == (other.run, other.group)


def _digest(messages: Sequence[Message]) -> str:
    """Return a mark that changes with the messages: only an unchanged conversation may be continued."""
    items = write_responses(message for message in messages if not _is_state(message))
    return hashlib.sha256(to_json_text(items).encode("utf-8", "replace")).hexdigest()[:32]
