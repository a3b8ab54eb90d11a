"""Calls of real clients within a governed turn: deadline, retries and usage."""

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import openai
import pytest
import trio

from flyball import Limits, Reserve, Result, TokenPrice, govern
from flyball.errors import UsageError
from flyball.governor.client_call import find_usage, is_temporary
from flyball.testing import ModelServer, say, sent, status

MESSAGES: Any = [{"role": "user", "content": "Go."}]
HANG = sent(say("never"), "hang")
HURRIED = Limits(turns=9, tokens=10_000, seconds=63, reserve=Reserve(seconds=60))
"""Three seconds for work, and plenty for the report."""


OPEN_CLIENTS: list[openai.OpenAI | anthropic.Anthropic] = []


@pytest.fixture(autouse=True)
def close_clients() -> Iterator[None]:
    yield
    while OPEN_CLIENTS:
        OPEN_CLIENTS.pop().close()


def openai_create(url: str) -> Callable[..., Any]:
    client = openai.OpenAI(api_key="k", base_url=f"{url}/v1")
    OPEN_CLIENTS.append(client)
    return partial(client.chat.completions.create, model="m", messages=MESSAGES)


def anthropic_create(url: str) -> Callable[..., Any]:
    client = anthropic.Anthropic(api_key="k", base_url=url)
    OPEN_CLIENTS.append(client)
    return partial(client.messages.create, model="m", messages=MESSAGES)


def httpx_create(url: str) -> Callable[..., Any]:
    def post(max_tokens: int | None) -> httpx.Response:
        body = {"model": "m", "messages": MESSAGES, "max_tokens": max_tokens}
        return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60)

    return post


CLIENTS = [openai_create, anthropic_create, httpx_create]
SDKS = CLIENTS[:2]


def run_loop(limits: Limits, create: Callable[..., Any], **options: Any) -> tuple[Result, list[bool]]:
    """Run the loop of the README, and return its result with whether each turn was for the report."""
    graces: list[bool] = []
    with govern(limits, max_output_tokens=100, **options) as run:
        for turn in run:
            graces.append(turn.grace)
            reply = turn.call(create, max_tokens=turn.max_output_tokens)
            if reply is None:
                continue
            if turn.grace or turn.number == 5:
                run.complete("done")
    return run.result(), graces


@pytest.mark.parametrize("create", CLIENTS)
def test_a_call_that_hangs_ends_with_the_time_for_work_and_the_report_comes(create: Callable[..., Any]) -> None:
    began = time.monotonic()
    with ModelServer(HANG, say("the report")) as server:
        result, graces = run_loop(HURRIED, create(server.url))
    assert (graces, result.stop, result.text) == ([False, True], "deadline", "done")
    assert time.monotonic() - began < 30  # the clients alone wait for ten minutes, three times
    assert (result.requests, result.estimated_requests) == (2, 1)
    assert result.budgets["tokens"].used == 100 + result.usage.total > 100


@pytest.mark.parametrize("create", CLIENTS)
def test_the_usage_of_a_reply_is_read_from_it(create: Callable[..., Any]) -> None:
    with ModelServer.looping(say("more")) as server:
        result, _ = run_loop(Limits(turns=2, tokens=10_000), create(server.url))
    assert (result.turns, result.requests, result.estimated_requests) == (2, 3, 0)
    assert result.usage.total == result.budgets["tokens"].used > 0


@pytest.mark.parametrize("create", SDKS)
def test_a_temporary_error_is_retried_from_the_retries_budget(create: Callable[..., Any]) -> None:
    busy = status(429, "busy", headers={"retry-after-ms": "1"})
    with ModelServer(busy, say("more"), say("report")) as server:
        result, _ = run_loop(Limits(turns=1, tokens=10_000, retries=1), create(server.url))
        assert len(server.requests) == 3
    assert (result.stop, result.budgets["retries"].used, result.estimated_requests) == ("budget", 1, 0)
    assert [event.kind for event in result.events].count("retried") == 1
    assert result.budgets["tokens"].used == result.usage.total


@pytest.mark.parametrize("create", SDKS)
def test_without_retries_a_temporary_error_is_raised_after_one_request(create: Callable[..., Any]) -> None:
    with ModelServer.looping(status(500, "broken")) as server:
        run = govern(Limits(turns=9, retries=0))
        with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)), run:
            next(run).call(create(server.url), max_tokens=5)
        assert len(server.requests) == 1
    assert (run.result().stop, run.result().flags) == ("failed", ("max_retries_reached",))


