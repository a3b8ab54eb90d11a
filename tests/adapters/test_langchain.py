# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportMissingTypeStubs=false
import asyncio
import gc
import time
import warnings
from base64 import b64encode
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from langchain import agents
from langchain.agents.middleware import AgentMiddleware, HumanInTheLoopMiddleware, ModelRetryMiddleware, hook_config
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, Field, SecretStr

from flyball import Limits, Result, Usage
from flyball.adapters import AdapterOptions, langchain, result_of
from flyball.adapters.frameworks import AdapterWarning
from flyball.adapters.langchain_middleware import GovernMiddleware
from flyball.budget.price import TokenPrice
from flyball.errors import UsageError
from flyball.event import ModelRequested
from flyball.models.scripted import say
from flyball.person import Question
from flyball.rules import RuleSet
from flyball.store import MemoryStore
from flyball.testing import RuleFolder
from flyball.testing.server import LoopingProvider, sent, status

create_agent: Any = agents.create_agent
TASK: Any = {"messages": [HumanMessage("Count.")]}
Reply = AIMessage | Callable[["Script", list[BaseMessage], dict[str, Any]], AIMessage]
USAGE = {"input_tokens": 20, "output_tokens": 5, "total_tokens": 25, "input_token_details": {"cache_read": 8}}


CACHE_USAGE = {
    "input_tokens": 100,
    "output_tokens": 10,
    "cache_read_input_tokens": 800,
    "cache_creation_input_tokens": 50,
}


class Script(BaseChatModel):
    """Model that calls a tool in each reply, until the request forbids it."""

    calls: int = 1
    """Calls in each reply."""
    tool: str = "add"
    obeys: bool = True
    """Whether it obeys a request that forbids calls."""
    usage: Any = USAGE
    hang_s: float = 0
    requests: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    answer: str = "I counted."
    model_name: str = "gpt-4o"
    after: int = 10_000
    """Requests after which it gives its answer."""

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
        return self.bind(tools=tools, **settings)

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **settings: Any
    ) -> ChatResult:
        self.requests.append({**settings, "messages": messages})
        choice = settings.get("tool_choice")
        if choice not in ("none", "Answer"):
            time.sleep(self.hang_s)
        if choice == "Answer":
            calls = [("Answer", {"text": self.answer, "count": 3})]
        elif (choice == "none" and self.obeys) or len(self.requests) > self.after:
            calls = []
        else:
            calls = [(self.tool, {"a": 1})] * self.calls
        number = len(self.requests)
        message = AIMessage(
            "" if calls else self.answer,
            tool_calls=[
                {"name": name, "args": arguments, "id": f"call-{number}-{index}"}
                for index, (name, arguments) in enumerate(calls)
            ],
            usage_metadata=self.usage,
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **settings: Any
    ) -> ChatResult:
        return self._generate(messages, **settings)


class Answer(BaseModel):
    text: str
    count: int


class Text(BaseModel):
    text: str


class Even(Answer):
    def model_post_init(self, _: Any) -> None:
        assert self.text == "even"


@tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


def run(model: BaseChatModel, middleware: GovernMiddleware, *tools: BaseTool, **options: Any) -> dict[str, Any]:
    return create_agent(model, [*(tools or (add,))], middleware=[middleware], **options).invoke(TASK)


def used(result: Result, budget: str) -> int:
    return result.budgets[budget].used


def test_an_endless_agent_makes_its_turns_and_one_report_with_its_tools() -> None:
    model, middleware = Script(), langchain.govern(Limits(turns=3))
    state = run(model, middleware)
    result = middleware.result()
    assert state["messages"][-1].text == "I counted."
    assert (result.stop, result.turns, result.requests, result.text) == ("budget", 3, 4, "I counted.")
    assert (result.usage.input, result.usage.output, result.usage.cached) == (80, 20, 32)
    assert [request.get("tool_choice") for request in model.requests] == [None, None, None, "none"]
    assert [one.name for one in model.requests[-1]["tools"]] == ["add"]
    assert "last request" in model.requests[-1]["messages"][-1].text
    assert all("last request" not in message.text for message in state["messages"])
    assert result_of(state) is result is middleware.result(state["flyball_run_id"])


