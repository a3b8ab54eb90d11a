"""What a user wants of a model beside an answer: which tools it may choose, and further fields of the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from .._internal import validation
from ..errors import ConfigError
from .options import HttpOptions

_OURS = {
    "model": "the model's name, given first",
    "messages": "the task of the run",
    "system": "instructions= of the agent",
    "tools": "tools= of the agent",
    "tool_choice": "tool_choice= of the model",
    "parallel_tool_calls": "parallel_calls= of the model",
    "stream": "stream= of the model",
    "stream_options": "stream= of the model",
    "max_tokens": "max_output_tokens= of the model or the agent",
    "max_completion_tokens": "max_output_tokens= of the model or the agent",
    "n": "one reply for each request; start several runs",
}
"""Fields that a limit, a pair of call and result, or the reading of the reply depends on."""
_CHOICES = ("auto", "required", "none")


class Wish:
    """The checked options of a request."""

    def __init__(self, name: str, options: HttpOptions) -> None:
        validation.text("model, name", name)
        validation.options(f"model {name}", options, HttpOptions.__annotations__)
        validation.whole_or_none(f"model {name}, max_output_tokens", options.get("max_output_tokens"), least=1)
        validation.whole_or_none(f"model {name}, context_tokens", options.get("context_tokens"), least=1)
        self.body = _body(name, options.get("body", {}))
        self.tool_choice: str | None = options.get("tool_choice")
        self.parallel: bool | None = options.get("parallel_calls")
        if self.tool_choice is not None:
            validation.text(f"model {name}, tool_choice", self.tool_choice)
        for option in ("parallel_calls", "stream"):
            if option in options:
                validation.kind(f"model {name}, {option}", options.get(option), bool)

    @property
    def forced_tool(self) -> str | None:
        """The one tool that must be called, if it is one by name."""
        return None if self.tool_choice in (None, *_CHOICES) else self.tool_choice

    def added(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with the user's fields; of one that both have and that has fields itself, these are put together."""
        for field, value in self.body.items():
            both = isinstance(value, dict) and isinstance(body.get(field), dict)
            body[field] = body[field] | value if both else value
        return body


def _body(name: str, given: object) -> dict[str, Any]:
    where = f"model {name}, body"
    if not isinstance(given, Mapping):
        raise ConfigError(where, given, "fields of a request by name")
    body = dict(cast("Mapping[str, Any]", given))
    for field in body:
        if field in _OURS:
            raise ConfigError(f"{where}, {field}", body[field], f"not there, but as {_OURS[field]}")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(where, str(error), "values that JSON can carry") from None
    return body
