"""Requests of LiteLLM: how to change, send and read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import isawaitable
from typing import Any, cast

from ..budget.usage import Usage
from ..errors import ModelError
from ..request import Call, Finish, Reply
from ..wire.schema_fit import fit_schema
from .model_port import AskedModel, CountedMessages, Edits, count_content, find_server_tools, parse_usage

_CAPS = ("max_completion_tokens", "max_tokens")


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Arguments of a call."""

    model: str
    messages: list[dict[str, Any]]
    others: Mapping[str, Any]

    @property
    def streams(self) -> bool:
        """Whether the reply is to be streamed."""
        return bool(self.others.get("stream"))

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with the usage."""
        options = cast("Mapping[str, Any]", self.others.get("stream_options") or {})
        return bool(options.get("include_usage"))

    @property
    def functions(self) -> list[Mapping[str, Any]]:
        """Functions that the model may call."""
        return [tool.get("function", tool) for tool in cast("list[dict[str, Any]]", self.others.get("tools") or [])]

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the functions."""
        return tuple(str(function.get("name", "")) for function in self.functions)

    @property
    def server_tools(self) -> tuple[str, ...]:
        """Tools that run at the provider."""
        found = find_server_tools(cast("list[object]", self.others.get("tools") or []))
        return found if self.others.get("web_search_options") is None else (*found, "web_search")

    @property
    def opening(self) -> list[dict[str, Any]]:
        """Messages before the first reply of the model."""
        count = next((at for at, one in enumerate(self.messages) if one.get("role") == "assistant"), None)
        return self.messages[:count]

    @property
    def continues(self) -> bool:
        """Whether the history has a reply of the model."""
        return len(self.opening) < len(self.messages)

    @property
    def final_tool(self) -> str | None:
        """Only tool, if each reply must call it: it carries the answer then. None means that there is none."""
        choice: Any = self.others.get("tool_choice")
        if len(self.tools) != 1 or not isinstance(choice, dict | str) or choice in ("auto", "none"):
            return None
        return self.tools[0]

    def find_schema(self, tool: str) -> Mapping[str, Any]:
        """Return the schema of a function's arguments."""
        found = next((one for one in self.functions if one.get("name") == tool), None)
        return {} if found is None else cast("Mapping[str, Any]", found.get("parameters") or {})

    def iter_call_ids(self) -> Iterator[str]:
        """Yield the ids of the calls in the history, newest first."""
        for message in reversed(self.messages):
            for call in message.get("tool_calls") or ():
                yield str(call.get("id"))

    def describe(self, model: str, counted: CountedMessages) -> AskedModel:
        """Return the facts that decisions need. `model` has the provider before the name."""
        results = {
            str(message.get("tool_call_id")): str(message.get("content"))
            for message in self.messages
            if message.get("role") == "tool"
        }
        cap = next((self.others[name] for name in _CAPS if isinstance(self.others.get(name), int)), None)
        return AskedModel(
            model=model,
            input_bytes=counted.count(self.messages, count_content)
            + len(json.dumps(self.others.get("tools"), default=str)),
            messages=len(self.messages),
            max_output_tokens=cap,
            tools=self.tools,
            server_tools=self.server_tools,
            final_tool=self.final_tool,
            has_schema=bool(self.others.get("response_format")),
            results=results,
        )

    def edit(self, edits: Edits) -> dict[str, Any]:
        """Return the arguments of the call to make."""
        changed = dict(self.others)
        if edits.max_output_tokens is not None:
            cap_name = next((name for name in _CAPS if changed.get(name) is not None), "max_tokens")
            changed[cap_name] = edits.max_output_tokens
        if edits.is_last and self.tools and self.final_tool is None:
            changed.pop("parallel_tool_calls", None)
            changed["tool_choice"] = "none"
        if self.streams:
            changed["stream_options"] = {**(changed.get("stream_options") or {}), "include_usage": True}
        model = self.model if edits.model is None else edits.model.replace(":", "/", 1)
        notes = [{"role": "user", "content": text} for text in edits.texts]
        return {**changed, "model": model, "messages": [*self.messages, *notes]}

    def fit_text(self, text: str) -> str:
        """Return a text in the format that was asked for."""
        format = self.others.get("response_format")
        if isinstance(format, type) and hasattr(format, "model_json_schema"):
            return json.dumps(fit_schema(cast("Any", format).model_json_schema(), text))
        schema = cast("Mapping[str, Any]", format).get("json_schema") if isinstance(format, Mapping) else None
        if isinstance(schema, Mapping):
            return json.dumps(fit_schema(cast("Any", schema).get("schema", {}), text))
        return text


