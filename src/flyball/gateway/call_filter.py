"""Denied calls of a reply: held back from the program while a stream is read, and taken out of the reply."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, cast

from ..wire.bodies import Json, get_dict, get_dicts, list_dicts
from ..wire.formats import ANTHROPIC, GEMINI, RESPONSES
from ..wire.responses_items import is_client_call
from ..wire.stream import ReadEvent
from ..wire.wire import Wire

_CALL_KEYS = ("functionCall", "function_call")


class CallHolder:
    """Holds a stream back from its first call on, because the calls may be denied once they are complete."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.held: list[ReadEvent] = []
        self.has_call = False

    def take(self, events: list[ReadEvent]) -> list[ReadEvent]:
        """Return the events that pass now. The others are held."""
        return [passing for event in events for passing in self._take(event)]

    def _take(self, event: ReadEvent) -> list[ReadEvent]:
        data = event.json or {}
        if not self.has_call and has_call(self._wire, data):
            self.has_call = True
        if self.has_call:
            if data.get("type") == "ping":  # keeps the connection alive
                return [event]
            self.held.append(event)
            return []
        if self._wire is RESPONSES and data.get("type") == "response.output_item.added":
            # The API refuses a history in which the item that follows on a reasoning is missing.
            if get_dict(data, "item").get("type") == "reasoning":
                self.held.append(event)
                return []
            held, self.held = self.held, []
            return [*held, event]
        if self.held:
            self.held.append(event)
            return []
        return [event]


def has_call(wire: Wire, event: Json) -> bool:
    """Check whether an event of a stream has a call of the program, or the start of one."""
    if wire is ANTHROPIC:
        return get_dict(event, "content_block").get("type") == "tool_use"
    if wire is RESPONSES:
        items = (get_dict(event, "item"), *get_dicts(get_dict(event, "response"), "output"))
        return any(map(is_client_call, items))
    if wire is GEMINI:
        return any(_is_gemini_call(part) for part in _list_parts(event))
    deltas = [get_dict(choice, "delta") for choice in get_dicts(event, "choices")]
    return any(delta.get("tool_calls") or delta.get("function_call") for delta in deltas)


class CallFilter:
    """Takes the calls at some places out of one reply, and renumbers what stands behind them.

    A place is the number of a call in the reply, from 0. Not every provider gives its calls ids.
    """

    def __init__(self, wire: Wire, places: Collection[int]) -> None:
        self._wire = wire
        self._places = places
        self._count = 0
        """Calls seen so far."""
        self._dropped: set[int] = set()
        """Indexes of blocks or items that are taken out."""
        self._known: set[int] = set()
        """Indexes of items that were seen."""
        self._by_index: dict[int, int] = {}
        self._ids: list[str] = []

    def edit_reply(self, reply: Json) -> Json:
        """Return a whole reply without these calls."""
        if self._wire is ANTHROPIC:
            return reply | {"content": self._keep(reply.get("content"), _is_tool_use)}
        if self._wire is RESPONSES:
            return reply | {"output": self._keep(reply.get("output"), is_client_call)}
        if self._wire is GEMINI:
            return self._edit_candidates(reply)
        return reply | {"choices": [self._edit_choice(choice, "message") for choice in get_dicts(reply, "choices")]}

    def edit_event(self, event: ReadEvent) -> ReadEvent | None:
        """Return an event of a stream without these calls; None if nothing is left of it."""
        data = event.json
        if data is None:
            return event
        if self._wire is ANTHROPIC:
            edited = self._edit_part(data, "index", get_dict(data, "content_block"))
        elif self._wire is RESPONSES:
            edited = self._edit_part(data, "output_index", get_dict(data, "item"))
            response = get_dict(data, "response")
            if edited is not None and response.get("output"):
                edited = edited | {"response": CallFilter(self._wire, self._places).edit_reply(response)}
        elif self._wire is GEMINI:
            edited = self._edit_candidates(data)
        else:
            edited = data | {"choices": [self._edit_choice(choice, "delta") for choice in get_dicts(data, "choices")]}
        if edited is None:
            return None
        return event if edited == data else event._replace(raw=b"", json=edited)

    def _keep(self, items: Any, is_call: Any) -> list[Any]:
        kept: list[Any] = []
        for item in cast("list[Any]", items) if isinstance(items, list) else ():
            if isinstance(item, dict) and is_call(item):
                self._count += 1
                if self._count - 1 in self._places:
                    continue
            kept.append(item)
        return kept

    def _edit_part(self, data: Json, key: str, part: Json) -> Json | None:
        index = data.get(key)
        if not isinstance(index, int):
            return data
        is_call = _is_tool_use(part) if self._wire is ANTHROPIC else is_client_call(part)
        if is_call and index not in self._known:
            self._known.add(index)
            if self._count in self._places:
                self._dropped.add(index)
            self._count += 1
        if index in self._dropped:
            return None
        return data | {key: index - sum(other < index for other in self._dropped)}

    def _edit_choice(self, choice: Json, key: str) -> Json:
        message = dict(get_dict(choice, key))
        if message.get("tool_calls"):
            calls = [kept for piece in list_dicts(message["tool_calls"]) for kept in self._edit_piece(piece)]
            message.pop("tool_calls")
            if calls:
                message["tool_calls"] = calls
        if message.get("function_call") is not None and not [*self._edit_piece({"index": 0})]:
            del message["function_call"]
        return choice | {key: message} if key in choice else choice

    def _edit_piece(self, piece: Json) -> Iterator[Json]:
        place = self._find_place(piece)
        if place not in self._places:
            index = place - sum(other < place for other in self._places)
            yield piece | {"index": index} if isinstance(piece.get("index"), int) else piece

    def _find_place(self, piece: Json) -> int:
        """Return the place of the call that a piece belongs to, found as the parser of replies finds it."""
        index, call_id = piece.get("index"), str(piece.get("id") or "")
        place = self._by_index.get(index) if isinstance(index, int) else None
        if place is None or (call_id and self._ids[place] and call_id != self._ids[place]):
            place = len(self._ids)
            self._ids.append("")
            if isinstance(index, int):
                self._by_index[index] = place
        self._ids[place] = self._ids[place] or call_id
        return place

    def _edit_candidates(self, reply: Json) -> Json:
        candidates = get_dicts(reply, "candidates")
        if not candidates:
            return reply
        content = get_dict(candidates[0], "content")
        if not content.get("parts"):
            return reply
        kept = content | {"parts": self._keep(content["parts"], _is_gemini_call)}
        return reply | {"candidates": [candidates[0] | {"content": kept}, *candidates[1:]]}


def _is_tool_use(block: Json) -> bool:
    return block.get("type") == "tool_use"


def _is_gemini_call(part: Json) -> bool:
    return any(isinstance(part.get(key), dict) for key in _CALL_KEYS)


def _list_parts(event: Json) -> Iterator[Json]:
    for candidate in get_dicts(event, "candidates"):
        yield from get_dicts(get_dict(candidate, "content"), "parts")
