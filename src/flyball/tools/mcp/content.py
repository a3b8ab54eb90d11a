"""What a server's result is to a run: a value, or the error that it tells of."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from ...errors import ToolFailed

if TYPE_CHECKING:
    from mcp_types import CallToolResult


def value_of(result: CallToolResult) -> Any:
    """The value: structured content where there is some, else the text. ToolFailed where the result is an error.

    Text that only repeats the structured content, as servers write it for clients that do not know that, is dropped.
    """
    texts = [_text(block) for block in result.content]
    structured = result.structured_content
    if result.is_error:
        raise ToolFailed("\n".join(texts) or ("it does not say why" if structured is None else json.dumps(structured)))
    if structured is None:
        return "\n".join(texts)
    known = _sayings(structured)
    more = [text for text in texts if not known & _readings(text)]
    return {"structured": structured, "text": "\n".join(more)} if more else structured


def _text(block: Any) -> str:
    """One part of a result, as text; of what is no text, a line says that it was left out."""
    match block.type:
        case "text":
            return block.text
        case "resource" if hasattr(block.resource, "text"):
            return block.resource.text
        case "resource":
            return _left_out("a file", block.resource.uri, block.resource.mime_type, block.resource.blob)
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case kind:
            return _left_out(f"an {kind}", None, block.mime_type, block.data)


def _left_out(what: str, uri: object, mime_type: str | None, data: str) -> str:
    """Data is base64: four characters for three bytes."""
    facts = ", ".join(str(fact) for fact in (uri, mime_type, f"{len(data) * 3 // 4:,} bytes") if fact)
    return f"[{what} was left out: {facts}]"


def _sayings(structured: Any) -> set[str]:
    """Every text that would only repeat it: the whole, a wrapped result, and the items of that."""
    wrapped = cast("dict[str, Any]", structured).get("result") if isinstance(structured, dict) else None
    items = cast("list[Any]", wrapped) if isinstance(wrapped, list) else []
    values: list[Any] = [structured, wrapped, *items, ""]
    return {json.dumps(value, sort_keys=True) for value in values}


def _readings(text: str) -> set[str]:
    """What a text may say, as `_sayings` writes it: itself, and the value that it is as JSON."""
    try:
        return {json.dumps(text), json.dumps(json.loads(text), sort_keys=True)}
    except (ValueError, RecursionError):
        return {json.dumps(text)}
