import asyncio
import warnings
from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    HostedMCPTool,
    Model,
    ModelBehaviorError,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    RunConfig,
    Runner,
    RunResult,
    RunResultStreaming,
    SQLiteSession,
    Tool,
    WebSearchTool,
    function_tool,
    handoff,
)
from agents.extensions.handoff_filters import remove_all_tools
from agents.items import ModelResponse
from agents.run_config import CallModelData, ModelInputData
from agents.usage import Usage as SdkUsage
from openai import AsyncOpenAI, AuthenticationError
from openai.types.responses import ResponseFunctionWebSearch
from pydantic import BaseModel

from flyball import Limits, Result, TurnBudget, Usage
from flyball.adapters import AdapterOptions, openai_agents, result_of
from flyball.adapters.frameworks import OPENAI_AGENTS, AdapterWarning, Framework
from flyball.adapters.openai_replies import build_output
from flyball.errors import UsageError
from flyball.event import ModelRequested, ToolStarted
from flyball.models.scripted import call, say
from flyball.person import Question
from flyball.store import MemoryStore
from flyball.testing import RuleFolder
from flyball.testing.server import LoopingProvider, sent, status

CUT = say("Half a").ending("length")
DROPS_CUT_REPLIES = find_spec("agents.models._response_terminal") is not None
"""Whether the SDK raises for a response that was cut at its longest length. Older releases take it as an answer."""


@function_tool
async def add(a: int) -> str:
    """Add one."""
    return str(a + 1)


@dataclass
class Client:
    """Scripted provider, and the configuration of a run that uses it."""

    provider: LoopingProvider
    client: AsyncOpenAI
    config: RunConfig

    def create_chat_model(self) -> OpenAIChatCompletionsModel:
        return OpenAIChatCompletionsModel("gpt-4o", self.client)


@asynccontextmanager
async def open_client(provider: LoopingProvider, *, chat: bool = False) -> AsyncGenerator[Client]:
    with provider:
        async with AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="key") as client:
            models = OpenAIProvider(openai_client=client, use_responses=not chat)
            yield Client(provider, client, RunConfig(model_provider=models, tracing_disabled=True))


def create_agent(*tools: Tool, model: object = "gpt-4o") -> Agent:
    return Agent("counter", instructions="Count.", tools=list(tools or (add,)), model=model)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_an_endless_agent_makes_its_turns_and_one_report(chat: bool, streamed: bool) -> None:
    async def main() -> None:
        async with open_client(LoopingProvider(report="I counted."), chat=chat) as open_:
            if streamed:
                returned = openai_agents.run_streamed(
                    create_agent(), "Count.", limits=Limits(turns=3), run_config=open_.config
                )
                async for _ in returned.stream_events():
                    pass
            else:
                returned = await openai_agents.run(
                    create_agent(), "Count.", limits=Limits(turns=3), run_config=open_.config
                )
            result = result_of(returned)
            assert returned.final_output == "I counted."
            assert (result.stop, result.turns, result.requests, result.text) == ("budget", 3, 4, "I counted.")
            provider = open_.provider
            assert (len(provider.requests), provider.last_requests, provider.refused) == (4, 1, [])
            assert provider.requests[-1].body["tools"]
            if not streamed:  # the SDK asks for the usage of a stream at its own address only
                assert result.usage.total == sum(usage.total for usage in provider.billed)

    asyncio.run(main())


def test_a_model_object_of_an_agent_is_held_too() -> None:
    async def main() -> Result:
        async with open_client(LoopingProvider(report="I counted.")) as open_:
            agent = create_agent(model=open_.create_chat_model())
            return result_of(await openai_agents.run(agent, "Count.", limits=Limits(turns=2)))

    result = asyncio.run(main())
    assert (result.stop, result.turns, result.requests) == ("budget", 2, 3)