def test_an_agent_that_answers_in_time_has_its_own_answer() -> None:
    model, middleware = Script(after=1), langchain.govern(Limits(turns=3))
    assert run(model, middleware)["messages"][-1].text == "I counted."
    result = middleware.result()
    assert (result.stop, result.completed, result.turns, used(result, "tool_calls")) == ("completed", True, 2, 1)


def test_async_agent_is_held() -> None:
    model, middleware = Script(), langchain.govern(Limits(turns=2))
    state = asyncio.run(create_agent(model, [add], middleware=[middleware]).ainvoke(TASK))
    assert state["messages"][-1].text == "I counted."
    assert (result_of(state).stop, result_of(state).requests) == ("budget", 3)


def test_streamed_agent_is_held() -> None:
    middleware = langchain.govern(Limits(turns=2))
    agent = create_agent(Script(), [add], middleware=[middleware])
    texts = [chunk.text for chunk, _ in agent.stream(TASK, stream_mode="messages") if isinstance(chunk, AIMessage)]
    assert "".join(texts) == "I counted."
    assert (middleware.result().stop, middleware.result().requests) == ("budget", 3)


def test_runs_at_once_have_limits_and_results_of_their_own() -> None:
    middleware = langchain.govern(Limits(turns=2))
    agent = create_agent(Script(), [add], middleware=[middleware])
    with ThreadPoolExecutor(4) as threads:
        states: list[Any] = list(threads.map(lambda _: agent.invoke(TASK), range(8)))
    assert [(result_of(state).turns, result_of(state).requests) for state in states] == [(2, 3)] * 8
    assert len({state["flyball_run_id"] for state in states}) == 8


@pytest.mark.parametrize("strategy", [ToolStrategy(Answer), Answer])
def test_typed_answer_is_asked_for_in_the_last_request(strategy: Any) -> None:
    model, middleware = Script(model_name="unknown"), langchain.govern(Limits(turns=2))
    state = run(model, middleware, response_format=strategy)
    assert state["structured_response"] == Answer(text="I counted.", count=3)
    assert model.requests[-1]["tool_choice"] == "Answer"
    assert len(model.requests[-1]["tools"]) == 2
    assert (middleware.result().stop, middleware.result().requests) == ("budget", 3)


def test_typed_answer_of_the_provider_is_asked_for_in_the_last_request() -> None:
    model, middleware = Script(answer='{"text": "I counted.", "count": 3}'), langchain.govern(Limits(turns=2))
    state = run(model, middleware, response_format=ProviderStrategy(Answer))
    assert state["structured_response"] == Answer(text="I counted.", count=3)
    assert (model.requests[-1]["tool_choice"], model.requests[-1]["response_format"]["type"]) == ("none", "json_schema")


@pytest.mark.parametrize("strategy", [ToolStrategy(Answer), ProviderStrategy(Answer)])
def test_typed_answer_is_made_if_there_is_no_time_for_a_model(strategy: Any) -> None:
    middleware = langchain.govern(Limits(turns=0))
    state = run(Script(), middleware, response_format=strategy)
    assert "Stopped by flyball" in state["structured_response"].text
    assert (middleware.result().stop, middleware.result().requests) == ("budget", 0)


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("strategy", [ToolStrategy(Answer), ProviderStrategy(Answer)])
def test_text_instead_of_a_typed_answer_is_put_into_one(strategy: Any, is_async: bool) -> None:
    class Stubborn(Script):
        def bind_tools(self, tools: Sequence[Any], **settings: Any) -> Any:
            choice = "none" if settings.get("tool_choice") == "Answer" else settings.get("tool_choice")
            return super().bind_tools(tools, **settings | {"tool_choice": choice})

    middleware = langchain.govern(Limits(turns=2))
    agent = create_agent(Stubborn(), [add], middleware=[middleware], response_format=strategy)
    state: Any = asyncio.run(agent.ainvoke(TASK)) if is_async else agent.invoke(TASK)
    assert state["structured_response"] == Answer(text="I counted.", count=0)
    assert (middleware.result().stop, middleware.result().requests) == ("budget", 3)


