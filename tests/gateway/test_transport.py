"""Clients of this process through a governed transport: both libraries, any provider, and its refusals."""

import asyncio
import runpy
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from google import genai
from google.genai import types

from flyball import Limits
from flyball.errors import ConfigError, UsageError
from flyball.gateway import Gateway, GatewayOptions, exec_env, transport
from flyball.result import Result
from flyball.testing.server import LoopingProvider, ModelServer, status

from .conftest import PROGRAMS, Run, environment_for
from .transport_loops import ONCE, REPORT, aloop, govern, loop

TURNS = 3
LIMITS = Limits(turns=TURNS, usd=1)


@pytest.fixture
def in_environment(provider: LoopingProvider, monkeypatch: pytest.MonkeyPatch) -> LoopingProvider:
    """The provider, where the variables of this process say that all providers are."""
    for name, value in environment_for(provider).items():
        monkeypatch.setenv(name, value)
    return provider


def account(result: Result, provider: LoopingProvider) -> Any:
    """Return what must be equal however a program was governed."""
    bodies = [request.body for request in provider.requests]
    provider.requests.clear()
    facts = (result.stop, result.flags, result.turns, result.requests, result.usage, result.cost, result.text)
    return facts, result.state, [event.kind for event in result.events], bodies


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")
@pytest.mark.parametrize(
    ("program", "variant"),
    [
        *(
            ("openai_agent.py", name)
            for name in ("chat", "stream", "trimmed", "responses", "responses_stream", "state")
        ),
        *(("anthropic_agent.py", name) for name in ("whole", "stream", "thinking", "cached")),
    ],
)
def test_an_unmodified_program_is_governed_through_http_client_as_under_exec(
    in_environment: LoopingProvider,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    program: str,
    variant: str,
) -> None:
    def run() -> str:
        monkeypatch.setattr(sys, "argv", [program, variant])
        runpy.run_path(str(PROGRAMS / program), run_name="__main__")
        return capsys.readouterr().out.strip()

    with exec_env(LIMITS) as by_variables:
        assert run() == REPORT
    expected = account(by_variables.result, in_environment)
    with transport(LIMITS) as governed:
        monkeypatch.setattr(openai, "OpenAI", partial(openai.OpenAI, http_client=governed.http_client()))
        monkeypatch.setattr(anthropic, "Anthropic", partial(anthropic.Anthropic, http_client=governed.http_client()))
        assert run() == REPORT
    assert (in_environment.last_requests, in_environment.refused) == (1, [])
    assert account(governed.result, in_environment) == expected
    assert (governed.result.turns, governed.result.requests) == (TURNS, TURNS + 1)


def test_the_result_is_that_of_flyball_exec(run: Run, in_environment: LoopingProvider) -> None:
    ran = run(in_environment, "plain_agent.py", "loop", "50", limits=LIMITS)
    expected = account(ran.execution.result, in_environment)
    with transport(LIMITS) as governed, governed.http_client() as client:
        assert loop(client, in_environment) == REPORT
    assert account(governed.result, in_environment)[:3] == expected[:3]


def test_google_genai_takes_governed_clients_sync_and_async(in_environment: LoopingProvider) -> None:
    def add(a: int) -> int:
        """Add."""
        return a

    config = types.GenerateContentConfig(
        tools=[add], automatic_function_calling=types.AutomaticFunctionCallingConfig(maximum_remote_calls=9)
    )
    with transport(Limits(turns=TURNS, usd=1)) as governed:
        options = types.HttpOptions(
            httpx_client=governed.http_client(), httpx_async_client=governed.http_client(httpx.AsyncClient)
        )
        client: Any = genai.Client(http_options=options)
        assert client.models.generate_content(model="gemini-2.5-flash", contents="Go.", config=config).text == REPORT

        async def ask_again() -> str | None:
            return (await client.aio.models.generate_content(model="gemini-2.5-flash", contents="Anew.")).text

        assert (asyncio.run(ask_again()) or "").startswith("Stopped by flyball before this conversation began")
    assert (len(in_environment.requests), in_environment.last_requests) == (TURNS + 1, 1)
    assert governed.result.cost["gemini-2.5-flash"] > 0