def test_an_agent_that_is_a_tool_has_a_report_of_its_own() -> None:
    async def main() -> Result:
        async with open_client(LoopingProvider(report="I counted.")) as open_:
            top = Agent("top", tools=[create_agent().as_tool("count", "Counts.")], model="gpt-4o")
            returned = await openai_agents.run(top, "Count.", limits=Limits(turns=5), run_config=open_.config)
            assert len(open_.provider.requests) == 7
            return result_of(returned)

    result = asyncio.run(main())
    tokens = [one["input_tokens"] + one["output_tokens"] for one in result.state["conversations"]]
    assert min(tokens) > 0
    assert sum(tokens) == result.usage.total
    assert [(one["name"], one["level"], one["reported"]) for one in result.state["conversations"]] == [
        ("top", 0, True),
        ("counter", 1, True),
    ]


async def run_once(
    provider: LoopingProvider,
    options: AdapterOptions,
    agent: Agent | None = None,
    **arguments: Any,
) -> tuple[RunResult, Result]:
    async with open_client(provider) as open_:
        config = arguments.pop("run_config", None) or open_.config
        returned = await openai_agents.run(
            agent or create_agent(), "Count.", options=options, run_config=config, **arguments
        )
        return returned, result_of(returned)


@pytest.mark.parametrize(
    ("limits", "flag"),
    [
        (Limits(tokens=4_000), "max_tokens_reached"),
        (Limits(usd=0.01), "max_cost_usd_reached"),
        (Limits(tool_calls=3), "max_tool_calls_reached"),
        (Limits(calls={"add": 2}, turns=5), "max_calls_of_add_reached"),
    ],
)
def test_each_limit_ends_with_the_report(limits: Limits, flag: str) -> None:
    provider = LoopingProvider(report="I counted.", output_tokens=200)
    _, result = asyncio.run(run_once(provider, AdapterOptions(limits)))
    assert (result.text, flag in result.flags) == ("I counted.", True)
    if flag == "max_tokens_reached":
        assert sum(usage.total for usage in provider.billed) <= 4_000
    if flag == "max_cost_usd_reached":
        assert result.cost["gpt-4o"] <= 10**7
    if flag == "max_calls_of_add_reached":
        assert [event.kind for event in result.events].count("tool_started") == 2


def test_cached_tokens_are_counted_at_their_price() -> None:
    usage = {
        "input_tokens": 1_000,
        "output_tokens": 10,
        "total_tokens": 1_010,
        "input_tokens_details": {"cached_tokens": 800},
        "output_tokens_details": {"reasoning_tokens": 4},
    }
    provider = LoopingProvider(sent(say("Done."), usage=usage))
    _, result = asyncio.run(run_once(provider, AdapterOptions(Limits(usd=1))))
    assert result.usage == Usage(input=1_000, output=10, cached=800, reasoning=4)
    assert result.cost == {"gpt-4o": int((200 * 2.5 + 800 * 1.25 + 10 * 10) * 1_000)}


def test_rules_deny_calls_add_notices_and_ask_a_person(tmp_path: Path) -> None:
    folder = RuleFolder(tmp_path)
    folder.add("on_turn_start", 'type = "notify_self"\nmessage = "Be quick."', "context.turn.iteration_count == 2")
    folder.add("on_tool_call", 'type = "deny"\nmessage = "Not this one."', "context.turn.iteration_count == 1")
    folder.add("on_tool_call", 'type = "ask"\nmessage = "May I?"', "context.turn.iteration_count > 1")
    questions: list[Question] = []

    async def answer(question: Question) -> bool:
        questions.append(question)
        return len(questions) > 1

    provider = LoopingProvider(report="I counted.")
    options = AdapterOptions(Limits(turns=4), rules=folder.load(), approver=answer)
    _, result = asyncio.run(run_once(provider, options))
    assert [(question.text, question.tool) for question in questions] == [("May I?", "add")] * 3
    assert "Not this one." in str(provider.requests[1].body)
    assert "Be quick." in str(provider.requests[1].body)
    assert "Be quick." not in str(provider.requests[2].body)
    started = [event for event in result.events if isinstance(event, ToolStarted)]
    assert [event.turn for event in started] == [3, 4]
    assert provider.refused == []