def test_typed_answer_that_cannot_be_made_ends_the_agent_without_one() -> None:
    middleware = langchain.govern(Limits(turns=0))
    agent = create_agent(Script(), [], middleware=[middleware], response_format=ToolStrategy(Even))
    state: Any = agent.invoke(TASK)
    assert state.get("structured_response") is None
    assert "Stopped by flyball" in state["messages"][-1].text


def open_model(wire: str, url: str) -> BaseChatModel:
    if wire == "messages":
        settings: Any = {"model": "claude-haiku-4-5", "base_url": url, "api_key": "key"}
        return ChatAnthropic(**settings)
    is_responses = wire == "responses"
    return ChatOpenAI(model="gpt-4o", base_url=f"{url}/v1", api_key=SecretStr("key"), use_responses_api=is_responses)


@pytest.mark.parametrize("strategy", [None, ToolStrategy(Text)])
@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
def test_provider_accepts_the_last_request(wire: str, strategy: Any) -> None:
    middleware = langchain.govern(Limits(turns=2, usd=1))
    with LoopingProvider(report="I counted.") as provider:
        run(open_model(wire, provider.url), middleware, response_format=strategy)
        result = middleware.result()
        assert (result.stop, result.requests, provider.last_requests, provider.refused) == ("budget", 3, 1, [])
        assert len(provider.requests[-1].body["tools"]) == (1 if strategy is None else 2)
        assert result.usage.total == sum(usage.total for usage in provider.billed)


def test_calls_in_the_report_are_replaced_by_text() -> None:
    model, middleware = Script(obeys=False), langchain.govern(Limits(turns=2))
    state = run(model, middleware)
    assert "Stopped by flyball: Maximum agent iterations (2) reached." in state["messages"][-1].text
    assert not state["messages"][-1].tool_calls
    assert (middleware.result().stop, middleware.result().requests) == ("budget", 3)


def test_calls_beyond_the_limit_do_not_run() -> None:
    ran: list[int] = []

    @tool
    def add(a: int) -> int:
        """Add one."""
        ran.append(a)
        return a + 1

    model, middleware = Script(calls=3), langchain.govern(Limits(tool_calls=7))
    state = run(model, middleware, add)
    assert (len(ran), used(middleware.result(), "tool_calls"), middleware.result().stop) == (7, 7, "budget")
    assert state["messages"][-1].text == "I counted."
    assert sum(isinstance(message, ToolMessage) for message in state["messages"]) == 7


def test_calls_of_one_tool_are_limited() -> None:
    model, middleware = Script(), langchain.govern(Limits(turns=4, calls={"add": 2}))
    state = run(model, middleware)
    assert sum(isinstance(message, ToolMessage) for message in state["messages"]) == 2


def test_money_is_limited_by_the_name_of_the_model() -> None:
    options = AdapterOptions(Limits(usd=0.001), price=TokenPrice(input=3, output=15))
    middleware = langchain.govern(options=options)
    run(Script(usage={"input_tokens": 20, "output_tokens": 5, "total_tokens": 25}), middleware)
    result = middleware.result()
    assert result.stop == "budget"
    assert used(result, "usd") <= result.budgets["usd"].ceiling  # pyright: ignore[reportOperatorIssue]


def test_tokens_of_a_cache_are_counted_at_their_price() -> None:
    middleware = langchain.govern(Limits(usd=1))
    with LoopingProvider(sent(say("Done."), usage=CACHE_USAGE)) as provider:
        run(open_model("messages", provider.url), middleware)
    result = middleware.result()
    assert result.usage == Usage(input=950, output=10, cached=800, written=50)
    assert result.cost == {"claude-haiku-4-5": int((100 * 1 + 800 * 0.1 + 50 * 1.25 + 10 * 5) * 1_000)}


def test_money_limit_without_a_price_is_an_error_before_the_first_request() -> None:
    model, middleware = Script(model_name="no-such-model"), langchain.govern(Limits(usd=1))
    with pytest.raises(UsageError, match="price of no-such-model is not known"):
        run(model, middleware)
    assert model.requests == []
    assert middleware.result().stop == "failed"


