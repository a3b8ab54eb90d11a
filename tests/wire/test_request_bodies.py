"""Requests of each wire: what is read, what a change changes, and what stays."""

import copy
import json
from dataclasses import replace
from typing import Any

from flyball.message import MessageType
from flyball.wire import ANTHROPIC, CHAT, GEMINI, RESPONSES, WIRES, WireMessages, WireRequest, find_wire, normalize

Case = tuple[str, int]
KEYS = {"openai": "messages", "anthropic": "messages", "responses": "input", "gemini": "contents"}


def parsed(bodies: Any, case: Case) -> WireRequest:
    name, place = case
    return WIRES[name].parse_request(copy.deepcopy(bodies[name]["requests"][place]), bodies[name]["path"])


def largest(bodies: Any, name: str) -> WireRequest:
    return parsed(bodies, (name, len(bodies[name]["requests"]) - 1))


def changed_keys(before: Any, after: Any) -> set[str]:
    return {key for key in {*before, *after} if before.get(key) != after.get(key)}


def test_a_path_has_its_wire(bodies: Any, wire_name: str) -> None:
    assert find_wire(bodies[wire_name]["path"]) is WIRES[wire_name]
    assert find_wire("/v1/embeddings") is None
    assert find_wire("/v1/messages/count_tokens") is None
    assert find_wire("/v1/responses/resp_1/cancel") is None
    assert find_wire("/v1beta/models/m:countTokens") is None


def test_a_request_that_is_not_changed_is_written_as_the_same_object(bodies: Any, request_case: Case) -> None:
    request = parsed(bodies, request_case)
    assert WIRES[request_case[0]].write_request(request) is request.source
    assert request.source == bodies[request_case[0]]["requests"][request_case[1]]


def test_a_body_that_is_read_is_never_changed(bodies: Any, request_case: Case) -> None:
    name, place = request_case
    request = parsed(bodies, request_case)
    changed = replace(
        request, notices=("Hurry.",), tool_choice="none", max_output_tokens=20, instructions="Other.", stream=False
    )
    WIRES[name].write_request(changed)
    assert request.source == bodies[name]["requests"][place]


def test_messages_that_are_all_written_anew_are_the_same(bodies: Any, request_case: Case) -> None:
    name, _ = request_case
    request = parsed(bodies, request_case)
    assert request.source is not None
    written = WIRES[name].write_request(replace(request, messages=list(request.messages)))
    key, old = KEYS[name], request.source[KEYS[name]]
    expected = [{"role": "user", "content": old}] if isinstance(old, str) else old
    assert written[key] == expected
    assert changed_keys({**request.source, key: expected}, written) == set()


def test_nothing_of_a_large_request_is_unreadable(bodies: Any, wire_name: str) -> None:
    whole = [
        message
        for message in largest(bodies, wire_name).messages
        if (message.payload or {}).get("part", {}).get("type") == "whole"
    ]
    assert whole == []


def test_what_a_gateway_asks_of_a_request(bodies: Any, wire_name: str) -> None:
    request = largest(bodies, wire_name)
    model = "gemini-3-pro" if wire_name == "gemini" else "claude-opus-5" if wire_name == "anthropic" else "gpt-5.5"
    assert (request.model, request.stream) == (model, True)
    assert "weather" in [tool["name"] for tool in request.tools]
    assert request.max_output_tokens in (900, 4000, 32000)
    assert request.output_schema is not None
    assert request.output_schema["properties"] == {"a": {"type": "string"}}
    texts = [message.content for message in request.messages if message.type is MessageType.TEXT]
    assert texts[-1] == "Go on."
    results = [message for message in request.messages if message.type is MessageType.TOOL_RESULT]
    assert "17" in results[0].content or wire_name == "openai"


def test_the_last_request_keeps_all_but_its_choice_and_its_tail(bodies: Any, wire_name: str) -> None:
    request = largest(bodies, wire_name)
    source = request.source
    assert source is not None
    body = WIRES[wire_name].write_request(
        replace(request, notices=("Write a report.",), tool_choice="none", parallel_calls=None)
    )
    choice = {"openai": "none", "responses": "none", "anthropic": {"type": "none"}}
    if wire_name == "gemini":
        assert body["toolConfig"]["functionCallingConfig"] == {"mode": "NONE"}
        assert body["toolConfig"]["retrievalConfig"] == {"languageCode": "de"}
    else:
        assert body["tool_choice"] == choice[wire_name]
    key = KEYS[wire_name]
    allowed = {key, "tool_choice", "toolConfig", "parallel_tool_calls"}
    assert changed_keys(source, body) <= allowed
    assert "Write a report." in json.dumps(body[key][-1])
    untouched = len(source[key]) - (1 if wire_name == "anthropic" else 0)
    assert body[key][:untouched] == source[key][:untouched]


