"""Seam between a governed run and a framework's model: requests, replies and how to change them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Protocol, TypeVar, cast

from .._internal.attachments import take_out_files
from ..budget.usage import Usage
from ..errors import ConfigError, ModelError
from ..governor.reservation import TOKENS_PER_BYTE
from ..request import Reply

R = TypeVar("R")
T = TypeVar("T")
MESSAGE_BYTES, CALL_BYTES, SCHEMA_BYTES = 40, 100, 300
"""Bytes that requests have for each message, call and schema of a tool besides their content, about."""
_SERVER_TOOLS = (
    "web_search", "web_fetch", "code_execution", "file_search", "code_interpreter", "image_generation", "mcp",
    "google_search", "google_maps", "url_context",
)  # fmt: skip
"""Starts of the types of tools that run at a provider."""


@dataclass(slots=True)
class CountedMessages:
    """Bytes of the messages of a conversation, which mostly grows."""

    _counted: tuple[int, object, int] = (0, None, 0)
    """Number of the messages that were counted, the newest of them, and their bytes."""

    def count(self, messages: Sequence[T], count_bytes: Callable[[T], int]) -> int:
        """Return the bytes of the messages. Only new ones are counted; the others are known."""
        known, newest, size = self._counted
        if len(messages) < known or (known and messages[known - 1] is not newest and messages[known - 1] != newest):
            known = size = 0
        size += sum(map(count_bytes, messages[known:]))
        self._counted = len(messages), messages[-1] if messages else None, size
        return size


def count_content(content: object) -> int:
    """Return about the bytes of a content. An image or another file counts as much as a text with as many tokens."""
    if isinstance(content, str):
        return len(content)
    rest, file_tokens = take_out_files(content)
    return len(str(rest)) + math.ceil(file_tokens / TOKENS_PER_BYTE)


@dataclass(frozen=True, slots=True)
class KnownTools:
    """Tools of a request, which are mostly those of the one before."""

    tools: tuple[object, ...] = ()
    names: tuple[str, ...] = ()
    server_tools: tuple[str, ...] = ()
    """Names of the tools that run at the provider."""
    size: int = 0
    """Bytes."""

    def are(self, tools: Sequence[object]) -> bool:
        """Check whether these are the same objects."""
        return len(self.tools) == len(tools) and all(map(is_, self.tools, tools))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedModel:
    """Request that a framework is about to make to a model."""

    model: str
    """Name, with its provider if it is known, such as `openai:gpt-4o`."""
    input_bytes: int
    """Bytes of the history, the instructions and the tools, about."""
    messages: int = 0
    max_output_tokens: int | None = None
    """Longest reply that the framework asks for. None means that it sets no limit."""
    tools: tuple[str, ...] = ()
    server_tools: tuple[str, ...] = ()
    """Tools that run at the provider, such as its web search."""
    handoffs: tuple[str, ...] = ()
    """Tools that hand the conversation to another agent. They do not count as tool calls."""
    final_tool: str | None = None
    """Tool that carries the answer. None means that the answer is text."""
    has_schema: bool = False
    """Whether the answer must fit a schema."""
    results: Mapping[str, str] = field(default_factory=dict[str, str])
    """Results of tool calls in the history, by the ids of the calls."""
    unheld: tuple[str, ...] = ()
    """Reasons why a part of the run cannot be held, to warn of."""


@dataclass(frozen=True, slots=True)
class Edits:
    """Changes to make to a request before it is sent."""

    texts: tuple[str, ...] = ()
    """Texts to add behind the newest message, for this request only."""
    max_output_tokens: int | None = None
    """Longest reply. None means that it is not limited."""
    is_last: bool = False
    """Whether the request is for the report: keep its tools, but forbid calls, except of the final tool."""
    model: str | None = None
    """Model that a rule selected. None means no rule did."""


class ReplyCut(ModelError):
    """Reply that the framework refuses, because it was cut at the length that the run allowed it."""


class ModelPort(Protocol[R]):
    """Access to a framework's model. `send` is a coroutine function for `FrameworkRun.aask`."""

    def send(self, edits: Edits) -> Any:
        """Make the request with these changes, and return or await the reply. May raise ReplyCut."""
        ...

    def read(self, reply: R) -> Reply:
        """Return the text, the calls and the usage of a reply."""
        ...

    def count_server_calls(self, reply: R) -> int:
        """Return the number of calls that the provider made itself."""
        ...

    def make(self, text: str, original: R | None) -> R:
        """Return a final reply with this text. `original` is the reply that it replaces, or None."""
        ...

    def drop_calls(self, reply: R, call_ids: Collection[str]) -> R:
        """Return the reply without some of its calls."""
        ...


def find_server_tools(tools: Iterable[object]) -> tuple[str, ...]:
    """Return the types of the tools that run at the provider, of tools in the form of its API."""
    fields = (cast("Mapping[str, object]", tool) for tool in tools if isinstance(tool, dict))
    names = (str(tool.get("type") or next(iter(tool), "")) for tool in fields)
    return tuple(name for name in names if name.startswith(_SERVER_TOOLS))


def is_server_call(block: object) -> bool:
    """Check whether a part of a message is a call that the provider made itself. Such calls have no `call_id`."""
    if not isinstance(block, dict):
        return False
    fields = cast("Mapping[str, object]", block)
    kind = str(fields.get("type"))
    return kind == "server_tool_use" or (kind.endswith("_call") and kind != "tool_call" and "call_id" not in fields)


def parse_usage(usage: object) -> Usage | None:
    """Parse the usage that a framework reports. None if there is none, or if it makes no sense."""
    if usage is None:
        return None
    try:
        parsed = Usage.of(usage)
    except ConfigError:
        return None
    return parsed if parsed.input or parsed.output else None


def name_model(name: str | None, provider: str = "openai") -> str:
    """Return the name under which a model's price is found.

    Routers put the provider before the name, and their own name before both.

    >>> name_model("gpt-4o"), name_model("litellm/anthropic/claude-sonnet-4-5")
    ('openai:gpt-4o', 'anthropic:claude-sonnet-4-5')
    """
    if not name:
        return "unknown"
    *prefixes, plain = name.split("/")
    return f"{prefixes[-1] if prefixes else provider}:{plain}"
