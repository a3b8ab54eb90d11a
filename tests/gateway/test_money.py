"""Tokens and money of governed programs: reserved before a request, settled after it, and never over a limit."""

import json
from base64 import b64encode, encodebytes
from typing import Any

import pytest

from flyball import IterationBudgetRegistry, Limits
from flyball.gateway import Gateway, GatewayOptions
from flyball.models.catalog import price_of
from flyball.request import Usage
from flyball.testing import say
from flyball.testing.server import LoopingProvider, ModelServer, sent

from .conftest import Run, ask, environment_for

REPORT = "The report: the task is not finished."


def cost_of(usages: list[Usage], model: str = "gpt-4o") -> int:
    price = price_of("openai", model)
    assert price is not None
    return sum(price.cost(usage) for usage in usages)


@pytest.mark.parametrize("asked", [0, 32_000], ids=["no cap", "a cap above the limit"])
def test_a_money_limit_holds_and_leaves_a_report(run: Run, provider: LoopingProvider, asked: int) -> None:
    ran = run(provider, "plain_agent.py", "loop", str(asked), limits=Limits(usd=0.05, turns=200))
    spent = cost_of(provider.billed)
    assert (ran.code, ran.stop, provider.refused) == (0, "budget", [])
    assert json.loads(ran.output)["answers"] == [REPORT]
    assert 0.03 * 10**9 < spent <= 0.05 * 10**9
    assert ran.execution.result.cost == {"gpt-4o": spent}
    assert ran.execution.conversations[0].cost == spent
    assert len(provider.requests) > 5


def test_a_token_limit_holds_for_thirty_agents_at_once_and_each_reports(run: Run) -> None:
    with LoopingProvider() as provider:
        ran = run(provider, "plain_agent.py", "same", "30", limits=Limits(tokens=60_000, turns=500))
    spent = sum(usage.total for usage in provider.billed)
    assert (ran.code, ran.stop, provider.refused) == (0, "budget", [])
    assert json.loads(ran.output)["answers"] == [REPORT] * 30
    assert provider.last_requests == 30
    assert 45_000 < spent <= 60_000
    assert ran.execution.result.usage.total == spent


def test_an_unknown_price_under_a_money_limit_is_refused_before_the_request_leaves(
    run: Run, provider: LoopingProvider
) -> None:
    program = {"environment": environment_for(provider), "limits": Limits(usd=1, turns=2)}
    ran = run(provider, "anthropic_agent.py", "unknown", **program)
    assert provider.requests == []
    assert "price of anthropic:claude-of-the-future is not known" in ran.output
    ran = run(provider, "anthropic_agent.py", "unknown", **program, unpriced="tokens_only")
    assert len(provider.requests) == 3
    assert ran.execution.result.unpriced == ("claude-of-the-future",)


def test_a_fast_speed_has_no_known_price() -> None:
    body = {"model": "claude-sonnet-4-5", "messages": PROMPT, "max_tokens": 100, "speed": "fast"}
    with LoopingProvider() as provider:
        with Gateway(GatewayOptions(limits=Limits(usd=1), environment=environment_for(provider))) as gateway:
            status, reply = ask(gateway, "/v1/messages", body, "ANTHROPIC")
        assert (status, provider.requests) == (400, [])
        assert "the price of anthropic:claude-sonnet-4-5 at fast speed is not known" in reply["error"]["message"]
        with Gateway(GatewayOptions(limits=Limits(tokens=9_000), environment=environment_for(provider))) as gateway:
            assert ask(gateway, "/v1/messages", body, "ANTHROPIC")[0] == 200
    assert gateway.result.cost == {}


def test_a_lowered_cap_lowers_the_budget_for_thinking(run: Run, provider: LoopingProvider) -> None:
    ran = run(provider, "anthropic_agent.py", "thinking", limits=Limits(tokens=12_000, turns=500))
    assert (ran.code, ran.output.strip(), provider.refused) == (0, REPORT, [])
    body = provider.requests[0].body
    assert 1_024 <= body["thinking"]["budget_tokens"] < body["max_tokens"] < 10_000
    assert sum(usage.total for usage in provider.billed) <= 12_000