@pytest.mark.parametrize("code", [400, 401, 403, 404])
@pytest.mark.parametrize("create", SDKS)
def test_a_final_error_is_raised_at_once_and_counts_no_tokens(create: Callable[..., Any], code: int) -> None:
    with ModelServer.looping(status(code, "no")) as server:
        server_url = server.url
        run = govern(Limits(turns=9, tokens=1_000))
        with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)), run:
            next(run).call(create(server.url), max_tokens=5)
        assert len(server.requests) == 1
    assert (run.result().stop, run.result().budgets["tokens"].used) == ("failed", 0)
    hints = {400: "see the error", 401: "check the key", 403: "check the key", 404: "check the model's name"}
    assert hints[code] in run.result().explain()
    assert (server_url in run.result().explain()) is (code != 400)


@pytest.mark.parametrize("create", SDKS)
def test_a_refused_connection_is_a_failure_with_its_cause_and_not_a_deadline(create: Callable[..., Any]) -> None:
    with ModelServer(say("x")) as server:
        url = server.url
    run = govern(Limits(turns=9, seconds=60))
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError)), run:
        next(run).call(create(url), max_tokens=5)
    assert (run.result().stop, run.result().budgets["retries"].used) == ("failed", 0)
    for part in ("Connection refused", f"check the network, and that a server runs at {url}/"):
        assert part in run.result().explain()


def test_an_unknown_host_fails_at_once_and_says_what_to_check() -> None:
    run = govern(Limits(turns=9, seconds=60))
    with pytest.raises(openai.APIConnectionError), run:
        next(run).call(openai_create("http://user:secret@no-such-host.invalid"), max_tokens=5)
    assert "a server runs at http://no-such-host.invalid/v1" in run.result().explain()
    assert "secret" not in run.result().explain()
    assert run.result().budgets["retries"].used == 0


def test_an_error_without_a_request_is_described_as_it_is() -> None:
    run = govern(Limits(turns=9))
    with pytest.raises(ConnectionRefusedError), run:
        next(run).call(lambda: _raise(ConnectionRefusedError("no database")))
    assert (run.result().error or {})["message"] == "no database"


def _raise(error: Exception) -> None:
    raise error


def test_a_stream_is_returned_and_counts_its_reservation_if_it_is_not_settled() -> None:
    with (
        ModelServer.looping(say("a b c")) as server,
        govern(Limits(turns=9, tokens=1_000), max_output_tokens=50) as run,
    ):
        create = openai_create(server.url)
        stream: Any = next(run).call(create, stream=True)
        assert [chunk.usage for chunk in stream]
        run.complete()
    assert (run.result().budgets["tokens"].used, run.result().estimated_requests) == (50, 1)


@pytest.mark.parametrize("stream", [True, False])
def test_each_call_of_a_turn_without_usage_counts_its_own_reservation(stream: bool) -> None:
    calls: list[Any] = []
    with ModelServer.looping(say("a b c")) as server:
        client = openai.OpenAI(api_key="k", base_url=f"{server.url}/v1")
        with client, govern(Limits(turns=9, tokens=1_000), max_output_tokens=100) as run:
            for turn in run:
                for _ in range(50):
                    if stream:
                        reply: Any = turn.call(
                            client.chat.completions.create, model="m", messages=MESSAGES, stream=True
                        )
                    else:
                        reply = turn.call(lambda: {"text": "no usage"})
                    if reply is None:
                        break
                    calls.append(list(reply))
    result = run.result()
    assert result.requests == result.estimated_requests == len(calls) == 10
    assert (result.stop, result.budgets["tokens"].used) == ("budget", 1_000)


def test_a_stream_that_is_settled_before_the_next_call_counts_its_usage_only() -> None:
    with govern(Limits(turns=9, tokens=1_000), max_output_tokens=100) as run:
        turn = next(run)
        for _ in range(3):
            assert turn.call(lambda: {"text": "no usage"})
            turn.settle(USAGE)
        run.complete()
    result = run.result()
    assert (result.requests, result.estimated_requests, result.budgets["tokens"].used) == (3, 0, 21)