def test_garbage_usage_counts_as_an_estimate() -> None:
    model = Script(usage={"input_tokens": -5, "output_tokens": 5, "total_tokens": 0})
    middleware = langchain.govern(Limits(turns=2))
    run(model, middleware)
    assert (middleware.result().estimated_requests, middleware.result().requests) == (3, 3)
    assert used(middleware.result(), "tokens") > 0


@pytest.mark.parametrize("is_async", [False, True])
def test_blocking_tool_that_hangs_is_left_behind(is_async: bool) -> None:
    @tool
    def add(a: int) -> int:
        """Add one."""
        time.sleep(5)
        return a

    middleware = langchain.govern(Limits(seconds=0.5))
    agent, started = create_agent(Script(), [add], middleware=[middleware]), time.monotonic()
    state: Any = asyncio.run(agent.ainvoke(TASK)) if is_async else agent.invoke(TASK)
    assert time.monotonic() - started < 4
    assert state["messages"][-2].text == "add took too long and was stopped."
    assert (state["messages"][-1].text, middleware.result().stop) == ("I counted.", "deadline")


def test_model_that_hangs_is_left_behind() -> None:
    middleware, started = langchain.govern(Limits(seconds=0.5)), time.monotonic()
    state = run(Script(hang_s=5), middleware)
    assert time.monotonic() - started < 4
    assert (state["messages"][-1].text, middleware.result().stop) == ("I counted.", "deadline")


def test_agent_in_a_tool_with_the_same_middleware_belongs_to_the_run() -> None:
    middleware = langchain.govern(Limits(turns=4))
    helper = create_agent(Script(answer="I helped."), [add], middleware=[middleware])

    @tool
    def ask(a: int) -> str:
        """Ask the helper."""
        return str(helper.invoke(TASK)["messages"][-1].text)

    model = Script(tool="ask")
    state = run(model, middleware, ask)
    result = middleware.result()
    assert (result.turns, result.requests, state["messages"][-1].text) == (4, 6, "I counted.")
    assert state["messages"][-2].text == "I helped."
    conversations = result.state["conversations"]
    assert [(one["level"], one["turns"], one["reported"]) for one in conversations] == [(0, 1, True), (1, 3, True)]
    assert len(middleware._runs) == 1  # pyright: ignore[reportPrivateUsage]


def test_agent_in_a_tool_with_limits_of_its_own_draws_on_both() -> None:
    inner = langchain.govern(Limits(turns=2))
    helper = create_agent(Script(answer="I helped."), [add], middleware=[inner])

    @tool
    async def ask(a: int) -> str:
        """Ask the helper."""
        return str((await helper.ainvoke(TASK))["messages"][-1].text)

    outer = langchain.govern(Limits(turns=4))
    agent = create_agent(Script(tool="ask"), [ask], middleware=[outer])
    state: Any = asyncio.run(agent.ainvoke(TASK))
    assert (inner.result().turns, state["messages"][-1].text) == (0, "I counted.")
    assert used(outer.result(), "turns") == 4
    assert outer.result().turns + 2 == 4


def test_depth_of_agents_is_limited() -> None:
    middleware = langchain.govern(Limits(turns=20, depth=1))
    agents: list[Any] = []

    @tool
    def ask(a: int) -> str:
        """Ask an agent of the same kind."""
        return str(agents[0].invoke(TASK)["messages"][-1].text)

    model = Script(tool="ask", answer="I counted.")
    agents.append(create_agent(model, [ask], middleware=[middleware]))
    agents[0].invoke(TASK)
    assert {one["level"] for one in middleware.result().state["conversations"] if one["turns"]} == {0, 1}


def test_error_of_the_model_fails_the_run() -> None:
    class Broken(Script):
        def _generate(self, *args: Any, **settings: Any) -> ChatResult:
            raise RuntimeError("no model today")

    middleware = langchain.govern(Limits(turns=2))
    with pytest.raises(RuntimeError) as error:
        run(Broken(), middleware)
    result = middleware.result()
    assert (result.stop, "no model today" in str(result.error)) == ("failed", True)
    assert result_of(error.value) is result