def test_a_reply_without_usage_counts_at_an_estimate_below_its_reservation(run: Run) -> None:
    with LoopingProvider(tells_usage=False) as provider:
        ran = run(provider, "openai_agent.py", "chat", limits=Limits(tokens=8_000, turns=500))
    result = ran.execution.result
    assert len(provider.requests) > 4
    assert result.estimated_requests == len(provider.requests)
    assert (ran.code, ran.output.strip()) == (0, REPORT)
    billed = sum(usage.total for usage in provider.billed)
    assert billed <= result.budgets["tokens"].used <= 8_000


PROMPT = [{"role": "user", "content": "Go."}]


@pytest.mark.parametrize("count", ["8", "x", float("nan"), 10**30, -1, 0, None, [1], True])
def test_a_number_of_replies_that_a_lenient_server_could_read_is_reserved(count: Any) -> None:
    body = {"model": "gpt-4o", "messages": PROMPT, "n": count, "max_tokens": 2_000}
    with LoopingProvider() as provider:
        options = GatewayOptions(limits=Limits(usd=0.10), environment=environment_for(provider))
        with Gateway(options) as gateway:
            assert ask(gateway, "/chat/completions", body)[0] == 200
    caps = [request.body["max_tokens"] for request in provider.requests]
    assert len(caps) == (count != 10**30)
    assert all((cap < 1_000) == (count == "8") for cap in caps)


def test_alternative_replies_are_reserved_and_lowered_together() -> None:
    body = {"model": "gpt-4o", "messages": PROMPT, "n": 8, "max_tokens": 2_000}
    with LoopingProvider(output_tokens=2_000) as provider:
        options = GatewayOptions(limits=Limits(turns=50, usd=0.05), environment=environment_for(provider))
        with Gateway(options) as gateway:
            for _ in range(8):
                ask(gateway, "/chat/completions", body, x_flyball_run="one")
    assert provider.requests[0].body["max_tokens"] < 700
    assert cost_of(provider.billed) == gateway.result.budgets["usd"].used <= 0.05 * 10**9
    assert "n" not in provider.requests[-1].body  # one report is enough
    assert provider.last_requests == 1


def test_alternative_replies_of_gemini_are_reserved_together() -> None:
    config = {"candidateCount": 4, "maxOutputTokens": 8_000}
    body = {"contents": [{"role": "user", "parts": [{"text": "Go."}]}], "generationConfig": config}
    with LoopingProvider(output_tokens=8_000) as provider:
        options = GatewayOptions(limits=Limits(turns=50, tokens=9_000), environment=environment_for(provider))
        with Gateway(options) as gateway:
            for _ in range(8):
                path = "/v1beta/models/gemini-2.5-flash:generateContent"
                ask(gateway, path, body, "GOOGLE_GEMINI", x_flyball_run="one")
    assert sum(usage.total for usage in provider.billed) <= 9_000
    assert "candidateCount" not in provider.requests[-1].body["generationConfig"]


def test_the_larger_of_two_caps_is_reserved() -> None:
    """A server that knows only one of the keys writes as much as that one says."""
    body = {"model": "gpt-4o", "messages": PROMPT, "max_tokens": 30_000, "max_completion_tokens": 5}
    with LoopingProvider() as provider:
        options = GatewayOptions(limits=Limits(turns=5, tokens=9_000), environment=environment_for(provider))
        with Gateway(options) as gateway:
            ask(gateway, "/chat/completions", body)
    sent = provider.requests[0].body
    assert "max_tokens" not in sent
    assert sent["max_completion_tokens"] < 9_000


PDF = b64encode(b"%PDF-1.7\n" + b"<< /Type /Page >>\n" * 30 + bytes(3_000)).decode()


