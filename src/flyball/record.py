"""Record of a result in JSON types: written by `to_record` (`Result.to_dict`), parsed by `from_record`.

A parsed record may come from another service or a file, so its author is not trusted. Facts that count (stop, counts,
tokens, money, budgets, children) must be valid, or the whole record is rejected. Descriptive parts (messages, outcomes,
events) are dropped where they are invalid. Unknown keys are ignored, because a newer Flyball may have written them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._internal import validation
from ._internal.json_reader import JsonReader
from ._internal.jsonable import to_jsonable
from .budget.snapshot import BudgetSnapshot
from .budget.usage import Usage
from .errors import ConfigError, MessageError, UsageError
from .event import Event, Header, ModelRequested, ToolEnded, event_types, own_fields
from .message import Message, MessageType
from .outcome import Artifact, Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from .person import About, Question
from .request import Call
from .result import Result, Stop
from .unit import Unit

SCHEMA_VERSION = 1
"""Version of the record. A new version may change or remove keys; new keys alone do not raise it."""
_MAX_DEPTH, _MAX_RUNS = 20, 10_000
"""Levels of child runs, and runs in total. A parsed run takes about a thousand times the memory of its shortest record.
"""
_MAX_PARAMETERS = 2_000
"""Values in the parameters of a call. More are shown as text, because a record has a limited number of values."""
_PLAIN_PARAMETERS = frozenset[type[Any]]({str, bool, int, type(None)})
_MAX_COUNT = 2**63 - 1
"""Largest valid count. Sums of such counts can still be formatted and compared with times."""
_OUTCOMES: Mapping[str, type[Outcome]] = {
    kind.status.value: kind for kind in (Success, Failure, Timeout, Denied, Cancelled)
}
_ROUNDING_TOLERANCE_S = 1.0
"""An event's absolute time is rounded to microseconds, its seconds since the start are not."""
T = TypeVar("T")
_PARSE_ERRORS = (KeyError, TypeError, ValueError, MessageError)
_STATUS = {
    Stop.CONTENDED: "transcript_lock_contention",
    Stop.CANCELLED: "interrupted",
    Stop.FAILED: "error",
    Stop.DEADLINE: "budget_exceeded",
    Stop.BUDGET: "budget_exceeded",
    Stop.HALTED: "incomplete",
    Stop.STALLED: "stalled",
    Stop.PAUSED: "approval_required",
    Stop.UNFINISHED: "incomplete",
    Stop.COMPLETED: "completed",
}
_NO_COMPLETION: Mapping[str, Any] = {
    "required": {},
    "missing": (),
    "satisfied": (),
    "complete": None,
    "nudge_count": 0,
    "nudge": None,
}
"""Completion fields of a run that had nothing to prove."""


def to_record(result: Result, *, with_events: bool = True, first_message: int = 0) -> dict[str, Any]:
    """Return the Data Machine record of a result with Flyball's own fields, in JSON types.

    A store keeps the events, and the messages before `first_message`, elsewhere.
    """
    record = to_jsonable({**_build_data_machine_record(result, first_message), **_build_own_record(result)})
    mode = result.metadata.get("mode")
    # Those are converted already. The longest parts of a record need not be converted twice.
    record["budgets"] = {name: snapshot.to_dict() for name, snapshot in result.budgets.items()}
    record["tool_execution_results"] = _describe_outcomes(result)
    record["request_metadata"] = [_describe_request(event, mode) for event in _select_requests(result)]
    record["events"] = [event.to_dict() for event in result.events] if with_events else []
    record["children"] = [to_record(child, with_events=with_events) for child in result.children]
    return record


def _select_requests(result: Result) -> list[ModelRequested]:
    return [event for event in result.events if isinstance(event, ModelRequested)]


