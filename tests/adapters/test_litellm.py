import asyncio
import os
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # its own table of prices, instead of one from the network
litellm: Any = pytest.importorskip("litellm", reason="it needs openai 2: make test-adapters")

from flyball import Limits, TokenPrice, Usage  # noqa: E402
from flyball.adapters import AdapterOptions, result_of  # noqa: E402
from flyball.adapters.frameworks import AdapterWarning  # noqa: E402
from flyball.adapters.litellm import GovernedLiteLLM, govern  # noqa: E402
from flyball.errors import ModelError, UsageError  # noqa: E402
from flyball.event import ModelRequested  # noqa: E402
from flyball.models.scripted import call, say  # noqa: E402
from flyball.testing.server import LoopingProvider, ModelServer, StatusReply, sent  # noqa: E402

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": PARAMETERS}}]
MODELS = {"chat": "gpt-4o", "messages": "anthropic/claude-sonnet-4-5"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopingProvider]:
    with LoopingProvider(report="I counted.") as provider:
        point_at(provider, monkeypatch)
        yield provider


def point_at(provider: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_BASE", f"{provider.url}/v1")
    monkeypatch.setenv("ANTHROPIC_API_BASE", provider.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")


def loop(llm: GovernedLiteLLM, model: str = "gpt-4o", *, streamed: bool = False, **arguments: Any) -> str:
    """An agent that calls tools until the model answers."""
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        reply = llm.completion(model, messages, tools=TOOLS, stream=streamed, **arguments)
        if streamed:
            reply = litellm.stream_chunk_builder(list(reply))
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]


async def aloop(llm: GovernedLiteLLM, model: str = "gpt-4o", *, streamed: bool = False) -> str:
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        reply = await llm.acompletion(model, messages, tools=TOOLS, stream=streamed)
        if streamed:
            reply = litellm.stream_chunk_builder([chunk async for chunk in reply])
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]


@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize("streamed", [False, True])
def test_an_endless_loop_makes_its_turns_and_one_report(api: str, streamed: bool, provider: LoopingProvider) -> None:
    with govern(Limits(turns=3)) as llm:
        assert loop(llm, MODELS[api], streamed=streamed) == "I counted."
    result = result_of(llm)
    assert (result.stop, result.turns, result.requests, result.text) == ("budget", 3, 4, "I counted.")
    assert (len(provider.requests), provider.last_requests, provider.refused) == (4, 1, [])
    assert provider.requests[-1].body["tools"]
    assert result.usage.total == sum(usage.total for usage in provider.billed)


@pytest.mark.parametrize("api", MODELS)
@pytest.mark.parametrize("streamed", [False, True])
def test_async_loops_side_by_side_share_the_turns_and_report_each(
    api: str, streamed: bool, provider: LoopingProvider
) -> None:
    async def main() -> GovernedLiteLLM:
        async with govern(Limits(turns=6)) as llm:
            texts = await asyncio.gather(*(aloop(llm, MODELS[api], streamed=streamed) for _ in range(3)))
            assert texts == ["I counted."] * 3
        return llm

    result = asyncio.run(main()).result
    assert (result.turns, result.requests, len(provider.requests), provider.refused) == (6, 9, 9, [])


