"""Messages of a run, in one format for users, models and tools.

    type                role        content             payload
    text                any         the text            None
    tool_call           assistant   ""                  call_id, name, arguments (JSON text or a dict, as received)
    tool_result         tool        the text            call_id, name or None, is_error; parts and shape if it had parts
    multimodal_part     any         "", or what it is   part (the provider's own dict), shape (its format)
    error               any         what went wrong     code, and what else is known
    input_required      assistant   the question        free
    approval_required   assistant   what is asked for   free
    final_result        assistant   the answer          free
    delta               any         a piece of a text   free; the whole text follows as a message of its own

`metadata` is free, except for two keys: `wire` (see wire/) and `repaired` (see `repair_pairs`).

>>> message = Message("run-1", 0, 0.5, MessageType.TEXT, Role.USER, "hello")
>>> message.id, message.to_dict()["created_at"]
('run-1:0', '1970-01-01T00:00:00.5Z')
>>> Message.from_dict(message.to_dict()) == message
True
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, Literal, TypeVar, cast

from ._internal.jsonable import Way, place
from .errors import MessageError, suggest_names

SCHEMA, VERSION = "flyball.message", 1
OPENAI, ANTHROPIC, RESPONSES, GEMINI = "openai", "anthropic", "responses", "gemini"
SHAPES = (OPENAI, ANTHROPIC, RESPONSES, GEMINI)
"""Formats of providers that a part can have."""
MAX_DEPTH = 100
"""Levels of nesting. Deeper values are a mistake or an attack, and break JSON parsers."""

Member = TypeVar("Member", bound=StrEnum)


class MessageType(StrEnum):
    """Kind of a message."""

    TEXT = "text"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    INPUT_REQUIRED = "input_required"
    APPROVAL_REQUIRED = "approval_required"
    FINAL_RESULT = "final_result"
    ERROR = "error"
    DELTA = "delta"
    MULTIMODAL_PART = "multimodal_part"


class Role(StrEnum):
    """Author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(slots=True)
class Message:
    """Single message of a run.

    The table above says what `content` and `payload` hold for each type. The class is not frozen, because a run creates
    thousands and freezing dominates their cost; treat it as a value.
    """

    run: str
    n: int
    """Number of the message in its run; `run` and `n` together are its id."""
    created_at: float
    """Seconds since the epoch."""
    type: MessageType
    role: Role
    content: str = ""
    payload: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    group: int | None = None
    """`n` of the first message that came in the same provider message. None if it came alone."""

    @property
    def id(self) -> str:
        """Return the id, which is the same in every replay of the run."""
        return f"{self.run}:{self.n}"

    def to_dict(self) -> dict[str, Any]:
        """Return the message in JSON types; `from_dict` reads it back exactly.

        The dict shares nothing with the message.
        """
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "id": self.id,
            "created_at": _format_time(self.n, self.created_at),
            "type": str(self.type),
            "role": str(self.role),
            "content": self.content,
            "payload": copy_json(self.n, "payload", self.payload),
            "metadata": copy_json(self.n, "metadata", self.metadata),
            "group": self.group,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], index: int = 0) -> Message:
        """Parse a dict that `to_dict` wrote.

        `payload`, `metadata` and `group` may be missing. Raises MessageError for the first invalid field; `index` is
        the position that it reports.
        """
        _check_header(index, data)
        run, n = _parse_id(index, data.get("id"))
        at = _parse_time(index, data.get("created_at"))
        type_, role, content, payload, metadata, group = cast("list[Any]", [data.get(key) for key in _KEYS[4:]])
        return cls(run, n, at, type_, role, content, payload, metadata, group).checked(index)

    def checked(self, index: int = 0) -> Message:
        """Return a validated copy that shares nothing with this message.

        Raises MessageError for the first invalid field.
        """
        require(is_nonempty_text(self.run), index, "run", self.run, EXPECTED_TEXT)
        require(is_sequence_number(self.n), index, "n", self.n, EXPECTED_NUMBER)
        require(is_time(self.created_at), index, "created_at", self.created_at, EXPECTED_TIME)
        require(_is_instance(str, self.content), index, "content", self.content, "a string")
        require(
            self.group is None or is_sequence_number(self.group),
            index,
            "group",
            self.group,
            f"{EXPECTED_NUMBER}, or None",
        )
        for field, value in (("payload", self.payload), ("metadata", self.metadata)):
            require(value is None or _is_instance(Mapping, value), index, field, value, "a dict, or None")
        message = Message(
            self.run,
            self.n,
            self.created_at,
            parse_enum(index, "type", self.type, MessageType),
            parse_enum(index, "role", self.role, Role),
            self.content,
            copy_json(index, "payload", self.payload),
            copy_json(index, "metadata", self.metadata),
            self.group,
        )
        for key, holds, expected in _PAYLOAD_CHECKS.get(message.type, ()):
            part = (message.payload or {}).get(key)
            require(holds(part), index, f"payload.{key}", part, expected)
        return message


