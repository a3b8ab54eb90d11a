"""Bodies on their way through the gateway: the same bytes where nothing changes, and the same values where it does."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.request import Reply, Usage
from flyball.testing import call, say
from flyball.testing.server import ModelServer, sent, status
from flyball.wire import ReplyDraft, find_wire

from .conftest import environment_for

ODD = (
    '"z": 1, "a": {"y": null, "b": [1.10, 1e5, -0.0]}, "big": 123456789012345678901234567890,'
    ' "text": "caf\\u00e9 \\/ \\ud83d \\u2028", "twice": 1, "twice" : 2, "brand_new":\t[ {} ]'
)
"""Fields that no API has, written as few programs would."""
REQUESTS = {
    "/v1/chat/completions": f'{{"model": "gpt-4o", {ODD}, "messages": [{{"role":"user","content":"G\\u00f6",{ODD}}}]}}',
    "/v1/responses": f'{{"model": "gpt-4o", {ODD}, "input": [{{"role":"user","content":"Go.",{ODD}}}]}}',
    "/v1/messages": (
        f'{{"model": "claude-sonnet-4-5", "max_tokens": 9000, {ODD}, "messages": [{{"role":"user","content":'
        f'[{{"type": "brand_new_beta", {ODD}}}, {{"type":"text","text":"Go."}}]}}]}}'
    ),
    "/v1beta/models/gemini-2.5-pro:generateContent": (
        f'{{{ODD}, "contents": [{{"role":"user","parts":[{{"text":"Go.",{ODD}}}]}}], "tools": [{{"brandNew": {{}}}}]}}'
    ),
}


class Recorder:
    """Provider that keeps the bytes of its requests."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                wire = find_wire(self.path)
                assert wire is not None
                body = json.dumps(wire.write_reply(ReplyDraft(Reply("So.", usage=Usage(20, 10))))).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def opened(self) -> Generator[None]:
        thread = Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join(60)


def ask(gateway: Gateway, path: str, content: bytes) -> tuple[int, bytes]:
    given = gateway.environment
    kind = "google" if "/models/" in path else "anthropic" if path.endswith("/messages") else "openai"
    base = {
        "google": given["GOOGLE_GEMINI_BASE_URL"],
        "anthropic": given["ANTHROPIC_BASE_URL"],
        "openai": given["OPENAI_BASE_URL"].removesuffix("/v1"),
    }
    key = given[{"google": "GEMINI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}[kind]]
    headers = {"authorization": f"Bearer {key}", "x-api-key": key, "x-goog-api-key": key, "accept-encoding": "identity"}
    headers = {name: value for name, value in headers.items() if kind == "google" or name != "x-goog-api-key"}
    with (
        httpx2.Client(timeout=60) as client,
        client.stream("POST", f"{base[kind]}{path}", content=content, headers=headers) as response,
    ):
        return response.status_code, b"".join(response.iter_raw())


def send_through(path: str, content: bytes, limits: Limits) -> bytes:
    """Return the bytes that reach the provider."""
    recorder = Recorder()
    with recorder.opened():
        environment = environment_for(recorder)  # pyright: ignore[reportArgumentType]
        with Gateway(GatewayOptions(limits=limits, environment=environment)) as gateway:
            status, body = ask(gateway, path, content)
    assert status == 200, body
    return recorder.bodies[0]


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_that_nothing_changes_reaches_the_provider_as_the_same_bytes(path: str) -> None:
    content = REQUESTS[path].encode()
    assert send_through(path, content, Limits(turns=9)) == content


@pytest.mark.parametrize("path", REQUESTS)
def test_a_request_with_a_lower_cap_keeps_every_other_value(path: str) -> None:
    content = REQUESTS[path].encode()
    before, after = json.loads(content), json.loads(send_through(path, content, Limits(turns=9, tokens=3_000)))
    caps = ("max_tokens", "max_completion_tokens", "max_output_tokens", "generationConfig")
    changed = {key for key in {*before, *after} if before.get(key) != after.get(key)}
    assert len(changed) == 1
    assert changed <= {*caps}
    assert [key for key in after if key not in caps] == [key for key in before if key not in caps]
    assert str(after["big"]) in REQUESTS[path]
    assert after["text"] == "café / \ud83d \u2028"


@pytest.mark.parametrize("query", ["?alt=sse", ""], ids=["events", "array"])
@pytest.mark.parametrize("options", [{}, {"split": 1}, {"split": (3, 50)}])
def test_a_stream_of_gemini_passes_byte_for_byte(query: str, options: Any) -> None:
    line = say("Some text that is streamed in pieces, ünd more.", call("add", a=1)).using(Usage(20, 10))
    path = f"/v1beta/models/gemini-2.5-pro:streamGenerateContent{query}"
    content = REQUESTS["/v1beta/models/gemini-2.5-pro:generateContent"].encode()
    with ModelServer.looping(sent(line, **options)) as server:
        direct = httpx2.post(f"{server.url}{path}", content=content, timeout=60)
        server.requests.clear()  # replies are numbered like requests
        with Gateway(GatewayOptions(limits=Limits(turns=9), environment=environment_for(server))) as gateway:
            assert ask(gateway, path, content) == (200, direct.content)
        assert gateway.result.usage == Usage(20, 10)


def test_a_stream_of_gemini_without_its_end_counts_at_an_estimate() -> None:
    chunk = {
        "candidates": [{"content": {"parts": [{"text": "word " * 100}]}}],
        "usageMetadata": {"promptTokenCount": 9},
    }
    body = f"data: {json.dumps(chunk)}\n\n" * 3
    path = "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse"
    content = REQUESTS["/v1beta/models/gemini-2.5-pro:generateContent"].encode()
    with ModelServer(status(200, body=body, headers={"content-type": "text/event-stream"})) as server:
        with Gateway(GatewayOptions(limits=Limits(turns=9), environment=environment_for(server))) as gateway:
            assert ask(gateway, path, content) == (200, body.encode())
        (chat,) = gateway.chats
    assert chat.output_tokens > 100
