"""One engine, many questions: their order, their ends, and what is left of one that nobody waits for."""

from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event
from threading import enumerate as enumerate_threads
from typing import Any

import anyio
import pytest

from flyball.errors import ModelError
from flyball.models.llama import LlamaEngine

LONG = 60.0
Json = dict[str, Any]

pytestmark = pytest.mark.anyio


class Counting:
    """Weights that count: `most` tokens for each question, each when `may` is set."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.said = 0
        self.may = Event()
        self.may.set()
        self.began = Event()

    def handle_chat_completions(self, body: Json, heard: Callable[[Json], bool], /) -> None:
        self.asked.append(body["name"])
        for n in range(body["most"]):
            self.said = n + 1
            stop = heard({"n": n})
            self.began.set()
            if stop:
                return
            assert self.may.wait(LONG)


@pytest.fixture
def llama() -> Counting:
    return Counting()


@pytest.fixture
def engine(llama: Counting) -> Iterator[LlamaEngine]:
    with closing(LlamaEngine(lambda: llama)) as engine:
        yield engine


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return request.param


def ignored(chunk: Json) -> None:
    assert "n" in chunk


def question(name: str, most: int = 3) -> Json:
    return {"name": name, "most": most}


async def reached(event: Event) -> None:
    with anyio.fail_after(LONG):
        while not event.is_set():
            await anyio.sleep(0.001)


async def test_every_chunk_is_heard(engine: LlamaEngine) -> None:
    heard: list[Json] = []
    await engine.answer(question("one"), heard.append)
    assert heard == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_the_weights_are_loaded_once_and_only_when_they_are_asked(llama: Counting) -> None:
    loaded: list[Counting] = []

    def load() -> Counting:
        loaded.append(llama)
        return llama

    with closing(LlamaEngine(load)) as engine:
        assert loaded == []
        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(engine.answer, question(name), ignored)
    assert len(loaded) == 1


async def test_what_cannot_be_loaded_fails_each_time_and_may_succeed_later(llama: Counting) -> None:
    found: list[Counting] = []

    def load() -> Counting:
        if not found:
            raise ModelError("no memory")
        return found[0]

    with closing(LlamaEngine(load)) as engine:
        for _ in range(2):
            with pytest.raises(ModelError, match="no memory"):
                await engine.answer(question("one"), ignored)
        found.append(llama)
        await engine.answer(question("one"), ignored)
    assert llama.asked == ["one"]


async def test_questions_are_answered_in_their_order_and_one_at_a_time(engine: LlamaEngine, llama: Counting) -> None:
    heard: list[str] = []

    async def ask(name: str) -> None:
        def hear(chunk: Json) -> None:
            heard.append(f"{name}{chunk['n']}")

        await engine.answer(question(name), hear)

    llama.may.clear()
    async with anyio.create_task_group() as group:
        for name in "abcd":
            group.start_soon(ask, name)
            await anyio.wait_all_tasks_blocked()  # trio starts tasks in an order of its own
        llama.may.set()
    assert heard == [f"{name}{n}" for name in "abcd" for n in range(3)]


async def test_a_cancelled_request_stops_at_the_next_token_and_hears_nothing_more(
    engine: LlamaEngine, llama: Counting
) -> None:
    heard: list[Json] = []
    llama.may.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(engine.answer, question("long", 1_000_000), heard.append)
        await reached(llama.began)
        group.cancel_scope.cancel()
    llama.may.set()
    await engine.answer(question("next", 1), ignored)
    assert (len(heard), llama.asked) == (1, ["long", "next"])


async def test_a_request_cancelled_while_it_waits_is_never_asked(engine: LlamaEngine, llama: Counting) -> None:
    llama.may.clear()
    async with anyio.create_task_group() as group:
        group.start_soon(engine.answer, question("first"), ignored)
        await reached(llama.began)
        with anyio.move_on_after(0.01):
            await engine.answer(question("second"), ignored)
        llama.may.set()
    await engine.answer(question("third"), ignored)
    assert llama.asked == ["first", "third"]


async def test_what_a_listener_raises_ends_the_answer_and_is_raised(engine: LlamaEngine, llama: Counting) -> None:
    def refuse(chunk: Json) -> None:
        raise ModelError(f"chunk {chunk['n']}")

    with pytest.raises(ModelError, match="chunk 0"):
        await engine.answer(question("one", 1_000_000), refuse)
    assert llama.said == 1


async def test_closing_stops_at_the_next_token_and_fails_what_is_waiting(engine: LlamaEngine, llama: Counting) -> None:
    failed: list[str] = []
    before = set(enumerate_threads())

    async def ask(name: str) -> None:
        with pytest.raises(ModelError, match="closed"):
            await engine.answer(question(name, 1_000_000), ignored)
        failed.append(name)

    async with anyio.create_task_group() as group:
        for name in "ab":
            group.start_soon(ask, name)
            await anyio.wait_all_tasks_blocked()
        await reached(llama.began)
        engine.close()
    await ask("c")
    assert (sorted(failed), llama.asked) == (["a", "b", "c"], ["a"])
    assert set(enumerate_threads()) <= before
