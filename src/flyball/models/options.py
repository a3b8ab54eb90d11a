"""What a model behind HTTP can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypedDict

from ..budget.price import Price
from .patience import Patience

if TYPE_CHECKING:
    import httpx2


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
    patience: Patience
    max_output_tokens: int | None
    """The most that one reply may have where tokens or money are limited; the model itself may allow less."""
    context_tokens: int | None
    """How much the model can read; else it is looked up."""
    price: Price | None
    """What its tokens cost; else it is looked up."""
    client: httpx2.AsyncClient
    """A client of your own, with your proxies and certificates; it serves one event loop, and is yours to close."""
