"""Records of runs as a store keeps them: without what the store has elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._internal.json_reader import JsonReader
from ..record import messages_to_record, to_record
from ..result import Result

if TYPE_CHECKING:
    from ..store import Store

_TRANSCRIPT = "transcript"
"""Key of the reference to the transcript: the number of messages, and the parameters to hide in them by tool."""


def to_stored_record(result: Result, transcript_count: int) -> dict[str, Any]:
    """Return the record of a result without events, and without its first `transcript_count` messages.

    The store has the events of each run and the transcript of its session. In a long session, the earlier messages
    would be most of every record.
    """
    record = to_record(result, with_events=False, first_message=transcript_count)
    if transcript_count:
        sensitive = {tool: sorted(names) for tool, names in result.sensitive.items()}
        record[_TRANSCRIPT] = {"messages": transcript_count, "sensitive": sensitive}
    return record


def join_stored_record(store: Store, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored record with its events and messages, as `Result.to_dict` wrote it. Older records have messages.

    Events that the result did not keep are included.
    """
    reader = JsonReader(record)
    joined = {key: value for key, value in record.items() if key != _TRANSCRIPT}
    events = store.runs.events(reader.text("run_id"))
    if events:
        joined |= {"events": events, "events_dropped": 0}
    count = reader.nested(_TRANSCRIPT).integer("messages")
    if count:
        messages = store.transcript.read(reader.text("session_id"))[:count]
        sensitive = reader.nested(_TRANSCRIPT).nested("sensitive")
        hidden = {tool: frozenset(sensitive.text_list(tool)) for tool in sensitive}
        own: Sequence[Any] = record["messages"]
        joined["messages"] = [*messages_to_record(messages, hidden), *own]
    children = [join_stored_record(store, child.raw) for child in reader.nested_list("children")]
    return {**joined, "children": children}