def test_loops_in_threads_share_the_turns(provider: LoopingProvider) -> None:
    with govern(Limits(turns=6)) as llm, ThreadPoolExecutor(3) as pool:
        assert list(pool.map(loop, [llm] * 3)) == ["I counted."] * 3
    assert (llm.result.turns, len(provider.requests)) == (6, 9)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_may_not_run_is_left_out_of_the_reply(streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    three = say("Now.", call("add", a=1), call("add", a=2), call("add", a=3))
    with LoopingProvider(three, report="I counted.") as provider:
        point_at(provider, monkeypatch)
        with govern(Limits(tool_calls=2)) as llm:
            reply = llm.completion("gpt-4o", [{"role": "user", "content": "Go."}], tools=TOOLS, stream=streamed)
            if streamed:
                reply = litellm.stream_chunk_builder(list(reply))
            message = reply.choices[0].message
            assert [call.function.arguments for call in message.tool_calls] == ['{"a": 1}', '{"a": 2}']
            assert message.content == "Now."
    assert llm.result.budgets["tool_calls"].used == 2


def test_chunks_of_a_stream_arrive_while_the_model_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(sent(say("one two three four"), "hang", events=3)) as server:
        point_at(server, monkeypatch)
        with govern(Limits(turns=3)) as llm:
            stream = llm.completion("gpt-4o", [{"role": "user", "content": "Go."}], stream=True)
            assert next(stream).choices[0].delta.role == "assistant"
            stream.close()


def test_a_usage_that_was_not_asked_for_is_no_chunk(provider: LoopingProvider) -> None:
    with govern(Limits(turns=3)) as llm:
        messages = [{"role": "user", "content": "Go."}]
        plain = list(llm.completion("gpt-4o", messages, stream=True))
        asked = list(llm.completion("gpt-4o", messages, stream=True, stream_options={"include_usage": True}))
    assert [getattr(chunk, "usage", None) for chunk in plain] == [None] * len(plain)
    assert asked[-1].usage.total_tokens == provider.billed[1].total
    assert llm.result.usage.total == provider.billed[0].total + provider.billed[1].total


@pytest.mark.parametrize("streamed", [False, True])
def test_a_router_is_governed(streamed: bool, provider: LoopingProvider) -> None:
    router = litellm.Router(
        model_list=[{"model_name": "main", "litellm_params": {"model": "gpt-4o", "api_key": "key"}}]
    )
    with govern(Limits(turns=2, usd=1), router=router) as llm:
        assert loop(llm, "main", streamed=streamed) == "I counted."
    assert (llm.result.stop, llm.result.turns, len(provider.requests)) == ("budget", 2, 3)
    assert llm.result.usage.total == sum(usage.total for usage in provider.billed)
    assert sum(llm.result.cost.values()) > 0


def test_the_last_request_keeps_the_format_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"name": "answer", "schema": {"type": "object", "properties": {"text": {"type": "string"}}}}
    with LoopingProvider(call("add", a=1), report="") as provider:  # a server that has no report either
        point_at(provider, monkeypatch)
        with govern(Limits(turns=1)) as llm:
            text = loop(llm, response_format={"type": "json_schema", "json_schema": schema})
    assert text.startswith('{"text": "Stopped by flyball: ')


def test_a_tool_that_carries_the_answer_carries_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tools = [{"type": "function", "function": {"name": "answer", "parameters": answer}}]
    choice = {"type": "function", "function": {"name": "answer"}}
    messages = [{"role": "user", "content": "Go."}, {"role": "assistant", "content": "What?"}]
    with ModelServer(say("no"), call("answer", text="I cannot.")) as server:
        point_at(server, monkeypatch)
        with govern(Limits(turns=1)) as llm:
            llm.completion("gpt-4o", messages[:1], tools=tools, tool_choice=choice)
            reply = llm.completion("gpt-4o", messages, tools=tools, tool_choice=choice)
        assert server.requests[1].body["tool_choice"] == choice
    (made,) = reply.choices[0].message.tool_calls
    assert (made.function.name, made.function.arguments) == ("answer", '{"text": "I cannot."}')


@pytest.mark.parametrize("streamed", [False, True])
def test_tokens_of_a_cache_are_counted_at_their_price(streamed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 800,
        "cache_creation_input_tokens": 50,
    }
    with LoopingProvider(sent(say("Done."), usage=usage)) as provider, govern(Limits(usd=1)) as llm:
        point_at(provider, monkeypatch)
        loop(llm, MODELS["messages"], streamed=streamed)
    result = result_of(llm)
    assert result.usage == Usage(input=950, output=10, cached=800, written=50)
    assert result.cost == {"claude-sonnet-4-5": int((100 * 3 + 800 * 0.3 + 50 * 3.75 + 10 * 15) * 1_000)}