Client = Callable[[transport], Any]
SYNC: dict[str, Client] = {
    "httpx": lambda governed: governed.http_client(httpx.Client),
    "httpx2": lambda governed: governed.http_client(),
    "httpx, as its transport": lambda governed: httpx.Client(transport=governed),
    "httpx2, as its transport": lambda governed: httpx2.Client(transport=governed),
    "openai's own class": lambda governed: governed.http_client(openai.DefaultHttpxClient),
}
ASYNC: dict[str, Client] = {
    "httpx": lambda governed: governed.http_client(httpx.AsyncClient),
    "httpx2": lambda governed: governed.async_http_client(),
    "httpx, as its transport": lambda governed: httpx.AsyncClient(transport=governed),
    "httpx2, as its transport": lambda governed: httpx2.AsyncClient(transport=governed),
}


@pytest.mark.parametrize("create", SYNC.values(), ids=SYNC)
def test_a_sync_client_of_either_library_is_governed(provider: LoopingProvider, create: Client) -> None:
    with govern(provider) as governed, create(governed) as client:
        assert loop(client, provider) == REPORT
    assert (governed.result.turns, len(provider.requests), governed.result.stop) == (3, 4, "budget")


@pytest.mark.parametrize("create", ASYNC.values(), ids=ASYNC)
@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_an_async_client_of_either_library_is_governed(provider: LoopingProvider, create: Client, library: str) -> None:
    async def main() -> transport:
        async with govern(provider) as governed, create(governed) as client:
            assert await aloop(client, provider) == REPORT
        return governed

    import anyio

    governed = anyio.run(main, backend=library)
    assert (governed.result.turns, len(provider.requests), governed.result.stop) == (3, 4, "budget")


def test_the_client_s_own_key_and_headers_are_sent(provider: LoopingProvider) -> None:
    with govern(provider) as governed, governed.http_client() as client:
        headers = {"authorization": "Bearer sk-own", "x-own": "1", "x-flyball-run": "mine"}
        assert client.post(f"{provider.url}/v1/chat/completions", json=ONCE, headers=headers).status_code == 200
    [request] = provider.requests
    assert (request.headers["authorization"], request.headers["x-own"]) == ("Bearer sk-own", "1")
    assert "x-flyball-run" not in request.headers
    assert governed.result.state["conversations"][0]["name"] == "mine"


