"""Calls of LiteLLM that ask a governed run first."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextvars import copy_context
from queue import SimpleQueue
from threading import Thread
from typing import Any, cast

from ..errors import UsageError
from .agent_conversation import AgentConversation
from .framework_run import FrameworkRun
from .litellm_port import AsyncStreamPort, CallArguments, LiteLLMPort, StreamedChunks, StreamPort, read_reply
from .model_port import AskedModel, name_model

_PROVIDERS = {"gemini": "google", "vertex_ai": "google", "text-completion-openai": "openai"}
"""Providers that LiteLLM names differently."""


class LiteLLMCalls:
    """Makes the calls of one run."""

    def __init__(self, run: FrameworkRun, module: Any, router: Any) -> None:
        self._run = run
        self._module = module
        self._router = router
        self._client = module if router is None else router
        self._openings: dict[str, AgentConversation] = {}
        """Conversations by the hash of their first messages. For an equal one, the latest."""
        self._names: dict[str, str] = {}
        self.text = ""
        """Text of the latest reply."""

    def complete(self, model: str, messages: list[Any], arguments: Mapping[str, Any]) -> Any:
        """Make a blocking call."""
        call = self._build(model, messages, arguments)
        conversation = self._find(call)
        asked = call.describe(self._name(call.model), conversation.counted)
        if call.streams:
            return self._stream(conversation, asked, call)
        port = LiteLLMPort(self._module, self._client.completion, call)
        return self._note(conversation, self._run.ask(conversation, asked, port))

    async def acomplete(self, model: str, messages: list[Any], arguments: Mapping[str, Any]) -> Any:
        """Make a call on an event loop."""
        call = self._build(model, messages, arguments)
        conversation = self._find(call)
        asked = call.describe(self._name(call.model), conversation.counted)
        if call.streams:
            return await self._astream(conversation, asked, call)
        port = LiteLLMPort(self._module, self._client.acompletion, call)
        return self._note(conversation, await self._run.aask(conversation, asked, port))

    def _stream(self, conversation: AgentConversation, asked: AskedModel, call: CallArguments) -> Iterator[Any]:
        """Make a streamed call in a thread of its own, and return its chunks as they come."""
        chunks, outcome = SimpleQueue[Any](), list[Any]()
        port = StreamPort(self._module, self._client.completion, call, chunks.put, self._run.may_deny_calls)

        def work() -> None:
            try:
                outcome.append(self._run.ask(conversation, asked, port))
            except BaseException as error:
                outcome.append(error)
            chunks.put(None)

        def iterate(chunk: Any) -> Iterator[Any]:
            try:
                while chunk is not None:
                    yield chunk
                    chunk = chunks.get()
            finally:
                port.is_abandoned = True
            if isinstance(outcome[0], BaseException):
                raise outcome[0]
            yield from self._finish(conversation, outcome[0])

        Thread(target=copy_context().run, args=(work,), name="flyball-litellm", daemon=True).start()
        first = chunks.get()  # as LiteLLM does: errors before the first chunk are raised by the call
        if outcome and isinstance(outcome[0], BaseException):
            raise outcome[0]
        return iterate(first)

    async def _astream(
        self, conversation: AgentConversation, asked: AskedModel, call: CallArguments
    ) -> AsyncIterator[Any]:
        chunks: asyncio.Queue[Any] = asyncio.Queue()
        holds = self._run.may_deny_calls
        port = AsyncStreamPort(self._module, self._client.acompletion, call, chunks.put_nowait, holds)
        task = asyncio.ensure_future(self._run.aask(conversation, asked, port))
        task.add_done_callback(lambda _: chunks.put_nowait(None))

        async def iterate(chunk: Any) -> AsyncIterator[Any]:
            try:
                while chunk is not None:
                    yield chunk
                    chunk = await chunks.get()
                streamed = await task
            finally:
                task.cancel()
            for chunk in self._finish(conversation, streamed):
                yield chunk

        try:
            first = await chunks.get()
        except BaseException:
            task.cancel()
            raise
        if first is None:
            await task
        return iterate(first)

    def _finish(self, conversation: AgentConversation, streamed: StreamedChunks) -> list[Any]:
        """Return the chunks that were held back."""
        if streamed.whole is not None:
            self._note(conversation, streamed.whole)
        return streamed.held

    def _note(self, conversation: AgentConversation, response: Any) -> Any:
        reply = read_reply(response)
        self.text = reply.text or self.text
        self._run.conversations.remember_calls(conversation, None, [call.id for call in reply.calls])
        return response

    def _build(self, model: str, messages: list[Any], arguments: Mapping[str, Any]) -> CallArguments:
        if not self._run.is_open:
            raise UsageError("this run is not open: make the calls within `with govern(...) as llm:`")
        plain = [_to_dict(message) for message in messages]
        return CallArguments(model, plain, {**arguments, "num_retries": 0, "max_retries": 0})

    def _find(self, call: CallArguments) -> AgentConversation:
        """Return the conversation of a call: by the ids of earlier calls, or else by its first messages."""
        conversations = self._run.conversations
        found = conversations.find_by_calls(None, call.iter_call_ids())
        if found is not None:
            return found
        opening = hashlib.sha256(json.dumps(call.opening, default=str).encode()).hexdigest()
        if not call.continues or opening not in self._openings:
            self._openings[opening] = conversations.add()
        return self._openings[opening]

    def _name(self, model: str) -> str:
        """Return the name of a model with its provider. A router's name stands for its first deployment."""
        if model not in self._names:
            self._names[model] = self._find_name(model)
        return self._names[model]

    def _find_name(self, model: str) -> str:
        if self._router is not None:
            deployments = cast("list[dict[str, Any]]", self._router.get_model_list(model_name=model) or [])
            model = next((one["litellm_params"]["model"] for one in deployments), model)
        try:
            name, provider, _, _ = self._module.get_llm_provider(model)
        except Exception:  # LiteLLM asks the same when the call is made, and its error is raised then
            return model
        return name_model(name, _PROVIDERS.get(str(provider), str(provider)))


def _to_dict(message: Any) -> dict[str, Any]:
    """Return a message of a history, which may be the message of an earlier reply."""
    if isinstance(message, dict):
        return cast("dict[str, Any]", message)
    return message.model_dump(exclude_none=True)