def _build_data_machine_record(result: Result, first_message: int) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run_outcome": _describe_run_outcome(result),
        "messages": messages_to_record(result.messages[first_message:], result.sensitive),
        "final_content": result.text,
        "turn_count": result.turns,
        "completed": result.completed,
        "status": _get_status(result),
        "last_tool_calls": [
            {"id": call.id, "name": call.name, "arguments": _redact(result.sensitive, call.name, call.arguments)}
            for call in result.last_calls
        ],
        "tool_execution_results": (),
        "usage": _describe_usage(result.usage),
        "request_metadata": (),
        "max_turns_reached": _has_refused_turns(result),
        "warning": result.warning,
        "error": result.error,
        "error_code": None if result.error is None else result.error.get("code"),
        **_build_completion_record(result),
    }


def messages_to_record(messages: Iterable[Message], sensitive: Mapping[str, frozenset[str]]) -> list[dict[str, Any]]:
    """Return the messages in JSON types. `sensitive` has the parameters to hide, by tool."""
    rows = [_message_to_dict(message) for message in messages]
    for row in rows if sensitive else ():
        payload: dict[str, Any] = row.get("payload") or {}
        if "arguments" in payload:
            payload["arguments"] = _redact(sensitive, payload.get("name"), payload["arguments"])
    return rows


def _describe_outcomes(result: Result) -> list[dict[str, Any]]:
    """Return the outcomes with the parameters that the model wrote, and the turn of each call."""
    payloads = [message.payload or {} for message in result.messages if message.type is MessageType.TOOL_CALL]
    arguments = {payload.get("call_id"): payload.get("arguments") for payload in payloads}
    turns = {event.call_id: event.turn for event in result.events if isinstance(event, ToolEnded)}
    rows: list[dict[str, Any]] = []
    for outcome in result.tool_results:
        written = arguments.get(outcome.call_id)
        if result.sensitive:
            written = _redact(result.sensitive, outcome.tool, written)
        row = outcome.to_dict()
        row["parameters"] = to_jsonable(_parse_parameters(written))
        row["turn"] = turns.get(outcome.call_id)
        rows.append(row)
    return rows


def _parse_parameters(arguments: Any) -> Any:
    """Return the parameters as a mapping, or as the model wrote them if they are none or very many."""
    if _is_flat(arguments):
        return arguments
    try:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, default=str)
        if text.count(",") > _MAX_PARAMETERS:
            return text
        parsed = json.loads(text or "{}")
    except (TypeError, ValueError, RecursionError):
        return arguments
    return cast("object", parsed) if isinstance(parsed, dict) else arguments


def _is_flat(arguments: object) -> bool:
    """Check for a mapping of few parameters that JSON takes as they are."""
    if not isinstance(arguments, dict):
        return False
    parameters = cast("dict[object, object]", arguments)
    return (
        len(parameters) <= _MAX_PARAMETERS
        and _PLAIN_PARAMETERS.issuperset(map(type, parameters.values()))
        and all(type(name) is str for name in parameters)
    )


def _describe_usage(usage: Usage) -> dict[str, int]:
    """Return the counts under Flyball's names and under those of both providers."""
    own = {field.name: getattr(usage, field.name) for field in fields(usage)}
    openai = {"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": usage.total}
    return own | openai | {"input_tokens": usage.input, "output_tokens": usage.output}


def _describe_run_outcome(result: Result) -> dict[str, Any]:
    return {
        "status": _get_status(result),
        "stop": result.stop.value,
        "retryable": _is_retryable(result),
        "error_code": None if result.error is None else result.error.get("code"),
    }


def _get_status(result: Result) -> str:
    if result.awaits_client_tools:
        return "client_tools_pending"
    return _STATUS[result.stop]


def _is_retryable(result: Result) -> bool:
    """Return True if the same run may succeed later without any change.

    Another run held its session, or a provider failed in a way that passes.
    """
    if result.stop is Stop.FAILED:
        return "max_retries_reached" in result.flags
    return result.stop is Stop.CONTENDED or (result.stop is Stop.DEADLINE and result.error is not None)