REFUSED: dict[str, tuple[str, str, Any, int, str]] = {
    "an unknown host": ("POST", "https://api.groq.com/openai/v1/chat/completions", ONCE, 403, '{"groq": "https://api'),
    "another port": ("POST", "http://127.0.0.1:1/v1/chat/completions", ONCE, 403, "not at the address"),
    "the host of a provider in another scheme": ("POST", "http://api.openai.com/v1/responses", ONCE, 403, "not at"),
    "agents at the provider": ("POST", "https://api.openai.com/v1/assistants", ONCE, 403, "does not govern POST"),
    "a path that is not plain": ("POST", "https://api.openai.com/v1/%2e%2e/x", ONCE, 403, "is not plain"),
    "no model": ("POST", "https://api.openai.com/v1/responses", {"input": "x"}, 400, "names no model"),
    "in the background": (
        "POST", "https://api.openai.com/v1/responses", {"model": "gpt-4o", "input": "x", "background": True}, 400,
        "cannot govern background",
    ),
    "a model without a price": (
        "POST", "https://api.openai.com/v1/responses", {"model": "new", "input": "x"}, 400,
        'unpriced="tokens_only"',
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_request_that_cannot_be_governed_is_refused_and_nothing_is_sent(name: str) -> None:
    method, url, body, code, part = REFUSED[name]
    with transport(Limits(turns=5, usd=1)) as governed, governed.http_client() as client:
        response = client.request(method, url, json=body)
    assert (response.status_code, response.headers["x-should-retry"]) == (code, "false")
    assert part in response.json()["error"]["message"]
    assert governed.result.requests == 0


def test_a_request_may_be_longer_than_the_usual_limit_of_tokens(provider: LoopingProvider) -> None:
    body = ONCE | {"messages": [{"role": "user", "content": "word " * 200_000}]}
    with govern(provider) as governed, governed.http_client() as client:
        assert client.post(f"{provider.url}/v1/chat/completions", json=body).status_code == 200
    assert governed.result.flags == ()


def test_a_provider_that_is_not_known_is_governed_by_its_name(provider: LoopingProvider) -> None:
    upstreams = {"acme": f"{provider.url}/v1"}
    with govern(provider, upstreams=upstreams) as governed, governed.http_client() as client:
        assert loop(client, provider) == REPORT
    assert len(provider.requests) == 4
    with pytest.raises(ConfigError, match="upstreams"), transport(upstreams={"acme": "acme.com"}):
        pass


def test_after_the_report_come_two_synthetic_replies_and_then_an_error_that_clients_do_not_retry(
    provider: LoopingProvider,
) -> None:
    with govern(provider) as governed:
        client = openai.OpenAI(base_url=f"{provider.url}/v1", api_key="sk-x", http_client=governed.http_client())
        messages: list[Any] = [{"role": "user", "content": "Go."}]
        texts: list[str] = []
        with pytest.raises(openai.PermissionDeniedError, match="Maximum agent iterations"):
            while len(texts) < 20:
                message = client.chat.completions.create(model="gpt-4o", messages=messages).choices[0].message
                texts.append(message.content or "")
                messages += [message.model_dump(exclude_none=True), {"role": "user", "content": "Go on."}]
    assert texts[3] == REPORT
    assert [text.startswith("Stopped by flyball") for text in texts[4:]] == [True, True]
    assert (len(provider.requests), governed.result.text) == (4, REPORT)


def test_an_error_of_the_provider_reaches_the_client_and_is_no_turn() -> None:
    with ModelServer.looping(status(400, "bad request")) as server, govern(server) as governed:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-x", http_client=governed.http_client())
        with pytest.raises(openai.BadRequestError, match="bad request"):
            client.responses.create(model="gpt-4o", input="x")
    assert (governed.result.turns, governed.result.stop) == (0, "completed")


def test_a_provider_that_cannot_be_reached_is_an_error_and_no_turn(provider: LoopingProvider) -> None:
    upstreams = {"openai": "http://127.0.0.1:9/v1"}
    with govern(provider, upstreams=upstreams) as governed, governed.http_client() as client:
        response = client.post("http://127.0.0.1:9/v1/chat/completions", json=ONCE)
    assert (response.status_code, governed.result.turns) == (502, 0)
    assert "cannot be reached" in response.json()["error"]["message"]


def test_requests_go_through_a_proxy(provider: LoopingProvider) -> None:
    upstreams = {"openai": "http://provider.example/v1"}
    with govern(provider, upstreams=upstreams, proxy=provider.url) as governed, governed.http_client() as client:
        assert client.post("http://provider.example/v1/chat/completions", json=ONCE).status_code == 200
    assert provider.requests[0].headers["host"] == "provider.example"


def test_wrong_options_are_errors() -> None:
    with pytest.raises(ConfigError, match="limits"):
        transport(5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="per"):
        transport(per="turn")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="unpriced"):
        transport(unpriced="maybe")  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="observe"):
        transport(per="task", observe=True)


def test_observing_changes_nothing_and_says_what_would_have_been(provider: LoopingProvider) -> None:
    with govern(provider, Limits(turns=1), observe=True) as governed, governed.http_client() as client:
        for _ in range(3):
            assert client.post(f"{provider.url}/v1/chat/completions", json=ONCE).status_code == 200
    assert governed.hints == ["request 2 would have met the limit of turns (1)"]
    assert [request.body for request in provider.requests] == [ONCE] * 3


@pytest.fixture
def gateway(provider: LoopingProvider) -> Iterator[Gateway]:
    options = GatewayOptions(limits=Limits(turns=TURNS), environment=environment_for(provider))
    with Gateway(options) as gateway:
        yield gateway


@pytest.mark.parametrize("version", ["v1beta", "v1", "v1alpha"])
def test_the_door_lets_all_versions_of_gemini_in(gateway: Gateway, provider: LoopingProvider, version: str) -> None:
    url = f"{gateway.environment['GOOGLE_GEMINI_BASE_URL']}/{version}/models/gemini-2.5-flash:generateContent"
    headers = {"x-goog-api-key": gateway.environment["GEMINI_API_KEY"]}
    body = {"contents": [{"role": "user", "parts": [{"text": "Go."}]}]}
    assert httpx2.post(url, json=body, headers=headers).status_code == 200
    assert provider.requests[0].path == f"/{version}/models/gemini-2.5-flash:generateContent"
