"""Scripted models in TOML files.

They serve demos, and let a user try limits without a key.

name = "adder"                         # name in results; default "scripted"
loop = false                           # whether it starts over after the last reply

[[reply]]
text = "Let me add."
calls = [{ name = "add", arguments = { a = 1, b = 2 } }]     # arguments may also be a text, valid or not
after = 0.5                            # seconds
usage = { input = 20, output = 9 }     # or "unknown", for a provider that does not report it

[[reply]]
error = { kind = "retryable", message = "busy", after = 2 }  # or "context", "final"

[[reply]]
pieces = ["It ", "is 3."]              # a streamed text
finish = "length"                      # default: stop, or tool_calls

[grace]                                # reply to the grace turn's request for a report
text = "I added."

[reflection]                           # reply to a reflection request
text = "I go on."
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._internal.table import TableDocument, TableValue
from .._internal.toml import TomlDocument
from ..errors import ContextTooLong, ModelError, Retryable
from ..request import FailureKind, Finish, Usage
from .scripted import Line, ModelOptions, ScriptedModel

_SCRIPT_FIELDS: Mapping[str, object] = {
    "name": "scripted",
    "loop": False,
    "reply": (),
    "grace": None,
    "reflection": None,
}
_LINE_FIELDS: Mapping[str, object] = {
    "text": "",
    "pieces": (),
    "calls": (),
    "after": 0,
    "usage": None,
    "finish": "",
    "error": None,
}
_USAGE_FIELDS: Mapping[str, object] = {"input": 0, "output": 0, "cached": 0, "reasoning": 0, "written": 0}
_ERROR_FIELDS: Mapping[str, object] = {"kind": "final", "message": "", "after": None}
_CALL_FIELDS: Mapping[str, object] = {"name": "", "arguments": {}}


def load_script(path: str | Path) -> ScriptedModel:
    """Load a scripted model from a file.

    The error lists every mistake in the file with its line.
    """
    document = TomlDocument.read(Path(path))
    table = TableDocument("script", document, str(path))
    fields = TableValue(table, document.data).fields(_SCRIPT_FIELDS, "a script")
    lines = [_read_line(entry) for entry in fields["reply"].items("tables: [[reply]]")]
    if not lines:
        fields["reply"].add_error("at least one [[reply]]")
    options: ModelOptions = {
        "name": fields["name"].name("a name"),
        "grace": _read_optional_line(fields["grace"]),
        "reflection": _read_optional_line(fields["reflection"]),
    }
    loops = fields["loop"].flag()
    table.raise_errors()
    return (ScriptedModel.looping if loops else ScriptedModel)(*lines, **options)


def _read_optional_line(entry: TableValue) -> Line | None:
    return None if entry.value is None else _read_line(entry)


def _read_line(entry: TableValue) -> Line:
    fields = entry.fields(_LINE_FIELDS, "a table with text, calls or an error")
    pieces = tuple(piece.text("a piece of the text") for piece in fields["pieces"].items("pieces of the text"))
    text = fields["text"].text("a text") if fields["text"].value else ""
    if pieces and text:
        fields["text"].add_error("either text or pieces, not both")
    calls = tuple(
        _read_call(call) for call in fields["calls"].items("tables, each with the name of a tool and arguments")
    )
    error = None if fields["error"].value is None else _read_error(fields["error"])
    if error is None and not (text or pieces or calls):
        entry.add_error("text, pieces, calls or an error")
    finish = fields["finish"]
    if finish.value and finish.value not in list(Finish):
        finish.add_error(f"one of {', '.join(Finish)}")
    return Line(
        "".join(pieces) or text,
        calls,
        _read_usage(fields["usage"]),
        Finish(finish.value) if finish.value in list(Finish) else None,
        _read_seconds(fields["after"]),
        error,
        pieces,
    )


def _read_call(entry: TableValue) -> tuple[str, str | dict[str, Any]]:
    fields = entry.fields(_CALL_FIELDS, "a table with the name of a tool and arguments")
    arguments = fields["arguments"]
    name = fields["name"].name("the name of a tool")
    if isinstance(arguments.value, str):
        return name, arguments.value
    return name, {key: value.json() for key, value in arguments.table("a table, or JSON text").items()}


def _read_usage(entry: TableValue) -> Usage | None:
    if entry.value is None:
        return Line().usage
    if entry.value == "unknown":
        return None
    fields = entry.fields(_USAGE_FIELDS, 'a table with input and output, or "unknown"')
    return Usage(**{name: count.integer(min_value=0) for name, count in fields.items()})


def _read_error(entry: TableValue) -> ModelError:
    fields = entry.fields(_ERROR_FIELDS, "a table with kind and message")
    kind, message = fields["kind"], fields["message"].text("the message of the error")
    if kind.value not in list(FailureKind):
        kind.add_error(f"one of {', '.join(FailureKind)}")
    after = None if fields["after"].value is None else _read_seconds(fields["after"])
    if kind.value == FailureKind.RETRYABLE:
        return Retryable(message, after)
    return ContextTooLong(message) if kind.value == FailureKind.CONTEXT else ModelError(message)


def _read_seconds(entry: TableValue) -> float:
    value = entry.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 10**9:
        entry.add_error("seconds, 0 or more")
        return 0.0
    return float(value)