def test_calls_of_one_turn_at_the_same_time_are_refused_because_they_would_share_a_reservation() -> None:
    async def work() -> Result:
        async def create() -> Any:
            await asyncio.sleep(0.01)
            return {"usage": USAGE}

        async with govern(Limits(turns=9, tokens=1_000), max_output_tokens=100) as run:
            async for turn in run:
                replies = await asyncio.gather(turn.acall(create), turn.acall(create), return_exceptions=True)
                assert replies[0] == {"usage": USAGE}
                assert isinstance(replies[1], UsageError)
                assert "begin_turn" in str(replies[1])
                assert await turn.acall(create)
                run.complete()
        return run.result()

    result = asyncio.run(work())
    assert (result.requests, result.budgets["tokens"].used) == (2, 14)


@pytest.mark.parametrize("create", SDKS)
def test_a_server_that_asks_to_wait_beyond_the_time_leads_to_the_report_and_is_named(
    create: Callable[..., Any],
) -> None:
    busy = status(429, "very busy", headers={"retry-after": "3000"})
    with ModelServer(busy, say("the report")) as server:
        result, graces = run_loop(Limits(turns=9, tokens=10_000, seconds=600), create(server.url))
        assert len(server.requests) == 2
    assert (graces, result.stop, result.text) == ([False, True], "deadline", "done")
    assert "very busy" in result.explain()
    assert "Limits(seconds=1200)" in result.explain()  # twice the limit, not twice what was used
    assert (result.estimated_requests, result.budgets["tokens"].used) == (0, result.usage.total)
    assert "retried" not in [event.kind for event in result.events]


@pytest.mark.parametrize("limits", [Limits(turns=1), HURRIED])
def test_a_busy_server_in_the_grace_turn_is_not_the_reason_of_the_end(limits: Limits) -> None:
    busy = status(429, "very busy", headers={"retry-after": "3000"})
    first = say("more") if limits.turns == 1 else HANG
    with ModelServer(first, busy) as server:
        result, graces = run_loop(limits, openai_create(server.url))
    assert (graces, result.stop) == ([False, True], "budget" if limits.turns == 1 else "deadline")
    assert (result.error, result.text) == (None, "")


def test_a_wait_beyond_the_time_ends_parallel_turns_with_their_reports() -> None:
    request = httpx.Request("POST", "http://x")
    response = httpx.Response(429, request=request, headers={"retry-after": "3000"})

    def create() -> Any:
        raise httpx.HTTPStatusError("busy", request=request, response=response)

    with govern(Limits(turns=9, seconds=600)) as run:
        turn = run.begin_turn("a")
        assert turn
        assert turn.call(create) is None
        turn.end()
        assert run.begin_turn("a") is None
        assert run.enter_grace("a")
    assert (run.result().stop, run.result().flags) == ("deadline", ("max_seconds_reached",))


@pytest.mark.parametrize("create", SDKS)
def test_an_error_without_a_retry_counts_no_tokens(create: Callable[..., Any]) -> None:
    with ModelServer.looping(status(500, "broken")) as server:
        run = govern(Limits(turns=9, retries=0, tokens=10_000))
        with pytest.raises((openai.InternalServerError, anthropic.InternalServerError)), run:
            next(run).call(create(server.url), max_tokens=5)
    assert (run.result().budgets["tokens"].used, run.result().estimated_requests) == (0, 0)


def test_a_call_after_the_end_of_the_time_is_not_made() -> None:
    calls: list[int] = []
    with govern(Limits(seconds=1)) as run:
        turn = next(run)
        time.sleep(turn.remaining_s())
        assert turn.call(lambda: calls.append(1)) is None
        run.complete()
    assert calls == []


def test_a_call_without_room_for_a_reply_is_not_made() -> None:
    calls: list[int] = []
    with govern(Limits(tokens=100)) as run:
        turn = next(run)
        assert not turn.expect(90)
        assert turn.call(lambda: calls.append(1)) is None
        run.complete()
    assert calls == []


def test_an_async_function_in_a_sync_call_names_acall() -> None:
    async def create() -> None: ...

    with govern(Limits(turns=1)) as run:
        with pytest.raises(UsageError, match="acall"):
            next(run).call(create)
        run.complete()


