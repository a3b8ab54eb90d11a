"""The four wires, and conversations written in the two newer formats."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..message import Message
from .anthropic import AnthropicWire
from .bodies import Json
from .chat import ChatWire
from .gemini import GeminiWire
from .gemini_contents import write_gemini
from .responses import ResponsesWire
from .responses_items import write_responses
from .wire import Wire
from .writer import check_messages

CHAT, RESPONSES, ANTHROPIC, GEMINI = ChatWire(), ResponsesWire(), AnthropicWire(), GeminiWire()
WIRES: Mapping[str, Wire] = {wire.name: wire for wire in (CHAT, RESPONSES, ANTHROPIC, GEMINI)}
"""Each wire by its name, which is also the shape of its messages."""
_PATHS = (
    (re.compile(r"(^|/)chat/completions/?$"), CHAT),
    (re.compile(r"(^|/)responses/?$"), RESPONSES),
    (re.compile(r"(^|/)messages/?$"), ANTHROPIC),
    (re.compile(r"/(models|tunedModels)/[^/:]+:(generateContent|streamGenerateContent)$"), GEMINI),
)


def find_wire(path: str) -> Wire | None:
    """Return the wire of a request's path, which may have a query. None means that it asks for no reply of a model.

    >>> find_wire("/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse").name
    'gemini'
    """
    path = path.partition("?")[0]
    return next((wire for pattern, wire in _PATHS if pattern.search(path)), None)


def to_responses(messages: Iterable[Message]) -> list[Json]:
    """Convert messages to items of OpenAI's Responses API.

    Arguments that are a dict become JSON text. The result shares nothing with the messages. Raises MessageError for an
    invalid message.
    """
    return write_responses(check_messages(messages))


def to_gemini(messages: Iterable[Message]) -> tuple[str | None, list[Json]]:
    """Convert messages to a system text and the contents of Gemini's API.

    Arguments that are JSON text become a dict. A text result becomes the `output`, or the `error`, of a response. The
    result shares nothing with the messages. Raises MessageError for an invalid message.
    """
    return write_gemini(check_messages(messages))