def test_a_call_that_needs_approval_pauses_the_run_and_goes_on_as_another() -> None:
    @function_tool(needs_approval=True)
    async def pay(a: int) -> str:
        """Pay."""
        return "paid"

    async def main() -> tuple[Result, Result, str]:
        async with open_client(LoopingProvider(report="I paid.")) as open_:
            first = await openai_agents.run(create_agent(pay), "Pay.", limits=Limits(turns=2), run_config=open_.config)
            state = first.to_state()
            state.approve(first.interruptions[0])
            second = await openai_agents.run(create_agent(pay), state, limits=Limits(turns=1), run_config=open_.config)
            state = second.to_state()
            return result_of(first), result_of(second), str(second.final_output)

    first, second, _ = asyncio.run(main())
    assert (first.stop, first.turns) == ("paused", 1)
    assert second.stop == "paused"


def test_an_error_of_the_provider_is_raised_and_has_a_result() -> None:
    async def main() -> None:
        async with open_client(LoopingProvider(status(401, "wrong key"))) as open_:
            with pytest.raises(AuthenticationError) as raised:
                await openai_agents.run(create_agent(), "Count.", run_config=open_.config)
            result = result_of(raised.value)
            assert (result.stop, result.turns, result.requests) == ("failed", 0, 1)
            assert result.error is not None
            assert result.error["code"] == "model_failed"
            assert "wrong key" in result.error["message"]
            assert result.usage.total == 0

    asyncio.run(main())


def test_temporary_errors_are_retried_within_the_limit_and_are_no_turns() -> None:
    lines = iter([status(503), status(503)])

    provider = LoopingProvider(lambda _: next(lines, None), report="I counted.")
    _, result = asyncio.run(run_once(provider, AdapterOptions(Limits(turns=2, retries=5))))
    assert (result.turns, result.budgets["retries"].used, len(provider.requests)) == (2, 2, 5)


def test_a_typed_answer_stays_typed_when_no_model_writes_it() -> None:
    class Answer(BaseModel):
        text: str
        number: int

    agent = Agent("counter", tools=[add], model="gpt-4o", output_type=Answer)
    provider = LoopingProvider(report="not JSON")
    returned, result = asyncio.run(run_once(provider, AdapterOptions(Limits(turns=0)), agent))
    assert isinstance(returned.final_output, Answer)
    assert returned.final_output.text.startswith("Stopped by flyball")
    assert (result.stop, len(provider.requests)) == ("budget", 0)


def test_agents_below_the_limit_of_depth_are_not_asked() -> None:
    async def main() -> tuple[Result, int]:
        async with open_client(LoopingProvider(report="Done.")) as open_:
            lower = create_agent().as_tool("lower", "Asks.")
            upper = Agent("upper", tools=[lower], model="gpt-4o").as_tool("upper", "Asks.")
            top = Agent("top", tools=[upper], model="gpt-4o")
            options = AdapterOptions(Limits(turns=6, depth=1))
            returned = await openai_agents.run(top, "Go.", options=options, run_config=open_.config)
            return result_of(returned), len(open_.provider.requests)

    result, _ = asyncio.run(main())
    assert {one["name"] for one in result.state["conversations"] if one["requests"]} == {"top", "upper"}
    assert "max_depth_reached" in result.flags


def test_the_record_is_in_the_store_and_the_events_reach_sinks() -> None:
    store, kinds = MemoryStore(), list[str]()
    options = AdapterOptions(
        Limits(turns=1), store=store, sinks=[lambda event: kinds.append(event.kind)], run_id="r1", metadata={"a": 1}
    )
    provider = LoopingProvider(report="I counted.")
    _, result = asyncio.run(run_once(provider, options))
    entry = store.runs.get("r1")
    assert entry is not None
    assert entry.finish is not None
    assert (entry.start.agent, entry.start.task, entry.finish.stop) == ("agents", "Count.", "budget")
    assert entry.finish.record is not None
    assert entry.finish.record["final_content"] == "I counted."
    assert kinds == [event.kind for event in result.events]
    assert kinds[-1] == "run_ended"
    assert kinds.count("model_requested") == kinds.count("model_replied") == 2