def test_searches_of_the_provider_are_counted_and_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {"web_search_requests": 2}}
    with LoopingProvider(sent(say("Done."), usage=usage)) as provider:
        point_at(provider, monkeypatch)
        tools, messages = [{"type": "web_search_20250305", "name": "web_search"}], [{"role": "user", "content": "Go."}]
        with pytest.warns(AdapterWarning, match="run at the provider") as warned, govern(Limits(tool_calls=5)) as llm:
            for _ in range(2):
                llm.completion(MODELS["messages"], messages, tools=tools)
    assert (len(warned), result_of(llm).budgets["tool_calls"].used) == (1, 4)


def test_temporary_errors_are_retried_within_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = StatusReply(503, "busy", headers={"retry-after": "0"})
    with ModelServer(busy, busy, say("done")) as server:
        point_at(server, monkeypatch)
        with govern(Limits(turns=3, retries=2)) as llm:
            assert loop(llm) == "done"
    assert (len(server.requests), llm.result.turns, llm.result.budgets["retries"].used) == (3, 1, 2)


def test_an_error_fails_the_run_and_is_the_one_of_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(StatusReply(400, "bad request")) as server:
        point_at(server, monkeypatch)
        llm = govern(Limits(turns=3))
        with pytest.raises(litellm.BadRequestError) as raised, llm:
            loop(llm)
    assert (llm.result.stop, llm.result.turns, len(server.requests)) == ("failed", 0, 1)
    assert result_of(raised.value) is llm.result


def test_a_model_without_a_price_is_refused_under_a_limit_of_money(provider: LoopingProvider) -> None:
    with pytest.raises(UsageError, match=r"price of .*made-up"), govern(Limits(usd=1)) as llm:
        loop(llm, "openai/made-up")
    assert provider.requests == []
    priced = AdapterOptions(Limits(usd=1, turns=1), price=TokenPrice(input=1, output=1))
    with govern(options=priced) as llm:
        loop(llm, "openai/made-up")
    assert sum(llm.result.cost.values()) > 0


def test_no_call_is_made_before_or_after_the_block(provider: LoopingProvider) -> None:
    llm = govern(Limits(turns=1))
    with pytest.raises(UsageError):
        loop(llm)
    with llm:
        pass
    with pytest.raises(UsageError):
        loop(llm)
    assert provider.requests == []


def test_a_timeout_of_the_client_is_charged_because_the_provider_may_bill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(sent(say("late"), "hang")) as server:
        point_at(server, monkeypatch)
        llm = govern(Limits(turns=3, retries=0, tokens=10_000))
        with pytest.raises(litellm.Timeout), llm:
            loop(llm, timeout=0.2)
    assert (llm.result.stop, llm.result.requests, llm.result.estimated_requests) == ("failed", 1, 1)
    assert llm.result.budgets["tokens"].used > 0


def test_a_stream_that_breaks_after_its_start_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(sent(say("one two three"), "cut", events=3), say("again")) as server:
        point_at(server, monkeypatch)
        with govern(Limits(turns=3)) as llm, pytest.raises(ModelError, match="broke off"):
            list(llm.completion("gpt-4o", [{"role": "user", "content": "Go."}], stream=True))
    assert len(server.requests) == 1


def test_a_hung_model_ends_with_a_report_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer(sent(say("late"), "hang"), say("never")) as server:
        point_at(server, monkeypatch)
        with govern(Limits(seconds=1.0)) as llm:
            reply = llm.completion("gpt-4o", [{"role": "user", "content": "Go."}])
    assert reply.choices[0].message.content
    assert llm.result.stop == "deadline"


def test_runs_within_a_run_draw_on_its_budgets(provider: LoopingProvider) -> None:
    with govern(Limits(turns=3)) as outer, govern(Limits(turns=10)) as inner:
        loop(inner)
    assert (len(provider.requests), inner.result.stop, inner.result.turns) == (4, "budget", 3)
    assert outer.result.budgets["turns"].used == 3


def test_a_photo_counts_as_an_image_and_not_as_text(provider: LoopingProvider) -> None:
    url = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + bytes(900_000)).decode()
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    with govern(Limits(turns=3, usd=1)) as llm:
        llm.completion("gpt-4o", [{"role": "user", "content": content}])
    assert (llm.result.turns, len(provider.requests)) == (1, 1)
    first = next(event for event in llm.result.events if isinstance(event, ModelRequested))
    assert 1_600 <= first.estimated_tokens <= 2_500
