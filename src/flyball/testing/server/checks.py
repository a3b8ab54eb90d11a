"""Checks of requests, as the real APIs make them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from ...message import ANTHROPIC, GEMINI, OPENAI, RESPONSES
from ...wire.bodies import Json, get_dict, get_dicts, get_text, list_dicts
from ...wire.formats import find_wire
from ...wire.responses_items import is_output_item
from .offers import list_offers

_MIN_THINKING_TOKENS = 1_024
_MAX_CACHE_MARKS = 4


def iter_problems(path: str, body: object) -> Iterator[str]:
    """Yield the reasons why the real API would refuse a request."""
    if not isinstance(body, dict):
        yield "the body is not a JSON object"
        return
    fields, wire = cast("Json", body), find_wire(path)
    shape = "" if wire is None else wire.name
    if "tool_choice" in fields and not fields.get("tools") and shape in (OPENAI, ANTHROPIC):
        yield "tool_choice is only allowed when tools are specified"
    if "parallel_tool_calls" in fields and not fields.get("tools") and shape == OPENAI:
        yield "parallel_tool_calls is only allowed when tools are specified"
    if shape != GEMINI and wire is not None and not get_text(fields, "model"):
        yield "you must provide a model parameter"
    names = [offer.name for offer in list_offers(fields)]
    if len(names) != len(set(names)) and shape in (ANTHROPIC, GEMINI):
        yield "tool names must be unique"
    if shape == OPENAI:
        yield from _iter_chat_problems(fields)
    elif shape == ANTHROPIC:
        yield from _iter_anthropic_problems(fields)
    elif shape == RESPONSES:
        yield from _iter_responses_problems(fields)
    elif shape == GEMINI:
        yield from _iter_gemini_problems(fields)


def _iter_chat_problems(body: Json) -> Iterator[str]:
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "max_tokens and max_completion_tokens cannot both be set"
    if "stream_options" in body and not body.get("stream"):
        yield "stream_options is only allowed when stream is set"
    if not get_dicts(body, "messages"):
        yield "messages must not be empty"
    open_calls: set[str] = set()
    for message in get_dicts(body, "messages"):
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in open_calls:
                yield "a message with role 'tool' must be a response to a preceding message with 'tool_calls'"
            open_calls.discard(str(message.get("tool_call_id")))
            continue
        if open_calls:
            yield "an assistant message with 'tool_calls' must be followed by tool messages"
        open_calls = {str(item.get("id")) for item in get_dicts(message, "tool_calls")}
    if open_calls:
        yield "an assistant message with 'tool_calls' must be followed by tool messages"


def _iter_anthropic_problems(body: Json) -> Iterator[str]:
    limit, thinking = body.get("max_tokens"), get_dict(body, "thinking")
    if not isinstance(limit, int) or limit < 1:
        yield "max_tokens: field required"
        return
    budget = thinking.get("budget_tokens")
    if isinstance(budget, int) and not _MIN_THINKING_TOKENS <= budget < limit:
        yield "thinking.budget_tokens must be at least 1024 and less than max_tokens"
    if thinking.get("type") in ("enabled", "adaptive") and get_dict(body, "tool_choice").get("type") in ("any", "tool"):
        yield "thinking may not be enabled when tool_choice forces tool use"
    if str(body).count("'cache_control': {") > _MAX_CACHE_MARKS:
        yield f"a maximum of {_MAX_CACHE_MARKS} blocks with cache_control may be provided"
    messages = get_dicts(body, "messages")
    if not messages:
        yield "messages: at least one message is required"
    yield from _iter_content_problems(messages)
    yield from _iter_result_problems(messages)
    if not body.get("tools") and any(
        block.get("type") == "tool_use" for message in messages for block in list_dicts(message.get("content"))
    ):
        yield "Requests which include tool_use blocks must define tools"


def _iter_content_problems(messages: list[Json]) -> Iterator[str]:
    for message in messages:
        if message.get("content") in ("", []) and message is not messages[-1]:
            yield "all messages must have non-empty content except for the optional final assistant message"
        if any(block.get("type") == "text" and not block.get("text") for block in list_dicts(message.get("content"))):
            yield "text content blocks must be non-empty"


def _iter_result_problems(messages: list[Json]) -> Iterator[str]:
    open_calls: set[str] = set()
    for message in messages:
        if message.get("role") == "system":  # an instruction in the middle, which answers no call
            continue
        blocks = list_dicts(message.get("content"))
        results = {str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"}
        if open_calls - results:
            yield "tool_use ids were found without tool_result blocks immediately after"
        if results - open_calls:
            yield "unexpected tool_use_id found in tool_result blocks"
        kinds = [block.get("type") == "tool_result" for block in blocks]
        if results and kinds != sorted(kinds, reverse=True):
            yield "tool_result blocks must come first in the content"
        open_calls = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    if open_calls:
        yield "tool_use ids were found without tool_result blocks immediately after"


def _iter_responses_problems(body: Json) -> Iterator[str]:
    limit = body.get("max_output_tokens")
    if isinstance(limit, int) and limit < 16:
        yield "max_output_tokens must be at least 16"
    if body.get("previous_response_id") or body.get("conversation"):
        return
    if not body.get("input"):
        yield "input must not be empty"
    items = get_dicts(body, "input")
    for item, following in zip(items, [*items[1:], {"role": "user"}], strict=False):  # a text has no items
        if item.get("type") == "reasoning" and not is_output_item(following):
            yield f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item"
    for kind in ("function_call", "custom_tool_call", "local_shell_call"):
        calls = {str(item.get("call_id")) for item in items if item.get("type") == kind}
        results = {str(item.get("call_id")) for item in items if item.get("type") == f"{kind}_output"}
        if calls - results:
            yield f"No tool output found for {kind.replace('_', ' ')}"
        if results - calls:
            yield f"No tool call found for {kind.replace('_', ' ')} output"


def _iter_gemini_problems(body: Json) -> Iterator[str]:
    contents = get_dicts(body, "contents")
    if not contents:
        yield "contents is not specified"
    open_calls = 0
    for content in contents:
        parts = get_dicts(content, "parts")
        if not parts:
            yield "contents.parts must not be empty"
        results = sum("functionResponse" in part for part in parts)
        if open_calls != results:
            yield (
                "the number of function response parts must be equal to the number of function call parts of the "
                "function call turn"
            )
        open_calls = sum("functionCall" in part for part in parts)
        if open_calls and content.get("role") != "model":
            yield "a function call must come from the model"
    choice = get_dict(get_dict(body, "toolConfig"), "functionCallingConfig")
    allowed: Any = choice.get("allowedFunctionNames")
    if allowed and choice.get("mode") != "ANY":
        yield "allowedFunctionNames may only be set when the mode is ANY"
    if open_calls:
        yield "a function call turn must be followed by function responses"