def test_options_may_serve_several_runs() -> None:
    options = AdapterOptions(Limits(turns=1), store=MemoryStore(), run_id="r1")
    results = [asyncio.run(run_once(LoopingProvider(), options))[1] for _ in range(2)]
    assert (results[0].run_id, results[1].run_id != "r1", results[1].store_error) == ("r1", True, None)


def test_a_shared_budget_is_drawn_on_and_a_nested_one_too() -> None:
    shared = TurnBudget.create(max_steps=3)
    provider = LoopingProvider(report="I counted.")
    _, result = asyncio.run(run_once(provider, AdapterOptions(Limits(turns=10), within=shared)))
    assert (result.stop, result.turns, shared.budgets["turns"].used) == ("budget", 3, 3)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("limits", [Limits(turns=2), Limits(turns=2, tokens=9_000)])
def test_a_report_that_is_cut_at_its_longest_length_is_the_answer(limits: Limits, streamed: bool) -> None:
    provider = LoopingProvider(report=say("Half a report").ending("length"))
    returned, result = asyncio.run(run_cut(provider, limits, streamed))
    assert (returned.final_output, result.stop, result.requests) == ("Half a report", "budget", 3)
    assert result.usage.total == sum(usage.total for usage in provider.billed)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_reply_that_is_cut_where_the_tokens_end_is_followed_by_the_report(streamed: bool) -> None:
    provider = LoopingProvider(lambda body: None if body.get("tool_choice") == "none" else CUT)
    returned, result = asyncio.run(run_cut(provider, Limits(tokens=9_000), streamed))
    assert returned.final_output == result.text
    assert result.budgets["tokens"].used <= 9_000
    if streamed or DROPS_CUT_REPLIES:
        assert (result.stop, result.flags, len(provider.requests)) == ("budget", ("max_tokens_reached",), 2)
    else:
        assert (result.stop, result.text) == ("completed", "Half a")


def test_a_reply_that_the_program_itself_keeps_short_ends_as_without_the_adapter() -> None:
    agent = create_agent()
    agent.model_settings = ModelSettings(max_tokens=20)

    async def end(*, is_governed: bool) -> str:
        async with open_client(LoopingProvider(CUT)) as open_:
            run: Any = openai_agents.run if is_governed else Runner.run
            try:
                return (await run(agent, "Count.", run_config=open_.config)).final_output
            except ModelBehaviorError as error:
                return str(error)

    assert asyncio.run(end(is_governed=True)) == asyncio.run(end(is_governed=False))


async def run_cut(
    provider: LoopingProvider, limits: Limits, streamed: bool
) -> tuple[RunResult | RunResultStreaming, Result]:
    async with open_client(provider) as open_:
        if not streamed:
            returned = await openai_agents.run(create_agent(), "Count.", limits=limits, run_config=open_.config)
            return returned, result_of(returned)
        stream = openai_agents.run_streamed(create_agent(), "Count.", limits=limits, run_config=open_.config)
        async for _ in stream.stream_events():
            pass
        return stream, result_of(stream)


def test_hosted_tools_are_counted_and_warned_of() -> None:
    agent = Agent("top", handoffs=[create_agent(WebSearchTool(), HostedMCPTool({"type": "mcp", "server_label": "s"}))])

    async def main(provider: LoopingProvider) -> Result:
        return (await run_once(provider, AdapterOptions(Limits(tool_calls=3)), agent))[1]

    lines = iter([call("transfer_to_counter"), say("Done.")])
    with pytest.warns(AdapterWarning, match="web_search, hosted_mcp run at the provider.*flyball exec") as warned:
        result = asyncio.run(main(LoopingProvider(lambda _: next(lines))))
    assert (len(warned), result.text) == (1, "Done.")


