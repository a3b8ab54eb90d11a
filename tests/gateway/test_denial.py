"""Calls that are denied: the program never sees them, and the model learns why."""

import json
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from flyball import Limits
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.models.scripted import Line
from flyball.request import Reply
from flyball.rules import RuleSet
from flyball.testing import call, say, together
from flyball.testing.server import LoopingProvider, ModelServer, sent, status
from flyball.wire import ReplyDraft, StreamReader, find_wire

from .conftest import BOUND_S, Run, environment_for

RULE = """
[rule]
id = "no-delete"
trigger = "on_tool_call"

[condition]
expression = "context.call.tool_name == 'delete'"

[action]
type = "deny"
message = "deleting is not allowed"
"""
PROMPT = [{"role": "user", "content": "Go."}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMES = ("add", "delete")
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {
        "model": "gpt-4o",
        "messages": PROMPT,
        "tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES],
    },
    "/messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 200,
        "messages": PROMPT,
        "tools": [{"name": name, "input_schema": SCHEMA} for name in NAMES],
    },
    "/responses": {
        "model": "gpt-4o",
        "input": "Go.",
        "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES],
    },
    "/v1beta/models/gemini-2.5-flash": {
        "contents": [{"role": "user", "parts": [{"text": "Go."}]}],
        "tools": [{"functionDeclarations": [{"name": name, "parameters": SCHEMA} for name in NAMES]}],
    },
}
WAYS = ["whole", "stream", "array"]
CASES = [(path, way) for path in BODIES for way in WAYS if way != "array" or "gemini" in path]
GEMINI = {"whole": ":generateContent", "stream": ":streamGenerateContent?alt=sse", "array": ":streamGenerateContent"}


STREAMS = [case for case in CASES if case[1] != "whole"]


def ask(gateway: Gateway, path: str, way: str, **more: object) -> tuple[int, str]:
    """Send a request to the gateway, and return status and body."""
    url, headers, body = build(gateway, path, way)
    reply = httpx2.post(url, json=body | more, headers=headers, timeout=BOUND_S)
    return reply.status_code, reply.text


def stream(gateway: Gateway, path: str) -> Iterator[bytes]:
    """Yield a streamed reply as it comes."""
    url, headers, body = build(gateway, path, "stream")
    with httpx2.Client(timeout=BOUND_S) as client, client.stream("POST", url, json=body, headers=headers) as reply:
        yield from reply.iter_raw()


def build(gateway: Gateway, path: str, way: str) -> tuple[str, dict[str, str], dict[str, Any]]:
    if "gemini" in path:
        key, url = gateway.environment["GEMINI_API_KEY"], gateway.environment["GOOGLE_GEMINI_BASE_URL"]
        path, body = f"{path}{GEMINI[way]}", BODIES[path]
    else:
        name = "ANTHROPIC" if path == "/messages" else "OPENAI"
        key, url = gateway.environment[f"{name}_API_KEY"], gateway.environment[f"{name}_BASE_URL"]
        body = BODIES[path] | {"stream": way == "stream"}
    return f"{url}{path}", {"authorization": f"Bearer {key}"}, body


def read(path: str, way: str, text: str) -> Reply:
    """Return a reply as a client reads it."""
    wire = find_wire(path if "gemini" not in path else f"{path}:generateContent")
    assert wire is not None
    parser = wire.create_parser()
    if way == "whole":
        parser.parse_reply(json.loads(text))
    else:
        reader = StreamReader(parser, is_array=way == "array")
        events = [*reader.feed(text.encode()), *reader.close()]
        assert (reader.flaw, reader.error) == (None, None)
        assert way == "stream" or json.loads(text) == [event.json for event in events if event.json]
    return parser.build_reply()


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    (tmp_path / "rules.toml").write_text(RULE)
    return RuleSet.load(tmp_path, strict=True)


def options_for(server: ModelServer, rules: RuleSet) -> GatewayOptions:
    return GatewayOptions(limits=Limits(turns=9), rules=rules, environment=environment_for(server))


@pytest.mark.parametrize(("path", "way"), CASES)
def test_a_reply_of_denied_calls_only_is_answered_by_the_gateway(path: str, way: str, rules: RuleSet) -> None:
    script = [call("delete", a=1), say("All done.")]
    with ModelServer.looping(*script) as server, Gateway(options_for(server, rules)) as gateway:
        code, text = ask(gateway, path, way)
    assert code == 200
    reply = read(path, way, text)
    assert (reply.text, reply.calls) == ("All done.", ())
    assert '"delete"' not in text
    assert len(server.requests) == 2
    assert "denied: deleting is not allowed" in json.dumps(server.requests[1].body)
    assert (gateway.result.turns, gateway.result.requests) == (2, 2)