@dataclass(slots=True)
class LiteLLMPort:
    """Access to one call, blocking or async as `complete` is."""

    module: Any
    complete: Callable[..., Any]
    call: CallArguments

    def send(self, edits: Edits) -> Any:
        """Make the call with these changes."""
        with unmark_errors(self.module):
            reply = self.complete(**self.call.edit(edits))
        return self._await(reply) if isawaitable(reply) else reply

    async def _await(self, reply: Any) -> Any:
        with unmark_errors(self.module):
            return await reply

    def read(self, reply: Any) -> Reply:
        """Return the reply in Flyball's form."""
        return read_reply(reply)

    def count_server_calls(self, reply: Any) -> int:
        """Return the number of calls that the provider made itself."""
        return count_server_calls(reply)

    def make(self, text: str, original: Any) -> Any:
        """Return a final reply with this text."""
        return build_reply(self.module, self.call, text, original)

    def drop_calls(self, reply: Any, call_ids: Collection[str]) -> Any:
        """Return the reply without some of its calls."""
        return drop_calls(reply, call_ids)


@dataclass(slots=True)
class StreamedChunks:
    """Streamed reply, as it is read."""

    held: list[Any] = field(default_factory=list[Any])
    """Chunks that are to be handed on when the reply is complete."""
    whole: Any = None
    """Reply that all chunks make up. None if there were none."""
    usage: Any = None
    """Usage that the provider told. None if it told none."""


@dataclass(slots=True)
class StreamPort:
    """Access to one streamed call that blocks."""

    module: Any
    complete: Callable[..., Any]
    call: CallArguments
    pass_on: Callable[[Any], None]
    holds: bool
    """Whether the chunks are handed on when the reply is complete, because calls in it may be denied."""
    is_abandoned: bool = False
    """True once the program has stopped reading."""
    has_passed: bool = False
    """True once a chunk was handed on, so that the call cannot be made again."""

    def send(self, edits: Edits) -> Any:
        """Make the call with these changes. The last reply is read whole before a chunk of it is handed on."""
        streamed, chunks = StreamedChunks(), list[Any]()
        with self._watch_errors():
            source = self.complete(**self.call.edit(edits))
            for chunk in source:
                if self.is_abandoned:
                    raise ModelError("the program stopped reading the stream")
                self._take(streamed, chunks, chunk, edits)
        return self._close(streamed, chunks, source)

    def read(self, reply: StreamedChunks) -> Reply:
        """Return the reply in Flyball's form."""
        found = Reply() if reply.whole is None else read_reply(reply.whole)
        return replace(found, usage=read_usage(reply.usage))

    def count_server_calls(self, reply: StreamedChunks) -> int:
        """Return the number of calls that the provider made itself."""
        return count_server_calls(reply)

    def make(self, text: str, original: StreamedChunks | None) -> StreamedChunks:
        """Return a final reply with this text."""
        return self._split(build_reply(self.module, self.call, text, None if original is None else original.whole))

    def drop_calls(self, reply: StreamedChunks, call_ids: Collection[str]) -> StreamedChunks:
        """Return the reply without some of its calls."""
        return self._split(drop_calls(reply.whole, call_ids))

    @contextmanager
    def _watch_errors(self) -> Generator[None]:
        """Let no call be made again after a part of its reply was handed on."""
        try:
            with unmark_errors(self.module):
                yield
        except Exception as error:
            if self.has_passed:
                raise ModelError(f"the stream broke off: {type(error).__name__}: {error}") from error
            raise

    def _take(self, streamed: StreamedChunks, chunks: list[Any], chunk: Any, edits: Edits) -> None:
        chunks.append(chunk)
        usage = getattr(chunk, "usage", None)
        streamed.usage = usage or streamed.usage
        if usage is not None and not self.call.wants_usage:
            return
        if self.holds or edits.is_last:
            streamed.held.append(chunk)
        else:
            self.has_passed = True
            self.pass_on(chunk)

    def _close(self, streamed: StreamedChunks, chunks: list[Any], source: Any) -> StreamedChunks:
        received: list[Any] = getattr(source, "chunks", [])
        if received and not any(getattr(chunk, "usage", None) for chunk in received):
            streamed.usage = None  # LiteLLM counts itself what the provider does not tell, and leaves out the tools
        if chunks:
            streamed.whole = self.module.stream_chunk_builder(chunks, messages=self.call.messages)
        return streamed

    def _split(self, whole: Any) -> StreamedChunks:
        """Return a reply as chunks."""
        choice = whole.choices[0]
        calls = [call.model_dump() | {"index": at} for at, call in enumerate(choice.message.tool_calls or ())]
        delta: dict[str, Any] = {"role": "assistant", "content": choice.message.content, "tool_calls": calls or None}
        parts: list[dict[str, Any]] = [
            {"index": 0, "delta": delta, "finish_reason": None},
            {"index": 0, "delta": {}, "finish_reason": choice.finish_reason},
        ]
        create = self.module.ModelResponseStream
        return StreamedChunks([create(id=whole.id, model=whole.model, choices=[part]) for part in parts], whole)


