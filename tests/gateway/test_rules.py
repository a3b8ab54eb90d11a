"""Rules over a program that cannot be changed: they see its requests, replies, calls and results."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.event import Event
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.rules import RuleSet
from flyball.testing import call, say
from flyball.testing.server import LoopingProvider, ModelServer, sent, status

from .conftest import BOUND_S, environment_for

NOTHING: dict[str, Any] = {}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
GO: dict[str, Any] = {"role": "user", "content": "Go."}
GEMINI_GO: dict[str, Any] = {"role": "user", "parts": [{"text": "Go."}]}
RULE = """
[rule]
id = "watch"
trigger = "{trigger}"

[condition]
expression = "{condition}"

[action]
{action}
"""
NOTIFY = 'type = "notify_self"\nmessage = "Note: {{ context.result.error or context.result.result }}"'
STOP = 'type = "stop"\nmessage = "The tool {{ context.result.tool_name }} fails."'


def chat(result: Any) -> tuple[str, dict[str, Any]]:
    item = {"id": "one", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    messages = [GO, {"role": "assistant", "tool_calls": [item]}, {"role": "tool", "tool_call_id": "one", **result}]
    tools = [{"type": "function", "function": {"name": "add", "parameters": SCHEMA}}]
    return "/chat/completions", {"model": "gpt-4o", "messages": messages, "tools": tools}


def messages(result: Any) -> tuple[str, dict[str, Any]]:
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "one", "name": "add", "input": NOTHING}]}
    done = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "one", **result}]}
    tools = [{"name": "add", "input_schema": SCHEMA}]
    body = {"model": "claude-haiku-4-5", "max_tokens": 99, "messages": [GO, called, done], "tools": tools}
    return "/v1/messages", body


def responses(result: Any) -> tuple[str, dict[str, Any]]:
    called = {"type": "function_call", "call_id": "one", "name": "add", "arguments": "{}"}
    items = [GO, called, {"type": "function_call_output", "call_id": "one", **result}]
    tools = [{"type": "function", "name": "add", "parameters": SCHEMA}]
    return "/responses", {"model": "gpt-4o", "input": items, "tools": tools}


def gemini(result: Any) -> tuple[str, dict[str, Any]]:
    called = {"role": "model", "parts": [{"functionCall": {"name": "add", "args": NOTHING}}]}
    done = {"role": "user", "parts": [{"functionResponse": {"name": "add", **result}}]}
    tools = [{"functionDeclarations": [{"name": "add", "parameters": SCHEMA}]}]
    path = "/v1beta/models/gemini-2.5-flash:generateContent"
    return path, {"contents": [GEMINI_GO, called, done], "tools": tools}


FAILED = [
    (chat, {"content": '{"success": false, "why": "no such file"}'}),
    (messages, {"content": "no such file", "is_error": True}),
    (responses, {"output": '{"error": "no such file"}'}),
    (gemini, {"response": {"error": "no such file"}}),
]
DONE = [
    (chat, {"content": "no such file"}),
    (messages, {"content": [{"type": "text", "text": "no such file"}]}),
    (responses, {"output": "no such file"}),
    (gemini, {"response": {"output": "no such file"}}),
]
IDS = ["chat", "messages", "responses", "gemini"]


def ask(gateway: Gateway, path: str, body: Any) -> httpx2.Response:
    prefix = {"/v1/messages": "ANTHROPIC", "/v1beta/models/gemini-2.5-flash:generateContent": "GOOGLE_GEMINI"}
    name = prefix.get(path, "OPENAI")
    key = gateway.environment["GEMINI_API_KEY" if name == "GOOGLE_GEMINI" else f"{name}_API_KEY"]
    url = f"{gateway.environment[f'{name}_BASE_URL']}{path}"
    return httpx2.post(url, json=body, headers={"authorization": f"Bearer {key}"}, timeout=BOUND_S)


def make_call(gateway: Gateway, path: str, body: dict[str, Any]) -> None:
    """Send the request that the call of the history answers."""
    key = next(key for key in ("messages", "input", "contents") if key in body)
    assert ask(gateway, path, body | {key: body[key][:1]}).status_code == 200


def build_rules(folder: Path, trigger: str, action: str, condition: str = "true") -> RuleSet:
    (folder / "rule.toml").write_text(RULE.format(trigger=trigger, condition=condition, action=action))
    return RuleSet.load(folder, strict=True)


def options_for(server: ModelServer, rules: RuleSet, **more: Any) -> GatewayOptions:
    return GatewayOptions(limits=Limits(turns=9), rules=rules, environment=environment_for(server), **more)


def calling(name: str) -> Any:
    """Return a line whose call has the id of the histories here; Gemini's has none."""
    return sent(call("add", a=1), ids=["" if name == "gemini" else "one"])


@pytest.mark.parametrize(("build", "result"), FAILED, ids=IDS)
def test_a_rule_adds_a_notice_behind_a_failed_result(build: Any, result: Any, tmp_path: Path) -> None:
    path, body = build(result)
    events: list[Event] = []
    rules = build_rules(tmp_path, "on_tool_failure", NOTIFY)
    with (
        ModelServer(calling(build.__name__), say("Done."), say("Done.")) as server,
        Gateway(options_for(server, rules, sinks=[events.append])) as gateway,
    ):
        make_call(gateway, path, body)
        ask(gateway, path, body)
        ask(gateway, path, body)
    sent_items = [next(request.body[key] for key in ("messages", "input", "contents") if key in request.body)
                  for request in server.requests]  # fmt: skip
    assert "Note" not in json.dumps(sent_items[0])
    assert "no such file" in json.dumps(sent_items[1][-1])
    assert "Note: UnsuccessfulResult: " in json.dumps(sent_items[1][-1])
    assert "Note" not in json.dumps(sent_items[2])  # it is told once

    ended = [event.to_dict() for event in events if event.kind == "tool_ended"]
    assert [(row["tool"], row["status"]) for row in ended][:1] == [("add", "failed")]


