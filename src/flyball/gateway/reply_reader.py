"""Reader of a provider's reply as it passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from .._internal.json_bytes import parse_json
from ..errors import FlyballError
from ..request import Reply
from ..wire.bodies import Json, get_dict
from ..wire.stream import ReadEvent, StreamReader
from .inbound import Inbound
from .server_tools import ServerCallCounter

_FRAME_BYTES = 150
"""Bytes of an event that are not content, roughly."""


class ReplyReader:
    """Reads a reply as it passes, and never fails: what it does not understand is only not counted exactly."""

    def __init__(self, inbound: Inbound) -> None:
        self._parser = inbound.wire.create_parser(inbound.route.upstream.name)
        self._stream = StreamReader(self._parser, is_array=inbound.is_array)
        self._is_broken = False
        self._is_error = False
        self.service_tier: str | None = None
        """Service tier that the reply names. None means the usual one."""
        self.heard_bytes = 0
        """Bytes of the reply's content, roughly."""
        self.long_written: int | None = None
        """Input tokens written to a cache for an hour. None means that the reply does not tell."""
        self.server_calls = ServerCallCounter()
        """Calls that the provider made itself."""

    @property
    def is_clear(self) -> bool:
        """Check whether the whole reply was understood, or is an error, so that no call in it is overlooked."""
        return self._is_error or (self.build_reply() is not None and self._stream.flaw is None)

    @property
    def state_id(self) -> str | None:
        """Id of the reply at the provider."""
        return self._parser.id

    @property
    def call_kinds(self) -> Mapping[str, str]:
        """Types of the calls that are special, by id."""
        return self._parser.call_kinds

    def feed(self, chunk: bytes) -> list[ReadEvent]:
        """Return the events that this part of a stream completes."""
        return self._note(self._stream.feed(chunk))

    def close(self) -> list[ReadEvent]:
        """Return what is left at the end of a stream."""
        return self._note(self._stream.close())

    def read_whole(self, body: bytes) -> None:
        """Read a reply that is not streamed."""
        try:
            reply = parse_json(body)
            if isinstance(reply, dict):
                self._note_facts(cast("Json", reply))
                self._is_error = bool(self._parser.find_error(cast("Json", reply)))
                self.heard_bytes += len(body)
                self._parser.parse_reply(cast("Json", reply))
        except (ValueError, RecursionError, FlyballError):
            self._is_broken = True

    def build_reply(self) -> Reply | None:
        """Return the reply; None if it is not complete or not understood."""
        is_complete = self._parser.finish is not None or self._parser.usage is not None
        return self.build_partial_reply() if is_complete and not self._is_broken else None

    def build_partial_reply(self) -> Reply | None:
        """Return as much of the reply as was understood."""
        try:
            return self._parser.build_reply()
        except (ValueError, FlyballError):
            return None

    def _note(self, events: list[ReadEvent]) -> list[ReadEvent]:
        for event in events:
            if event.json is not None:
                self.heard_bytes += max(0, len(event.raw) - _FRAME_BYTES)
                self._note_facts(event.json)
        return events

    def _note_facts(self, event: Json) -> None:
        """Note what the parser does not read: service tier, long caches, and calls at the provider."""
        self.server_calls.note(event)
        for source in () if "choices" in event else (event, get_dict(event, "message")):
            count = get_dict(get_dict(source, "usage"), "cache_creation").get("ephemeral_1h_input_tokens")
            if isinstance(count, int) and count >= 0:
                self.long_written = count
        tier = event.get("service_tier")
        if tier is None and "choices" not in event:
            tiers = [get_dict(event, key).get("service_tier") for key in ("response", "usage", "message")]
            tier = next((tier for tier in tiers if tier is not None), None)
        if isinstance(tier, str):
            self.service_tier = tier
