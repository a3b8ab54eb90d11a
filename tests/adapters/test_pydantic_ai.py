import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    ModelMessage,
    ModelResponse,
    NativeOutput,
    NativeToolCallPart,
    PromptedOutput,
    RequestUsage,
    TextPart,
    Tool,
    ToolCallPart,
    ToolOutput,
    ToolReturnPart,
)
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelHTTPError
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from flyball import Limits, Result, Usage
from flyball.adapters import AdapterOptions, pydantic_ai, result_of
from flyball.adapters.frameworks import AdapterWarning
from flyball.errors import UsageError
from flyball.event import ModelRequested
from flyball.models.scripted import say
from flyball.rules import RuleSet
from flyball.store import MemoryStore
from flyball.testing.server import LoopingProvider, sent, status


class Text(BaseModel):
    text: str


class Answer(BaseModel):
    text: str
    count: int


@dataclass
class Script:
    """Model that calls a tool in each reply, until the request forbids it."""

    calls: int = 1
    tool: str = "add"
    obeys: bool = True
    answer: str = "I counted."
    after: int = 10_000
    """Requests after which it gives its answer."""
    requests: list[AgentInfo] = field(default_factory=list[AgentInfo])
    messages: list[list[ModelMessage]] = field(default_factory=list[list[ModelMessage]])

    @property
    def model(self) -> FunctionModel:
        return FunctionModel(self.reply, model_name="gpt-4o")

    def reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(info)
        self.messages.append(messages)
        usage = RequestUsage(input_tokens=20, output_tokens=5, cache_read_tokens=8)
        settings: Any = info.model_settings or {}
        if (settings.get("tool_choice") == "none" and self.obeys) or len(self.requests) > self.after:
            if info.output_tools:
                arguments = {"text": self.answer, "count": 3}
                return ModelResponse([ToolCallPart(info.output_tools[0].name, arguments)], usage=usage)
            return ModelResponse([TextPart(self.answer)], usage=usage)
        number = len(self.requests)
        parts = [ToolCallPart(self.tool, {"a": 1}, f"call-{number}-{index}") for index in range(self.calls)]
        return ModelResponse(parts, usage=usage)


async def add(a: int) -> int:
    """Add one."""
    return a + 1


def create(script: Script, *tools: Any, **options: Any) -> Agent[None, Any]:
    functions: tuple[Any, ...] = tools or (add,)
    return Agent(script.model, tools=[Tool(one) for one in functions], **options)


def run(script: Script, limits: Limits, *tools: Any, **options: Any) -> tuple[Any, Result]:
    returned = asyncio.run(pydantic_ai.run(create(script, *tools, **options), "Count.", limits=limits))
    return returned.output, result_of(returned)


def count_results(messages: list[ModelMessage]) -> int:
    return sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)


def test_an_endless_agent_makes_its_turns_and_one_report_with_its_tools() -> None:
    script = Script()
    returned = asyncio.run(pydantic_ai.run(create(script), "Count.", limits=Limits(turns=3)))
    result = result_of(returned)
    assert returned.output == "I counted."
    assert (result.stop, result.turns, result.requests, result.text) == ("budget", 3, 4, "I counted.")
    assert (result.usage.input, result.usage.output, result.usage.cached) == (80, 20, 32)
    assert [(one.model_settings or {}).get("tool_choice") for one in script.requests] == [None, None, None, "none"]
    assert [tool.name for tool in script.requests[-1].function_tools] == ["add"]
    assert "last request" in str(script.messages[-1][-1])
    assert "last request" not in str(returned.all_messages())


def test_run_sync_is_held() -> None:
    with asyncio.Runner() as runner:
        asyncio.set_event_loop(runner.get_loop())
        returned = pydantic_ai.run_sync(create(Script()), "Count.", limits=Limits(turns=2))
    assert (returned.output, result_of(returned).requests) == ("I counted.", 3)


def test_an_agent_that_answers_in_time_has_its_own_answer() -> None:
    output, result = run(Script(after=1), Limits(turns=3))
    assert (output, result.stop, result.turns, result.budgets["tool_calls"].used) == ("I counted.", "completed", 2, 1)