def test_a_notice_stands_behind_the_results_of_the_same_message() -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "x", "cache_control": {"type": "ephemeral"}}
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [result]}]}
    written = ANTHROPIC.write_request(replace(ANTHROPIC.parse_request(body), notices=("Hurry.",)))
    assert written["messages"] == [{"role": "user", "content": [result, {"type": "text", "text": "Hurry."}]}]


def test_a_choice_is_not_written_to_a_body_without_tools(wire_name: str) -> None:
    wire, body = WIRES[wire_name], {"model": "m", "max_tokens": 9}
    written = wire.write_request(replace(wire.parse_request(body), tool_choice="none"))
    assert written == body


def test_a_choice_is_written_where_tools_stand_in_the_input() -> None:
    tools = {"type": "additional_tools", "tools": [{"type": "function", "name": "f"}]}
    body = {"model": "m", "input": [tools], "tool_choice": "auto", "parallel_tool_calls": True}
    written = RESPONSES.write_request(replace(RESPONSES.parse_request(body), tool_choice="none", parallel_calls=None))
    assert written == {"model": "m", "input": [tools], "tool_choice": "none"}


def test_a_tool_can_be_taken_out_and_the_others_stay_as_they_are(bodies: Any, wire_name: str) -> None:
    request = largest(bodies, wire_name)
    assert request.source is not None
    kept = [tool for tool in request.tools if tool["name"] != "weather"]
    body = WIRES[wire_name].write_request(replace(request, tools=kept))
    assert changed_keys(request.source, body) == {"tools"}
    assert "weather" not in json.dumps(body["tools"])
    others = [tool for tool in request.source["tools"] if "weather" not in json.dumps(tool)]
    assert [tool for tool in body["tools"] if tool in others] == others


def test_a_limit_is_written_under_the_key_that_the_body_has() -> None:
    for key in ("max_tokens", "max_completion_tokens"):
        body: dict[str, Any] = {"model": "m", "messages": [], key: 900}
        assert CHAT.write_request(replace(CHAT.parse_request(body), max_output_tokens=7)) == {**body, key: 7}
    both: dict[str, Any] = {"model": "m", "messages": [], "max_tokens": 900, "max_completion_tokens": 800}
    request = CHAT.parse_request(both)
    assert request.max_output_tokens == 900  # a server may know only one of them
    written = CHAT.write_request(replace(request, max_output_tokens=7))
    assert written == {"model": "m", "messages": [], "max_completion_tokens": 7}
    snake: dict[str, Any] = {"contents": [], "generation_config": {"max_output_tokens": 50, "seed": 1}}
    written = GEMINI.write_request(replace(GEMINI.parse_request(snake), max_output_tokens=7))
    assert written == {"contents": [], "generation_config": {"maxOutputTokens": 7, "seed": 1}}


def test_a_lower_limit_lowers_the_budget_for_thinking(bodies: Any) -> None:
    request = largest(bodies, "anthropic")
    body = ANTHROPIC.write_request(replace(request, max_output_tokens=5_000))
    assert (body["max_tokens"], body["thinking"]["budget_tokens"]) == (5_000, 4_999)
    body = ANTHROPIC.write_request(replace(request, max_output_tokens=1_000))
    assert "thinking" not in body
    assert body["context_management"] == {"edits": [{"type": "clear_tool_uses_20250919"}]}


def test_a_stream_is_asked_for_its_usage_and_other_options_stay() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "messages": [],
        "stream": True,
        "stream_options": {"include_obfuscation": False},
    }
    request = CHAT.parse_request(body)
    assert not request.includes_usage
    written = CHAT.write_request(replace(request, includes_usage=True))
    assert written["stream_options"] == {"include_obfuscation": False, "include_usage": True}


