"""A provider whose model never stops calling tools, and that checks requests as the real APIs do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from ..._internal.attachments import take_out_files
from ...models.scripted import Line, call, call_json, say
from ...request import Usage
from ...wire.bodies import Json, get_dict, get_dicts, get_int
from ...wire.formats import find_wire
from .checks import iter_problems
from .faults import Sendable, Sent, StatusReply, resolve_line, sent
from .offers import Offer, count_items, fill, list_offers
from .server import ModelServer, ReceivedRequest

_REPORT = "The report: the task is not finished."
_GO_ON = say("I need to go on.")
_MODELS = ("gpt-4o", "claude-sonnet-4-5", "gemini-2.5-flash")


class LoopingProvider(ModelServer):
    """Server whose model calls the first tool that it is offered in each reply, until the request forbids it.

    A request that the real API would refuse gets status 400. `refused` has the reasons. Without tools, the model asks
    to continue, in the schema of the request. A reply has `output_tokens`, or as many as the request allows, and its
    input grows with the body. Each alternative reply is billed, but only one is sent. `line` replaces the replies; as a
    function, it gets the body and may return None.
    """

    def __init__(
        self,
        line: Sendable | Callable[[Json], Sendable | None] | None = None,
        *,
        report: str | Line = _REPORT,
        tool: str | Sequence[str] | None = None,
        arguments: Mapping[str, Any] | None = None,
        output_tokens: int = 30,
        tokens_per_byte: float = 0.25,
        tells_usage: bool = True,
    ) -> None:
        super().__init__()
        self.refused: list[str] = []
        """Reasons for status 400."""
        self.billed: list[Usage] = []
        """Usage of each reply, reported or not."""
        self.other_paths: list[str] = []
        """Method and path of requests that ask for no reply of a model."""
        self._output_tokens = output_tokens
        self._tokens_per_byte = tokens_per_byte
        self._tells_usage = tells_usage
        self._line = line
        self._report = report if isinstance(report, Line) else say(report)
        self._tools = (tool,) if isinstance(tool, str) else tool
        self._arguments = arguments or {}

    @property
    def last_requests(self) -> int:
        """Number of requests that forbid calls, or ask for a report."""
        return sum(is_last_request(request.body) for request in self.requests)

    def receive_request(self, path: str, headers: dict[str, str], body: object) -> tuple[int, Sent | StatusReply]:
        """Record a request, and return its number and response."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(ReceivedRequest(path, headers, body))
        problem = next(iter_problems(path, body), None)
        if problem is not None:
            self.refused.append(problem)
            return number, StatusReply(400, problem)
        return number, resolve_line(self._bill(path, cast("Json", body)))

    def answer_other(self, method: str, path: str, body: object) -> object:
        """Return the lists of models and the counts of tokens that programs ask for."""
        with self._lock:
            self.other_paths.append(f"{method} {path}")
        if path.endswith("/count_tokens"):
            return {"input_tokens": self._count_tokens(body)}
        if path.endswith(":countTokens"):
            return {"totalTokens": self._count_tokens(body)}
        if path.endswith("/input_tokens"):
            return {"object": "response.input_tokens", "input_tokens": self._count_tokens(body)}
        if method == "GET" and path.endswith("/models"):
            models = [{"id": name, "object": "model", "type": "model", "name": f"models/{name}"} for name in _MODELS]
            return {"object": "list", "data": models, "models": models, "has_more": False}
        return None

    def _count_tokens(self, body: object) -> int:
        rest, file_tokens = take_out_files(body)
        return int(len(json.dumps(rest)) * self._tokens_per_byte) + file_tokens

    def _bill(self, path: str, body: Json) -> Sendable:
        wire = find_wire(path)
        request = None if wire is None else wire.parse_request(body, path)
        answer = self._answer(body)
        if answer is _GO_ON and request is not None and request.output_schema:
            answer = say(json.dumps(fill(request.output_schema, count_items(body))))
        line = answer.line if isinstance(answer, Sent) and answer.fault is None else answer
        if not isinstance(line, Line) or line.error is not None or request is None:
            return answer
        limit = request.max_output_tokens or self._output_tokens
        output_tokens = count_choices(body) * min(limit, self._output_tokens)
        usage = Usage(self._count_tokens(body), output_tokens)
        with self._lock:
            self.billed.append(usage)
        billed = line.using(usage if self._tells_usage else None)
        return replace(answer, line=billed) if isinstance(answer, Sent) else billed

    def _answer(self, body: Json) -> Sendable:
        if get_dicts(body, "input")[-1:] == [{"type": "compaction_trigger"}]:  # the Responses API compacts itself
            return sent(say(""), items=[{"type": "compaction", "encrypted_content": "c2VhbGVk"}])
        offers = list_offers(body)
        forced = _get_forced_tool(body, offers)
        if forced is not None:
            return self._call(next((offer for offer in offers if offer.name == forced), Offer(forced, {})), body)
        if is_last_request(body):
            return self._report
        scripted = self._line(body) if callable(self._line) else self._line
        if scripted is not None:
            return scripted
        if self._tools is not None:
            by_name = {offer.name: offer for offer in offers}
            offers = [by_name[name] for name in self._tools if name in by_name]
        if offers:
            return self._call(offers[0], body)
        return _GO_ON

    def _call(self, offer: Offer, body: Json) -> Line:
        number = count_items(body)
        own: Json = json.loads(json.dumps(dict(self._arguments)).replace("{n}", str(number)))
        if offer.is_free_text:
            return call_json(offer.name, str(own.get("input", f"// go on {number}")))
        known = get_dict(offer.schema, "properties")
        filled: Json = fill({"type": "object", **offer.schema}, number)
        return call(offer.name, **filled | {name: value for name, value in own.items() if name in known})


def count_choices(body: Json) -> int:
    """Return the number of alternative replies that a request asks for. Each is billed."""
    return get_int(body, "n") or get_int(get_dict(body, "generationConfig"), "candidateCount") or 1


def is_last_request(body: object) -> bool:
    """Check whether a request forbids calls, or asks for a report."""
    fields = cast("Json", body) if isinstance(body, dict) else {}
    if fields.get("tool_choice") in ("none", {"type": "none"}) or _get_mode(fields).get("mode") == "NONE":
        return True
    return "This is the last request of this conversation" in str(fields)


def _get_mode(body: Json) -> Json:
    return get_dict(get_dict(body, "toolConfig"), "functionCallingConfig")


def _get_forced_tool(body: Json, offers: Sequence[Offer]) -> str | None:
    choice: Any = body.get("tool_choice")
    if isinstance(choice, dict):
        fields = cast("Json", choice)
        name = fields.get("name") or get_dict(fields, "function").get("name")
        return name if isinstance(name, str) else None
    mode = _get_mode(body)
    allowed = [str(name) for name in cast("list[Any]", mode.get("allowedFunctionNames") or [])]
    return (allowed or [offer.name for offer in offers] or [None])[0] if mode.get("mode") == "ANY" else None