def test_a_limit_above_the_fifty_requests_of_the_framework_is_reached() -> None:
    _, result = run(Script(), Limits(turns=55))
    assert (result.stop, result.turns) == ("budget", 55)


@pytest.mark.parametrize("output", [Answer, ToolOutput(Answer, name="answer")])
def test_typed_output_is_asked_for_in_the_last_request(output: Any) -> None:
    script = Script()
    answer, result = run(script, Limits(turns=2), output_type=output)
    assert (answer, result.stop, result.requests) == (Answer(text="I counted.", count=3), "budget", 3)
    assert f"Answer with a call of {script.requests[-1].output_tools[0].name}." in str(script.messages[-1][-1])


@pytest.mark.parametrize("output", [Answer, NativeOutput(Answer), PromptedOutput(Answer)])
def test_typed_output_is_made_if_no_request_is_left(output: Any) -> None:
    answer, result = run(Script(), Limits(turns=0), output_type=output)
    assert "Stopped by flyball" in answer.text
    assert (result.stop, result.requests) == ("budget", 0)


@asynccontextmanager
async def open_model(wire: str, url: str) -> AsyncGenerator[Model]:
    if wire == "messages":
        async with AsyncAnthropic(base_url=url, api_key="key") as client:
            yield AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(anthropic_client=client))
    else:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="key") as client:
            kind = OpenAIResponsesModel if wire == "responses" else OpenAIChatModel
            yield kind("gpt-4o", provider=OpenAIProvider(openai_client=client))


@pytest.mark.parametrize("output", [str, Text])
@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_provider_accepts_the_last_request(wire: str, output: Any) -> None:
    async def main() -> None:
        with LoopingProvider(report="I counted.") as provider:
            async with open_model(wire, provider.url) as model:
                agent: Agent[None, Any] = Agent(model, tools=[Tool(add)], output_type=output)
                result = result_of(await pydantic_ai.run(agent, "Count.", limits=Limits(turns=2, usd=1)))
            assert (result.stop, result.requests, provider.last_requests, provider.refused) == ("budget", 3, 1, [])
            assert len(provider.requests[-1].body["tools"]) == (1 if output is str else 2)
            assert result.usage.total == sum(usage.total for usage in provider.billed)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("output", "part"),
    [
        (Answer, TextPart("I counted.")),
        ([Answer, Text], TextPart("I counted.")),
        (NativeOutput(Answer), TextPart("I counted.")),
        (Answer, ToolCallPart("final_result", '{"text": "I counted.')),
        ([Answer, int], ToolCallPart("final_result_Answer", '{"text": "I counted.')),
    ],
)
def test_a_last_reply_in_another_form_is_put_into_the_typed_output(output: Any, part: Any) -> None:
    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        settings: Any = info.model_settings
        if settings and settings.get("tool_choice") == "none":
            return ModelResponse([part], finish_reason="length")
        return ModelResponse([ToolCallPart("add", {"a": 1})])

    agent = Agent(FunctionModel(reply, model_name="gpt-4o"), tools=[Tool(add)], output_type=output)
    returned = asyncio.run(pydantic_ai.run(agent, "Count.", limits=Limits(turns=2)))
    assert isinstance(returned.output, Answer)
    assert "I counted." in returned.output.text
    assert (result_of(returned).stop, result_of(returned).requests) == ("budget", 3)


def double(model: Model) -> Model:
    return FallbackModel(model, model)


@pytest.mark.parametrize("wrap", [WrapperModel, double])
def test_models_in_other_models_make_no_retries_of_their_own(wrap: Callable[[Model], Model]) -> None:
    async def main(provider: LoopingProvider) -> None:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="key") as client:
            model = wrap(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=client)))
            await pydantic_ai.run(Agent(model), "Count.", limits=Limits(retries=0))

    with LoopingProvider(status(500)) as provider:
        with pytest.raises((ModelHTTPError, FallbackExceptionGroup)):
            asyncio.run(main(provider))
        assert len(provider.requests) == (1 if wrap is WrapperModel else 2)


