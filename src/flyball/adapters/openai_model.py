"""Model of the OpenAI Agents SDK that asks a governed run before each request."""

from __future__ import annotations

import asyncio
import copy
import inspect
import math
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from agents import (
    Agent,
    AgentOutputSchemaBase,
    CodeInterpreterTool,
    FileSearchTool,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    ImageGenerationTool,
    Model,
    ModelBehaviorError,
    ModelSettings,
    OpenAIResponsesModel,
    RunConfig,
    Tool,
    WebSearchTool,
)
from agents.items import ModelResponse, TResponseInputItem, TResponseStreamEvent
from agents.models import get_default_model, get_default_model_settings
from agents.run_config import CallModelData, ModelInputData
from agents.usage import Usage
from openai.types.responses import Response, ResponseCompletedEvent, ResponseIncompleteEvent

from ..request import Reply
from .agent_conversation import AgentConversation
from .model_port import AskedModel, Edits, ReplyCut, count_content, name_model
from .openai_replies import (
    build_model_response,
    build_response,
    build_stream,
    complete_event,
    count_server_calls,
    drop_calls,
    drop_streamed_calls,
    get_call_id,
    read_response,
    read_results,
)
from .results import attach
from .tool_threads import run_apart

if TYPE_CHECKING:
    from agents.result import RunResultStreaming
    from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest

    from .framework_run import FrameworkRun


HOSTED_TOOLS = (CodeInterpreterTool, FileSearchTool, HostedMCPTool, ImageGenerationTool, WebSearchTool)
"""Tools that run at the provider, which makes as many calls of them as it likes."""

_SYNC_MARKER = "__agents_sync_function_tool__"
"""Attribute by which the SDK knows `def` tools. It calls them in a thread that the event loop waits for at its end."""


@dataclass(slots=True)
class Asking:
    """Agent whose model is about to be asked, and its conversation."""

    agent: Agent[Any]
    conversation: AgentConversation


_asking: ContextVar[Asking | None] = ContextVar("flyball_openai_asking", default=None)


def hold_models(run: FrameworkRun, config: RunConfig | None) -> RunConfig:
    """Return the configuration of a run all of whose requests go through the governed run.

    It holds for sub-agents too, because the SDK hands it on to agents that are tools.
    """
    config = config or RunConfig()
    _asking.set(None)
    return replace(config, model=AgentsModel(run, config), call_model_input_filter=InputFilter(run, config))


@dataclass(frozen=True)
class InputFilter:
    """Filter that the SDK calls before each request, in the task of the agent: it tells which agent asks."""

    run: FrameworkRun
    config: RunConfig

    async def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Note the agent, and return the input of the user's own filter."""
        agent, conversations = data.agent, self.run.conversations
        call_ids = (found for item in reversed(data.model_data.input) if (found := get_call_id(item)))
        conversation = conversations.find_by_calls(id(agent), call_ids)
        if conversation is None:
            above = _asking.get()
            is_below = above is not None and bool(above.conversation.open_calls)
            level = 0 if above is None else above.conversation.level + is_below
            conversation = conversations.add(agent.name, level)
        _asking.set(Asking(agent, conversation))
        self.run.enter(conversation)
        own_filter = self.config.call_model_input_filter
        filtered = data.model_data if own_filter is None else own_filter(data)
        return await filtered if isawaitable(filtered) else filtered


class ModelArguments(dict[str, Any]):
    """Arguments of a request, by the names that the SDK's `Model` gives them."""

    names = tuple(inspect.signature(Model.get_response).parameters)[1:]

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        super().__init__(zip(self.names, args, strict=False), **kwargs)
        self.tools: list[Tool] = self["tools"]
        self.handoffs: list[Handoff] = self["handoffs"]
        self.schema: AgentOutputSchemaBase | None = self["output_schema"]

    @property
    def history(self) -> list[TResponseInputItem]:
        """Input of the request, as items."""
        found: str | list[TResponseInputItem] = self["input"]
        return [{"role": "user", "content": found}] if isinstance(found, str) else found

    def edit(self, edits: Edits) -> dict[str, Any]:
        """Return the arguments of the request to make."""
        settings: ModelSettings = self["model_settings"]
        if edits.is_last:
            choice = "none" if self.tools or self.handoffs else None
            settings = replace(settings, parallel_tool_calls=None, tool_choice=choice)
        if edits.max_output_tokens != settings.max_tokens:
            settings = replace(settings, max_tokens=edits.max_output_tokens)
        added = [{"role": "user", "content": text} for text in edits.texts]
        return {**self, "model_settings": settings, "input": [*self.history, *added] if added else self["input"]}

    def is_shortened(self, edits: Edits) -> bool:
        """Check whether the run, and not the program, limits the length of the reply."""
        return edits.is_last or edits.max_output_tokens != self["model_settings"].max_tokens

    def describe(self, model: str, conversation: AgentConversation) -> AskedModel:
        """Return the request in Flyball's form, with the results of the calls that are open."""
        history = self.history
        schemas = [(tool.name, getattr(tool, "params_json_schema", None)) for tool in self.tools]
        return AskedModel(
            model=model,
            input_bytes=len(str((self["system_instructions"], schemas)))
            + conversation.counted.count(history, count_content),
            messages=len(history),
            max_output_tokens=self["model_settings"].max_tokens,
            tools=tuple(tool.name for tool in self.tools),
            server_tools=tuple(tool.name for tool in self.tools if isinstance(tool, HOSTED_TOOLS)),
            handoffs=tuple(handoff.tool_name for handoff in self.handoffs),
            has_schema=self.schema is not None,
            results=read_results(history, conversation.open_calls),
        )