@dataclass(frozen=True, slots=True)
class Orphan:
    """Call without result, or result without call."""

    index: int
    call_id: str
    kind: Literal["call_without_result", "result_without_call", "second_result"]


def check_pairs(messages: Iterable[Message]) -> list[Orphan]:
    """Return every call without result, result without call, and second result, in order.

    A result belongs to the latest call with its id that has no result yet. So a call id that is used again is a new
    call.
    """
    waiting: dict[str, list[int]] = {}
    orphans: list[Orphan] = []
    for index, message in enumerate(messages):
        if message.type is MessageType.TOOL_CALL:
            waiting.setdefault(_require_call_id(index, message), []).append(index)
        elif message.type is MessageType.TOOL_RESULT:
            call_id = _require_call_id(index, message)
            if waiting.get(call_id):
                waiting[call_id].pop()
            else:
                kind = "second_result" if call_id in waiting else "result_without_call"
                orphans.append(Orphan(index, call_id, kind))
    orphans += [
        Orphan(index, call_id, "call_without_result") for call_id, indexes in waiting.items() for index in indexes
    ]
    return sorted(orphans, key=lambda orphan: orphan.index)


def repair_pairs(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with every pair of call and result closed.

    A call without result gets one after the results of its batch: an error with the time of the call and the metadata
    {"repaired": true}, numbered after the highest number of its run. A result without call and a second result are
    dropped. The list is new; the messages that stay are the same objects.
    """
    old = list(messages)
    orphans = check_pairs(old)
    dropped = {orphan.index for orphan in orphans if orphan.kind != "call_without_result"}
    highest: dict[str, int] = {}
    for message in old:
        highest[message.run] = max(message.n, highest.get(message.run, 0))
    added: dict[int, list[Message]] = {}
    batch_end = -1
    for orphan in orphans:
        if orphan.index not in dropped:
            call = old[orphan.index]
            if orphan.index > batch_end:  # orphans come in order, and all calls of a batch share its end
                batch_end = _find_batch_end(old, orphan.index)
            highest[call.run] += 1
            added.setdefault(batch_end, []).append(_build_missing_result(call, highest[call.run], old[batch_end]))
    new: list[Message] = []
    for index, message in enumerate(old):
        new += [] if index in dropped else [message]
        new += added.get(index, [])
    return new


def belong_together(first: Message, second: Message) -> bool:
    """Check whether two neighbours belong in one provider message.

    Calls and results without a group belong together too, because no provider accepts a batch in pieces.
    """
    if first.group is not None and (first.run, first.group) == (second.run, second.group):
        return True
    if first.type is second.type is MessageType.TOOL_RESULT:
        return True
    return first.type is second.type is MessageType.TOOL_CALL and first.group is second.group is None


def _find_batch_end(messages: list[Message], index: int) -> int:
    """Return the index of the batch's last call or result."""
    end, last = index, len(messages) - 1
    while end < last and belong_together(messages[end], messages[end + 1]):
        end += 1
    while end < last and messages[end + 1].type is MessageType.TOOL_RESULT:
        end += 1
    return end


def _build_missing_result(call: Message, n: int, previous: Message) -> Message:
    # In the group of the result before it, so that the group of that result is not split.
    group = previous.group if previous.type is MessageType.TOOL_RESULT and previous.run == call.run else None
    name = (call.payload or {}).get("name")
    payload = {"call_id": _require_call_id(n, call), "name": name, "is_error": True}
    text = "No result of this call was recorded."
    return Message(
        call.run, n, call.created_at, MessageType.TOOL_RESULT, Role.TOOL, text, payload, {"repaired": True}, group
    )


def _require_call_id(index: int, message: Message) -> str:
    call_id = (message.payload or {}).get("call_id")
    require(is_nonempty_text(call_id), index, "payload.call_id", call_id, EXPECTED_TEXT)
    return cast("str", call_id)


EXPECTED_TEXT, EXPECTED_NUMBER = "a non-empty string", "an int of at least 0, of at most 18 digits"
EXPECTED_TIME = "seconds since the epoch, before the year 10000"
_KEYS = ("schema", "version", "id", "created_at", "type", "role", "content", "payload", "metadata", "group")
_ID = re.compile(r"(.+):(0|[1-9][0-9]{0,17})", re.DOTALL)
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.[0-9]{1,400})?(?:Z|\+00:00)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIME = (datetime.max.replace(tzinfo=UTC) - _EPOCH).total_seconds()


def require(condition: bool, index: int, field: str, found: object, expected: str) -> None:
    """Raise MessageError unless the condition holds."""
    if not condition:
        raise MessageError(index, field, found, expected)


def parse_enum(index: int, field: str, value: object, enum_type: type[Member]) -> Member:
    """Return the enum member that `value` is, or names."""
    if isinstance(value, enum_type):
        return value
    if isinstance(value, str) and value in list(enum_type):
        return enum_type(value)
    raise MessageError(index, field, value, f"one of {', '.join(enum_type)}")