def test_error_of_a_tool_fails_the_run_when_its_graph_is_gone() -> None:
    @tool
    def add(a: int) -> int:
        """Add one."""
        raise RuntimeError("no tool today")

    store = MemoryStore()
    middleware = langchain.govern(options=AdapterOptions(Limits(turns=2), store=store))
    agent = create_agent(Script(), [add], middleware=[middleware])
    with pytest.raises(RuntimeError):
        agent.invoke(TASK)
    result = middleware.result()
    assert (result.stop, result.requests, used(result, "tool_calls")) == ("failed", 1, 1)


def test_run_that_is_left_is_cancelled() -> None:
    middleware = langchain.govern(Limits(turns=5))
    agent = create_agent(Script(), [add], middleware=[middleware])
    stream = agent.stream(TASK)
    for _ in range(3):
        next(stream)
    with pytest.raises(UsageError, match="has not ended"):
        middleware.result()
    stream.close()
    del stream
    gc.collect()
    assert middleware.result().stop == "cancelled"


def test_run_goes_on_after_an_interrupt_with_the_same_budgets() -> None:
    middleware = langchain.govern(Limits(turns=3))
    asks = HumanInTheLoopMiddleware(interrupt_on={"add": True})
    agent = create_agent(Script(), [add], middleware=[middleware, asks], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    state = agent.invoke(TASK, config)
    requests = 1
    while "__interrupt__" in state:
        gc.collect()
        with pytest.raises(UsageError, match="has not ended"):
            middleware.result()
        state = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
        requests += 1
    result = middleware.result()
    assert (result.stop, result.turns, result.requests, requests) == ("budget", 3, 4, 4)
    assert state["messages"][-1].text == "I counted."


def write_rule(folder: Path, trigger: str, action: str) -> RuleSet:
    path = folder / "rule.toml"
    path.write_text(f'[rule]\nid = "some"\ntrigger = "{trigger}"\ndescription = "A rule."\n[action]\n{action}\n')
    return RuleSet.load(path)


def test_rules_deny_calls_and_the_model_reads_why(tmp_path: Path) -> None:
    rules = write_rule(tmp_path, "on_tool_call", 'type = "deny"\nmessage = "not today"')
    model, middleware = Script(), langchain.govern(options=AdapterOptions(Limits(turns=2), rules=rules))
    state = run(model, middleware)
    assert not any(isinstance(message, ToolMessage) for message in state["messages"])
    assert "not today" in model.requests[1]["messages"][-1].text


def test_notices_of_rules_are_added_for_one_request(tmp_path: Path) -> None:
    rules = write_rule(tmp_path, "on_turn_start", 'type = "notify_self"\nmessage = "Hurry."')
    model, middleware = Script(), langchain.govern(options=AdapterOptions(Limits(turns=2), rules=rules))
    state = run(model, middleware)
    assert "Hurry." in model.requests[0]["messages"][-1].text
    assert all("Hurry." not in message.text for message in state["messages"])


class BlockingTool(BaseTool):
    name: str = "block"
    description: str = "Block."

    def _run(self, a: int) -> str:
        return "done"


class BlockingModel(Script):
    _agenerate = BaseChatModel._agenerate


def test_what_blocks_the_end_of_an_event_loop_is_warned_of_once() -> None:
    middleware = langchain.govern(Limits(turns=1))
    agent = create_agent(BlockingModel(tool="block"), [add, BlockingTool()], middleware=[middleware])
    with pytest.warns(AdapterWarning, match="block, BlockingModel blocks") as warned:
        asyncio.run(agent.ainvoke(TASK))
        asyncio.run(agent.ainvoke(TASK))
    assert len(warned) == 1
    assert "flyball exec" in str(warned[0].message)


def retry_requests(*, is_last: bool) -> tuple[int, Result]:
    middleware = langchain.govern(Limits(retries=1))
    others = [ModelRetryMiddleware(max_retries=4, initial_delay=0.0, jitter=False)]
    with LoopingProvider(status(500)) as provider:
        model = ChatOpenAI(model="gpt-4o", base_url=f"{provider.url}/v1", api_key=SecretStr("key"))
        order = [*others, middleware] if is_last else [middleware, *others]
        create_agent(model, [add], middleware=order).invoke(TASK)
        return len(provider.requests), middleware.result()


def test_requests_that_other_middleware_repeats_are_held_if_the_governor_is_last() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", AdapterWarning)
        requests, result = retry_requests(is_last=True)
    assert (requests, result.requests, result.flags) == (2, 2, ("max_retries_reached",))


def test_middleware_that_may_repeat_a_request_unseen_is_warned_of() -> None:
    with pytest.warns(AdapterWarning, match="put this one last"):
        requests, result = retry_requests(is_last=False)
    assert requests > result.requests


def test_an_agent_that_other_middleware_ends_at_once_has_no_run() -> None:
    class End(AgentMiddleware):
        @hook_config(can_jump_to=["end"])
        def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
            return {"jump_to": "end"}

    middleware = langchain.govern(Limits(turns=1))
    state = create_agent(Script(), [add], middleware=[End(), middleware]).invoke(TASK)
    assert state["messages"][-1].text == "Count."
    with pytest.raises(UsageError, match="no run"):
        middleware.result()


def test_tools_at_the_provider_are_counted_and_warned_of() -> None:
    class Searcher(Script):
        def _generate(
            self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **settings: Any
        ) -> ChatResult:
            searches: list[Any] = [{"type": "server_tool_use", "id": "1", "name": "web_search", "input": {}}] * 2
            searches.append({"type": "web_search_call", "id": "2", "status": "completed"})
            return ChatResult(generations=[ChatGeneration(message=AIMessage([*searches, "Done."]))])

    middleware = langchain.govern(Limits(tool_calls=5))
    with pytest.warns(AdapterWarning, match="web_search_20250305 run at the provider") as warned:
        create_agent(
            Searcher(), [{"type": "web_search_20250305", "name": "web_search"}], middleware=[middleware]
        ).invoke(TASK)
    assert len(warned) == 1
    assert used(middleware.result(), "tool_calls") == 3


@pytest.mark.parametrize("in_loop", [False, True])
def test_rules_ask_a_person_also_in_blocking_code_within_an_event_loop(in_loop: bool, tmp_path: Path) -> None:
    folder = RuleFolder(tmp_path)
    folder.add("on_tool_call", 'type = "ask"\nmessage = "May I?"', "true")
    asked: list[Question] = []

    def answer(question: Question) -> bool:
        asked.append(question)
        return len(asked) > 1

    model = Script()
    middleware = langchain.govern(options=AdapterOptions(Limits(turns=3), rules=folder.load(), approver=answer))

    async def main() -> None:
        run(model, middleware)

    if in_loop:
        asyncio.run(main())
    else:
        run(model, middleware)
    assert [question.tool for question in asked] == ["add"] * 3
    assert (used(middleware.result(), "tool_calls"), middleware.result().stop) == (2, "budget")


def test_the_first_run_of_a_middleware_has_the_id_of_its_options() -> None:
    store = MemoryStore()
    middleware = langchain.govern(options=AdapterOptions(Limits(turns=1), run_id="r1", store=store))
    states = [run(Script(), middleware) for _ in range(2)]
    results = [middleware.result(state["flyball_run_id"]) for state in states]
    assert (results[0].run_id, results[1].run_id != "r1") == ("r1", True)
    assert all(store.runs.get(result.run_id) for result in results)


def test_missing_result_is_an_error() -> None:
    middleware = langchain.govern()
    with pytest.raises(UsageError, match="no run"):
        middleware.result()
    with pytest.raises(UsageError, match="is not known"):
        middleware.result("x")


@pytest.mark.parametrize("key", ["base64", "url"])
def test_a_photo_counts_as_an_image_and_not_as_text(key: str) -> None:
    data = b64encode(b"\x89PNG\r\n\x1a\n" + bytes(900_000)).decode()
    photo = {"type": "image", "base64": data, "mime_type": "image/png"}
    if key == "url":
        photo = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    task: Any = {"messages": [HumanMessage([{"type": "text", "text": "Count."}, photo])]}
    middleware = langchain.govern(options=AdapterOptions(Limits(turns=3, usd=1), model="openai:gpt-4o"))
    create_agent(Script(), [add], middleware=[middleware]).invoke(task)
    result = middleware.result()
    assert (result.turns, result.requests) == (3, 4)
    first = next(event for event in result.events if isinstance(event, ModelRequested))
    assert 1_600 <= first.estimated_tokens <= 2_500
