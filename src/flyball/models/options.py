"""What a model behind HTTP can be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast

from .._internal import validation
from ..budget.price import Price
from ..errors import ConfigError

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """Seconds; None waits as long as the run may. Whatever it says, a run's deadline comes first.

    Without streaming a reply comes in one piece, and `first` is for all of it.
    """

    connect: float | None = 10.0
    first: float | None = 300.0
    """Until the first token: a model that thinks may be silent for minutes."""
    between: float | None = 60.0
    """Between one token and the next; what a server sends just to keep a connection open is none."""
    whole: float | None = None

    def __post_init__(self) -> None:
        for name in ("connect", "first", "between", "whole"):
            validation.parse_timeout(f"patience, {name}", getattr(self, name))


class HttpOptions(TypedDict, total=False):
    """What a model behind HTTP takes beside its name. Everything may be left out."""

    key: str | None
    """The key; else it is taken from the environment when it is needed."""
    url: str
    """Where the API is: as their own clients want it, OpenAI's with its version (`/v1`), Anthropic's without."""
    provider: str
    """What results, events and price lists call whoever runs it; else it is known from the url."""
    headers: Mapping[str, str]
    """Further headers of every request."""
    body: Mapping[str, Any]
    """Further fields of every request, such as `service_tier`; one that is a table is put together with ours."""
    tool_choice: str
    """`auto`, `required`, `none`, or the name of the tool that must be called."""
    parallel_calls: bool
    """Whether one reply may ask for several calls; else as the provider likes it."""
    stream: bool
    """Whether the text comes piece by piece, which it does unless this is False."""
    patience: Timeouts
    max_output_tokens: int | None
    """The most that one reply may have where tokens or money are limited; the model itself may allow less."""
    context_tokens: int | None
    """How much the model can read; else it is looked up."""
    price: Price | None
    """What its tokens cost; else it is looked up."""
    client: httpx2.AsyncClient
    """A client of your own, with your proxies and certificates; it serves one event loop, and is yours to close."""


_RESERVED_FIELDS = {
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
_TOOL_CHOICES = ("auto", "required", "none")


class RequestOptions:
    """The checked options of a request."""

    def __init__(self, name: str, options: HttpOptions) -> None:
        validation.check_text("model, name", name)
        validation.check_options(f"model {name}", options, HttpOptions.__annotations__)
        validation.check_optional_int(f"model {name}, max_output_tokens", options.get("max_output_tokens"), min_value=1)
        validation.check_optional_int(f"model {name}, context_tokens", options.get("context_tokens"), min_value=1)
        self.body = _validate_body(name, options.get("body", {}))
        self.tool_choice: str | None = options.get("tool_choice")
        self.parallel: bool | None = options.get("parallel_calls")
        if self.tool_choice is not None:
            validation.check_text(f"model {name}, tool_choice", self.tool_choice)
        for option in ("parallel_calls", "stream"):
            if option in options:
                validation.check_type(f"model {name}, {option}", options.get(option), bool)

    @property
    def forced_tool(self) -> str | None:
        """The one tool that must be called, if it is one by name."""
        return None if self.tool_choice in (None, *_TOOL_CHOICES) else self.tool_choice

    def merge_into(self, body: dict[str, Any]) -> dict[str, Any]:
        """The body with the user's fields; of one that both have and that has fields itself, these are put together."""
        for field, value in self.body.items():
            both = isinstance(value, dict) and isinstance(body.get(field), dict)
            body[field] = body[field] | value if both else value
        return body


def _validate_body(name: str, value: object) -> dict[str, Any]:
    where = f"model {name}, body"
    if not isinstance(value, Mapping):
        raise ConfigError(where, value, "fields of a request by name")
    body = dict(cast("Mapping[str, Any]", value))
    for field in body:
        if field in _RESERVED_FIELDS:
            raise ConfigError(f"{where}, {field}", body[field], f"not there, but as {_RESERVED_FIELDS[field]}")
    try:
        json.dumps(body, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(where, str(error), "values that JSON can carry") from None
    return body
