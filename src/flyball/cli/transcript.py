"""Conversation of a run in Markdown, for `flyball export`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from .._internal.json_reader import JsonReader
from ..history.record import RunRecord
from ..person import escape_control_characters
from .report import escape_markdown, format_summary, format_task, iter_end_sections
from .run_tree import HEADERS, build_tree_rows

_FENCE = re.compile(r"`{3,}")
_ROLE_NAMES = {"user": "User", "assistant": "Agent", "system": "System", "tool": "Tool"}


def render_conversation(record: RunRecord) -> str:
    """Render the run and each run below it as Markdown.

    Text of models and tools is escaped.
    """
    parts = ["\n".join(_iter_run(run)) for run in record.iter_tree()]
    return "\n\n".join(parts)


def _iter_run(record: RunRecord) -> Iterator[str]:
    level = "##" if record.tree_path else "#"
    name = f"{record.label}: " if record.tree_path else ""
    yield f"{level} {escape_markdown(name + format_task(record.title))}"
    yield ""
    yield f"**{record.status}** · {escape_markdown(format_summary(record))}"
    earlier = len(record.data.nested_list("messages")) - len(record.messages)
    if earlier:
        yield f"\n{earlier:,} earlier messages are from previous runs of this session."
    for message in record.messages:
        yield from _iter_message(message, record.outcomes)
    if record.children and not record.tree_path:
        yield "\n| " + " | ".join(HEADERS) + " |\n|---|---:|---:|---:|---:|---|"
        yield from (
            f"| {escape_markdown(line.name)} | {' | '.join(map(escape_markdown, line.cells))} |"
            for line in build_tree_rows(record, True)
        )
    yield "\n---"
    for heading, text, _ in iter_end_sections(record):
        yield f"\n**{heading}:**\n"
        yield from (f"> {escape_markdown(line)}" for line in text.splitlines())


def _iter_message(message: JsonReader, outcomes: dict[str, JsonReader]) -> Iterator[str]:
    payload, text = message.nested("payload"), message.text("content")
    match message.text("type"):
        case "tool_call":
            arguments = _format_code(_format_arguments(payload.get("arguments")))
            yield f"\n**Call** `{_format_inline(payload.text('name'))}` {arguments}"
        case "tool_result":
            status = outcomes.get(payload.text("call_id"), JsonReader({})).text("status").replace("_", " ")
            name = _format_inline(payload.text("name")) or "call"
            yield f"\n**Outcome** of `{name}`{f', {status}' if status else ''}: {_format_code(text)}"
        case _ if text.strip():
            yield f"\n**{_ROLE_NAMES.get(message.text('role'), 'Agent')}**\n"
            yield from (
                f"> {escape_markdown(line)}".rstrip() for line in escape_control_characters(text.strip()).splitlines()
            )
        case _:
            pass


def _format_arguments(arguments: object) -> str:
    if arguments is None:
        return ""
    # A model may write invalid JSON, which is recorded as text.
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


def _format_inline(text: str) -> str:
    return escape_control_characters(" ".join(text.split())).replace("`", "'")


def _format_code(text: str) -> str:
    """Format text as inline code or in a safe fence."""
    if not text.strip():
        return ""
    if "\n" not in text.strip() and "`" not in text:
        return f"`{escape_control_characters(text.strip())}`"
    fence = "`" * max([2, *(len(ticks) for ticks in _FENCE.findall(text))]) + "`"
    return f"\n\n{fence}text\n{escape_control_characters(text.rstrip())}\n{fence}"