@dataclass
class OpenAIPort:
    """Access to a model of the SDK for one request."""

    find_model: Callable[[str | None], Model]
    arguments: ModelArguments

    async def send(self, edits: Edits) -> ModelResponse:
        """Make the request. Temporary errors are retried within the limit `retries` instead of by the client.

        The SDK drops a response that was cut at its longest length, but not the events of a stream. So the last request
        is streamed.
        """
        model = self.find_model(edits.model)
        if edits.is_last and isinstance(model, OpenAIResponsesModel):
            return await self._send_last(edits)
        try:
            with disable_client_retries():
                return await model.get_response(**self.arguments.edit(edits))
        except ModelBehaviorError as error:
            if "max_output_tokens" in str(error) and self.arguments.is_shortened(edits):
                raise ReplyCut(str(error)) from error
            raise

    async def _send_last(self, edits: Edits) -> ModelResponse:
        port = OpenAIStreamPort(self.find_model, self.arguments, lambda _: None, holds=True)
        response = (await port.send(edits)).response
        return ModelResponse([], Usage(), None) if response is None else build_model_response(response)

    def read(self, reply: ModelResponse) -> Reply:
        """Return the reply in Flyball's form."""
        return read_response(reply)

    def count_server_calls(self, reply: ModelResponse) -> int:
        """Return the number of calls that the provider made itself."""
        return count_server_calls(reply.output)

    def make(self, text: str, original: ModelResponse | None) -> ModelResponse:
        """Return a final reply with this text."""
        return build_response(text, self.arguments.schema, original)

    def drop_calls(self, reply: ModelResponse, call_ids: Collection[str]) -> ModelResponse:
        """Return the reply without some of its calls."""
        return drop_calls(reply, call_ids)


@dataclass
class StreamedEvents:
    """Events of a streamed reply, and how many of them were handed on."""

    events: list[TResponseStreamEvent] = field(default_factory=list[Any])
    passed: int = 0

    @property
    def response(self) -> Response | None:
        """Complete response. None if the stream had none."""
        found = [event.response for event in self.events if isinstance(event, ResponseCompletedEvent)]
        return found[-1] if found else None


@dataclass
class OpenAIStreamPort:
    """Access to a model of the SDK for one streamed request."""

    find_model: Callable[[str | None], Model]
    arguments: ModelArguments
    pass_on: Callable[[TResponseStreamEvent], None]
    holds: bool
    """Whether the events are handed on when the reply is complete, because calls in it may be denied."""

    async def send(self, edits: Edits) -> StreamedEvents:
        """Make the request. The last one is read whole before an event of it is handed on."""
        streamed, is_complete, cut = StreamedEvents(), False, None
        try:
            with disable_client_retries():
                async for event in self.find_model(edits.model).stream_response(**self.arguments.edit(edits)):
                    if isinstance(event, ResponseIncompleteEvent) and self.arguments.is_shortened(edits):
                        cut = event  # the SDK would end the run at this event
                        continue
                    streamed.events.append(event)
                    is_complete = is_complete or isinstance(event, ResponseCompletedEvent)
                    if not self.holds and not edits.is_last and not is_complete:
                        self.pass_on(event)
                        streamed.passed += 1
        except ModelBehaviorError:
            if cut is None:
                raise
        if cut is not None:
            if not edits.is_last:
                raise ReplyCut("the reply was cut at the length that the run allowed it")
            streamed.events.append(complete_event(cut))
        return streamed

    def read(self, reply: StreamedEvents) -> Reply:
        """Return the reply in Flyball's form."""
        return Reply() if reply.response is None else read_response(reply.response)

    def count_server_calls(self, reply: StreamedEvents) -> int:
        """Return the number of calls that the provider made itself."""
        return 0 if reply.response is None else count_server_calls(reply.response.output)

    def make(self, text: str, original: StreamedEvents | None) -> StreamedEvents:
        """Return a final reply with this text."""
        response = None if original is None else original.response
        return StreamedEvents(build_stream(text, self.arguments.schema, response))

    def drop_calls(self, reply: StreamedEvents, call_ids: Collection[str]) -> StreamedEvents:
        """Return the reply without some of its calls."""
        return StreamedEvents(drop_streamed_calls(reply.events, call_ids))