def _redact(sensitive: Mapping[str, frozenset[str]], tool: str | None, arguments: Any) -> Any:
    secret = sensitive.get(tool or "")
    if not secret:
        return arguments
    try:
        values = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
        redacted = {name: "***" if name in secret else value for name, value in values.items()}
        return json.dumps(redacted) if isinstance(arguments, str) else redacted
    except (AttributeError, TypeError, ValueError, RecursionError):
        return "***"  # unreadable arguments may contain a secret


def _redact_question(sensitive: Mapping[str, frozenset[str]], question: object) -> object:
    """Hide sensitive arguments of a question about a client tool: its caller needs them, a record does not."""
    if not sensitive or not isinstance(question, Question):
        return question
    return replace(question, arguments=_redact(sensitive, question.tool, question.arguments))


def _build_completion_record(result: Result) -> dict[str, Any]:
    completion, error = {**_NO_COMPLETION, **result.completion}, result.error or {}
    keys = ("required", "missing", "satisfied", "complete")
    record = {f"completion_assertions_{key}": completion[key] for key in keys}
    record |= {"completion_nudge_count": completion["nudge_count"], "completion_nudge": completion["nudge"]}
    names = ("completion_assertions_required", "unavailable_required_tool_names", "available_tool_names")
    return record | {name: error[name] for name in names if name in error}


def _build_own_record(result: Result) -> dict[str, Any]:
    return {
        "stop": result.stop.value,
        "stopped_by": result.stopped_by,
        "flags": list(result.flags),
        "text": result.text,
        "output": result.output,
        "turns": result.turns,
        "requests": result.requests,
        "seconds": result.seconds,
        "cost_usd": {model: Unit.USD.outer(cost) for model, cost in result.cost.items()},
        "unpriced": list(result.unpriced),
        "estimated_requests": result.estimated_requests,
        "budgets": {},
        "completion": result.completion,
        "unsupported": list(result.unsupported),
        "reflections": result.reflections,
        "faults": result.faults,
        "fallbacks": result.fallbacks,
        "cancelled_children": list(result.cancelled_children),
        "children": (),
        "usage_with_children": _describe_usage(result.usage_with_children),
        "cost_usd_with_children": {name: Unit.USD.outer(cost) for name, cost in result.cost_with_children.items()},
        "questions": [_redact_question(result.sensitive, question) for question in result.questions],
        "events": (),
        "events_dropped": result.events_dropped,
        "sink_errors": result.sink_errors,
        "finish": result.finish,
        "hung": result.hung,
        "state": result.state,
        "run_id": result.run_id,
        "session_id": result.session_id,
        "metadata": result.metadata,
        "store_error": result.store_error,
        "explanation": result.explain(),
    }


def _describe_request(event: ModelRequested, mode: object) -> dict[str, Any]:
    return {
        "provider": to_jsonable(event.provider),
        "model": to_jsonable(event.model),
        "mode": to_jsonable(mode),
        "purpose": to_jsonable(event.purpose),
        "turn": event.turn,
        "bytes": event.size,
        "message_count": event.messages,
        "tool_count": len(event.tools),
        "estimated_tokens": event.estimated_tokens,
        "timeout_s": to_jsonable(event.timeout_s),
        "attempt": event.attempt,
    }


def _message_to_dict(message: Message) -> dict[str, Any]:
    try:
        return message.to_dict()
    except Exception:
        # A message whose payload is not JSON must not lose the whole record.
        return {"id": message.id, **to_jsonable(message)}


def _has_refused_turns(result: Result) -> bool:
    turns = result.budgets.get("turns")
    return turns is not None and f"max_{turns.name}_reached" in result.flags


