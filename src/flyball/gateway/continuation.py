"""Stream that is continued with another reply, because all calls of the one before were denied."""

from __future__ import annotations

from ..wire.bodies import Json, get_dict, get_dicts, get_text
from ..wire.formats import ANTHROPIC, GEMINI, RESPONSES
from ..wire.stream import ReadEvent
from ..wire.wire import Wire

_BEGINNINGS = frozenset({"message_start", "response.created", "response.queued", "response.in_progress"})


class Continuation:
    """Record of what a program has of a stream, so that the events of a later reply can stand behind it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.id: str | None = None
        """Id of the first reply, which the whole stream keeps: clients refuse a stream whose id changes."""
        self._has_role = False
        self._parts = 0
        """Blocks or items that the program has."""
        self._offset = 0
        """Number of them that are from earlier replies."""
        self._items: list[Json] = []
        """Complete items of the responses API."""
        self._earlier: list[Json] = []
        self._sequence = -1
        self.is_joined = False
        """True once a further reply has begun."""

    def begin_reply(self) -> None:
        """Note that the next events are those of a further reply."""
        self.is_joined = True
        self._offset, self._earlier = self._parts, [*self._items]

    def note(self, event: ReadEvent) -> None:
        """Note an event that the program gets."""
        data = event.json
        if data is None:
            return
        if self._wire is ANTHROPIC:
            if data.get("type") == "content_block_start":
                self._parts += 1
        elif self._wire is RESPONSES:
            self._note_response(data)
        elif self._wire is not GEMINI:
            self.id = self.id or get_text(data, "id")
            deltas = [get_dict(choice, "delta") for choice in get_dicts(data, "choices")]
            self._has_role = self._has_role or any("role" in delta for delta in deltas)

    def _note_response(self, data: Json) -> None:
        self.id = self.id or get_text(get_dict(data, "response"), "id")
        index, sequence = data.get("output_index"), data.get("sequence_number")
        if isinstance(index, int):
            self._parts = max(self._parts, index + 1)
        if isinstance(sequence, int):
            self._sequence = max(self._sequence, sequence)
        if data.get("type") == "response.output_item.done":
            self._items.append(get_dict(data, "item"))

    def join(self, event: ReadEvent) -> ReadEvent | None:
        """Return an event of a further reply, renumbered to follow the earlier ones.

        None for an event that starts a stream.
        """
        data = event.json
        if data is None or self._wire is GEMINI:
            return event
        if data.get("type") in _BEGINNINGS:
            return None
        if self._wire is ANTHROPIC:
            index = data.get("index")
            edited = data | {"index": index + self._offset} if isinstance(index, int) else data
        elif self._wire is RESPONSES:
            edited = self._join_response(data)
        else:
            choices = [self._drop_role(choice) for choice in get_dicts(data, "choices")]
            edited = data | {"id": self.id or data.get("id"), "choices": choices}
        return event._replace(raw=b"", json=edited)

    def _join_response(self, data: Json) -> Json:
        edited, index, response = dict(data), data.get("output_index"), get_dict(data, "response")
        if isinstance(index, int):
            edited["output_index"] = index + self._offset
        if "sequence_number" in data:
            edited["sequence_number"] = self._sequence + 1
        if "output" in response:
            output = [*self._earlier, *get_dicts(response, "output")]
            edited["response"] = response | {"id": self.id or response.get("id"), "output": output}
        return edited

    def _drop_role(self, choice: Json) -> Json:
        delta = get_dict(choice, "delta")
        if not self._has_role or "role" not in delta:
            return choice
        return choice | {"delta": {key: value for key, value in delta.items() if key != "role"}}
