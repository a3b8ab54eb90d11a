"""`Wire`: reads and writes the bodies of one provider's API. All wires have the same methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, cast

from ..message import Message
from ..request import Reply, Usage
from .bodies import ErrorReply, Json, ReplyDraft, StreamEvent, WireMessages, WireRequest
from .reply_parser import ReplyParser

_Write = Callable[[Json, WireRequest], None]


class Wire(ABC):
    """Reader and writer of requests, replies and streams in one provider's format.

    Bodies are JSON objects. Parsing a request never fails: a part that the wire does not understand is left alone, and
    stays in the body.
    """

    name: ClassVar[str]
    """Name of the format."""
    min_output_tokens: ClassVar[int] = 1
    """Lowest limit for the tokens of a reply that the API accepts."""

    @abstractmethod
    def parse_request(self, body: Json, path: str = "") -> WireRequest:
        """Parse the body of a request. Gemini's path has the model and whether to stream."""

    @abstractmethod
    def build_path(self, request: WireRequest) -> str:
        """Return the path of a request, behind the base URL that clients of the provider use."""

    def write_request(self, request: WireRequest) -> Json:
        """Return the body of a request.

        A request that was parsed and not changed gives its `source`, the same object. In a changed one, only the
        changed fields differ from `source`.
        """
        source, body = request.source, dict(request.source or {})
        before = None if source is None else self.parse_request(source)
        is_changed = source is None
        for fields, write in self._list_writers():
            if before is None or any(_differ(getattr(request, name), getattr(before, name)) for name in fields):
                write(body, request)
                is_changed = True
        return body if is_changed or source is None else source

    @abstractmethod
    def _list_writers(self) -> Sequence[tuple[Sequence[str], _Write]]:
        """Return fields of a `WireRequest`, and the function that writes them into a body."""

    def parse_reply(self, body: Json) -> Reply:
        """Parse the body of a reply. Raises Retryable if it is malformed."""
        parser = self.create_parser()
        parser.parse_reply(body)
        return parser.build_reply()

    @abstractmethod
    def write_reply(self, draft: ReplyDraft) -> Json:
        """Return a reply as one body."""

    @abstractmethod
    def create_parser(self, provider: str | None = None, on_text: Callable[[str], None] | None = None) -> ReplyParser:
        """Return a parser for one reply, whole or streamed."""

    @abstractmethod
    def iter_events(self, draft: ReplyDraft) -> Iterator[StreamEvent]:
        """Yield a reply as events of a stream."""

    def read_usage(self, body: Json) -> Usage | None:
        """Return the usage that a reply, or an event of a stream, reports.

        None means that it reports none, or one that is not valid.
        """
        parser = self.create_parser()
        usage = self._find_usage(body)
        if usage is not None:
            parser.set_usage(usage)
        return parser.usage

    @abstractmethod
    def _find_usage(self, body: Json) -> object:
        """Return the usage in a reply or an event as the provider wrote it, or None."""

    @abstractmethod
    def build_error(self, error: ErrorReply) -> Json:
        """Return the body of an error response."""

    def build_error_event(self, error: ErrorReply) -> StreamEvent:
        """Return an error in the middle of a stream."""
        return StreamEvent(self.build_error(error))


def merge_tools(
    items: object,
    tools: Sequence[Mapping[str, Any]],
    read: Callable[[object], Json | None],
    write: Callable[[Mapping[str, Any]], Json],
) -> list[Any]:
    """Return a provider's list of tools for these tools.

    An item whose tool is unchanged stays as it is, and so does one that is not a function of the caller.
    """
    wanted, merged = {tool["name"]: tool for tool in tools}, list[Any]()
    for item in items if isinstance(items, list) else ():  # pyright: ignore[reportUnknownVariableType]
        old = read(item)  # pyright: ignore[reportUnknownArgumentType]
        new = None if old is None else wanted.pop(old["name"], None)
        if old is None or new == old:
            merged.append(item)
        elif new is not None:
            merged.append(write(new))
    return merged + [write(tool) for tool in wanted.values()]


def _write_user_text(text: str) -> Json:
    return {"role": "user", "content": text}


def own_items(
    request: WireRequest, wire: str, write_text: Callable[[str], Json] = _write_user_text
) -> tuple[list[Any], Sequence[Message]]:
    """Return the provider's own messages of a body, which stay as they are, and the messages to write behind them.

    A body may have one text in place of a list. `write_text` makes a message of it.
    """
    messages = request.messages
    if request.source is None or not isinstance(messages, WireMessages) or messages.wire != wire:
        return [], messages
    items = messages.items
    if isinstance(items, list):
        return cast("list[Any]", items), messages.added
    item = write_text(items) if isinstance(items, str) else items
    return [] if item is None else [item], messages.added


def _differ(value: object, before: object) -> bool:
    return value is not before and value != before