FAULTS = [status(429, "busy"), sent(say("Some text."), "cut", events=1)]


@pytest.mark.parametrize("fault", FAULTS, ids=["refused", "broken off"])
def test_a_notice_is_told_again_if_its_request_failed(fault: Any, tmp_path: Path) -> None:
    path, body = chat({"content": '{"error": "no such file"}'})
    rules = build_rules(tmp_path, "on_tool_failure", NOTIFY)
    with (
        ModelServer(calling("chat"), fault, say("Done."), say("Done.")) as server,
        Gateway(options_for(server, rules)) as gateway,
    ):
        make_call(gateway, path, body)
        with suppress(httpx2.TransportError):
            ask(gateway, path, body | {"stream": True})
        ask(gateway, path, body)
        ask(gateway, path, body)
    assert ["Note" in json.dumps(request.body["messages"]) for request in server.requests] == [False, True, True, False]


@pytest.mark.parametrize(("build", "result"), FAILED, ids=IDS)
def test_a_rule_stops_the_program_with_a_report_after_a_failed_result(build: Any, result: Any, tmp_path: Path) -> None:
    path, body = build(result)
    rules = build_rules(tmp_path, "on_tool_failure", STOP)
    with LoopingProvider(calling(build.__name__)) as server, Gateway(options_for(server, rules)) as gateway:
        make_call(gateway, path, body)
        reply = ask(gateway, path, body)
    assert "The report: the task is not finished." in reply.text
    assert (len(server.requests), server.last_requests, server.refused) == (2, 1, [])
    assert "The tool add fails." in json.dumps(server.requests[-1].body)
    result = gateway.result
    assert (result.stop, result.stopped_by, result.turns) == ("halted", "watch", 1)


@pytest.mark.parametrize("trigger", ["on_tool_failure", "on_turn_start", "on_turn_end", "on_query_start"])
def test_a_rule_stops_no_observed_program_and_it_is_noted(trigger: str, tmp_path: Path) -> None:
    path, body = chat({"content": '{"error": "no such file"}'})
    rules = build_rules(tmp_path, trigger, 'type = "stop"\nmessage = "Enough."')
    with LoopingProvider(calling("chat")) as server:
        with Gateway(options_for(server, rules, observe=True)) as gateway:
            make_call(gateway, path, body)
            assert [ask(gateway, path, body).status_code for _ in range(4)] == [200] * 4
        assert [request.body for request in server.requests[1:]] == [body] * 4
    assert gateway.desk.observer is not None
    assert gateway.desk.observer.notes == ["the rule watch would have stopped the program: Enough."]
    assert gateway.result.stop == "completed"


@pytest.mark.parametrize(("build", "result"), DONE, ids=IDS)
def test_a_rule_sees_what_a_call_returned(build: Any, result: Any, tmp_path: Path) -> None:
    path, body = build(result)
    rules = build_rules(tmp_path, "on_tool_complete", NOTIFY, "'no such' in context.result.result")
    with ModelServer.looping(calling(build.__name__)) as server, Gateway(options_for(server, rules)) as gateway:
        make_call(gateway, path, body)
        ask(gateway, path, body)
    assert "Note: no such file" in json.dumps(server.requests[1].body)


def test_results_of_parallel_calls_without_ids_belong_to_their_calls_in_order(tmp_path: Path) -> None:
    calls: list[Any] = [{"functionCall": {"name": name, "args": NOTHING}} for name in ("add", "look", "add")]
    results = [
        {"functionResponse": {"name": name, "response": response}}
        for name, response in (("add", {"output": "1"}), ("look", {"output": "2"}), ("add", {"error": "broken"}))
    ]
    path, body = gemini({"response": {}})
    contents = [GEMINI_GO, {"role": "model", "parts": calls}, {"role": "user", "parts": results}]
    events: list[Event] = []
    reply: Any = {"candidates": [{"content": {"parts": calls}, "finishReason": "STOP"}], "usageMetadata": USAGE}
    rules = build_rules(tmp_path, "on_tool_failure", NOTIFY)
    with (
        ModelServer.looping(status(200, body=reply)) as server,
        Gateway(options_for(server, rules, sinks=[events.append])) as gateway,
    ):
        ask(gateway, path, body | {"contents": [GEMINI_GO]})
        ask(gateway, path, body | {"contents": contents})
    rows = [event.to_dict() for event in events if event.kind in ("tool_started", "tool_ended")]
    started = [row["call_id"] for row in rows[:3]]
    assert [(row["call_id"], row["status"]) for row in rows[3:6]] == [
        (started[0], "done"),
        (started[1], "done"),
        (started[2], "failed"),
    ]


def test_rules_see_the_messages_of_requests(tmp_path: Path) -> None:
    path, body = chat({"content": "1"})
    rules = build_rules(tmp_path, "on_turn_start", STOP, "message_count_above(2)")
    with LoopingProvider(calling("chat")) as server, Gateway(options_for(server, rules)) as gateway:
        make_call(gateway, path, body)
        ask(gateway, path, body)
    assert (gateway.result.stop, gateway.result.turns, server.last_requests) == ("halted", 1, 1)


USAGE = {"promptTokenCount": 10, "candidatesTokenCount": 5}
