"""OpenAI's chat completions, as OpenAI and many other servers speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..request import Finish, Request
from ..wire.writer import write_openai
from .endpoint import Provider
from .http import HttpModel
from .model import Tell
from .reply import MOST_INDEXES, Json, PartialCall, ReplyParser, dict_of, list_of, text_of
from .structured import call_id, closed, is_strict, tool_name, wanted

_FINISHES = {
    "stop": Finish.STOP,
    "length": Finish.LENGTH,
    "tool_calls": Finish.CALLS,
    "function_call": Finish.CALLS,
    "content_filter": Finish.CONTENT_FILTER,
}


class OpenAIModel(HttpModel):
    """A model of OpenAI's; with `url=`, one of any server that speaks alike.

    The key is `key=` or OPENAI_API_KEY. With `url=` it is `key=` or FLYBALL_API_KEY, or there is none.
    """

    _house: ClassVar[Provider] = Provider(
        name="openai",
        url="https://api.openai.com/v1",
        url_variable="OPENAI_BASE_URL",
        key_variable="OPENAI_API_KEY",
        path="/chat/completions",
        max_output_tokens=16_384,
        headers={},
        max_output_elsewhere=4_096,
    )

    def _body(self, request: Request) -> Json:
        """The request as this API wants it."""
        form = _form(request.output_schema) if request.output_schema else None
        body: Json = {"model": self.name, "messages": _messages(request, form)}
        if request.tools:
            body["tools"] = [{"type": "function", "function": dict(tool)} for tool in request.tools]
            self._choose(body)
        if isinstance(form, dict):
            body["response_format"] = {"type": "json_schema", "json_schema": form}
        if request.max_output_tokens is not None:
            # Servers that speak alike know the older name.
            body["max_completion_tokens" if self._address.at_home else "max_tokens"] = request.max_output_tokens
        if self._stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        return body

    def _choose(self, body: Json) -> None:
        wish = self._wish
        if wish.forced_tool is not None:
            body["tool_choice"] = {"type": "function", "function": {"name": wish.forced_tool}}
        elif wish.tool_choice is not None:
            body["tool_choice"] = wish.tool_choice
        if wish.parallel is not None:
            body["parallel_tool_calls"] = wish.parallel

    def ear(self, tell: Tell | None = None) -> ReplyParser:
        """Something to hear a reply with."""
        return _OpenAIEar(self.provider, tell)


def _form(schema: Mapping[str, Any]) -> Json | str:
    """The form of the answer, enforced if that can be; words that ask for one that is no object, which is refused."""
    enforced = closed(schema)
    if enforced is not None and is_strict(enforced):
        return {"name": "answer", "schema": enforced, "strict": True}
    return {"name": "answer", "schema": schema, "strict": False} if schema.get("type") == "object" else wanted(schema)


def _messages(request: Request, form: Json | str | None) -> list[Json]:
    texts = [text for text in (request.instructions, form) if text and isinstance(text, str)]
    head: list[Json] = [{"role": "system", "content": "\n\n".join(texts)}] if texts else []
    tail: list[Json] = [{"role": "user", "content": notice} for notice in request.notices]
    said = write_openai(request.messages)
    for message in said:
        if message["role"] == "tool":  # the name of the tool is for other readers; this API has no such field
            message.pop("name", None)
            message["tool_call_id"] = call_id(message["tool_call_id"])
        for call in message.get("tool_calls", ()):
            call["id"], function = call_id(call["id"]), call["function"]
            function["name"] = tool_name(function["name"])
    return [*head, *said, *tail]


class _OpenAIEar(ReplyParser):
    """Hears chunks with a `delta`, or one reply with a `message`."""

    def __init__(self, provider: str | None, tell: Tell | None = None) -> None:
        super().__init__(provider, tell)
        self._indexed: dict[int, PartialCall] = {}

    def hear(self, event: Json) -> None:
        """Take a chunk. The last one may come behind the end: what was used."""
        self._head(event)
        for choice in list_of(event.get("choices"), "choices")[:1]:
            fields = dict_of(choice, "a choice")
            self._said(dict_of(fields.get("delta"), "a delta"))
            self._finished(fields.get("finish_reason"))

    def hear_whole(self, reply: Json) -> None:
        """Take a reply."""
        self._head(reply)
        for choice in list_of(reply.get("choices"), "choices")[:1]:
            fields = dict_of(choice, "a choice")
            if "message" in fields:
                self._said(dict_of(fields["message"], "a message"))
                self._finished(fields.get("finish_reason") or "stop")

    def _head(self, event: Json) -> None:
        if event.get("usage") is not None:
            self.use(event["usage"])
        if self.model is None and isinstance(event.get("model"), str):
            self.model = event["model"]

    def _said(self, said: Json) -> None:
        self.say(said.get("content"))
        self.say(said.get("refusal"))
        if said.get("reasoning_content") or said.get("reasoning"):
            self.pieces += 1
        for piece in list_of(said.get("tool_calls"), "tool_calls"):
            self.pieces += 1
            self._called(dict_of(piece, "a tool call"))

    def _called(self, piece: Json) -> None:
        """A call, or a further piece of one. Some servers leave the index out, or send 0 with every call."""
        function = dict_of(piece.get("function"), "a function")
        index, id, name = piece.get("index"), text_of(piece.get("id")), text_of(function.get("name"))
        index = index if isinstance(index, int) and 0 <= index < MOST_INDEXES else None
        call = None if index is None else self._indexed.get(index)
        if call is None or (id and call.id and id != call.id):
            call = PartialCall()
            self.calls.append(call)
            if index is not None:
                self._indexed[index] = call
        call.id, call.name = call.id or id, call.name or name
        call.hear(function.get("arguments"))

    def _finished(self, reason: object) -> None:
        if reason is not None:
            self.finish = _FINISHES.get(str(reason), Finish.STOP)
