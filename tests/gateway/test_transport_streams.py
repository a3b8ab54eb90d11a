"""Responses of a transport as they pass: streams, clients that leave, deadlines, and many requests at once."""

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import httpx
import httpx2
import pytest

from flyball import Limits
from flyball.gateway import transport
from flyball.gateway.pipe import Pipe
from flyball.request import Usage
from flyball.testing import call, say
from flyball.testing.server import LoopingProvider, ModelServer, sent

from .transport_loops import ONCE, REPORT, STREAM, aloop, govern, loop

LONG = say("Some text that is streamed in pieces, and more of it.").using(Usage(20, 10))
HANGS = sent(LONG, "hang", events=4)
MANY = Limits(turns=50, tokens=100_000)
SYNC = [httpx.Client, httpx2.Client]
ASYNC = [httpx.AsyncClient, httpx2.AsyncClient]


def url_of(server: ModelServer) -> str:
    return f"{server.url}/v1/chat/completions"


def check_left(governed: transport) -> None:
    """Check that the request was counted as that of a client that left, and that nothing is held."""
    tokens = governed.envelope.budgets["tokens"]
    assert 0 < tokens.used < 500
    assert governed.result.estimated_requests == 1
    assert (governed.result.turns, governed.result.stop) == (1, "completed")
    assert not governed.envelope.reserve


@pytest.mark.parametrize("kind", SYNC, ids=["httpx", "httpx2"])
def test_a_stream_is_handed_on_as_it_comes_and_closing_it_counts_what_was_heard(kind: Any) -> None:
    with ModelServer.looping(HANGS) as server, govern(server, MANY) as governed, governed.http_client(kind) as client:
        with client.stream("POST", url_of(server), json=STREAM, timeout=30) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")  # while the provider hangs
        used = governed.envelope.budgets["tokens"].used
    check_left(governed)
    assert used == governed.result.budgets["tokens"].used  # counted when the block of the stream ended


@pytest.mark.parametrize("kind", ASYNC, ids=["httpx", "httpx2"])
@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_cancelling_a_task_in_mid_stream_counts_what_was_heard(kind: Any, library: str) -> None:
    async def main(server: ModelServer) -> transport:
        async with govern(server, MANY) as governed, governed.http_client(kind) as client:
            with anyio.move_on_after(30) as scope:
                async with client.stream("POST", url_of(server), json=STREAM, timeout=30) as response:
                    async for _ in response.aiter_lines():
                        scope.cancel()
            assert scope.cancel_called
        return governed

    with ModelServer.looping(HANGS) as server:
        check_left(anyio.run(main, server, backend=library))


def test_a_forgotten_stream_counts_what_was_heard(wait_for: Callable[..., None]) -> None:
    with ModelServer.looping(HANGS) as server, govern(server, MANY) as governed:
        client = governed.http_client()
        response = client.send(client.build_request("POST", url_of(server), json=STREAM), stream=True)
        del response
        gc.collect()
        wait_for(lambda: governed.envelope.budgets["tokens"].used > 0)
    check_left(governed)


@pytest.mark.parametrize("kind", SYNC, ids=["httpx", "httpx2"])
def test_the_read_timeout_of_a_client_holds(kind: Any) -> None:
    error: Any = httpx.ReadTimeout if kind is httpx.Client else httpx2.ReadTimeout
    with ModelServer.looping(HANGS) as server, govern(server, MANY) as governed, pytest.raises(error):
        governed.http_client(kind).post(url_of(server), json=STREAM, timeout=0.1)
    check_left(governed)


@pytest.mark.parametrize("kind", SYNC, ids=["httpx", "httpx2"])
def test_a_stream_that_breaks_at_the_provider_breaks_for_the_client(kind: Any) -> None:
    error: Any = httpx.RemoteProtocolError if kind is httpx.Client else httpx2.RemoteProtocolError
    faulty = ModelServer.looping(sent(LONG, "cut", events=4))
    with faulty as server, govern(server, MANY) as governed, pytest.raises(error, match="broke off"):
        governed.http_client(kind).post(url_of(server), json=STREAM)
    check_left(governed)