@dataclass(slots=True)
class AsyncStreamPort(StreamPort):
    """Access to one streamed call on an event loop."""

    async def send(self, edits: Edits) -> StreamedChunks:
        """Make the call in the same way as a blocking one."""
        streamed, chunks = StreamedChunks(), list[Any]()
        with self._watch_errors():
            source = await self.complete(**self.call.edit(edits))
            async for chunk in source:
                self._take(streamed, chunks, chunk, edits)
        return self._close(streamed, chunks, source)


def read_reply(response: Any) -> Reply:
    """Return a reply of LiteLLM in Flyball's form."""
    choice = response.choices[0] if response.choices else None
    if choice is None:
        return Reply(usage=read_usage(getattr(response, "usage", None)), model=response.model)
    message = choice.message
    calls = tuple(Call(call.id, call.function.name or "", call.function.arguments) for call in message.tool_calls or ())
    finish = Finish.CALLS if calls else Finish.LENGTH if choice.finish_reason == "length" else Finish.STOP
    usage = read_usage(getattr(response, "usage", None))
    return Reply(message.content or "", calls, usage, finish, model=response.model, id=response.id)


def read_usage(usage: Any) -> Usage | None:
    """Return a usage of LiteLLM. Older releases name the tokens that a cache was written with in their own way."""
    parsed = parse_usage(usage)
    written = getattr(getattr(usage, "prompt_tokens_details", None), "cache_creation_tokens", None)
    if parsed is None or parsed.written or not isinstance(written, int):
        return parsed
    parts = {"input": parsed.input, "output": parsed.output, "cached": parsed.cached, "reasoning": parsed.reasoning}
    return parse_usage({**parts, "written": written})


def count_server_calls(response: Any) -> int:
    """Return the number of searches that the provider tells of in the usage of a reply."""
    usage = getattr(response, "usage", None)
    parts = (getattr(usage, name, None) for name in ("server_tool_use", "prompt_tokens_details"))
    return max((getattr(part, "web_search_requests", None) or 0 for part in parts), default=0)


def build_reply(module: Any, call: CallArguments, text: str, original: Any) -> Any:
    """Return a final reply with this text, with the usage of the one that it replaces."""
    tool = call.final_tool
    message: dict[str, Any] = {"role": "assistant", "content": call.fit_text(text)}
    if tool is not None:
        function = {"name": tool, "arguments": json.dumps(fit_schema(call.find_schema(tool), text))}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_flyball", "type": "function", "function": function}],
        }
    choices = [{"index": 0, "finish_reason": "stop" if tool is None else "tool_calls", "message": message}]
    if original is None:
        usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return module.ModelResponse(id="flyball", choices=choices, model=call.model, usage=usage)
    changed = original.model_copy()
    changed.choices = module.ModelResponse(choices=choices).choices
    return changed


def drop_calls(reply: Any, call_ids: Collection[str]) -> Any:
    """Return a reply without some of its calls."""
    for choice in reply.choices:
        if choice.message.tool_calls:
            choice.message.tool_calls = [one for one in choice.message.tool_calls if one.id not in call_ids]
    return reply


@contextmanager
def unmark_errors(module: Any) -> Generator[None]:
    """Remove the status that LiteLLM adds to errors without a response of the provider.

    With it, a request that timed out would pass for one that was refused, and so is not billed.
    """
    try:
        yield
    except (module.Timeout, module.APIConnectionError) as error:
        error.status_code = None
        raise