def test_calls_that_the_provider_made_itself_are_counted() -> None:
    class Searcher(Model):
        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            searched = {
                "type": "web_search_call",
                "id": "s",
                "status": "completed",
                "action": {"type": "search", "query": "x"},
            }
            item: Any = ResponseFunctionWebSearch.model_validate(searched)
            return ModelResponse([item, item, build_output("Done.", None)], SdkUsage(), None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    with pytest.warns(AdapterWarning):
        agent = create_agent(WebSearchTool(), model=Searcher())
        _, result = asyncio.run(run_once(LoopingProvider(), AdapterOptions(Limits(tool_calls=3)), agent))
    assert (result.text, result.budgets["tool_calls"].used) == ("Done.", 2)


def test_what_is_not_from_a_run_has_no_result() -> None:
    with pytest.raises(UsageError, match="not from a governed run"):
        result_of("text")
    with pytest.raises(UsageError, match="not both"):
        asyncio.run(openai_agents.run(create_agent(), "x", limits=Limits(), options=AdapterOptions()))


def test_a_missing_framework_is_named_with_its_versions() -> None:
    missing = Framework("Nothing", "nothing-at-all", "nothing_at_all", "1.0", "2.0")
    with pytest.raises(UsageError, match=r"nothing-at-all is not installed.*>=1\.0.*1\.0 to 2\.0"):
        missing.load()


def test_a_framework_that_is_older_than_the_tested_releases_is_refused() -> None:
    old = replace(OPENAI_AGENTS, oldest="999.0")
    with pytest.raises(UsageError, match=r"openai-agents \d+\.\S+ is too old: pip install 'openai-agents>=999\.0'"):
        old.load()
    assert replace(OPENAI_AGENTS, oldest="0.9.9").load()


def test_a_stream_arrives_as_the_model_writes_it_and_its_result_at_its_end() -> None:
    async def main() -> tuple[list[str], Result]:
        async with open_client(LoopingProvider(report="I counted.")) as open_:
            options = AdapterOptions(Limits(turns=2))
            returned = openai_agents.run_streamed(create_agent(), "Count.", options=options, run_config=open_.config)
            with pytest.raises(UsageError, match="has not ended"):
                result_of(returned)
            kinds = [event.data.type async for event in returned.stream_events() if event.type == "raw_response_event"]
            return kinds, result_of(returned)

    kinds, result = asyncio.run(main())
    assert (kinds.count("response.created"), kinds.count("response.completed")) == (3, 3)
    assert kinds.count("response.output_text.done") == 1
    assert (result.stop, result.text) == ("budget", "I counted.")


def test_the_error_of_a_stream_has_its_result() -> None:
    async def main() -> Result:
        async with open_client(LoopingProvider(status(401, "wrong key"))) as open_:
            returned = openai_agents.run_streamed(create_agent(), "Count.", run_config=open_.config)
            with pytest.raises(AuthenticationError) as raised:
                async for _ in returned.stream_events():
                    pass
            assert result_of(raised.value) is result_of(returned)
            return result_of(returned)

    assert asyncio.run(main()).stop == "failed"


def test_a_cancelled_stream_has_a_cancelled_result() -> None:
    async def main() -> Result:
        async with open_client(LoopingProvider()) as open_:
            returned = openai_agents.run_streamed(create_agent(), "Count.", run_config=open_.config)
            async for _ in returned.stream_events():
                returned.cancel()
            while not returned.is_complete:
                await asyncio.sleep(0)
            return result_of(returned)

    assert asyncio.run(main()).stop in ("cancelled", "halted")


def test_the_blocking_run_is_governed_too() -> None:
    with LoopingProvider(report="I counted.") as provider, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        client = AsyncOpenAI(base_url=f"{provider.url}/v1", api_key="key")
        config = RunConfig(model_provider=OpenAIProvider(openai_client=client), tracing_disabled=True)
        returned = openai_agents.run_sync(create_agent(), "Count.", limits=Limits(turns=2), run_config=config)
        loop = asyncio.get_event_loop()  # the SDK keeps it
        loop.run_until_complete(client.close())
        loop.close()
    result = result_of(returned)
    assert (returned.final_output, result.stop, result.turns) == ("I counted.", "budget", 2)
    assert result.budgets["tool_calls"].used == 2


def test_the_configuration_of_the_user_counts() -> None:
    seen: list[str] = []

    def add_text(data: CallModelData[Any]) -> ModelInputData:
        seen.append(data.agent.name)
        return ModelInputData([{"role": "user", "content": "Filtered."}, *data.model_data.input], "Own instructions.")

    async def main() -> tuple[RunResult, LoopingProvider]:
        async with open_client(LoopingProvider(say("Done."))) as open_:
            config = replace(
                open_.config,
                model="gpt-4.1",
                call_model_input_filter=add_text,
                model_settings=ModelSettings(temperature=0.5, max_tokens=77),
            )
            session = SQLiteSession("s")
            await openai_agents.run(create_agent(), "One.", run_config=config, session=session)
            returned = await openai_agents.run(create_agent(), "Two.", run_config=config, session=session)
            session.close()
            return returned, open_.provider

    returned, provider = asyncio.run(main())
    body = provider.requests[-1].body
    assert (body["model"], body["temperature"], body["max_output_tokens"]) == ("gpt-4.1", 0.5, 77)
    assert body["instructions"] == "Own instructions."
    assert [item["content"] for item in body["input"] if item["role"] == "user"] == ["Filtered.", "One.", "Two."]
    assert (seen, returned.last_agent.name) == (["counter", "counter"], "counter")
    assert list(result_of(returned).cost) == ["gpt-4.1"]


def test_default_settings_of_a_models_name_are_kept() -> None:
    agents = [Agent("counter", model="gpt-5"), Agent("counter", model="gpt-5", model_settings=ModelSettings(top_p=0.5))]

    async def main() -> list[Any]:
        async with open_client(LoopingProvider(say("Done."))) as open_:
            for agent in agents:
                await Runner.run(agent, "Go.", run_config=open_.config)
                await openai_agents.run(agent, "Go.", run_config=open_.config)
            return [request.body for request in open_.provider.requests]

    first, governed, second, also_governed = asyncio.run(main())
    assert (governed, also_governed) == (first, second)


def test_a_handoff_without_the_history_has_a_report_of_its_own() -> None:
    async def main() -> Result:
        async with open_client(LoopingProvider(report="I counted.")) as open_:
            second = handoff(create_agent(), input_filter=remove_all_tools)
            first = Agent("first", handoffs=[second], model="gpt-4o")
            returned = await openai_agents.run(first, "Count.", limits=Limits(turns=3), run_config=open_.config)
            assert returned.final_output == "I counted."
            assert returned.last_agent.name == "counter"
            return result_of(returned)

    result = asyncio.run(main())
    assert [(one["name"], one["level"]) for one in result.state["conversations"]] == [("first", 0), ("counter", 0)]
    assert result.budgets["tool_calls"].used == 2


def test_a_photo_counts_as_an_image_and_not_as_text() -> None:
    url = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + bytes(900_000)).decode()
    content = [{"type": "input_text", "text": "Count."}, {"type": "input_image", "image_url": url, "detail": "auto"}]

    async def main() -> Result:
        async with open_client(LoopingProvider(report="I counted.")) as open_:
            task: Any = [{"role": "user", "content": content}]
            limits = Limits(turns=3, usd=1)
            return result_of(await openai_agents.run(create_agent(), task, limits=limits, run_config=open_.config))

    result = asyncio.run(main())
    assert (result.turns, result.text) == (3, "I counted.")
    asked = [event.estimated_tokens for event in result.events if isinstance(event, ModelRequested)]
    assert 1_600 <= asked[0] <= 2_500
    assert len(asked) == 4