def from_record(record: object, where: str = "record") -> Result:
    """Parse a record that `to_record` wrote.

    Raises ConfigError for the first invalid part.

    >>> from_record(to_record(Result(stop=Stop.COMPLETED, text="42"))).text
    '42'
    """
    if not isinstance(record, Mapping):
        raise ConfigError(where, record, "the record of a run, as Result.to_dict() writes it")
    reader = JsonReader(cast("object", record), where, strict=True)
    level, runs = [reader], 1
    for _ in range(_MAX_DEPTH):
        level = [child for run in level for child in run.nested_list("children")]
        runs += len(level)
        if runs > _MAX_RUNS:
            break
    if level:
        raise UsageError(f"{where}: too many child runs; at most {_MAX_DEPTH} levels and {_MAX_RUNS:,} runs are read")
    return _build_result(reader)


def _build_result(reader: JsonReader) -> Result:
    where = reader.where
    children = [_build_result(child) for child in reader.nested_list("children")]
    by_id = {child.run_id: child for child in children}
    return Result(
        stop=validation.parse_enum(f"{where}, stop", reader.get("stop"), Stop),
        text=reader.text("text"),
        output=reader.get("output"),
        stopped_by=reader.optional_text("stopped_by"),
        flags=tuple(reader.text_list("flags")),
        warning=reader.optional_text("warning"),
        turns=_parse_count(reader, "turns"),
        requests=_parse_count(reader, "requests"),
        usage=_parse_usage(where, reader.nested("usage").raw),
        cost={
            name: _parse_money(f"{where}, cost_usd.{name}", usd) for name, usd in reader.nested("cost_usd").raw.items()
        },
        unpriced=tuple(reader.text_list("unpriced")),
        estimated_requests=_parse_count(reader, "estimated_requests"),
        budgets={
            name: _parse_budget(f"{where}, budgets.{name}", row) for name, row in reader.nested("budgets").raw.items()
        },
        error=reader.nested("error").raw or None,
        store_error=reader.nested("store_error").raw or None,
        children=tuple(children),
        cancelled_children=tuple(reader.text_list("cancelled_children")),
        run_id=reader.text("run_id"),
        session_id=reader.optional_text("session_id"),
        seconds=validation.parse_duration(f"{where}, seconds", reader.get("seconds") or 0),
        messages=_parse_rows(Message.from_dict, reader.nested_list("messages")),
        tool_results=_parse_rows(lambda row: _parse_outcome(row, by_id), reader.nested_list("tool_execution_results")),
        last_calls=_parse_rows(_parse_call, reader.nested_list("last_tool_calls")),
        questions=_parse_rows(_parse_question, reader.nested_list("questions")),
        events=_parse_rows(parse_event, reader.nested_list("events")),
        events_dropped=_parse_count(reader, "events_dropped"),
        sink_errors=_parse_count(reader, "sink_errors"),
        finish=reader.optional_text("finish"),
        hung=_parse_count(reader, "hung"),
        state=reader.nested("state").raw,
        completion=reader.nested("completion").raw,
        unsupported=tuple(reader.text_list("unsupported")),
        reflections=tuple(reader.text_list("reflections")),
        faults=tuple(row.raw for row in reader.nested_list("faults")),
        fallbacks=_parse_rows(_parse_fallback, reader.nested_list("fallbacks")),
        metadata=reader.nested("metadata").raw,
    )


def parse_event(row: Mapping[str, Any]) -> Event:
    """Parse an event that `Event.to_dict` wrote.

    Raises KeyError, TypeError or ValueError if it is invalid.
    """
    kind = event_types()[row["event"]]
    at = validation.parse_duration("event, at", row["at"])
    time = datetime.fromisoformat(row["time"]).timestamp()
    if at > time + _ROUNDING_TOLERANCE_S:
        raise ValueError("the event is older than its run")
    header = Header(
        validation.check_text("event, run_id", row["run_id"]),
        _parse_optional_text(row.get("session_id")),
        max(0.0, time - at),
        _parse_field("Mapping[str, Any] | None", row.get("metadata")),
        _parse_optional_text(row.get("parent_run_id")),
    )
    own_values = [
        _parse_field(field.type, row[field.name]) if field.default is MISSING or field.name in row else field.default
        for field in own_fields(kind)
    ]
    return kind(_parse_field("int", row["seq"]), at, _parse_field("int", row["turn"]), header, *own_values)