class AgentsModel(Model):
    """Model of all agents of a run: it asks the model that the agent would have asked."""

    def __init__(self, run: FrameworkRun, config: RunConfig) -> None:
        self._run = run
        self._config = config
        self._bounded: dict[int, tuple[FunctionTool, FunctionTool]] = {}
        """Tools and their copies with a time limit, by the ids of the tools. A copy takes long."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """Make a request within the limits of the run."""
        asking, arguments = self._find_asking(), self._read_arguments(args, kwargs)
        port = OpenAIPort(partial(self._find_model, asking.agent), arguments)
        response = await self._run.aask(asking.conversation, self._describe(asking, arguments), port)
        self._prepare_calls(asking, arguments.tools, response.output)
        return response

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Stream a request within the limits of the run."""
        asking, arguments = self._find_asking(), self._read_arguments(args, kwargs)
        events: asyncio.Queue[TResponseStreamEvent | None] = asyncio.Queue()
        find_model, holds = partial(self._find_model, asking.agent), self._run.may_deny_calls and bool(arguments.tools)
        port = OpenAIStreamPort(find_model, arguments, events.put_nowait, holds)
        task = asyncio.ensure_future(self._run.aask(asking.conversation, self._describe(asking, arguments), port))
        task.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            streamed = await task
        finally:
            task.cancel()
        if streamed.response is not None:
            self._prepare_calls(asking, arguments.tools, streamed.response.output)
        for event in streamed.events[streamed.passed :]:
            yield event

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the advice of the model that was asked."""
        return self._find_model(self._find_asking().agent).get_retry_advice(request)

    def _find_asking(self) -> Asking:
        asking = _asking.get()
        return asking or Asking(Agent("agent"), self._run.conversations.find(None))

    def _find_model(self, agent: Agent[Any], name: str | None = None) -> Model:
        """Return the model that the SDK would have asked, or the one with the name that a rule selected."""
        chosen = name.rpartition(":")[2] if name is not None else self._config.model or agent.model
        return chosen if isinstance(chosen, Model) else self._config.model_provider.get_model(chosen)

    def _read_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ModelArguments:
        """Return the arguments, with the settings that the SDK adds for a model's name, but not for our model."""
        arguments, agent = ModelArguments(args, kwargs), self._find_asking().agent
        chosen = self._config.model or agent.model
        if isinstance(chosen, Model) or isinstance(agent.model, Model):
            return arguments
        if agent.model_settings == get_default_model_settings(agent.model):
            arguments["model_settings"] = get_default_model_settings(chosen).resolve(arguments["model_settings"])
        return arguments

    def _describe(self, asking: Asking, arguments: ModelArguments) -> AskedModel:
        chosen = self._config.model or asking.agent.model or get_default_model()
        name = getattr(chosen, "model", None) if isinstance(chosen, Model) else chosen
        return arguments.describe(name_model(name), asking.conversation)

    def _prepare_calls(self, asking: Asking, tools: list[Tool], output: Sequence[Any]) -> None:
        """Remember the calls of a reply, and give each tool that may be called the time that is left.

        The SDK calls the tools of this list, so a copy with a time limit takes the place of each function.
        """
        call_ids = [call_id for item in output if (call_id := get_call_id(item))]
        self._run.conversations.remember_calls(asking.conversation, id(asking.agent), call_ids)
        for index, tool in enumerate(tools if call_ids else ()):
            if isinstance(tool, FunctionTool) and not isinstance(getattr(tool, "_agent_instance", None), Agent):
                seconds = min(self._run.find_tool_seconds(tool.name), tool.timeout_seconds or math.inf)
                if seconds < math.inf:
                    original, bounded = self._bounded.get(id(tool), (None, None))
                    if bounded is None or original is not tool:
                        bounded = copy.copy(tool)
                        if getattr(tool.on_invoke_tool, _SYNC_MARKER, False):
                            bounded.on_invoke_tool = partial(run_apart, tool.on_invoke_tool)
                        self._bounded[id(tool)] = tool, bounded
                    bounded.timeout_seconds = seconds
                    tools[index] = bounded


def close_with_stream(
    returned: RunResultStreaming, run: FrameworkRun, finish: Callable[[FrameworkRun, RunResultStreaming], None]
) -> None:
    """Close a run when the task of its stream has ended."""

    def close(task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            run.close(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            run.close(error)
            attach(error, run)
        else:
            finish(run, returned)
            run.close()

    task = returned.run_loop_task
    assert task is not None, "the SDK starts it"
    task.add_done_callback(close)


def disable_client_retries() -> AbstractContextManager[None]:
    """Switch off the retries of the client, which no limit would see. Older releases of the SDK cannot."""
    with suppress(ImportError):
        from agents.models._retry_runtime import provider_managed_retries_disabled

        return provider_managed_retries_disabled(True)
    return nullcontext()