def test_tools_at_the_provider_are_counted_and_warned_of() -> None:
    searched = NativeToolCallPart("web_search", {"query": "x"})
    model = FunctionModel(lambda messages, info: ModelResponse([searched, searched, TextPart("Done.")]))
    agent = Agent(model, capabilities=[NativeTool(WebSearchTool())])
    with pytest.warns(AdapterWarning, match="web_search run at the provider.*flyball exec") as warned:
        returned = asyncio.run(pydantic_ai.run(agent, "Search.", limits=Limits(tool_calls=3)))
    assert len(warned) == 1
    assert result_of(returned).budgets["tool_calls"].used == 2


def test_tokens_of_a_cache_are_counted_at_their_price() -> None:
    usage = {
        "input_tokens": 100,
        "output_tokens": 10,
        "cache_read_input_tokens": 800,
        "cache_creation_input_tokens": 50,
    }

    async def main() -> Result:
        with LoopingProvider(sent(say("Done."), usage=usage)) as provider:
            async with open_model("messages", provider.url) as model:
                return result_of(await pydantic_ai.run(Agent(model), "Go.", limits=Limits(usd=1)))

    result = asyncio.run(main())
    assert result.usage == Usage(input=950, output=10, cached=800, written=50)
    assert result.cost == {"claude-haiku-4-5": int((100 * 1 + 800 * 0.1 + 50 * 1.25 + 10 * 5) * 1_000)}


def test_calls_in_the_report_are_replaced_by_text() -> None:
    output, result = run(Script(obeys=False), Limits(turns=2))
    assert "Stopped by flyball: Maximum agent iterations (2) reached." in output
    assert (result.stop, result.requests) == ("budget", 3)


def test_calls_beyond_the_limit_do_not_run() -> None:
    script = Script(calls=3)
    output, result = run(script, Limits(tool_calls=7))
    assert (count_results(script.messages[-1]), result.budgets["tool_calls"].used) == (7, 7)
    assert (output, result.stop) == ("I counted.", "budget")


def test_blocking_tool_that_hangs_is_left_behind() -> None:
    def add(a: int) -> int:
        """Add one."""
        time.sleep(5)
        return a

    started = time.monotonic()
    output, result = run(Script(), Limits(seconds=0.5), add)
    assert time.monotonic() - started < 4
    assert (output, result.stop) == ("I counted.", "deadline")


def test_agent_in_a_tool_with_the_capability_draws_on_both_limits() -> None:
    inner = pydantic_ai.govern(Limits(turns=30))
    helper = create(Script(answer="I helped."), capabilities=[inner])

    async def ask(a: int) -> str:
        """Ask the helper."""
        return (await helper.run("Help.")).output

    output, result = run(Script(tool="ask"), Limits(turns=4), ask)
    assert (output, result.turns, result.budgets["turns"].used) == ("I counted.", 1, 4)
    assert (inner.result().turns, inner.result().text) == (3, "I helped.")


def test_agent_that_is_run_by_the_adapter_in_a_tool_draws_on_both_limits() -> None:
    helper = create(Script(answer="I helped."))

    async def ask(a: int) -> str:
        """Ask the helper."""
        return (await pydantic_ai.run(helper, "Help.", limits=Limits(turns=2))).output

    output, result = run(Script(tool="ask"), Limits(turns=5), ask)
    assert (output, result.turns, result.budgets["turns"].used) == ("I counted.", 2, 5)


def test_depth_of_agents_is_limited() -> None:
    agents: list[Agent[None, Any]] = []

    async def ask(a: int) -> str:
        """Ask an agent of the same kind."""
        return (await agents[0].run("Count.")).output

    capability = pydantic_ai.govern(Limits(turns=3, depth=1))
    agents.append(create(Script(tool="ask"), ask, capabilities=[capability]))
    assert asyncio.run(agents[0].run("Count.")).output == "I counted."
    assert {run.result.turns for run in capability._runs.values()} == {0, 1, 2}  # pyright: ignore[reportPrivateUsage]


