"""Replies as they pass: byte for byte where nothing changes, and broken where the provider's are broken."""

import http.client
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.request import Usage
from flyball.testing import call, say
from flyball.testing.server import ModelServer, sent, status

from .conftest import environment_for

PROMPT: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
CHAT: dict[str, Any] = {"model": "gpt-4o", "messages": PROMPT, "stream": True}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
WITH_USAGE = CHAT | {"stream_options": {"include_usage": True}}
MESSAGES = {"model": "claude-sonnet-4-5", "max_tokens": 100, "messages": CHAT["messages"], "stream": True}
RESPONSES = {"model": "gpt-4o", "input": "Go.", "stream": True}
LINE = say("Some text that is streamed in pieces, ünd more.", call("add", a=1)).using(Usage(20, 10))


@contextmanager
def gateway_for(server: ModelServer, **limits: Any) -> Generator[Gateway]:
    options = GatewayOptions(limits=Limits(**(limits or {"turns": 50})), environment=environment_for(server))
    with Gateway(options) as gateway:
        yield gateway


def fetch(url: str, path: str, body: object, key: str) -> tuple[int, bytes]:
    """Return status and body as they come; raises for a body that breaks off."""
    with httpx2.Client(timeout=30) as client:
        headers = {"authorization": f"Bearer {key}", "x-api-key": key, "accept-encoding": "identity"}
        with client.stream("POST", f"{url}{path}", json=body, headers=headers) as response:
            return response.status_code, b"".join(response.iter_raw())


def through(gateway: Gateway, path: str, body: object) -> tuple[int, bytes]:
    name = "ANTHROPIC" if path.startswith("/messages") else "OPENAI"
    return fetch(gateway.environment[f"{name}_BASE_URL"], path, body, gateway.environment[f"{name}_API_KEY"])


WIRES = [("/chat/completions", WITH_USAGE), ("/messages", MESSAGES), ("/responses", RESPONSES)]


@pytest.mark.parametrize(("path", "body"), WIRES, ids=["chat", "messages", "responses"])
@pytest.mark.parametrize("options", [{}, {"crlf": True}, {"comments": True}, {"split": 1}, {"split": (3, 50)}])
def test_a_stream_passes_byte_for_byte(path: str, body: dict[str, Any], options: Any) -> None:
    with ModelServer.looping(sent(LINE, **options)) as server:
        direct = fetch(f"{server.url}/v1", path, body, "any")
        server.requests.clear()
        with gateway_for(server) as gateway:
            assert through(gateway, path, body) == direct
        assert [request.body for request in server.requests] == [body]
        assert gateway.result.usage == Usage(20, 10)


def test_a_compressed_stream_is_decoded() -> None:
    with ModelServer.looping(sent(LINE)) as plain, ModelServer.looping(sent(LINE, gzip=True)) as server:
        direct = fetch(f"{plain.url}/v1", "/chat/completions", WITH_USAGE, "any")
        with gateway_for(server) as gateway:
            assert through(gateway, "/chat/completions", WITH_USAGE) == direct
        assert gateway.result.usage == Usage(20, 10)


def test_usage_that_the_program_did_not_ask_for_is_counted_and_removed() -> None:
    with ModelServer.looping(LINE) as server:
        _, direct = fetch(f"{server.url}/v1", "/chat/completions", CHAT, "any")
        server.requests.clear()
        with gateway_for(server) as gateway:
            _, passed = through(gateway, "/chat/completions", CHAT)
        assert server.requests[0].body["stream_options"] == {"include_usage": True}
    assert read_events(passed) == [*map(without_number, read_events(direct))]
    assert gateway.result.usage == Usage(20, 10)


def read_events(stream: bytes) -> list[Any]:
    datas = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data: ")]
    return [without_number(json.loads(data)) if data != b"[DONE]" else "[DONE]" for data in datas]


def without_number(event: Any) -> Any:
    return event if isinstance(event, str) else {key: value for key, value in event.items() if key != "id"}


@pytest.mark.parametrize("fault", ["cut", "reset"])
@pytest.mark.parametrize(("path", "body"), WIRES, ids=["chat", "messages", "responses"])
def test_a_stream_that_breaks_at_the_provider_breaks_for_the_program(path: str, body: Any, fault: Any) -> None:
    faulty = ModelServer.looping(sent(LINE, fault, events=3))
    with faulty as server, gateway_for(server) as gateway, pytest.raises(httpx2.TransportError):
        through(gateway, path, body)
    result = gateway.result
    assert (result.turns, result.requests, result.estimated_requests) == (1, 1, 1)


def test_the_same_body_after_a_broken_reply_is_no_new_turn_and_the_first_one_stays_billed() -> None:
    lines = [sent(LINE, "cut", events=3), sent(LINE)]
    with ModelServer.looping(*lines) as server, gateway_for(server, turns=5, tokens=10_000) as gateway:
        with pytest.raises(httpx2.TransportError):
            through(gateway, "/chat/completions", WITH_USAGE)
        before = gateway.desk.run.envelope.budgets["tokens"].used
        assert through(gateway, "/chat/completions", WITH_USAGE)[0] == 200
    assert before > 0
    assert (gateway.result.turns, gateway.result.requests) == (1, 2)
    assert gateway.result.budgets["tokens"].used == before + 30


