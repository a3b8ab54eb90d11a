"""Lookup of stored runs and sessions, and their records."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from .._internal.text import pluralize
from ..errors import UsageError, quote_value, suggest_names
from .record import COMMAND_METADATA, RunRecord, Starter
from .unfinished import (
    build_partial_record,
    count_open_requests,
    is_program_start,
    read_unstored_messages,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..message import Message
    from ..store import Entry, Holder, Session, Store

UNLIMITED = 1_000_000
"""Query limit that no store reaches."""
RUNNING, INTERRUPTED = "running", "interrupted"
LAST = "last"
"""Argument that names the newest run."""
_MAX_SUGGESTIONS = 5
_MIN_ID_CHARS = 8


class Archive:
    """Read-only view of a store for commands."""

    def __init__(self, store: Store, store_name: str) -> None:
        self.store = store
        self.store_name = store_name

    def find_run(self, id_prefix: str) -> Entry:
        """Return the run with this id or unique id prefix.

        `last` is the newest run. A child's id starts with its parent's id, so children match only if no top-level run
        does. Raises `UsageError` with near matches if no run, or more than one, matches.
        """
        exact = self.store.runs.get(id_prefix)
        if exact is not None:
            return exact
        entries = self.list_entries()
        tops = [entry.run_id for entry in entries if entry.start.parent is None]
        id_prefix = tops[0] if tops and id_prefix == LAST else id_prefix
        candidates = (
            tops if any(run_id.startswith(id_prefix) for run_id in tops) else [entry.run_id for entry in entries]
        )
        match = self.store.runs.get(self._match_one("run", id_prefix, candidates))
        assert match is not None, "it was in the list a moment ago"
        return match

    def find_session(self, id_prefix: str) -> Session:
        """Return the session with this id or unique id prefix.

        Raises `UsageError` with near matches if no session, or more than one, matches.
        """
        known = {session.id: session for session in self.store.transcript.sessions(limit=UNLIMITED)}
        return known[id_prefix] if id_prefix in known else known[self._match_one("session", id_prefix, list(known))]

    def list_entries(self) -> list[Entry]:
        """Return all runs including children, newest first."""
        from ..store import Query

        return self.store.runs.list(Query(children=True, limit=UNLIMITED))

    def list_children(self, entry: Entry) -> list[Entry]:
        """Return the children of a run in start order."""
        from ..store import Query

        return self.store.runs.list(Query(parent=entry.run_id, limit=UNLIMITED))[::-1]

    def describe_status(self, entry: Entry) -> str:
        """Return the stop reason, or the status without one."""
        if entry.finish is not None:
            return entry.finish.stop
        return RUNNING if self._is_held(entry) else INTERRUPTED

    def read_messages(self, entry: Entry) -> list[Message]:
        """Return the messages of a run that has not ended.

        Messages that only the journal has yet are appended to those of the transcript.
        """
        messages = self.store.transcript.read(entry.start.session or entry.run_id)
        stored = [message for message in messages if message.run == entry.run_id]
        return [
            *stored,
            *read_unstored_messages(
                self.store.journal.read(entry.run_id), self.store.runs.events(entry.run_id), stored
            ),
        ]

    def build_record(self, entry: Entry) -> RunRecord:
        """Build the record of a run and its children.

        The record is partial if the run has not ended.
        """
        data = {**self._build_data(entry), "starter": self._find_starter(entry)}
        return RunRecord.from_dict(data, require_end=False)

    def _find_starter(self, entry: Entry) -> Starter:
        """Return what started a run. Only agents keep a journal."""
        if entry.start.parent is not None:
            return Starter.PARENT
        if is_program_start(entry.start.metadata):
            return Starter.UNSTORED
        if COMMAND_METADATA in entry.start.metadata:
            return Starter.COMMAND
        return Starter.AGENT if self.store.journal.read(entry.run_id) else Starter.PROGRAM

    def _build_data(self, entry: Entry) -> dict[str, Any]:
        full_entry = self.store.runs.get(entry.run_id) or entry
        started = {"task": entry.start.task, "agent": entry.start.agent}
        if full_entry.finish is not None and full_entry.finish.record is not None:
            from ..runtime.stored_record import join_stored_record

            return {**join_stored_record(self.store, full_entry.finish.record), **started}
        status, events = self.describe_status(entry), self.store.runs.events(entry.run_id)
        return {
            **build_partial_record(events, self.read_messages(entry), entry.start.metadata),
            "run_id": entry.run_id,
            "session_id": entry.start.session,
            **started,
            "children": [self._build_data(child) for child in self.list_children(entry)],
            "stop": None if full_entry.finish is None else full_entry.finish.stop,
            "word": status,
            "explanation": self._explain_status(entry, status, events),
        }

    def _explain_status(self, entry: Entry, status: str, events: Sequence[Mapping[str, Any]]) -> str:
        updated_at = f"{format_time(entry.updated_at)} UTC"
        count = count_open_requests(events) if is_program_start(entry.start.metadata) else 0
        missing = f" It leaves out {pluralize(count, 'request')} in progress." if count else ""
        if status != RUNNING:
            gone = "It was interrupted: its process was killed or is gone."
            return f"{gone} Its last record is from {updated_at}.{missing}"
        holder = self._find_holder(entry)
        held_by = (
            f" {holder.owner.partition(':')[0]} holds its session until {format_time(holder.expires)} UTC."
            if holder
            else ""
        )
        return f"It is still running.{held_by} Its last record is from {updated_at}.{missing}"

    def _is_held(self, entry: Entry) -> bool:
        """Check whether a process is working on the run.

        That is so if its session is held and it is the newest unfinished run there. A child is held if its parent is.
        """
        from ..store import Query

        if entry.start.parent is not None:
            parent = self.store.runs.get(entry.start.parent)
            return parent is not None and parent.finish is None and self._is_held(parent)
        if self._find_holder(entry) is None:
            return False
        newest = self.store.runs.list(Query(session=entry.start.session, finished=False, limit=1))
        return entry.start.session is None or [run.run_id for run in newest] == [entry.run_id]

    def _find_holder(self, entry: Entry) -> Holder | None:
        """Return the holder of the run's session, unless it is dead."""
        from ..runtime.lease import is_owner_dead

        holder = self.store.lease.holder(entry.start.session or entry.run_id)
        return None if holder is None or is_owner_dead(holder.owner) else holder

    def _match_one(self, kind: str, id_prefix: str, known: Sequence[str]) -> str:
        matches = [id_ for id_ in known if id_prefix and id_.startswith(id_prefix)]
        if len(matches) == 1:
            return matches[0]
        if matches:
            ellipsis = ", …" if len(matches) > _MAX_SUGGESTIONS else ""
            raise UsageError(
                f"{quote_value(id_prefix)} is the start of several {kind}s in {self.store_name}: "
                f"{', '.join(matches[:_MAX_SUGGESTIONS])}{ellipsis}; give more of the id"
            )
        missing = f"no {kind} {quote_value(id_prefix)} in {self.store_name}"
        if not known:
            raise UsageError(f"{missing} (it has no {kind}s yet)")
        if similar := suggest_names(id_prefix, known):
            raise UsageError(f"{missing}; did you mean {' or '.join(similar)}?")
        ellipsis = ", …" if len(known) > _MAX_SUGGESTIONS else ""
        raise UsageError(f"{missing}; it has {', '.join(known[:_MAX_SUGGESTIONS])}{ellipsis}")


def format_time(timestamp: float) -> str:
    """Format a timestamp to the minute, in UTC.

    >>> format_time(0.5)
    '1970-01-01 00:00'
    """
    return f"{datetime.fromtimestamp(timestamp, UTC):%Y-%m-%d %H:%M}"


def shorten_ids(ids: Sequence[str]) -> dict[str, str]:
    """Shorten ids to unique prefixes of equal length, at least eight.

    >>> shorten_ids(["0123456789", "0123456700"])
    {'0123456789': '012345678', '0123456700': '012345670'}
    """
    length = _MIN_ID_CHARS
    while len({id_[:length] for id_ in ids}) < len(set(ids)):
        length += 1
    return {id_: id_[:length] for id_ in ids}