# isinstance would be flagged as unnecessary for annotated fields, but callers without a type checker can break them.
def _is_instance(expected_type: type, value: object) -> bool:
    return isinstance(value, expected_type)


def is_nonempty_text(value: object) -> bool:
    """Check whether a value is a non-empty string."""
    return isinstance(value, str) and value != ""


def is_sequence_number(value: object) -> bool:
    """Check whether a value can number a message or a group."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**18


def is_time(value: object) -> bool:
    """Check whether a value is a time that survives conversion to text."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_TIME


def copy_json(index: int, field: str, value: object) -> Any:
    """Return a deep copy in plain JSON types.

    Like json.dumps it accepts a tuple as a list. Unlike json.dumps it refuses NaN, infinity and keys that are not
    strings. Raises MessageError with the path of the invalid part.
    """
    return _copy_json(index, field, value, MAX_DEPTH)


def _copy_json(index: int, path: str | Way, value: object, depth: int) -> Any:
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if not depth:  # the rest may be too deep for repr, or contain itself
        raise MessageError(
            index, place(path) or "message", type(value).__name__, f"at most {MAX_DEPTH} levels of nesting"
        )
    if isinstance(value, (list, tuple)):
        rows = cast("list[object]", value)
        return [_copy_json(index, (path, number), row, depth - 1) for number, row in enumerate(rows)]
    if not isinstance(value, Mapping):
        raise MessageError(index, place(path) or "message", value, "JSON (for an SDK object, pass its model_dump())")
    copy: dict[str, Any] = {}
    for key, row in cast("Mapping[object, object]", value).items():
        if not isinstance(key, str):
            raise MessageError(index, place(path) or "message", key, "string keys")
        copy[key] = _copy_json(index, (path, key), row, depth - 1)
    return copy


def _is_part(value: object) -> bool:
    return isinstance(value, dict) and isinstance(cast("dict[str, object]", value).get("type"), str)


def _are_parts(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(map(_is_part, cast("list[object]", value))))


_PAYLOAD_CHECKS: dict[MessageType, tuple[tuple[str, Callable[[object], bool], str], ...]] = {
    MessageType.TOOL_CALL: (
        ("call_id", is_nonempty_text, EXPECTED_TEXT),
        ("name", is_nonempty_text, EXPECTED_TEXT),
        ("arguments", lambda value: isinstance(value, str | dict), "JSON text or a dict"),
    ),
    MessageType.TOOL_RESULT: (
        ("call_id", is_nonempty_text, EXPECTED_TEXT),
        ("name", lambda value: value is None or isinstance(value, str), "a string, or None"),
        ("is_error", lambda value: value is None or isinstance(value, bool), "a bool"),
        ("parts", _are_parts, "a list of dicts with a type, or None"),
    ),
    MessageType.MULTIMODAL_PART: (
        ("part", _is_part, "a dict with a type"),
        ("shape", lambda value: value in SHAPES, f"one of {', '.join(SHAPES)}"),
    ),
}


def _check_header(index: int, data: object) -> None:
    """Check that a dict is a message envelope of this version."""
    if not isinstance(data, Mapping):
        raise MessageError(index, "message", data, "a dict made by Message.to_dict()")
    rows = cast("Mapping[object, object]", data)
    schema, version = rows.get("schema"), rows.get("version")
    require(schema == SCHEMA, index, "schema", schema, repr(SCHEMA))
    require(type(version) is int and version == VERSION, index, "version", version, str(VERSION))
    for key in rows:
        if key not in _KEYS:
            names = " or ".join(suggest_names(str(key), _KEYS) or _KEYS)
            raise MessageError(index, str(key), rows[key], f"the key {names} instead")


def _parse_id(index: int, value: object) -> tuple[str, int]:
    match = _ID.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise MessageError(index, "id", value, "a run id, a colon and a number")
    return match[1], int(match[2])


def _format_time(index: int, at: float) -> str:
    require(is_time(at), index, "created_at", at, EXPECTED_TIME)
    # All digits of the float, because microseconds would not restore every float.
    whole, _, fraction = f"{Decimal(repr(float(at))):f}".partition(".")
    moment = _EPOCH + timedelta(seconds=int(whole))
    return f"{moment:%Y-%m-%dT%H:%M:%S}{'.' if fraction.strip('0') else ''}{fraction.rstrip('0')}Z"


def _parse_time(index: int, value: object) -> float:
    match = _TIMESTAMP.fullmatch(value) if isinstance(value, str) else None
    try:
        if match:
            moment = datetime.fromisoformat(f"{match[1]}+00:00")
            return float(f"{(moment - _EPOCH) // timedelta(seconds=1)}{match[2] or ''}")
    except ValueError:  # a 31st of February
        pass
    raise MessageError(index, "created_at", value, "a time in UTC, such as 2031-01-31T12:00:00.5Z")