def test_a_blocking_function_in_an_async_call_names_call() -> None:
    async def work() -> None:
        async with govern(Limits(turns=1)) as run:
            with pytest.raises(UsageError, match=r"turn\.call"):
                await next(run).acall(lambda: {"usage": USAGE})  # pyright: ignore[reportArgumentType]
            run.complete()

    asyncio.run(work())


async def run_async_loop(url: str) -> Result:
    client = openai.AsyncOpenAI(api_key="k", base_url=f"{url}/v1")
    async with client, govern(HURRIED, max_output_tokens=100) as run:
        async for turn in run:
            reply = await turn.acall(client.chat.completions.create, model="m", messages=MESSAGES, max_tokens=100)
            if reply is None:
                continue
            if turn.grace:
                run.complete("done")
    return run.result()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_async_call_that_hangs_ends_with_the_time_for_work(backend: str) -> None:
    with ModelServer(status(503, "busy", headers={"retry-after-ms": "1"}), say("more"), HANG, say("end")) as server:
        result = (
            asyncio.run(run_async_loop(server.url)) if backend == "asyncio" else trio.run(run_async_loop, server.url)
        )
    assert (result.stop, result.text, result.turns, result.estimated_requests) == ("deadline", "done", 2, 1)
    assert result.budgets["retries"].used == 1


USAGE = {"prompt_tokens": 3, "completion_tokens": 4}


@pytest.mark.parametrize(
    ("reply", "total"),
    [
        ({"usage": USAGE}, 7),
        (SimpleNamespace(usage=SimpleNamespace(input_tokens=5, output_tokens=1)), 6),
        (SimpleNamespace(usage_metadata=SimpleNamespace(prompt_token_count=5, candidates_token_count=3)), 8),
        (httpx.Response(200, json={"usageMetadata": {"promptTokenCount": 5, "candidatesTokenCount": 3}}), 8),
        (SimpleNamespace(usage=None), None),
        (SimpleNamespace(usage="many"), None),
        (httpx.Response(200, json={"usage": USAGE}), 7),
        (httpx.Response(200, text="not JSON"), None),
        (SimpleNamespace(http_response=httpx.Response(200, json={"usage": USAGE})), 7),
        ("text", None),
    ],
)
def test_the_usage_is_found_by_the_shape_of_the_reply(reply: Any, total: int | None) -> None:
    usage = find_usage(reply)
    assert (None if usage is None else usage.total) == total


def test_errors_are_temporary_by_status_or_by_the_name_of_their_class() -> None:
    request = httpx.Request("POST", "http://x")
    busy = httpx.HTTPStatusError("busy", request=request, response=httpx.Response(429, request=request))
    assert is_temporary(busy)
    assert is_temporary(httpx.ReadError("reset"))
    assert not is_temporary(ConnectionRefusedError())
    assert not is_temporary(ValueError())


def test_a_reply_after_the_end_of_the_time_changes_nothing() -> None:
    with govern(Limits(turns=5, seconds=1, tokens=1_000), price=TokenPrice(input=1, output=1)) as run:
        turn = next(run)
        assert turn.call(lambda: time.sleep(1.2) or {"usage": USAGE}) is None
        used = run.envelope.budgets["tokens"].used
        time.sleep(0.5)
        assert run.envelope.budgets["tokens"].used == used == 800
        run.complete()


class AttributeDict(dict[str, Any]):
    """A reply as some clients return it: a mapping whose attributes are its keys, and nothing else."""

    def __getattr__(self, name: str) -> Any:
        return self[name]


def test_a_reply_that_is_a_mapping_with_attributes_is_read_as_a_mapping() -> None:
    reply = AttributeDict(usage=AttributeDict(prompt_tokens=10, completion_tokens=5, total_tokens=15), model="m")
    with govern(Limits(turns=1, tokens=500), grace=False) as run:
        for turn in run:
            assert turn.call(lambda: reply) is reply
    assert run.result().usage.total == 15


def test_without_a_limit_a_turn_without_usage_costs_no_guess() -> None:
    with govern(Limits(turns=1), max_output_tokens=900) as run:
        for turn in run:
            assert turn.max_output_tokens == 900
    result = run.result()
    assert (result.budgets["tokens"].used, result.estimated_requests) == (0, 2)