def test_messages_are_added_behind_those_that_stay(bodies: Any, wire_name: str) -> None:
    request = largest(bodies, wire_name)
    assert request.source is not None
    assert isinstance(request.messages, WireMessages)
    call = {"id": "c9", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Bonn"}'}}
    added = normalize(
        [
            {"role": "assistant", "content": "I try.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c9", "content": "denied: no"},
        ],
        run="gateway",
    )
    body = WIRES[wire_name].write_request(replace(request, messages=request.messages.plus(*added)))
    key = KEYS[wire_name]
    old = request.source[key]
    assert body[key][: len(old)] == old
    assert changed_keys(request.source, body) == {key}
    again = WIRES[wire_name].parse_request(body, "/v1beta/models/m:generateContent")
    tail = list(again.messages)[-3:]
    assert [message.type for message in tail] == [MessageType.TEXT, MessageType.TOOL_CALL, MessageType.TOOL_RESULT]
    assert tail[1].payload is not None
    assert (tail[1].payload["call_id"], tail[2].content) == ("c9", "denied: no")


def test_a_request_of_one_wire_is_written_in_another(bodies: Any, wire_name: str) -> None:
    request = largest(bodies, wire_name)
    for other, wire in WIRES.items():
        written = wire.write_request(replace(request, source=None, model="m"))
        json.dumps(written)
        again = wire.parse_request(written, "/v1beta/models/m:streamGenerateContent")
        assert (again.model, again.stream, again.max_output_tokens) == ("m", True, request.max_output_tokens)
        assert [tool["name"] for tool in again.tools] == [tool["name"] for tool in request.tools]
        before, after = ids_of(request), ids_of(again)
        assert after == before, (wire_name, other)
        texts = [message.content for message in again.messages if message.type is MessageType.TEXT]
        assert [text for text in texts if text in ("I will look.", "I will search.", "Go on.")][-1] == "Go on."


def test_writing_in_another_wire_leaves_the_body_as_it_was(bodies: Any, wire_name: str) -> None:
    key = KEYS[wire_name]
    request = largest(bodies, wire_name)
    odd = {"role": "user", "parts": [{"functionCall": {"name": "a b"}}]}
    body = {
        **(request.source or {}),
        key: [*(request.source or {})[key], odd, {"type": "function_call", "name": "a b"}],
    }
    before = copy.deepcopy(body)
    for wire in WIRES.values():
        wire.write_request(replace(WIRES[wire_name].parse_request(body), source=None))
    assert body == before


def ids_of(request: WireRequest) -> list[tuple[str, str]]:
    kinds = (MessageType.TOOL_CALL, MessageType.TOOL_RESULT)
    return sorted(
        (str(message.type), (message.payload or {})["call_id"]) for message in request.messages if message.type in kinds
    )


def test_a_message_that_is_not_understood_is_kept_whole(wire_name: str) -> None:
    wire, key = WIRES[wire_name], KEYS[wire_name]
    odd: list[Any] = [{"role": "narrator", "content": 7}, "text", 3, {"role": "user", "content": [{"text": "no type"}]}]
    request = wire.parse_request({"model": "m", "max_tokens": 9, key: odd})
    written = wire.write_request(replace(request, messages=list(request.messages)))
    assert [item for item in written[key] if item in odd] == [item for item in odd if item != "text"] or odd == written[
        key
    ]


def test_bodies_of_nonsense_are_read_without_an_error(wire_name: str) -> None:
    wire = WIRES[wire_name]
    nonsense: list[Any] = [None, 7, "x", [], {}, [None], [[]], {"type": 3}, True, [{"name": 1}], {"parts": 3}]
    known = ["model", "stream", "tools", "tool_choice", "max_tokens", "input", "messages", "contents", "system", "text"]
    known += ["generationConfig", "toolConfig", "systemInstruction", "response_format", "stream_options", "thinking"]
    for key in [*known, "output_config", "conversation", "parallel_tool_calls", "context_management", "instructions"]:
        for value in nonsense:
            request = wire.parse_request({key: value}, "/models/x:generateContent")
            list(request.messages)
            assert wire.write_request(request) is request.source
            wire.write_request(replace(request, notices=("n",), tool_choice="none", max_output_tokens=5, tools=()))


def test_a_call_of_a_tool_that_takes_free_text_is_a_call_in_every_wire(bodies: Any) -> None:
    for name in ("openai", "responses"):
        request = largest(bodies, name)
        calls = [message.payload for message in request.messages if message.type is MessageType.TOOL_CALL]
        assert {"call_id": "call_2", "name": "shell", "arguments": "ls -la"} in calls
