"""Models of pydantic-ai agents, as a governed run sees them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar, cast

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_jsonable_python

from ..budget.usage import Usage
from ..request import Call, Finish, Reply
from ..wire.schema_fit import fit_schema
from .client_retries import HeldModels, without_retries
from .model_port import (
    CALL_BYTES,
    MESSAGE_BYTES,
    SCHEMA_BYTES,
    AskedModel,
    CountedMessages,
    Edits,
    count_content,
    parse_usage,
)

T = TypeVar("T")
_infer = lru_cache(8)(infer_model)


def describe_request(
    context: ModelRequestContext, parameters: ModelRequestParameters, counted: CountedMessages
) -> AskedModel:
    """Return what the run must know of a request. The mode of the output in the parameters is resolved."""
    messages = context.messages
    tools = [*parameters.function_tools, *parameters.output_tools]
    cap = (context.model_settings or {}).get("max_tokens")
    size = counted.count(messages, _count_bytes) + sum(len(tool.description or "") + SCHEMA_BYTES for tool in tools)
    return AskedModel(
        model=_find_name(context.model),
        input_bytes=size,
        messages=len(messages),
        max_output_tokens=cap,
        tools=tuple(tool.name for tool in tools),
        server_tools=tuple(tool.kind for tool in parameters.native_tools),
        final_tool=_find_final_tool(parameters),
        has_schema=_has_schema(parameters),
        results=_find_results(messages),
    )


@dataclass(slots=True)
class PydanticAIPort:
    """Access to the model of one request."""

    context: ModelRequestContext
    handler: Callable[[ModelRequestContext], Awaitable[ModelResponse]]
    parameters: ModelRequestParameters = field(init=False)
    """Parameters of the request, with the mode of the output that the model will use."""
    is_sent: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.parameters = _resolve_output_mode(self.context)

    async def send(self, edits: Edits) -> ModelResponse:
        """Make the request with these changes. pydantic-ai makes only one itself."""
        context = self.context
        settings: dict[str, Any] = dict(context.model_settings or {})
        if edits.max_output_tokens is not None:
            settings["max_tokens"] = edits.max_output_tokens
        if edits.is_last:
            settings.pop("parallel_tool_calls", None)
            settings["tool_choice"] = "none"  # which still allows the tools for the output
        added = [UserPromptPart(text) for text in edits.texts]
        changed = replace(
            context,
            model=_MODELS.get(context.model if edits.model is None else _infer(edits.model)),
            messages=[*context.messages, ModelRequest(added)] if added else context.messages,
            model_settings=cast("ModelSettings", settings),
        )
        if self.is_sent:
            parameters = changed.model_request_parameters
            reply = await changed.model.request(changed.messages, changed.model_settings, parameters)
        else:
            self.is_sent = True
            reply = await self.handler(changed)
        return self._fit(reply) if edits.is_last else reply

    def _fit(self, reply: ModelResponse) -> ModelResponse:
        """Return the last reply with its text in the form that the agent asks for, because there is no other."""
        outputs = {tool.name for tool in self.parameters.output_tools}
        calls = [part for part in reply.parts if isinstance(part, ToolCallPart) and part.tool_name in outputs]
        text = _join_text(reply)
        if calls:
            is_complete = all(isinstance(part.args, dict) or _is_json(part.args) for part in calls)
            text = text or "".join(str(part.args) for part in calls)
        elif _find_final_tool(self.parameters) is not None:
            is_complete = False
        else:
            is_complete = not _has_schema(self.parameters) or _is_json(text)
        return reply if is_complete or not text.strip() else self.make(text, reply)

    def read(self, reply: ModelResponse) -> Reply:
        """Return the text, the calls and the usage of a reply. A call that carries the output is text."""
        outputs = {tool.name for tool in self.parameters.output_tools}
        made = [part for part in reply.parts if isinstance(part, ToolCallPart)]
        calls = tuple(
            Call(part.tool_call_id, part.tool_name, _read_arguments(part))
            for part in made
            if part.tool_name not in outputs
        )
        text = _join_text(reply) or "".join(part.args_as_json_str() for part in made if part.tool_name in outputs)
        finish = Finish.CALLS if calls else Finish.STOP
        return Reply(text, calls, _read_usage(reply), finish, reply.model_name, None, (), reply.provider_response_id)

    def count_server_calls(self, reply: ModelResponse) -> int:
        """Return the number of calls that the provider made itself."""
        return sum(isinstance(part, NativeToolCallPart) for part in reply.parts)

    def make(self, text: str, original: ModelResponse | None) -> ModelResponse:
        """Return a final reply with this text, in the form that the agent asks for."""
        parameters = self.parameters
        part: TextPart | ToolCallPart = TextPart(text)
        if _find_final_tool(parameters) is not None:
            tool = parameters.output_tools[0]
            part = ToolCallPart(tool.name, fit_schema(tool.parameters_json_schema, text))
        elif _has_schema(parameters) and parameters.output_object is not None:
            part = TextPart(json.dumps(fit_schema(parameters.output_object.json_schema, text)))
        return ModelResponse([part]) if original is None else replace(original, parts=[part])

    def drop_calls(self, reply: ModelResponse, call_ids: Collection[str]) -> ModelResponse:
        """Return the reply without some of its calls."""
        kept = [part for part in reply.parts if not (isinstance(part, ToolCallPart) and part.tool_call_id in call_ids)]
        return replace(reply, parts=kept)


def _copy_without_retries(model: Model) -> Model:
    """Return a copy of a model whose OpenAI or Anthropic client makes no retries; the model itself if it has none.

    The same for models in another model.
    """
    if isinstance(model, WrapperModel):
        return _copy_with(model, "wrapped", _copy_without_retries(model.wrapped))
    if isinstance(model, FallbackModel):
        return _copy_with(model, "models", [_copy_without_retries(one) for one in model.models])
    provider = getattr(model, "_provider", None)
    client = without_retries(getattr(provider, "_client", None))
    if client is None:
        return model
    return _copy_with(model, "_provider", _copy_with(provider, "_client", client))


def _copy_with(original: T, attribute: str, value: object) -> T:
    changed = object.__new__(type(original))  # `copy` asks older wrappers for methods, and they ask an empty object
    vars(changed).update(vars(original), **{attribute: value})
    return changed


_MODELS = HeldModels(_copy_without_retries)


def _find_final_tool(parameters: ModelRequestParameters) -> str | None:
    if parameters.output_mode != "tool" or parameters.allow_text_output or not parameters.output_tools:
        return None
    return parameters.output_tools[0].name


def _has_schema(parameters: ModelRequestParameters) -> bool:
    return parameters.output_mode in ("native", "prompted")


def _resolve_output_mode(context: ModelRequestContext) -> ModelRequestParameters:
    """Return the parameters as the model will resolve them: a typed output has the model's usual mode."""
    parameters = context.model_request_parameters
    if parameters.output_mode != "auto":
        return parameters
    profile = cast("dict[str, Any]", context.model.profile)
    return parameters.with_default_output_mode(profile.get("default_structured_output_mode", "tool"))


