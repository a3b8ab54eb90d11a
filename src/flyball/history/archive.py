"""The archive: the runs and sessions of a store, found by what somebody types, and told as records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, nearest
from .record import JsonReader, RunRecord
from .unfinished import remains, tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..message import Message
    from ..store import Entry, Holder, Session, Store

EVERY = 1_000_000
"""More runs, or sessions, than anybody has."""
GOING_ON, NOT_ENDED = "going on", "not ended"
LAST = "last"
"""The word for the newest run."""
_MOST_NAMED = 5
_SHORTEST = 8


class Archive:
    """What is in a store, for people."""

    def __init__(self, store: Store, where: str) -> None:
        self.store = store
        self.where = where

    def run(self, typed: str) -> Entry:
        """The run of that id, or the only one whose id begins so; `last` is the newest. A ConfigError names near ones.

        The ids of children begin with that of their parent: so only what no run at the top can be may be a child.
        """
        found = self.store.runs.get(typed)
        if found is not None:
            return found
        entries = self.entries()
        tops = [entry.run_id for entry in entries if entry.start.parent is None]
        typed = tops[0] if tops and typed == LAST else typed
        meant = tops if any(run_id.startswith(typed) for run_id in tops) else [entry.run_id for entry in entries]
        whole = self.store.runs.get(self._only("run", typed, meant))
        assert whole is not None, "it was in the list a moment ago"
        return whole

    def session(self, typed: str) -> Session:
        """The session of that name, or the only one whose name begins so; a ConfigError names near ones."""
        known = {session.id: session for session in self.store.transcript.sessions(limit=EVERY)}
        return known[typed] if typed in known else known[self._only("session", typed, list(known))]

    def entries(self) -> list[Entry]:
        """All runs, also children, the newest first."""
        from ..store import Query

        return self.store.runs.list(Query(children=True, limit=EVERY))

    def below(self, entry: Entry) -> list[Entry]:
        """The children of a run, in the order in which they began."""
        from ..store import Query

        return self.store.runs.list(Query(parent=entry.run_id, limit=EVERY))[::-1]

    def word(self, entry: Entry) -> str:
        """Why it ended, or what is known of one that has not."""
        if entry.finish is not None:
            return entry.finish.stop
        return GOING_ON if self._is_held(entry) else NOT_ENDED

    def messages(self, entry: Entry) -> list[Message]:
        """What was said in a run that has not ended: as its session has it, and what only its journal has yet."""
        said = self.store.transcript.read(entry.start.session or entry.run_id)
        own = [message for message in said if message.run == entry.run_id]
        return [*own, *tail(self.store.journal.read(entry.run_id), self.store.runs.events(entry.run_id), own)]

    def record(self, entry: Entry) -> RunRecord:
        """The record of a run, and of those below it; of one that has not ended, as far as it came."""
        return RunRecord.of({**self._data(entry), "stored": True}, ended=False)

    def _data(self, entry: Entry) -> dict[str, Any]:
        whole = self.store.runs.get(entry.run_id) or entry
        if whole.finish is not None and whole.finish.record is not None:
            return self._with_events(whole.finish.record)
        word = self.word(entry)
        return {
            **remains(self.store.runs.events(entry.run_id), self.messages(entry)),
            "run_id": entry.run_id,
            "session_id": entry.start.session,
            "task": entry.start.task,
            "children": [self._data(child) for child in self.below(entry)],
            "stop": None if whole.finish is None else whole.finish.stop,
            "word": word,
            "explanation": self._explained(entry, word),
        }

    def _with_events(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """A record, and those in it, with the events that the store has on their own."""
        told = JsonReader(record)
        events = self.store.runs.events(told.text("run_id"))
        children = [self._with_events(child.plain) for child in told.inners("children")]
        kept = {"events": events, "events_dropped": 0} if events else {}
        return {**record, "children": children, **kept}

    def _explained(self, entry: Entry, word: str) -> str:
        last = f"{moment(entry.updated_at)} UTC"
        if word != GOING_ON:
            return f"It did not end: its process was stopped from outside, or is gone. The last of it is of {last}."
        holder = self._holder(entry)
        by = f" {holder.owner.partition(':')[0]} has its session until {moment(holder.expires)} UTC." if holder else ""
        return f"It has not ended yet.{by} The last of it is of {last}."

    def _is_held(self, entry: Entry) -> bool:
        """Whether somebody is at work on it: its session is held, and it is the newest there that has no end."""
        from ..store import Query

        if entry.start.parent is not None:
            above = self.store.runs.get(entry.start.parent)
            return above is not None and above.finish is None and self._is_held(above)
        if self._holder(entry) is None:
            return False
        newest = self.store.runs.list(Query(session=entry.start.session, finished=False, limit=1))
        return entry.start.session is None or [one.run_id for one in newest] == [entry.run_id]

    def _holder(self, entry: Entry) -> Holder | None:
        """Who has its session, and is not known to be dead."""
        from ..runtime.lease import is_gone

        holder = self.store.lease.holder(entry.start.session or entry.run_id)
        return None if holder is None or is_gone(holder.owner) else holder

    def _only(self, kind: str, typed: str, known: Sequence[str]) -> str:
        found = [one for one in known if typed and one.startswith(typed)]
        if len(found) == 1:
            return found[0]
        if found:
            more = ", …" if len(found) > _MOST_NAMED else ""
            raise ConfigError(
                f"{kind}, {self.where}", typed, f"more of it, as {', '.join(found[:_MOST_NAMED])}{more} begin so"
            )
        near = nearest(typed, known) or list(known[:_MOST_NAMED])
        hint = f"the id of a {kind}, such as {' or '.join(near)}" if near else f"a store that has a {kind}"
        raise ConfigError(f"{kind}, {self.where}", typed, hint)


def moment(at: float) -> str:
    """A time as far as the minute, in UTC.

    >>> moment(0.5)
    '1970-01-01 00:00'
    """
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def short(ids: Sequence[str]) -> dict[str, str]:
    """Each id by as many of its first letters as tell it from the others, and no fewer than eight.

    >>> short(["0123456789", "0123456700"])
    {'0123456789': '012345678', '0123456700': '012345670'}
    """
    length = _SHORTEST
    while len({one[:length] for one in ids}) < len(set(ids)):
        length += 1
    return {one: one[:length] for one in ids}