@pytest.mark.parametrize(("path", "way"), CASES)
def test_the_other_calls_of_a_reply_go_on(path: str, way: str, rules: RuleSet) -> None:
    line = sent(together(call("add", a=1), call("delete", a=2), call("add", a=3)), ids=["one", "two", "three"])
    with ModelServer.looping(line) as server, Gateway(options_for(server, rules)) as gateway:
        code, text = ask(gateway, path, way)
    assert code == 200
    calls = [(call.id, call.name, json.loads(str(call.arguments))) for call in read(path, way, text).calls]
    assert calls == [("one", "add", {"a": 1}), ("three", "add", {"a": 3})]
    assert ("two" in text, '"delete"' in text) == (False, False)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("path", "way"), STREAMS)
def test_a_stream_whose_text_has_passed_is_continued_after_its_calls_were_denied(
    path: str, way: str, rules: RuleSet
) -> None:
    script = [say("I delete it. ", call("delete", a=1)), say("Not so. ", call("add", a=2)), say("never")]
    with ModelServer.looping(*script) as server, Gateway(options_for(server, rules)) as gateway:
        code, text = ask(gateway, path, way)
    assert code == 200
    reply = read(path, way, text)
    assert reply.text == "I delete it. Not so. "
    assert [(call.name, json.loads(str(call.arguments))) for call in reply.calls] == [("add", {"a": 2})]
    assert (len(server.requests), gateway.result.turns) == (2, 2)


ENDS: list[tuple[Any, str | None]] = [
    (say("The report."), "First. The report."),
    (call("add", a=9), "First. Stopped by flyball: Maximum tool calls (0) reached."),
    (status(500, "broken"), None),
]


@pytest.mark.parametrize(("last", "expected"), ENDS, ids=["report", "a call in spite of none", "error"])
@pytest.mark.parametrize(("path", "way"), STREAMS)
def test_a_stream_whose_text_has_passed_is_continued_with_the_report(
    path: str, way: str, last: Any, expected: str | None
) -> None:
    with ModelServer(say("First. ", call("add", a=1)), last) as server:
        options = GatewayOptions(limits=Limits(turns=1, tool_calls=0), environment=environment_for(server))
        with Gateway(options) as gateway:
            if expected is None:
                with pytest.raises(httpx2.TransportError):
                    ask(gateway, path, way)
            else:
                reply = read(path, way, ask(gateway, path, way)[1])
                assert reply.text.startswith(expected)
                assert reply.calls == ()
    assert (gateway.result.turns, len(server.requests)) == (1, 2)


@contextmanager
def gated(path: str, line: Line) -> Generator[tuple[str, threading.Event]]:
    """Serve a stream whose calls are sent only when the event is set."""
    wire, may_go_on = find_wire(path if "gemini" not in path else f"{path}:streamGenerateContent"), threading.Event()
    assert wire is not None
    reply = line.build_reply(1)
    events = [event.encode() for event in wire.iter_events(ReplyDraft(reply, pieces=[(0, reply.text)]))]
    first_call = next(place for place, event in enumerate(events) if b'"add"' in event)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(b"".join(events[:first_call]))
            assert may_go_on.wait(BOUND_S)
            self.wfile.write(b"".join(events[first_call:]))

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", may_go_on
        finally:
            may_go_on.set()
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("path", BODIES)
def test_text_before_the_first_call_passes_at_once(path: str, rules: RuleSet) -> None:
    with gated(path, say("Some text.", call("add", a=1))) as (url, may_go_on):
        variables = ("OPENAI", f"{url}/v1"), ("ANTHROPIC", url), ("GOOGLE_GEMINI", url)
        real = {f"{name}_BASE_URL": address for name, address in variables}
        keys = {"OPENAI_API_KEY": "sk-real", "ANTHROPIC_API_KEY": "sk-ant-real", "GEMINI_API_KEY": "AIza-real"}
        with Gateway(GatewayOptions(limits=Limits(turns=9), rules=rules, environment=real | keys)) as gateway:
            heard = b""
            for part in stream(gateway, path):
                heard += part
                if b"Some text." in heard and not may_go_on.is_set():
                    assert b'"add"' not in heard
                    may_go_on.set()
    assert b'"add"' in heard


