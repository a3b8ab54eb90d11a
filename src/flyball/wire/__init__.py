"""Messages, requests, replies and streams in the formats of the providers.

`normalize` reads a conversation in any of the formats; `to_openai`, `to_anthropic`, `to_responses` and `to_gemini`
write one. `CHAT`, `RESPONSES`, `ANTHROPIC` and `GEMINI` read and write whole bodies and streams, each with the same
methods; `find_wire` returns the one that a path belongs to.

A conversation that is read and written in the same format is unchanged, with these exceptions: a missing `content`
beside calls becomes None, a missing `type` of a call becomes "function", arguments that an OpenAI-like server sent as a
dict become text, arguments and results that are missing or null become empty ones, and neighbouring result messages
become one, as Anthropic requires.

Keys that only one provider knows are kept in the metadata of the message, and written only in that provider's format:

    {"wire": {"shape":   "openai", "anthropic", "responses" or "gemini", if the provider's message shows which
              "message": its other keys (name, refusal, the role "developer"), on the first of its messages
              "part":    the other keys of this part, block or call (cache_control); {} for a text alone in a list}}

A conversion from one provider to another keeps order, texts, call ids, names, arguments and pairs. It loses:

    to OpenAI      the place of text between or after the calls of one message (it moves before them); `is_error` of a
                   result and its parts other than text; which user text came in the message of the results
    to Responses   `is_error` of a result and its parts other than text
    to Anthropic   the place of a system text (there is only one, at the top); the name on a result; blank texts
    to Gemini      the place of a system text; empty texts; parts of a result other than text
    all            private reasoning, which is dropped; parts other than text and images: a line names what was dropped
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .reader import normalize
from .writer import to_anthropic, to_openai

if TYPE_CHECKING:
    from .bodies import ErrorReply, ReplyDraft, StreamEvent, WireMessages, WireRequest
    from .formats import ANTHROPIC, CHAT, GEMINI, RESPONSES, WIRES, find_wire, to_gemini, to_responses
    from .stream import StreamReader
    from .wire import Wire

__all__ = [
    "ANTHROPIC",
    "CHAT",
    "GEMINI",
    "RESPONSES",
    "WIRES",
    "ErrorReply",
    "ReplyDraft",
    "StreamEvent",
    "StreamReader",
    "Wire",
    "WireMessages",
    "WireRequest",
    "find_wire",
    "normalize",
    "to_anthropic",
    "to_gemini",
    "to_openai",
    "to_responses",
]

_MODULE_OF = {
    **dict.fromkeys(("ErrorReply", "ReplyDraft", "StreamEvent", "WireMessages", "WireRequest"), "bodies"),
    **dict.fromkeys(("ANTHROPIC", "CHAT", "GEMINI", "RESPONSES", "WIRES"), "formats"),
    **dict.fromkeys(("find_wire", "to_gemini", "to_responses"), "formats"),
    "StreamReader": "stream",
    "Wire": "wire",
}


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _MODULE_OF:
            return globals().setdefault(name, getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name))
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
