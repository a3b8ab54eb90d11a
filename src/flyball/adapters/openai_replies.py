"""Replies of models of the OpenAI Agents SDK: read, written and changed."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from agents import AgentOutputSchemaBase
from agents.items import ItemHelpers, ModelResponse, TResponseInputItem, TResponseStreamEvent
from agents.usage import Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseIncompleteEvent,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from ..request import Call, Finish, Reply
from ..wire.schema_fit import fit_schema
from .model_port import parse_usage


def read_response(response: ModelResponse | Response) -> Reply:
    """Return the text, the calls and the usage of a response."""
    calls = tuple(_read_call(item) for item in response.output if get_call_id(item) and item.type.endswith("_call"))
    texts = [
        ItemHelpers.extract_text(item) or "" for item in response.output if isinstance(item, ResponseOutputMessage)
    ]
    finish = Finish.CALLS if calls else Finish.STOP
    return Reply("".join(texts), calls, parse_usage(response.usage), finish)


def _read_call(item: Any) -> Call:
    """Return the call of a function, or of a tool such as the shell, which has a type instead of a name."""
    arguments = getattr(item, "arguments", None) or getattr(item, "input", None) or "{}"
    return Call(item.call_id, getattr(item, "name", item.type.removesuffix("_call")), arguments)


def count_server_calls(output: Iterable[Any]) -> int:
    """Return the number of calls that the provider made itself."""
    return sum(item.type.endswith("_call") and get_call_id(item) is None for item in output)


def build_output(text: str, schema: AgentOutputSchemaBase | None) -> ResponseOutputMessage:
    """Return a message with this text, in the format that the agent's answer must have."""
    if schema is not None and not schema.is_plain_text():
        text = json.dumps(fit_schema(schema.json_schema(), text))
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id="msg_flyball", type="message", role="assistant", status="completed", content=[content]
    )


def build_response(text: str, schema: AgentOutputSchemaBase | None, original: ModelResponse | None) -> ModelResponse:
    """Return a final response with this text, with the usage of the one that it replaces."""
    output = build_output(text, schema)
    if original is None:
        return ModelResponse(output=[output], usage=Usage(), response_id=None)
    return replace(original, output=[output])


def build_model_response(response: Response) -> ModelResponse:
    """Return the response of a stream in the form of one that was not streamed."""
    used = response.usage
    usage = (
        Usage()
        if used is None
        else Usage(
            requests=1,
            input_tokens=used.input_tokens,
            input_tokens_details=used.input_tokens_details,
            output_tokens=used.output_tokens,
            output_tokens_details=used.output_tokens_details,
            total_tokens=used.total_tokens,
        )
    )
    return ModelResponse(output=response.output, usage=usage, response_id=response.id)


def complete_event(event: ResponseIncompleteEvent) -> ResponseCompletedEvent:
    """Return the last event of a stream that was cut as that of a complete one."""
    response = event.response.model_copy(update={"status": "completed", "incomplete_details": None})
    return ResponseCompletedEvent(type="response.completed", sequence_number=event.sequence_number, response=response)


def drop_calls(response: ModelResponse, call_ids: Collection[str]) -> ModelResponse:
    """Return a response without some of its calls."""
    return replace(response, output=[item for item in response.output if get_call_id(item) not in call_ids])


def build_stream(
    text: str, schema: AgentOutputSchemaBase | None, original: Response | None
) -> list[TResponseStreamEvent]:
    """Return the events of a final response with this text."""
    output = build_output(text, schema)
    if original is None:
        response = Response(
            id="resp_flyball",
            created_at=0,
            model="flyball",
            object="response",
            output=[output],
            parallel_tool_calls=False,
            tool_choice="none",
            tools=[],
        )
    else:
        response = original.model_copy(update={"output": [output]})
    delta = ResponseTextDeltaEvent(
        type="response.output_text.delta",
        content_index=0,
        output_index=0,
        sequence_number=0,
        item_id=output.id,
        delta=cast("ResponseOutputText", output.content[0]).text,
        logprobs=[],
    )
    return [delta, ResponseCompletedEvent(type="response.completed", sequence_number=1, response=response)]


def drop_streamed_calls(
    events: Iterable[TResponseStreamEvent], call_ids: Collection[str]
) -> list[TResponseStreamEvent]:
    """Return the events of a response without some of its calls."""
    kept: list[TResponseStreamEvent] = []
    dropped_items: set[str] = set()
    for event in events:
        item = getattr(event, "item", None)
        if get_call_id(item) in call_ids:
            dropped_items.add(str(getattr(item, "id", "")))
        elif isinstance(event, ResponseCompletedEvent):
            output = [one for one in event.response.output if get_call_id(one) not in call_ids]
            kept.append(event.model_copy(update={"response": event.response.model_copy(update={"output": output})}))
        elif getattr(event, "item_id", None) not in dropped_items:
            kept.append(event)
    return kept


def get_call_id(item: object) -> str | None:
    """Return the id of the call that an item is, or is the result of. None for another item."""
    if isinstance(item, Mapping):
        found = cast("Mapping[str, object]", item).get("call_id")
    else:
        found = getattr(item, "call_id", None)
    return found if isinstance(found, str) else None


def read_results(items: Sequence[TResponseInputItem], call_ids: Collection[str]) -> dict[str, str]:
    """Return the results of these tool calls in a history, by the ids of the calls."""
    results: dict[str, str] = {}
    for item in reversed(items):
        if len(results) == len(call_ids):
            break
        call_id, fields = get_call_id(item), cast("Mapping[str, Any]", item)
        if call_id in call_ids and str(fields.get("type", "")).endswith("_output"):
            results[cast("str", call_id)] = str(fields.get("output"))
    return results