def _join_text(reply: ModelResponse) -> str:
    return "".join(part.content for part in reply.parts if isinstance(part, TextPart))


def _read_arguments(call: ToolCallPart) -> Any:
    """Return the arguments of a call as JSON types, or the text of the model."""
    return to_jsonable_python(call.args) if isinstance(call.args, dict) else call.args_as_json_str()


def _read_usage(reply: ModelResponse) -> Usage | None:
    """Return the usage of a reply. pydantic-ai counts cached tokens in the input, with every provider."""
    usage = reply.usage
    details = usage.details or {}
    return parse_usage(
        {
            "input": usage.input_tokens,
            "output": usage.output_tokens,
            "cached": usage.cache_read_tokens,
            "written": usage.cache_write_tokens,
            "reasoning": details.get("reasoning_tokens") or details.get("thoughts_tokens"),
        }
    )


def _is_json(text: str | None) -> bool:
    try:
        json.loads(text or "")
    except ValueError:
        return False
    return True


def _find_name(model: Model) -> str:
    provider = "google" if model.system.startswith("google") else model.system
    return f"{provider}:{model.model_name}"


def _find_results(messages: Sequence[ModelMessage]) -> dict[str, str]:
    """Return the results in the newest message, by the ids of the calls."""
    newest = messages[-1] if messages else None
    if not isinstance(newest, ModelRequest):
        return {}
    return {part.tool_call_id: str(part.content) for part in newest.parts if isinstance(part, ToolReturnPart)}


def _count_bytes(message: ModelMessage) -> int:
    size = 0
    for part in message.parts:
        size += CALL_BYTES if isinstance(part, ToolCallPart) else MESSAGE_BYTES
        size += count_content(getattr(part, "content", None) or getattr(part, "args", ""))
    return size