def test_the_end_of_the_run_breaks_requests_in_progress(wait_for: Callable[..., None]) -> None:
    errors: list[BaseException] = []

    def wait(client: httpx2.Client, server: ModelServer) -> None:
        try:
            client.post(url_of(server), json=ONCE, timeout=30)
        except BaseException as error:
            errors.append(error)

    with ModelServer.looping(sent(LONG, "hang")) as server:
        with govern(server, MANY) as governed:
            thread = threading.Thread(target=wait, args=(governed.http_client(), server))
            thread.start()
            wait_for(lambda: len(server.requests) == 1)
        thread.join(30)
    assert [type(error) for error in errors] == [httpx2.RemoteProtocolError]
    assert (governed.result.turns, governed.result.estimated_requests) == (1, 1)


def test_a_blocking_call_that_hangs_becomes_the_last_request_and_the_report_is_in_time() -> None:
    hanging = LoopingProvider(sent(call("add", a=1), "hang"))
    with hanging as provider, govern(provider, Limits(seconds=1)) as governed, governed.http_client() as client:
        assert loop(client, provider) == REPORT
    assert (governed.result.stop, len(provider.requests), provider.last_requests) == ("deadline", 2, 1)
    assert governed.result.seconds < 1


def test_turns_are_exact_for_many_threads_tasks_and_event_loops_at_once(provider: LoopingProvider) -> None:
    answers: list[str] = []
    governed = govern(provider, Limits(turns=20))

    def work(kind: Any, number: int) -> None:
        with governed.http_client(kind) as client:
            answers.append(loop(client, provider, f"Thread {number}."))

    async def run_tasks(kind: Any, name: str) -> None:
        async with governed.http_client(kind) as client, anyio.create_task_group() as group:

            async def run(number: int) -> None:
                answers.append(await aloop(client, provider, f"{name} {number}."))

            for number in range(4):
                group.start_soon(run, number)

    def run_loop(kind: Any, library: str) -> None:
        anyio.run(run_tasks, kind, library, backend=library)

    with governed:
        threads = [threading.Thread(target=work, args=(SYNC[number % 2], number)) for number in range(6)]
        threads += [threading.Thread(target=run_loop, args=(ASYNC[0], "asyncio"))]
        threads += [threading.Thread(target=run_loop, args=(ASYNC[1], "trio"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    reported = [chat["reported"] for chat in governed.result.state["conversations"] if chat["turns"]]
    assert (len(answers), governed.result.turns, all(reported)) == (14, 20, True)
    assert len(provider.requests) == 20 + len(reported)
    assert answers.count(REPORT) == len(reported)


def test_an_async_body_and_a_whole_reply_of_many_kilobytes_pass(provider: LoopingProvider) -> None:
    text = "word " * 200_000

    async def body() -> AsyncIterator[bytes]:
        yield b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "'
        yield b'Go."}]}'

    async def main(server: ModelServer) -> str:
        async with govern(server, MANY) as governed, governed.async_http_client() as client:
            reply = await client.post(url_of(server), content=body(), timeout=30)
            return reply.json()["choices"][0]["message"]["content"]

    with ModelServer.looping(say(text)) as server:
        assert asyncio.run(main(server)) == text


def test_a_slow_reader_makes_the_engine_wait_and_loses_nothing() -> None:
    async def main() -> tuple[bool, int]:
        pipe = Pipe({}, b"", asyncio.get_running_loop())

        async def answer() -> None:
            for _ in range(100):
                await pipe.send({"type": "http.response.body", "body": b"x" * 10_000, "more_body": True})
            await pipe.send({"type": "http.response.body", "body": b""})
            pipe.end()

        task = asyncio.create_task(answer())
        done, _ = await asyncio.wait([task], timeout=0.05)
        read = 0
        while not pipe.is_complete:
            read += len((await pipe.aread(30)).get("body", b""))
        await task
        return bool(done), read

    assert asyncio.run(main()) == (False, 1_000_000)
