"""A provider whose model never stops calling tools, and that checks requests as the real APIs do."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from ...message import ANTHROPIC, OPENAI, RESPONSES
from ...models.scripted import Line, call, say
from ...request import Usage
from ...wire.bodies import Json, get_dict, get_dicts, list_dicts
from ...wire.formats import find_wire
from .faults import Sendable, Sent, StatusReply, resolve_line
from .server import ModelServer, ReceivedRequest

_MIN_THINKING_TOKENS = 1_024
_REPORT = "The report: the task is not finished."


class LoopingProvider(ModelServer):
    """Server whose model calls the first tool that it is offered in each reply, until the request forbids it.

    A request that the real API would refuse gets status 400. `refused` has the reasons. Without tools, the model asks
    to continue. A reply has `output_tokens`, or as many as the request allows, and its input grows with the body.
    """

    def __init__(
        self,
        line: Sendable | None = None,
        *,
        report: str | Line = _REPORT,
        tool: str | None = None,
        output_tokens: int = 30,
        tells_usage: bool = True,
    ) -> None:
        super().__init__()
        self.refused: list[str] = []
        """Reasons for status 400."""
        self.billed: list[Usage] = []
        """Usage of each reply, reported or not."""
        self._output_tokens = output_tokens
        self._tells_usage = tells_usage
        self._line = line
        self._report = report if isinstance(report, Line) else say(report)
        self._tool = tool

    @property
    def last_requests(self) -> int:
        """Number of requests that forbid calls, or ask for a report."""
        return sum(_is_last(request.body) for request in self.requests)

    def receive_request(self, path: str, headers: dict[str, str], body: object) -> tuple[int, Sent | StatusReply]:
        """Record a request, and return its number and response."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(ReceivedRequest(path, headers, body))
        problem = next(iter_problems(path, body), None)
        if problem is not None:
            self.refused.append(problem)
            return number, StatusReply(400, problem)
        return number, resolve_line(self._bill(path, cast("Json", body)))

    def _bill(self, path: str, body: Json) -> Sendable:
        line, wire = self._answer(body), find_wire(path)
        if not isinstance(line, Line) or line.error is not None or wire is None:
            return line
        limit = wire.parse_request(body, path).max_output_tokens or self._output_tokens
        usage = Usage(len(json.dumps(body)) // 4, min(limit, self._output_tokens))
        with self._lock:
            self.billed.append(usage)
        return line.using(usage if self._tells_usage else None)

    def _answer(self, body: Json) -> Sendable:
        choice: Any = body.get("tool_choice")
        forced = _get_forced_tool(choice)
        if forced is not None:
            return call(forced, **_fill(_find_tool(body, forced)))
        if _is_last(body):
            return self._report
        if self._line is not None:
            return self._line
        names = [name for name in _list_tools(body) if self._tool in (None, name)]
        return _build_line(body, names)


def _build_line(body: Json, names: list[str]) -> Line:
    if not names:
        return say("I need to go on.")
    return call(names[0], **_fill(_find_tool(body, names[0])))


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
    if shape == OPENAI:
        yield from _iter_chat_problems(fields)
    elif shape == ANTHROPIC:
        yield from _iter_anthropic_problems(fields)
    elif shape == RESPONSES:
        yield from _iter_responses_problems(fields)


def _iter_chat_problems(body: Json) -> Iterator[str]:
    if "max_tokens" in body and "max_completion_tokens" in body:
        yield "max_tokens and max_completion_tokens cannot both be set"
    if "stream_options" in body and not body.get("stream"):
        yield "stream_options is only allowed when stream is set"
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
    open_calls: set[str] = set()
    for message in get_dicts(body, "messages"):
        blocks = list_dicts(message.get("content"))
        results = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        if open_calls - set(results):
            yield "tool_use ids were found without tool_result blocks immediately after"
        kinds = [block.get("type") == "tool_result" for block in blocks]
        if results and kinds != sorted(kinds, reverse=True):
            yield "tool_result blocks must come first in the content"
        open_calls = {str(block.get("id")) for block in blocks if block.get("type") == "tool_use"}
    if not body.get("tools") and any(
        block.get("type") == "tool_use"
        for message in get_dicts(body, "messages")
        for block in list_dicts(message.get("content"))
    ):
        yield "Requests which include tool_use blocks must define tools"


def _iter_responses_problems(body: Json) -> Iterator[str]:
    limit = body.get("max_output_tokens")
    if isinstance(limit, int) and limit < 16:
        yield "max_output_tokens must be at least 16"
    if body.get("previous_response_id") or body.get("conversation"):
        return
    items = get_dicts(body, "input")
    calls = {str(item.get("call_id")) for item in items if item.get("type") == "function_call"}
    results = {str(item.get("call_id")) for item in items if item.get("type") == "function_call_output"}
    if calls - results:
        yield "No tool output found for function call"
    if results - calls:
        yield "No tool call found for function call output"


def _is_last(body: object) -> bool:
    fields = cast("Json", body) if isinstance(body, dict) else {}
    choice: Any = fields.get("tool_choice")
    mode = get_dict(get_dict(fields, "toolConfig"), "functionCallingConfig").get("mode")
    if choice in ("none", {"type": "none"}) or mode == "NONE":
        return True
    return "This is the last request of this conversation" in str(fields)


def _get_forced_tool(choice: Any) -> str | None:
    if not isinstance(choice, dict):
        return None
    fields = cast("Json", choice)
    name = fields.get("name") or get_dict(fields, "function").get("name")
    return name if isinstance(name, str) else None


def _list_tools(body: Json) -> list[str]:
    return [str(tool["name"]) for tool in _parse_tools(body)]


def _find_tool(body: Json, name: str) -> Json:
    tools = _parse_tools(body)
    return next((tool for tool in tools if tool["name"] == name), Json())


def _parse_tools(body: Json) -> list[Json]:
    """Return name and schema of each function that is offered, in any of the formats."""
    found: list[Json] = []
    for item in get_dicts(body, "tools"):
        function = get_dict(item, "function") or item
        declared = get_dicts(item, "functionDeclarations") or [function]
        for tool in declared:
            if tool.get("name"):
                schema = get_dict(tool, "parameters") or get_dict(tool, "input_schema")
                found.append({"name": tool["name"], "schema": schema})
    return found


def _fill(tool: Mapping[str, Any]) -> Json:
    """Return arguments that fit the tool's schema."""
    schema = get_dict(tool, "schema")
    required = schema.get("required")
    names = cast("list[str]", required) if isinstance(required, list) else list(get_dict(schema, "properties"))[:1]
    return {name: _fill_value(get_dict(get_dict(schema, "properties"), name)) for name in names}


def _fill_value(schema: Json) -> Any:
    kinds: Mapping[str, Any] = {"integer": 1, "number": 1, "boolean": True, "array": [], "object": {}, "null": None}
    if schema.get("enum"):
        return schema["enum"][0]
    return kinds.get(str(schema.get("type")), "go on")