@pytest.mark.filterwarnings("ignore:The model")
def test_official_clients_read_a_continued_stream(rules: RuleSet) -> None:
    script = [say("I delete it. ", call("delete", a=1)), say("Not so. ", call("add", a=2))]
    with ModelServer.looping(*script) as server, Gateway(options_for(server, rules)) as gateway:
        given = gateway.environment
        with openai.OpenAI(base_url=given["OPENAI_BASE_URL"], api_key=given["OPENAI_API_KEY"]) as client:
            with client.chat.completions.stream(**BODIES["/chat/completions"]) as chat:
                message = chat.get_final_completion().choices[0].message
            assert (message.role, message.content) == ("assistant", "I delete it. Not so. ")
            assert [item.function.name for item in message.tool_calls or ()] == ["add"]
            with client.responses.stream(**BODIES["/responses"]) as events:
                response = events.get_final_response()
            assert response.output_text == "I delete it. Not so. "
            assert [item.type for item in response.output] == ["message", "message", "function_call"]
            ask(gateway, "/responses", "whole", previous_response_id=response.id, input="Go on.")
            assert response.id == "resp_2"
            assert server.requests[4].body["previous_response_id"] == "resp_3"  # it has the whole reply
        url, key = given["ANTHROPIC_BASE_URL"], given["ANTHROPIC_API_KEY"]
        with (
            anthropic.Anthropic(base_url=url, api_key=key) as client,
            client.messages.stream(**BODIES["/messages"]) as blocks,
        ):
            content = blocks.get_final_message().content
    assert [block.type for block in content] == ["text", "text", "tool_use"]
    assert isinstance(content[-1], anthropic.types.ToolUseBlock)
    assert content[-1].input == {"a": 2}


def test_a_reply_that_cannot_be_read_is_not_handed_on_while_calls_may_be_denied(rules: RuleSet) -> None:
    reply = {"choices": [{"message": {"tool_calls": [{"id": 7, "function": {"name": "delete"}}]}}]}
    with ModelServer.looping(status(200, body=reply)) as server, Gateway(options_for(server, rules)) as gateway:
        code, text = ask(gateway, "/chat/completions", "whole")
    assert code == 502
    assert "delete" not in text


def test_several_alternative_replies_are_refused_while_calls_may_be_denied(rules: RuleSet) -> None:
    with LoopingProvider() as server, Gateway(options_for(server, rules)) as gateway:
        code, text = ask(gateway, "/chat/completions", "whole", n=2)
        assert (code, json.loads(text)["error"]["code"]) == (400, "choices_refused")
    assert server.requests == []


def test_calls_of_a_reply_that_is_asked_for_again_count_too() -> None:
    lines = [sent(say("Some text.", call("add", a=1)), "cut", events=2), call("add", a=1)]
    with ModelServer(*lines) as server:
        options = GatewayOptions(limits=Limits(turns=9, tool_calls=9), environment=environment_for(server))
        with Gateway(options) as gateway:
            with pytest.raises(httpx2.TransportError):
                ask(gateway, "/chat/completions", "stream")
            assert ask(gateway, "/chat/completions", "stream")[0] == 200
    assert (gateway.result.turns, gateway.result.budgets["tool_calls"].used) == (1, 1)


def test_a_program_never_makes_more_calls_than_allowed(run: Run) -> None:
    with LoopingProvider(together(call("add", a=1), call("add", a=2))) as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=50, tool_calls=5))
    assert (ran.code, ran.stop, provider.refused) == (0, "budget", [])
    last = provider.requests[-1].body["messages"]
    assert sum(message["role"] == "tool" for message in last) == 5
    assert ran.execution.result.budgets["tool_calls"].used == 5
    assert (len(provider.requests), provider.last_requests) == (4, 1)


def test_a_program_that_may_make_no_call_ends_when_its_model_asks_for_one(run: Run) -> None:
    with LoopingProvider() as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=9, tool_calls=0))
    assert (ran.code, ran.stop, provider.refused) == (0, "budget", [])
    assert ran.execution.result.flags == ("max_tool_calls_reached",)
    assert (len(provider.requests), provider.last_requests) == (2, 1)


def test_a_program_that_may_make_no_call_and_is_answered_completes(run: Run) -> None:
    with LoopingProvider(say("It is 3.")) as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=9, tool_calls=0))
    assert (ran.stop, ran.execution.result.flags, len(provider.requests)) == ("completed", (), 1)


def test_a_limit_for_one_tool_denies_its_calls_only(run: Run) -> None:
    with LoopingProvider() as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=6, calls={"add": 2}))
    assert (ran.code, provider.refused) == (0, [])
    last = json.dumps(provider.requests[-1].body["messages"])
    assert last.count('"tool_call_id"') - last.count("denied: ") == 2