def test_streamed_run_is_held_by_the_capability() -> None:
    async def reply(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        settings: Any = info.model_settings or {}
        if settings.get("tool_choice") == "none":
            for word in ("I ", "counted."):
                yield word
        else:
            yield {0: DeltaToolCall("add", '{"a": 1}')}

    async def main() -> tuple[list[str], Result]:
        capability = pydantic_ai.govern(Limits(turns=2))
        agent = Agent(FunctionModel(stream_function=reply), tools=[Tool(add)])
        async with agent.run_stream("Count.", capabilities=[capability]) as stream:
            texts = [text async for text in stream.stream_text(debounce_by=None)]
        return texts, capability.result(stream.run_id)

    texts, result = asyncio.run(main())
    assert texts[-1] == "I counted."
    assert (result.stop, result.turns, result.requests) == ("budget", 2, 3)


def test_second_capability_leaves_a_governed_run_alone() -> None:
    capability = pydantic_ai.govern(Limits(turns=9))
    agent = create(Script(), capabilities=[capability])
    returned = asyncio.run(pydantic_ai.run(agent, "Count.", limits=Limits(turns=2)))
    assert (result_of(returned).turns, result_of(returned).requests) == (2, 3)


def test_error_of_the_model_fails_the_run() -> None:
    def reply(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise RuntimeError("no model today")

    with pytest.raises(RuntimeError) as error:
        asyncio.run(pydantic_ai.run(Agent(FunctionModel(reply)), "Count.", limits=Limits(turns=2)))
    assert result_of(error.value).stop == "failed"


def test_tool_that_needs_approval_pauses_the_run_until_it_is_given() -> None:
    script = Script(after=1)
    options: Any = {"tools": [Tool(add, requires_approval=True)], "output_type": [str, DeferredToolRequests]}
    agent: Agent[None, Any] = Agent(script.model, **options)
    paused = asyncio.run(pydantic_ai.run(agent, "Count.", limits=Limits(turns=4)))
    assert (result_of(paused).stop, isinstance(paused.output, DeferredToolRequests)) == ("paused", True)
    assert isinstance(paused.output, DeferredToolRequests)
    history, approved = paused.all_messages(), paused.output.build_results(approve_all=True)
    returned = asyncio.run(
        pydantic_ai.run(agent, limits=Limits(turns=4), message_history=history, deferred_tool_results=approved)
    )
    assert (returned.output, result_of(returned).stop) == ("I counted.", "completed")


def test_rules_deny_calls_and_the_model_reads_why(tmp_path: Path) -> None:
    path = tmp_path / "rule.toml"
    path.write_text('[rule]\nid = "no"\ntrigger = "on_tool_call"\n[action]\ntype = "deny"\nmessage = "not today"\n')
    script, store = Script(), MemoryStore()
    options = AdapterOptions(Limits(turns=2), rules=RuleSet.load(path), store=store)
    returned = asyncio.run(pydantic_ai.run(create(script), "Count.", options=options))
    assert count_results(returned.all_messages()) == 0
    assert "not today" in str(script.messages[1][-1])


def test_missing_result_is_an_error() -> None:
    capability = pydantic_ai.govern()
    with pytest.raises(UsageError, match="no run"):
        capability.result()
    with pytest.raises(UsageError, match="is not known"):
        capability.result("x")


def test_the_first_run_of_a_capability_has_the_id_of_its_options() -> None:
    store = MemoryStore()
    governed = pydantic_ai.govern(options=AdapterOptions(Limits(turns=1), run_id="r1", store=store))
    results: list[Result] = []
    for _ in range(2):
        asyncio.run(create(Script()).run("Count.", capabilities=[governed]))
        results.append(governed.result())
    assert (results[0].run_id, results[1].run_id != "r1") == ("r1", True)
    assert all(store.runs.get(result.run_id) for result in results)


def test_a_photo_and_a_document_count_as_images_and_pages_and_not_as_text() -> None:
    pages = b"%PDF-1.7\n" + b"<< /Type /Page >>\n" * 4 + bytes(900_000)
    photo = BinaryContent(b"\x89PNG\r\n\x1a\n" + bytes(900_000), media_type="image/png")
    script = Script(after=2)
    agent = Agent(script.model, tools=[add])
    options = AdapterOptions(Limits(turns=5, usd=1), model="openai:gpt-4o")
    task = ["What is this?", photo, BinaryContent(pages, media_type="application/pdf")]
    returned = asyncio.run(pydantic_ai.run(agent, task, options=options))
    result = result_of(returned)
    assert (result.stop, result.requests) == ("completed", 3)
    first = next(event for event in result.events if isinstance(event, ModelRequested))
    assert 1_600 + 4 * 3_000 <= first.estimated_tokens <= 15_000
