"""Models of LangChain agents, as a governed run sees them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain.agents.structured_output import (
    AutoStrategy,
    OutputToolBinding,
    ProviderStrategy,
    StructuredOutputError,
    ToolStrategy,
)
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool

from ..budget.usage import Usage
from ..request import Call, Finish, Reply
from ..wire.bodies import get_dict
from ..wire.schema_fit import fit_schema
from .client_retries import HeldModels, without_retries
from .model_port import (
    CALL_BYTES,
    MESSAGE_BYTES,
    SCHEMA_BYTES,
    AskedModel,
    CountedMessages,
    Edits,
    KnownTools,
    count_content,
    find_server_tools,
    is_server_call,
    parse_usage,
)

_CAP_FIELDS = ("max_tokens", "max_output_tokens", "num_predict")
"""Names under which models take the longest reply. Most take the first."""
_BLOCKS_OF_CALLS = ("tool_use", "function_call", "tool_call")
_ask_by_name = lru_cache(8)(init_chat_model)


@dataclass(frozen=True, slots=True)
class AskedChatModel:
    """Model of an agent, as it is asked."""

    model: BaseChatModel
    """Copy whose clients make no retries of their own."""
    name: str
    cap_field: str
    """Name of the longest reply in its settings."""
    has_cap: bool
    """Whether the model has such a field. To ask it for one that it has not takes long."""

    @classmethod
    def hold(cls, model: BaseChatModel) -> AskedChatModel:
        """Return the model as it is to be asked."""
        fields = type(model).model_fields
        cap_field = next((name for name in _CAP_FIELDS if name in fields), _CAP_FIELDS[0])
        return cls(_copy_without_retries(model), _find_name(model), cap_field, hasattr(model, cap_field))


def describe_tools(tools: Sequence[BaseTool | dict[str, Any]]) -> KnownTools:
    """Return what the run must know of the tools of a request."""
    return KnownTools(
        tuple(tools), tuple(map(_find_tool_name, tools)), find_server_tools(tools), sum(map(_count_tool_bytes, tools))
    )


def describe_request(
    request: ModelRequest[Any], counted: CountedMessages, tools: KnownTools, unheld: tuple[str, ...] = ()
) -> AskedModel:
    """Return what the run must know of a request with these tools."""
    messages, held = request.messages, _MODELS.get(request.model)
    size = counted.count(messages, _count_bytes) + tools.size + len(request.system_prompt or "")
    cap = request.model_settings.get(held.cap_field)
    if not cap and held.has_cap:
        cap = getattr(request.model, held.cap_field)
    return AskedModel(
        model=held.name,
        input_bytes=size,
        messages=len(messages),
        max_output_tokens=cap if isinstance(cap, int) else None,
        tools=tools.names,
        server_tools=tools.server_tools,
        unheld=unheld,
        has_schema=request.response_format is not None,
        results=_find_results(messages),
    )


@dataclass(frozen=True, slots=True)
class LangChainPort:
    """Access to the model of one request."""

    request: ModelRequest[Any]
    handler: Callable[[ModelRequest[Any]], Any]

    def send(self, edits: Edits) -> Any:
        """Make the request with these changes."""
        try:
            return self._fit(self.handler(self._change(edits)), edits)
        except StructuredOutputError as error:
            return self._fit_error(error, edits)

    def _fit(self, reply: ModelResponse[Any], edits: Edits) -> ModelResponse[Any]:
        """Return the reply, with an answer of the agent's type if the last reply has only text."""
        if not edits.is_last or reply.structured_response is not None:
            return reply
        message = _find_message(reply)
        if message is None or message.tool_calls:
            return reply
        return replace(reply, structured_response=_make_answer(self.request.response_format, str(message.text)))

    def _fit_error(self, error: StructuredOutputError, edits: Edits) -> ModelResponse[Any]:
        """Return a last reply with an answer of the agent's type, for one whose answer was not of that type."""
        message = getattr(error, "ai_message", None)
        if not edits.is_last or not isinstance(message, AIMessage):
            raise error
        return self.make(str(message.text), ModelResponse([message]))

    def _change(self, edits: Edits) -> ModelRequest[Any]:
        request = self.request
        held = _MODELS.get(request.model if edits.model is None else _ask_by_name(edits.model))
        model, settings = held.model, dict(request.model_settings)
        if edits.max_output_tokens is not None:
            settings[held.cap_field] = edits.max_output_tokens
        if edits.is_last:
            settings.pop("tool_choice", None)
            settings.pop("parallel_tool_calls", None)
            model = _forbid_calls(model, len(request.tools))
        messages: list[AnyMessage] = request.messages
        if edits.texts:
            messages = [*messages, *(HumanMessage(text) for text in edits.texts)]
        changed: ModelRequest[Any] = object.__new__(type(request))  # `override` takes 20 times as long
        vars(changed).update(vars(request), model=model, messages=messages, model_settings=settings)
        return changed

    def read(self, reply: ModelResponse[Any]) -> Reply:
        """Return the text, the calls and the usage of a reply. A call that carries the answer is no call."""
        message = _find_message(reply)
        if message is None:
            return Reply()
        text, calls = _get_text(message), ()
        if reply.structured_response is None:
            calls = tuple(Call(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls)
        elif not text:
            text = json.dumps([call["args"] for call in message.tool_calls][:1])
        finish = Finish.CALLS if calls else Finish.STOP
        model = message.response_metadata.get("model_name")
        return Reply(text, calls, _read_usage(message), finish, model, None, (), message.id)

    def count_server_calls(self, reply: ModelResponse[Any]) -> int:
        """Return the number of calls that the provider made itself."""
        message = _find_message(reply)
        if message is None:
            return 0
        content: list[Any] = message.content if isinstance(message.content, list) else []
        return sum(map(is_server_call, [*content, *message.additional_kwargs.get("tool_outputs", ())]))

    def make(self, text: str, original: ModelResponse[Any] | None) -> ModelResponse[Any]:
        """Return a final reply with this text, and with an answer of the type that the agent asks for."""
        before = None if original is None else _find_message(original)
        answer = _make_answer(self.request.response_format, text)
        message = AIMessage(text, usage_metadata=None if before is None else before.usage_metadata)
        return ModelResponse([message], answer)

    def drop_calls(self, reply: ModelResponse[Any], call_ids: Collection[str]) -> ModelResponse[Any]:
        """Return the reply without some of its calls."""
        return replace(reply, result=[_drop_calls(message, call_ids) for message in reply.result])


class AsyncLangChainPort(LangChainPort):
    """Access to the model of one request, whose handler is a coroutine function."""

    async def send(self, edits: Edits) -> ModelResponse[Any]:
        """Make the request with these changes."""
        try:
            return self._fit(await self.handler(self._change(edits)), edits)
        except StructuredOutputError as error:
            return self._fit_error(error, edits)


def _forbid_calls(model: BaseChatModel, own_tools: int) -> BaseChatModel:
    """Return a copy of the model whose next request forbids calls, except of the tool that carries the answer.

    LangChain binds the tools itself. It adds the tools for a typed answer behind the agent's own, and then sets a
    choice that no middleware can change.
    """

    def bind_tools(tools: Sequence[Any], **settings: Any) -> Any:
        settings.pop("tool_choice", None)
        answers = list(tools)[own_tools:]
        if len(answers) > 1:  # a choice names one tool or all
            return model.bind_tools(answers, tool_choice="any", **settings)
        choice: Any = _find_tool_name(answers[0]) if answers else _find_no_choice(model)
        if not tools:
            return model.bind_tools(tools, **settings)
        try:
            return model.bind_tools(tools, tool_choice=choice, **settings)
        except (TypeError, ValueError):  # the provider has no such choice, so the calls of the reply are taken out
            return model.bind_tools(tools, **settings)

    changed = model.model_copy()
    vars(changed)["bind_tools"] = bind_tools
    return changed


def _copy_without_retries(model: BaseChatModel) -> BaseChatModel:
    """Return a copy of a model whose OpenAI or Anthropic clients make no retries; the model itself if it has none."""
    fields: dict[str, Any] = {}
    for name in ("root_client", "root_async_client", "_client", "_async_client"):
        client = without_retries(getattr(model, name, None))
        if client is not None:
            fields[name] = client
    for name, root in (("client", "root_client"), ("async_client", "root_async_client")):
        if root in fields:
            fields[name] = fields[root].chat.completions
    if not fields:
        return model
    changed = model.model_copy()
    vars(changed).update(fields)
    return changed


_MODELS = HeldModels(AskedChatModel.hold)


def _find_no_choice(model: BaseChatModel) -> Any:
    return {"type": "none"} if "anthropic" in type(model).__module__ else "none"


def _make_answer(response_format: Any, text: str) -> Any:
    """Return a small answer of the type of an agent, with the text in it. None if it wants none, or takes no such."""
    if response_format is None:
        return None
    try:
        if isinstance(response_format, AutoStrategy):
            response_format = cast("Any", response_format).schema
        if not isinstance(response_format, ProviderStrategy | ToolStrategy):
            response_format = ToolStrategy[Any](response_format)
        strategy = cast("Any", response_format)
        spec: Any = strategy.schema_spec if hasattr(strategy, "schema_spec") else strategy.schema_specs[0]
        return OutputToolBinding[Any].from_schema_spec(spec).parse(fit_schema(spec.json_schema, text))
    except Exception:  # the checks of the user's own type
        return None


def _find_message(reply: ModelResponse[Any]) -> AIMessage | None:
    for message in reply.result:
        if isinstance(message, AIMessage):
            return message
    return None


def _drop_calls(message: BaseMessage, call_ids: Collection[str]) -> BaseMessage:
    if not isinstance(message, AIMessage):
        return message
    content: Any = message.content
    if isinstance(content, list):
        content = [block for block in cast("list[Any]", content) if not _is_call_block(block, call_ids)]
    extra = dict(message.additional_kwargs)
    if "tool_calls" in extra:
        extra["tool_calls"] = [call for call in extra["tool_calls"] if call.get("id") not in call_ids]
    calls = [call for call in message.tool_calls if call["id"] not in call_ids]
    return message.model_copy(update={"content": content, "additional_kwargs": extra, "tool_calls": calls})


def _is_call_block(block: Any, call_ids: Collection[str]) -> bool:
    if not isinstance(block, dict):
        return False
    fields = cast("dict[str, Any]", block)
    ids = {fields.get("id"), fields.get("call_id")}
    return fields.get("type") in _BLOCKS_OF_CALLS and not ids.isdisjoint(call_ids)


def _read_usage(message: AIMessage) -> Usage | None:
    """Return the usage of a message. LangChain counts cached tokens in the input, with every provider."""
    usage = cast("dict[str, Any] | None", message.usage_metadata)
    if usage is None:
        return None
    inputs, outputs = usage.get("input_token_details"), usage.get("output_token_details")
    if not inputs and not outputs:
        return parse_usage({"input": usage.get("input_tokens"), "output": usage.get("output_tokens")})
    inputs, outputs = get_dict(usage, "input_token_details"), get_dict(usage, "output_token_details")
    parts = (count for name, count in inputs.items() if name.startswith("ephemeral_") and isinstance(count, int))
    written = inputs.get("cache_creation") or sum(parts)
    return parse_usage(
        {
            "input": usage.get("input_tokens"),
            "output": usage.get("output_tokens"),
            "cached": inputs.get("cache_read"),
            "reasoning": outputs.get("reasoning"),
            "written": written,
        }
    )


def _find_name(model: BaseChatModel) -> str:
    fields = cast("Any", model)
    name = getattr(fields, "model_name", None) or getattr(fields, "model", None) or getattr(fields, "model_id", None)
    module = type(model).__module__
    provider = next((provider for provider in ("openai", "anthropic", "google") if provider in module), "")
    return f"{provider}:{name}" if provider and name else str(name or type(model).__name__)


def _find_tool_name(tool: Any) -> str:
    if isinstance(tool, BaseTool):
        return tool.name
    fields = cast("dict[str, Any]", tool if isinstance(tool, dict) else {})
    return str(get_dict(fields, "function").get("name") or fields.get("name") or fields.get("type"))


def _get_text(message: BaseMessage) -> str:
    content: object = message.content
    return content if isinstance(content, str) else str(message.text)


def _count_bytes(message: BaseMessage) -> int:
    size = MESSAGE_BYTES + count_content(message.content)
    if isinstance(message, AIMessage):
        size += sum([CALL_BYTES + len(str(call["args"])) for call in message.tool_calls])
    return size


def _count_tool_bytes(tool: BaseTool | dict[str, Any]) -> int:
    # The schema is expensive to build, and its size matters for the first request only.
    return len(str(tool)) if isinstance(tool, dict) else len(tool.description) + SCHEMA_BYTES


def _find_results(messages: Sequence[BaseMessage]) -> dict[str, str]:
    """Return the results behind the newest reply, by the ids of the calls."""
    results: dict[str, str] = {}
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            break
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = _get_text(message)
    return results