@pytest.mark.parametrize(
    ("content", "tokens"),
    [
        ([{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBORw0K" * 5_000}}], (1_600, 1_800)),
        ("这是一个很长的文本" * 2_000, (20_000, 60_000)),
        ("QUJD" * 10_000, (10_000, 20_000)),
        ([{"type": "text", "text": "x" * 40_000}], (10_000, 20_000)),
        ([{"type": "file", "file": {"file_data": "data:application/pdf;base64," + PDF}}], (90_000, 91_000)),
        ([{"type": "file", "file": {"file_data": "data:text/csv;base64," + "QUJD" * 10_000}}], (10_000, 20_000)),
        ([{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64," + "\\/9j\\/" * 5_000}}], (1_600, 1_800)),
        (
            [{"type": "image_url", "image_url": {"url": encodebytes(b"GIF89a" + bytes(30_000)).decode()}}],
            (1_600, 1_800),
        ),
    ],
    ids=["image", "no spaces", "base64 as a text", "part of a text", "30 pages", "file of text", "escaped", "lines"],
)
def test_the_data_of_images_and_documents_does_not_count_as_text(content: object, tokens: tuple[int, int]) -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": content}]}
    raw = json.dumps(body, ensure_ascii=False).replace("\\\\", "\\")  # some clients escape slashes
    with LoopingProvider(tells_usage=False) as server:
        options = GatewayOptions(limits=Limits(turns=5, tokens=900_000), environment=environment_for(server))
        with Gateway(options) as gateway:
            assert ask(gateway, "/chat/completions", raw.encode())[0] == 200
    assert tokens[0] <= gateway.result.budgets["tokens"].used <= tokens[1]


LONG = [
    {"role": "user", "content": [{"type": "text", "text": "Go.", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}
]
WRITTEN = {"input_tokens": 10, "cache_creation_input_tokens": 9_000, "cache_read_input_tokens": 0, "output_tokens": 20}
SPLIT = WRITTEN | {"cache_creation": {"ephemeral_5m_input_tokens": 4_000, "ephemeral_1h_input_tokens": 5_000}}
SHORT = WRITTEN | {"cache_creation": {"ephemeral_5m_input_tokens": 9_000, "ephemeral_1h_input_tokens": 0}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("usage", "nano_dollars"),
    [(WRITTEN, 9_000 * 6_000), (SPLIT, 5_000 * 6_000 + 4_000 * 3_750), (SHORT, 9_000 * 3_750)],
    ids=["not told", "told", "none for an hour"],
)
def test_a_cache_for_an_hour_costs_what_the_provider_bills(
    usage: dict[str, Any], nano_dollars: int, stream: bool
) -> None:
    body = {"model": "claude-sonnet-4-5", "messages": LONG, "max_tokens": 100, "stream": stream}
    with ModelServer.looping(sent(say("Done."), usage=usage)) as server:
        options = GatewayOptions(limits=Limits(turns=5, usd=1), environment=environment_for(server))
        with Gateway(options) as gateway:
            assert ask(gateway, "/v1/messages", body, "ANTHROPIC")[0] == 200
    assert gateway.result.budgets["usd"].used == nano_dollars + 10 * 3_000 + 20 * 15_000


def test_a_request_whose_cache_for_an_hour_would_not_fit_is_not_sent() -> None:
    text = "word " * 8_000
    body = {"model": "claude-sonnet-4-5", "messages": [*LONG, {"role": "user", "content": text}], "max_tokens": 100}
    for messages, count in ((body["messages"], 0), ([{"role": "user", "content": text}], 1)):
        with LoopingProvider() as server:  # for long inputs, a million tokens cost $12 instead of $7.50
            options = GatewayOptions(limits=Limits(turns=5, usd=0.30), environment=environment_for(server))
            with Gateway(options) as gateway:
                ask(gateway, "/v1/messages", body | {"messages": messages}, "ANTHROPIC")
        assert len(server.requests) == count


@pytest.mark.parametrize("setting", [None, "max_context_tokens", "clamp.max_context_tokens"])
def test_the_input_of_a_request_is_limited_only_if_that_is_set(setting: str | None) -> None:
    registry = IterationBudgetRegistry(settings={} if setting is None else {setting: 300_000})
    body = {"model": "gpt-4.1", "messages": [{"role": "user", "content": "A word. " * 125_000}]}
    with LoopingProvider() as server:
        options = GatewayOptions(limits=Limits(turns=2), registry=registry, environment=environment_for(server))
        with Gateway(options) as gateway:
            ask(gateway, "/chat/completions", body)
    assert len(server.requests) == (setting is None)
    assert gateway.result.flags == (() if setting is None else ("max_context_tokens_reached",))
