"""The door of the gateway: which requests come in, what they carry, and what is refused."""

import gzip
import http.client
import json
import logging
import math
import socket
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import brotli  # pyright: ignore[reportMissingTypeStubs]
import pytest
import zstandard

from flyball import Limits
from flyball.budget.registry import IterationBudgetRegistry
from flyball.gateway import body
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.testing.server import LoopingProvider

from .conftest import REAL_KEY, environment_for

BODY = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Go."}]}


@dataclass
class Client:
    """Client that sends what it is told to the gateway."""

    gateway: Gateway
    path: str
    port: int
    key: str
    sockets: list[http.client.HTTPConnection] = field(default_factory=list[http.client.HTTPConnection])

    def send(
        self, method: str = "POST", path: str = "/chat/completions", data: object = BODY, **headers: str
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        content = data if isinstance(data, bytes) else json.dumps(data).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        full = path if path.startswith("http") else f"{self.path}{path}"
        connection.request(method, full, content, {"authorization": f"Bearer {self.key}", **named})
        response = connection.getresponse()
        text = response.read()
        connection.close()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text


def connect(gateway: Gateway, variable: str = "OPENAI_BASE_URL", key: str = "OPENAI_API_KEY") -> Client:
    address = gateway.environment[variable]
    host, _, path = address.removeprefix("http://").partition("/")
    return Client(gateway, f"/{path}", int(host.partition(":")[2]), gateway.environment[key])


@pytest.fixture
def client(provider: LoopingProvider) -> Iterator[Client]:
    with Gateway(GatewayOptions(limits=Limits(turns=50), environment=environment_for(provider))) as gateway:
        yield connect(gateway)


def code_of(reply: Any) -> str:
    return reply["error"]["code"]


def test_a_request_without_the_stand_in_is_refused(client: Client, provider: LoopingProvider) -> None:
    for key in ("", REAL_KEY, f"{client.key}x"):
        assert client.send(authorization=f"Bearer {key}")[0] == 401
    assert provider.requests == []


def test_the_program_gets_a_stand_in_and_the_provider_the_real_key(client: Client, provider: LoopingProvider) -> None:
    assert client.key.startswith("sk-real-flyball-") or client.key.startswith("sk-flyball-")
    assert REAL_KEY not in json.dumps(client.gateway.environment)
    assert client.send()[0] == 200
    assert provider.requests[0].headers["authorization"] == f"Bearer {REAL_KEY}"


def test_with_passed_keys_the_token_is_in_the_path(provider: LoopingProvider) -> None:
    options = GatewayOptions(limits=Limits(turns=5), environment=environment_for(provider), pass_keys=True)
    with Gateway(options) as gateway:
        client = connect(gateway)
        assert client.key == REAL_KEY
        assert client.send()[0] == 200
        client.path = "/openai/v1"
        assert client.send()[0] == 401
    assert [request.headers["authorization"] for request in provider.requests] == [f"Bearer {REAL_KEY}"]


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1", "127.0.0.1:1", "localhost.example.com", ""])
def test_a_foreign_host_header_is_refused(client: Client, provider: LoopingProvider, host: str) -> None:
    assert client.send(host=host)[0] == 403
    assert provider.requests == []


@pytest.mark.parametrize(
    "path",
    ["/../admin", "/%2e%2e/x", "/a%2Fb", "//chat/completions", "/batches", "/audio/speech", "/evals", "/containers",
     "/completions", "/images/generations", "/agents", "/chat/completions/x/../y", "/responses/compact/x"],
)  # fmt: skip
def test_a_path_that_is_not_listed_is_refused(client: Client, provider: LoopingProvider, path: str) -> None:
    status, reply = client.send(path=path)
    assert (status, code_of(reply)) == (403, "path_refused")
    assert provider.requests == []


@pytest.mark.parametrize("name", ["x%2Dy", "x#", "x?", "x%3Ay", "x y"])
def test_a_name_of_a_model_that_could_mean_another_one_is_refused(provider: LoopingProvider, name: str) -> None:
    with Gateway(GatewayOptions(environment=environment_for(provider))) as gateway:
        client = connect(gateway, "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY")
        target = f"{client.path}/v1beta/models/{name}:generateContent".encode()
        request = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nx-goog-api-key: %b\r\ncontent-length: 2\r\n\r\n{}"
        with socket.create_connection(("127.0.0.1", client.port), timeout=30) as connection:
            connection.sendall(request % (target, client.port, client.key.encode()))
            assert connection.recv(100).split()[1] in (b"400", b"403")
    assert provider.requests == []


@pytest.mark.parametrize("header", ["X-HTTP-Method-Override", "x_http_method"])
def test_a_header_that_replaces_the_method_is_refused(client: Client, provider: LoopingProvider, header: str) -> None:
    for method in ("GET", "POST"):
        status, reply = client.send(method, "/models", **{header: "POST"})
        assert (status, code_of(reply)) == (403, "method_refused")
    assert (provider.requests, provider.other_paths) == ([], [])


def test_a_gateway_leaves_the_logger_of_another_server_alone(
    provider: LoopingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    logger = logging.getLogger("uvicorn.error")
    monkeypatch.setattr(logger, "level", logging.INFO)
    with Gateway(GatewayOptions(environment=environment_for(provider))) as gateway:
        assert connect(gateway).send()[0] == 200
    assert logger.level == logging.INFO


def test_an_absolute_target_is_refused(client: Client, provider: LoopingProvider) -> None:
    assert client.send(path="http://127.0.0.1/openai/v1/chat/completions")[0] in (400, 403)
    assert provider.requests == []


def test_a_websocket_is_refused_with_426(client: Client, provider: LoopingProvider) -> None:
    status, reply = client.send("GET", "/responses", upgrade="websocket", connection="Upgrade")
    assert (status, code_of(reply)) == (426, "websocket_refused")


def test_no_response_allows_other_origins(client: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=30)
    connection.request("OPTIONS", f"{client.path}/chat/completions", headers={"origin": "https://example.com"})
    response = connection.getresponse()
    assert response.status in (401, 403)
    assert not [name for name, _ in response.getheaders() if name.lower().startswith("access-control")]
    connection.close()


def test_a_background_response_is_refused(client: Client, provider: LoopingProvider) -> None:
    status, reply = client.send(path="/responses", data={"model": "gpt-4o", "input": "Go.", "background": True})
    assert (status, code_of(reply)) == (400, "background_refused")
    assert provider.requests == []


@pytest.mark.parametrize("version", ["", "/v1"])
def test_paths_with_and_without_the_version_are_the_same(
    client: Client, provider: LoopingProvider, version: str
) -> None:
    client.path = "/openai"
    assert client.send(path=f"{version}/chat/completions")[0] == 200
    assert provider.requests[0].path == "/v1/chat/completions"


ENCODERS: dict[str, Any] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,  # pyright: ignore[reportUnknownMemberType]
    "zstd": zstandard.ZstdCompressor().compress,
    "identity": bytes,
}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_an_encoded_body_is_read_and_counts(client: Client, provider: LoopingProvider, encoding: str) -> None:
    data: bytes = ENCODERS[encoding](json.dumps(BODY).encode())
    assert client.send(data=data, content_encoding=encoding)[0] == 200
    assert provider.requests[0].body == BODY
    assert "content-encoding" not in provider.requests[0].headers
    assert client.gateway.desk.run_turns == 1


def test_raw_deflate_is_read_too(client: Client, provider: LoopingProvider) -> None:
    packer = zlib.compressobj(wbits=-15)
    assert (
        client.send(data=packer.compress(json.dumps(BODY).encode()) + packer.flush(), content_encoding="deflate")[0]
        == 200
    )


def test_an_unknown_encoding_gets_415(client: Client, provider: LoopingProvider) -> None:
    assert client.send(content_encoding="compress")[0] == 415
    assert client.send(content_encoding="gzip, br")[0] == 415
    assert provider.requests == []


@pytest.mark.parametrize("encoding", [name for name in ENCODERS if name != "identity"])
def test_an_encoded_body_that_is_broken_or_cut_is_refused(
    client: Client, provider: LoopingProvider, encoding: str
) -> None:
    whole: bytes = ENCODERS[encoding](json.dumps(BODY).encode())
    for data in (b"no such thing", whole[: len(whole) // 2]):
        assert client.send(data=data, content_encoding=encoding)[0] == 400
    assert provider.requests == []


@pytest.mark.parametrize("encoding", [name for name in ENCODERS if name != "identity"])
def test_a_decompression_bomb_is_refused(
    client: Client, provider: LoopingProvider, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body, "MAX_BODY_BYTES", 100_000)
    data: bytes = ENCODERS[encoding](json.dumps(BODY | {"x": "a" * 1_000_000}).encode())
    assert len(data) < 50_000
    assert client.send(data=data, content_encoding=encoding)[0] == 413
    assert provider.requests == []


def test_a_body_of_endless_empty_parts_is_refused(client: Client, provider: LoopingProvider) -> None:
    data = gzip.compress(b"") * 500_000 + gzip.compress(json.dumps(BODY).encode())
    assert client.send(data=data, content_encoding="gzip")[0] == 400
    two = gzip.compress(json.dumps(BODY).encode()[:10]) + gzip.compress(json.dumps(BODY).encode()[10:])
    assert client.send(data=two, content_encoding="gzip")[0] == 200
    assert len(provider.requests) == 1


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"{}", b"[" * 100_000])
def test_a_body_that_cannot_be_read_is_never_forwarded(client: Client, provider: LoopingProvider, data: bytes) -> None:
    status, reply = client.send(data=data)
    assert (status, code_of(reply)) in ((400, "body_invalid"), (400, "model_missing"))
    assert provider.requests == []


def test_counting_tokens_is_free(client: Client, provider: LoopingProvider) -> None:
    client.path = "/anthropic"
    client.send(path="/v1/messages/count_tokens", x_api_key=client.gateway.environment["ANTHROPIC_API_KEY"])
    assert (provider.other_paths, provider.requests) == (["POST /v1/messages/count_tokens"], [])
    assert client.gateway.desk.run_turns == 0


def test_embeddings_cost_tokens_and_no_turn(client: Client, provider: LoopingProvider) -> None:
    client.send(path="/embeddings", data={"model": "text-embedding-3-small", "input": "text"})
    assert [request.path for request in provider.requests] == ["/v1/embeddings"]
    assert client.gateway.desk.run_turns == 0


EMBEDDED = {"model": "text-embedding-3-small", "input": "text"}


def test_embeddings_belong_to_no_conversation_and_end_with_an_error(provider: LoopingProvider) -> None:
    options = GatewayOptions(limits=Limits(turns=1), environment=environment_for(provider))
    with Gateway(options) as gateway:
        client = connect(gateway)
        client.send(path="/embeddings", data=EMBEDDED)
        first, last = (client.send(x_flyball_run="one")[1] for _ in range(2))
        ended = client.send(path="/embeddings", data=EMBEDDED, x_flyball_run="one")
    assert "choices" in first
    assert last["choices"][0]["message"]["content"] == "The report: the task is not finished."
    assert (ended[0], code_of(ended[1])) == (400, "run_ended")
    assert [chat.label for chat in gateway.chats] == ["one"]
    assert (len(provider.requests), gateway.desk.reports.wants_end) == (3, False)


def test_errors_of_embeddings_end_no_program_whose_conversation_goes_on(provider: LoopingProvider) -> None:
    limits = Limits(turns=9, tokens=4_000)
    with Gateway(GatewayOptions(limits=limits, environment=environment_for(provider))) as gateway:
        client = connect(gateway)
        client.send(x_flyball_run="one")
        statuses = {client.send(path="/embeddings", data=EMBEDDED | {"input": "x" * 90_000})[0] for _ in range(20)}
        assert (statuses, gateway.desk.reports.wants_end) == ({400}, False)
        assert "choices" in client.send(x_flyball_run="one")[1]


def test_no_limit_of_the_settings_holds_while_a_program_is_observed(provider: LoopingProvider) -> None:
    settings: Any = {"max_turns": 2, "max_tokens": 10, "clamp.max_iterations": 3, "clamp.max_seconds": 5}
    registry = IterationBudgetRegistry(settings=settings)
    with Gateway(GatewayOptions(environment=environment_for(provider), observe=True, registry=registry)) as gateway:
        client = connect(gateway)
        assert {client.send()[0] for _ in range(4)} == {200}
        assert gateway.desk.run.envelope.remaining_s() == math.inf
    result = gateway.result
    assert {name: budget.ceiling for name, budget in result.budgets.items() if budget.used} == dict.fromkeys(
        ("turns", "tokens", "usd")
    )
    assert (result.stop, result.turns) == ("completed", 4)


def test_an_observed_program_may_do_what_is_refused_otherwise_and_it_is_noted(provider: LoopingProvider) -> None:
    options = GatewayOptions(limits=Limits(turns=5), environment=environment_for(provider), observe=True)
    with Gateway(options) as gateway:
        client = connect(gateway)
        client.send(path="/batches", data={"input_file_id": "file-1"})
        client.send(data=b"not JSON")
        client.send(data=b"zipped", content_encoding="lzma")
        client.send(data=BODY | {"background": True})
        client.send(path="/embeddings", data=EMBEDDED)
        assert client.send(upgrade="websocket")[0] == 426
        observer = gateway.desk.observer
    assert len(provider.requests) == 5
    assert gateway.result.turns == 1
    assert observer is not None
    assert [note.partition(": ")[2] for note in observer.notes] == [
        "flyball does not govern POST /batches, so it is refused",
        "the body is not valid JSON, so the gateway does not forward it",
        "the content encoding 'lzma' is not supported: use gzip, deflate, br or zstd",
    ]
