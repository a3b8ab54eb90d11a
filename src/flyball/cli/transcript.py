"""A run as a conversation that people read: the task, what was said and done, and how it ended; in Markdown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..history.record import JsonReader, RunRecord
from ..person import harmless
from .report import end, plain, shown, summary
from .run_tree import HEADS, kin

_FENCE = re.compile(r"`{3,}")
_WHO = {"user": "User", "assistant": "Agent", "system": "System", "tool": "Tool"}


def conversation(record: RunRecord) -> str:
    """The run, and behind it each of those below it; what a model or a tool said is only text in it."""
    parts = ["\n".join(_run(one)) for one in record.tree()]
    return "\n\n".join(parts)


def _run(record: RunRecord) -> Iterator[str]:
    level = "##" if record.place else "#"
    name = f"{record.label}: " if record.place else ""
    yield f"{level} {plain(name + shown(record.task))}"
    yield ""
    yield f"**{record.word}** · {plain(summary(record))}"
    earlier = len(record.told.inners("messages")) - len(record.messages)
    if earlier:
        yield f"\n{earlier:,} messages were said before, in earlier runs of its session."
    for message in record.messages:
        yield from _said(message, record.outcomes)
    if record.children and not record.place:
        yield "\n| " + " | ".join(HEADS) + " |\n|---|---:|---:|---:|---:|---|"
        yield from (f"| {plain(line.name)} | {' | '.join(map(plain, line.cells))} |" for line in kin(record, True))
    yield "\n---"
    for heading, text, _ in end(record):
        yield f"\n**{heading}:**\n"
        yield from (f"> {plain(line)}" for line in text.splitlines())


def _said(message: JsonReader, outcomes: dict[str, JsonReader]) -> Iterator[str]:
    payload, text = message.inner("payload"), message.text("content")
    match message.text("type"):
        case "tool_call":
            yield f"\n**Call** `{_inline(payload.text('name'))}` {_code(_arguments(payload.get('arguments')))}"
        case "tool_result":
            status = outcomes.get(payload.text("call_id"), JsonReader({})).text("status").replace("_", " ")
            name = _inline(payload.text("name")) or "call"
            yield f"\n**Outcome** of `{name}`{f', {status}' if status else ''}: {_code(text)}"
        case _ if text.strip():
            yield f"\n**{_WHO.get(message.text('role'), 'Agent')}**\n"
            yield from (f"> {plain(line)}".rstrip() for line in harmless(text.strip()).splitlines())
        case _:
            pass


def _arguments(given: object) -> str:
    """What a call was made with; a model may have written what is no JSON."""
    if given is None:
        return ""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _inline(text: str) -> str:
    return harmless(" ".join(text.split())).replace("`", "'")


def _code(text: str) -> str:
    """A text as code: in its line, or, if it has several, in a fence that nothing in it can close."""
    if not text.strip():
        return ""
    if "\n" not in text.strip() and "`" not in text:
        return f"`{harmless(text.strip())}`"
    fence = "`" * max([2, *(len(found) for found in _FENCE.findall(text))]) + "`"
    return f"\n\n{fence}text\n{harmless(text.rstrip())}\n{fence}"
