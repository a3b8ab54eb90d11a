"""The archive: the runs and sessions of a store, found by what somebody types, and told as records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, suggest_names
from .record import JsonReader, RunRecord
from .unfinished import build_partial_record, read_unstored_messages

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..message import Message
    from ..store import Entry, Holder, Session, Store

UNLIMITED = 1_000_000
"""More runs, or sessions, than anybody has."""
IN_PROGRESS, NOT_ENDED = "going on", "not ended"
LAST = "last"
"""The word for the newest run."""
_MAX_SUGGESTIONS = 5
_MIN_ID_CHARS = 8


class Archive:
    """What is in a store, for people."""

    def __init__(self, store: Store, store_name: str) -> None:
        self.store = store
        self.store_name = store_name

    def find_run(self, id_prefix: str) -> Entry:
        """The run of that id, or the only one whose id begins so; `last` is the newest. A ConfigError names near ones.

        The ids of children begin with that of their parent: so only what no run at the top can be may be a child.
        """
        found = self.store.runs.get(id_prefix)
        if found is not None:
            return found
        entries = self.list_entries()
        tops = [entry.run_id for entry in entries if entry.start.parent is None]
        id_prefix = tops[0] if tops and id_prefix == LAST else id_prefix
        meant = tops if any(run_id.startswith(id_prefix) for run_id in tops) else [entry.run_id for entry in entries]
        whole = self.store.runs.get(self._match_one("run", id_prefix, meant))
        assert whole is not None, "it was in the list a moment ago"
        return whole

    def find_session(self, id_prefix: str) -> Session:
        """The session of that name, or the only one whose name begins so; a ConfigError names near ones."""
        known = {session.id: session for session in self.store.transcript.sessions(limit=UNLIMITED)}
        return known[id_prefix] if id_prefix in known else known[self._match_one("session", id_prefix, list(known))]

    def list_entries(self) -> list[Entry]:
        """All runs, also children, the newest first."""
        from ..store import Query

        return self.store.runs.list(Query(children=True, limit=UNLIMITED))

    def list_children(self, entry: Entry) -> list[Entry]:
        """The children of a run, in the order in which they began."""
        from ..store import Query

        return self.store.runs.list(Query(parent=entry.run_id, limit=UNLIMITED))[::-1]

    def describe_status(self, entry: Entry) -> str:
        """Why it ended, or what is known of one that has not."""
        if entry.finish is not None:
            return entry.finish.stop
        return IN_PROGRESS if self._is_held(entry) else NOT_ENDED

    def read_messages(self, entry: Entry) -> list[Message]:
        """What was said in a run that has not ended: as its session has it, and what only its journal has yet."""
        said = self.store.transcript.read(entry.start.session or entry.run_id)
        own = [message for message in said if message.run == entry.run_id]
        return [
            *own,
            *read_unstored_messages(self.store.journal.read(entry.run_id), self.store.runs.events(entry.run_id), own),
        ]

    def build_record(self, entry: Entry) -> RunRecord:
        """The record of a run, and of those below it; of one that has not ended, as far as it came."""
        return RunRecord.from_dict({**self._build_data(entry), "stored": True}, require_end=False)

    def _build_data(self, entry: Entry) -> dict[str, Any]:
        whole = self.store.runs.get(entry.run_id) or entry
        if whole.finish is not None and whole.finish.record is not None:
            return self._add_events(whole.finish.record)
        word = self.describe_status(entry)
        return {
            **build_partial_record(self.store.runs.events(entry.run_id), self.read_messages(entry)),
            "run_id": entry.run_id,
            "session_id": entry.start.session,
            "task": entry.start.task,
            "children": [self._build_data(child) for child in self.list_children(entry)],
            "stop": None if whole.finish is None else whole.finish.stop,
            "word": word,
            "explanation": self._explain_status(entry, word),
        }

    def _add_events(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record, and those in it, with the events that the store has on their own."""
        told = JsonReader(record)
        events = self.store.runs.events(told.text("run_id"))
        children = [self._add_events(child.raw) for child in told.nested_list("children")]
        kept = {"events": events, "events_dropped": 0} if events else {}
        return {**record, "children": children, **kept}

    def _explain_status(self, entry: Entry, status: str) -> str:
        last = f"{format_time(entry.updated_at)} UTC"
        if status != IN_PROGRESS:
            return f"It did not end: its process was stopped from outside, or is gone. The last of it is of {last}."
        holder = self._find_holder(entry)
        by = (
            f" {holder.owner.partition(':')[0]} has its session until {format_time(holder.expires)} UTC."
            if holder
            else ""
        )
        return f"It has not ended yet.{by} The last of it is of {last}."

    def _is_held(self, entry: Entry) -> bool:
        """Whether somebody is at work on it: its session is held, and it is the newest there that has no end."""
        from ..store import Query

        if entry.start.parent is not None:
            above = self.store.runs.get(entry.start.parent)
            return above is not None and above.finish is None and self._is_held(above)
        if self._find_holder(entry) is None:
            return False
        newest = self.store.runs.list(Query(session=entry.start.session, finished=False, limit=1))
        return entry.start.session is None or [one.run_id for one in newest] == [entry.run_id]

    def _find_holder(self, entry: Entry) -> Holder | None:
        """Who has its session, and is not known to be dead."""
        from ..runtime.lease import is_owner_dead

        holder = self.store.lease.holder(entry.start.session or entry.run_id)
        return None if holder is None or is_owner_dead(holder.owner) else holder

    def _match_one(self, kind: str, id_prefix: str, known: Sequence[str]) -> str:
        found = [one for one in known if id_prefix and one.startswith(id_prefix)]
        if len(found) == 1:
            return found[0]
        if found:
            more = ", …" if len(found) > _MAX_SUGGESTIONS else ""
            raise ConfigError(
                f"{kind}, {self.store_name}",
                id_prefix,
                f"more of it, as {', '.join(found[:_MAX_SUGGESTIONS])}{more} begin so",
            )
        near = suggest_names(id_prefix, known) or list(known[:_MAX_SUGGESTIONS])
        hint = f"the id of a {kind}, such as {' or '.join(near)}" if near else f"a store that has a {kind}"
        raise ConfigError(f"{kind}, {self.store_name}", id_prefix, hint)


def format_time(timestamp: float) -> str:
    """A time as far as the minute, in UTC.

    >>> format_time(0.5)
    '1970-01-01 00:00'
    """
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M}"


def shorten_ids(ids: Sequence[str]) -> dict[str, str]:
    """Each id by as many of its first letters as tell it from the others, and no fewer than eight.

    >>> shorten_ids(["0123456789", "0123456700"])
    {'0123456789': '012345678', '0123456700': '012345670'}
    """
    length = _MIN_ID_CHARS
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 1
    return {one: one[:length] for one in ids}
