"""`flyball export`: print a run as JSON lines or Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import UsageError
from ...history.archive import Archive
from ..completion import RUN_HELP, complete_runs
from ..output import USER_ERRORS, exit_with_error, print_raw
from ..store_option import StoreLocation, StoreOption
from ..transcript import render_conversation

if TYPE_CHECKING:
    from ...store import Entry


class Format(StrEnum):
    """Output format."""

    JSONL = "jsonl"
    MD = "md"


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help=RUN_HELP, autocompletion=complete_runs)],
    format_: Annotated[Format, typer.Option("--format", help="md is for people, jsonl for programs.")] = Format.MD,
    journal: Annotated[
        bool, typer.Option("--journal", help="Add every effect and its answer, including sensitive values; jsonl only.")
    ] = False,
    store: StoreOption = None,
) -> None:
    """Print a run and its children.

    md is the conversation. jsonl has the start, messages, events and end of each run. Of an interrupted run, everything
    that is stored is printed.
    """
    if journal and format_ is not Format.JSONL:
        raise exit_with_error(UsageError("--journal needs --format jsonl"))
    try:
        location = StoreLocation.resolve(store)
        with location.open_existing() as run_store:
            archive = Archive(run_store, location.name)
            entry = archive.find_run(run)
            if format_ is Format.MD:
                lines: list[str] = [render_conversation(archive.build_record(entry))]
            else:
                lines = [json.dumps(line) for line in _iter_lines(archive, entry, journal)]
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    with suppress(BrokenPipeError):
        for line in lines:
            print_raw(line)


def _iter_lines(archive: Archive, entry: Entry, with_journal: bool) -> Iterator[dict[str, Any]]:
    """Yield the run, its messages, events, journal and end, then its children."""
    start, finish, run_id = entry.start, entry.finish, entry.run_id
    head = {"session": start.session, "parent": start.parent, "agent": start.agent, "started_at": start.at}
    yield {"line": "run", "run_id": run_id, **head, "task": start.task, "metadata": start.metadata}
    record = archive.build_record(entry)
    for message in record.messages:
        yield {"line": "message", "run_id": run_id, **message.raw}
    for event in archive.store.runs.events(run_id) or [event.raw for event in record.events]:
        yield {"line": "event", **event}
    for row in archive.store.journal.read(run_id) if with_journal else ():
        data = json.loads(row.data)
        fields = {"kind": row.kind.value, "take": row.take, "fingerprint": row.fingerprint, "data": data}
        yield {"line": "journal", "run_id": run_id, "n": row.n, **fields}
    ended_at = None if finish is None else finish.at
    outcome = {"stop": None if finish is None else finish.stop, "explanation": record.data.text("explanation")}
    yield {"line": "end", "run_id": run_id, "ended_at": ended_at, **outcome, "text": record.data.text("text")}
    for child in archive.list_children(entry):
        yield from _iter_lines(archive, child, with_journal)