def _parse_rows(parse: Callable[[Mapping[str, Any]], T], rows: Sequence[JsonReader]) -> tuple[T, ...]:
    """Parse the rows and drop the invalid ones."""
    parsed: list[T] = []
    for row in rows:
        try:
            parsed.append(parse(row.raw))
        except _PARSE_ERRORS:
            continue
    return tuple(parsed)


def _parse_count(reader: JsonReader, key: str) -> int:
    return _check_max_count(f"{reader.where}, {key}", reader.integer(key))


def _parse_money(where: str, usd: object) -> int:
    return int(validation.parse_amount(where, usd, Unit.USD))


def _check_max_count(where: str, count: int) -> int:
    if count > _MAX_COUNT:
        raise ConfigError(where, count, f"at most {_MAX_COUNT}")
    return count


def _parse_usage(where: str, row: Mapping[str, Any]) -> Usage:
    own = {name: row[name] for name in (field.name for field in fields(Usage)) if name in row}
    usage = Usage.of(own or row or Usage())
    _check_max_count(f"{where}, usage", max(usage.input, usage.output))
    return usage


def _parse_budget(where: str, row: object) -> BudgetSnapshot:
    validation.check_type(where, row, Mapping)
    known = {field.name for field in fields(BudgetSnapshot)}
    snapshot = BudgetSnapshot.from_dict({key: value for key, value in cast("Any", row).items() if key in known})
    bounds = (snapshot.ceiling, snapshot.refund_limit, snapshot.maximum)
    _check_max_count(
        where, max(snapshot.claimed, snapshot.held, snapshot.unsettled, snapshot.brought, *(n or 0 for n in bounds))
    )
    return snapshot


def _parse_outcome(row: Mapping[str, Any], children: Mapping[str, Result]) -> Outcome:
    kind = _OUTCOMES[row["status"]]
    values = {field.name: row[field.name] for field in fields(kind) if field.name in row}
    artifact = values.get("artifact")
    values["artifact"] = None if artifact is None else Artifact(artifact["id"], artifact["size"])
    values["children"] = tuple(children[run_id] for run_id in row.get("children", ()) if run_id in children)
    if "reason" in values:
        values["reason"] = Reason(values["reason"])
    for name in ("call_id", "tool"):
        validation.check_text(f"outcome, {name}", values[name])
    return kind(**values)


def _parse_call(row: Mapping[str, Any]) -> Call:
    return Call(
        validation.check_text("call, id", row["id"]), validation.check_text("call, name", row["name"]), row["arguments"]
    )


def _parse_fallback(row: Mapping[str, Any]) -> Mapping[str, str]:
    names = ("model", "to", "code", "error")
    return {name: validation.check_text(f"fallback, {name}", row[name]) for name in names}


def _parse_question(row: Mapping[str, Any]) -> Question:
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(Question) if field.name in row}
    values["about"] = About(row["about"])
    return Question(**values)


def _parse_optional_text(value: object) -> str | None:
    return None if value is None else validation.check_text("event, id", value)


def _parse_field(annotation: str, value: Any) -> Any:
    """Check a value against a field's annotation, and convert lists to tuples."""
    if value is None and annotation.endswith(" | None"):
        return None
    if not _FIELD_CHECKS[annotation.removesuffix(" | None")](value):
        raise ValueError(f"the event has a {type(value).__name__} instead of {annotation}")
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in cast("list[object]", value))


_FIELD_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": lambda value: type(value) is int and 0 <= value <= _MAX_COUNT,
    "float": lambda value: type(value) in (int, float) and 0 <= value <= _MAX_COUNT,
    "tuple[str, ...]": _are_texts,
    "Mapping[str, Any]": lambda value: isinstance(value, Mapping),
}
"""Checks by the annotation of an event field, as its class writes it."""


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from ._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))