def test_a_header_that_claims_a_retry_proves_nothing() -> None:
    with ModelServer.looping(LINE) as server, gateway_for(server, turns=50) as gateway:
        for number in range(4):
            headers = {
                "x-stainless-retry-count": "1",
                "authorization": f"Bearer {gateway.environment['OPENAI_API_KEY']}",
            }
            with httpx2.Client(timeout=30) as client:
                body = CHAT | {"stream": False, "user": str(number)}
                client.post(f"{gateway.environment['OPENAI_BASE_URL']}/chat/completions", json=body, headers=headers)
    assert gateway.result.turns == 4


@pytest.mark.parametrize(
    "line", [status(429, "busy"), status(500, "broken"), status(401, "no"), sent(LINE, "reset"), sent(LINE, "cut")]
)
def test_a_request_that_is_not_answered_is_refunded(line: Any) -> None:
    with ModelServer.looping(line) as server, gateway_for(server, turns=2, tokens=10_000) as gateway:
        statuses = {through(gateway, "/chat/completions", CHAT)[0] for _ in range(5)}
    expected = getattr(line, "status", 502)
    assert statuses == {expected}
    result = gateway.result
    assert (len(server.requests), result.turns, result.budgets["tokens"].used, result.budgets["turns"].used) == (
        5,
        0,
        0,
        0,
    )


def test_an_error_of_the_provider_passes_unchanged() -> None:
    with ModelServer.looping(status(429, "Slow down.", headers={"Retry-After": "7"})) as server:
        direct = fetch(f"{server.url}/v1", "/chat/completions", CHAT, "any")
        with gateway_for(server) as gateway:
            assert through(gateway, "/chat/completions", CHAT) == direct


@pytest.mark.parametrize(
    "damage", [b"data: {\n\n", b"data: [1]\n\n", b"\xff\xfe\n\n", b"data: null\n\n", b"event: x\n\n", b"\n" * 50]
)
def test_a_malformed_stream_passes_and_counts_at_an_estimate(damage: bytes) -> None:
    with raw_server(damage * 3) as url, gateway_for_url(url) as gateway:
        assert through(gateway, "/chat/completions", WITH_USAGE) == (200, damage * 3)
    assert (gateway.result.turns, gateway.result.estimated_requests) == (1, 1)


@contextmanager
def raw_server(body: bytes) -> Generator[str]:
    """Serve these bytes as a stream."""
    import threading
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def gateway_for_url(url: str) -> Generator[Gateway]:
    environment = {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-real-key-of-the-user"}
    with Gateway(GatewayOptions(limits=Limits(turns=5), environment=environment)) as gateway:
        yield gateway


@pytest.mark.parametrize("streams", [True, False])
def test_a_client_that_leaves_is_charged_for_what_was_heard(streams: bool, wait_for: Callable[..., None]) -> None:
    with (
        ModelServer.looping(sent(say("word " * 50).after(30))) as server,
        gateway_for(server, turns=5, tokens=9_000) as gateway,
    ):
        url = httpx2.URL(gateway.environment["OPENAI_BASE_URL"])
        connection = http.client.HTTPConnection(url.host, url.port, timeout=30)
        body = WITH_USAGE | {"stream": True} if streams else {key: CHAT[key] for key in ("model", "messages")}
        headers = {"authorization": f"Bearer {gateway.environment['OPENAI_API_KEY']}"}
        connection.request("POST", f"{url.path}/chat/completions", json.dumps(body), headers)
        if streams:
            assert connection.getresponse().read(20)
        else:
            wait_for(lambda: len(server.requests) == 1)
        connection.sock.close() if connection.sock else None
        connection.close()
        tokens = gateway.desk.run.envelope.budgets["tokens"]
        wait_for(lambda: tokens.used > 0)
        used = tokens.used
    assert gateway.result.estimated_requests == 1
    assert 50 < used < 1_000 if streams else used > 3_000


def test_a_call_in_the_last_reply_is_replaced_by_text() -> None:
    """Some servers call in spite of `none`."""
    for stream in (True, False):
        with ModelServer.looping(LINE, call("add", a=1)) as server, gateway_for(server, turns=1) as gateway:
            body = CHAT | {"stream": stream, "tools": TOOLS}
            through(gateway, "/chat/completions", body)
            history: list[dict[str, Any]] = [
                *PROMPT,
                {
                    "role": "assistant",
                    "tool_calls": [
                        {"id": "call-0", "type": "function", "function": {"name": "add", "arguments": "{}"}}
                    ],
                },
                {"role": "tool", "tool_call_id": "call-0", "content": "1"},
            ]
            _, reply = through(gateway, "/chat/completions", body | {"messages": history})
        assert server.requests[-1].body["tool_choice"] == "none"
        assert b"tool_calls" not in reply
        assert b"Stopped by flyball: Maximum agent iterations (1) reached." in reply
        assert (gateway.result.turns, gateway.result.requests) == (1, 2)


def test_a_provider_that_lies_about_usage_is_counted_as_it_says_and_ends_the_run() -> None:
    with ModelServer.looping(LINE.using(Usage(1_000_000, 5))) as server, gateway_for(server, tokens=20_000) as gateway:
        for _ in range(3):
            through(gateway, "/chat/completions", CHAT | {"stream": False})
    assert len(server.requests) == 1
    assert gateway.result.stop == "budget"
