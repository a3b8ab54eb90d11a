"""The real model: what it says is its own, and small; what holds of every reply and every run is what is tried."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, Result, tool
from flyball.errors import ContextTooLong, ModelError
from flyball.event import Delta, ModelReplied, ModelRequested
from flyball.models import LocalModel
from flyball.models.llama import Llama, LlamaEngine, LoadOptions, load_weights
from flyball.models.local import ModelFile
from flyball.request import Finish, Reply, Request
from flyball.wire import normalize

LONG = 60.0
MODEL = LocalModel("smollm2", context_tokens=1_024, max_output_tokens=48)
"""Small, because memory for all that it can read is taken at once; all tests share its weights."""
DOORS = ("asyncio", "trio")

pytestmark = pytest.mark.skipif(MODEL.ready() is not None, reason=f"no local model here: {MODEL.ready()}")


@tool(poll=True)
def roll(sides: int) -> int:
    """Roll a die with so many sides."""
    return sides


def asked(text: str, **rest: Any) -> Request:
    return Request(normalize([text], run="r"), **rest)


def bounded(door: str, work: Callable[..., Any], *given: Any) -> Any:
    async def run() -> Any:
        with anyio.fail_after(LONG):
            return await work(*given)

    return anyio.run(run, backend=door)


@pytest.fixture(scope="module")
def result() -> Result:
    """One run that would go on for ever."""
    limits = Limits(turns=2, tokens=3_000, usd=0.01)
    return Agent(model=MODEL, tools=[roll], limits=limits).run("Roll dice with 1234567890 sides, again and again.")


def test_a_run_calls_its_tool_with_arguments_that_fit(result: Result) -> None:
    assert {outcome.status for outcome in result.tool_results} == {"done"}
    assert {outcome.tool for outcome in result.tool_results} == {"roll"}


def test_a_run_stays_inside_its_budgets_and_ends_with_words(result: Result) -> None:
    assert result.stop in ("budget", "completed")
    assert (result.turns <= 2, result.budgets["usd"].used, bool(result.text)) == (True, 0, True)
    assert 0 < result.usage.total == result.budgets["tokens"].used <= 3_000
    assert result.usage.input > 0 < result.usage.output


def test_no_request_is_larger_than_was_set_aside_for_it(result: Result) -> None:
    expected = [event.estimated_tokens for event in result.events if isinstance(event, ModelRequested)]
    used = [event.input_tokens for event in result.events if isinstance(event, ModelReplied)]
    assert len(used) == len(expected) == result.requests
    assert all(0 < fact <= most for fact, most in zip(used, expected, strict=True))


@pytest.mark.parametrize("door", DOORS)
def test_text_streams_and_a_reply_that_reaches_its_greatest_length_says_so(door: str) -> None:
    pieces: list[str] = []
    reply: Reply = bounded(door, MODEL.ask, asked("Count to ten.", max_output_tokens=4), pieces.append)
    assert (reply.finish, reply.text, reply.calls) == (Finish.LENGTH, "".join(pieces), ())
    assert len(pieces) > 1
    assert reply.usage is not None
    assert (reply.usage.output, reply.model, reply.provider) == (4, "smollm2", "local")


def test_a_call_that_is_cut_off_is_not_made() -> None:
    request = asked("Roll a die with 6 sides.", tools=[roll.definition()], max_output_tokens=3)
    reply: Reply = bounded("asyncio", MODEL.ask, request)
    assert (reply.finish, reply.text, len(reply.calls)) == (Finish.LENGTH, "", 1)


def test_an_answer_has_the_form_that_is_asked_for() -> None:
    fields = {"properties": {"yes": {"type": "boolean"}}, "required": ["yes"], "additionalProperties": False}
    schema = {"type": "object", **fields}
    reply: Reply = bounded("asyncio", MODEL.ask, asked("Is water wet?", output_schema=schema))
    assert reply.text in ('{"yes": true}', '{"yes": false}')


def test_a_conversation_that_is_too_long_for_it_is_told_as_that() -> None:
    with pytest.raises(ContextTooLong, match="1024 tokens"):
        bounded("asyncio", MODEL.ask, asked("word " * 2_000))


def engines() -> int:
    return [thread.name for thread in threading.enumerate()].count("flyball-llama")


def test_many_runs_at_once_share_the_weights_and_all_end() -> None:
    results: list[Result] = []
    before = engines()

    async def both() -> None:
        async with anyio.create_task_group() as group:
            for task in ("Say yes.", "Say no."):
                group.start_soon(one, task)

    async def one(task: str) -> None:
        model = LocalModel("smollm2", context_tokens=1_024, max_output_tokens=4)
        results.append(await Agent(model=model).arun(task))

    bounded("asyncio", both)
    assert [(result.stop, result.usage.output) for result in results] == [("completed", 4)] * 2
    assert engines() - before <= 1


def test_a_run_that_is_cancelled_in_the_middle_of_a_reply_ends_and_the_next_one_is_answered() -> None:
    run = Agent(model=MODEL).start("Tell a long story.")
    for event in run:
        if isinstance(event, Delta):
            run.cancel()
    result = run.result()
    assert result.stop == "cancelled"
    assert Agent(model=MODEL, max_output_tokens=2).run("Say yes.").completed


class Watched:
    """The real weights, and how many chunks they gave."""

    def __init__(self, llama: Llama) -> None:
        self._llama = llama
        self.chunks = 0

    def handle_chat_completions(self, body: dict[str, Any], heard: Callable[[dict[str, Any]], bool], /) -> object:
        def counted(chunk: dict[str, Any]) -> bool:
            self.chunks += 1
            return heard(chunk)

        return self._llama.handle_chat_completions(body, counted)


@pytest.mark.parametrize(("prompt", "done"), [("Tell a long story.", 400), ("word " * 400, 64)], ids=["said", "read"])
def test_the_weights_stop_at_the_next_token_and_in_the_middle_of_reading(prompt: str, done: int) -> None:
    path = ModelFile.of("smollm2").find_file()
    assert path is not None
    watched, heard = Watched(load_weights(LoadOptions(path, 1, 1_024))), list[int]()

    async def cut() -> None:
        engine = LlamaEngine(lambda: watched)
        token = anyio.lowlevel.current_token()
        async with anyio.create_task_group() as group:

            def hear(chunk: dict[str, Any]) -> None:
                heard.append(chunk.get("prompt_progress", {}).get("processed", 400))
                if heard.count(done) == 1:
                    anyio.from_thread.run_sync(group.cancel_scope.cancel, token=token)

            group.start_soon(engine.answer, MODEL.build_body(asked(prompt)), hear)
        engine.close()

    bounded("asyncio", cut)
    assert (watched.chunks < 20, max(heard) <= max(done, 128)) == (True, True)


@pytest.mark.parametrize("text", ["1234567890", '{"a":[1,{}]}', "蒸汽机", "🚂", "\n\t}"])
def test_a_count_is_more_than_the_tokens_of_any_text(text: str) -> None:
    request = asked(text * 10, instructions="x", max_output_tokens=1)
    reply: Reply = bounded("asyncio", MODEL.ask, request)
    assert reply.usage is not None
    assert reply.usage.input <= MODEL.count(request)


def test_a_file_that_is_broken_is_told_when_it_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF, and nothing else")
    with pytest.raises(ModelError, match=r"broken\.gguf"):
        bounded("asyncio", LocalModel(str(path)).ask, asked("Hello?"))


def program(*lines: str) -> subprocess.CompletedProcess[str]:
    start = (
        "import os, sys; from flyball import Agent; from flyball.models import LocalModel",
        "agent = Agent(model=LocalModel('smollm2', context_tokens=1_024, max_output_tokens=500))",
    )
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "\n".join([*start, *lines])],
        capture_output=True,
        text=True,
        timeout=LONG,
        check=False,
    )


def test_a_program_that_ends_in_the_middle_of_a_reply_ends_in_peace() -> None:
    done = program(
        "run = agent.start('Tell a long story.')",
        "for event in run:",
        "    if event.kind == 'delta': sys.exit(7)",
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_a_forked_child_is_told_to_be_spawned() -> None:
    done = program(
        "agent = Agent(model=agent.model, max_output_tokens=1)",
        "agent.run('Hello?')",
        "child = os.fork()",
        "if not child:",
        "    print(agent.run('Hello?').error['message'], flush=True)",
        "    os._exit(0)",
        "os.waitpid(child, 0)",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "spawn" in done.stdout
