"""Tools that run at the provider, such as a web search: one request may make many calls, and they may cost money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from ..budget.price import Price
from ..budget.usage import Usage
from ..governor.model_card import GovernedModel
from ..wire.bodies import Json, get_dict, get_dicts
from ..wire.formats import ANTHROPIC, GEMINI, RESPONSES
from ..wire.wire import Wire

MAX_PAID_USES = 5
"""Uses of tools with a fee that one request may make while money is limited."""
_KINDS = (
    "web_search", "web_fetch", "code_execution", "file_search", "code_interpreter", "image_generation", "mcp",
)  # fmt: skip
"""Kinds of such tools: starts of their types. Others, such as `bash_...`, run in the program."""
_GEMINI_KINDS = {
    "googleSearch": "web_search",
    "googleSearchRetrieval": "web_search",
    "enterpriseWebSearch": "web_search",
    "googleMaps": "google_maps",
    "fileSearch": "mcp",
    "urlContext": "web_fetch",
    "codeExecution": "mcp",
}
"""Kinds of Gemini's tools by their keys. Those that cost only tokens count as `mcp`."""
_FREE = frozenset({"web_fetch", "mcp"})
"""Kinds that cost only tokens."""
_WITH_MAX_USES = ("web_search", "web_fetch")
"""Kinds of Anthropic's tools that know `max_uses`."""
_CALL_KINDS = {
    **{f"{kind}_call": kind for kind in _KINDS},
    "computer_call": "computer",
}
"""Kinds by the type of a call in a response."""

_TELLING = frozenset({"usage", "output", "candidates", "response", "message", "item"})
"""Keys of events that may tell of calls."""


@dataclass(frozen=True, slots=True)
class PriceWithFee:
    """Price of a request whose tools at the provider cost a fee."""

    price: Price
    fee: int
    """Billionths of a dollar."""

    def cost(self, usage: Usage) -> int:
        """Return the cost of the request with its fee, in billionths of a dollar."""
        return self.price.cost(usage) + self.fee


def add_fee(model: GovernedModel, fee: int) -> GovernedModel:
    """Return the model with prices for a request that also costs this fee."""
    if not fee or model.price is None:
        return model
    reserve_price = model.reserve_price or model.price
    tiers = {name: PriceWithFee(price, fee) for name, price in model.tier_prices.items()}
    return replace(
        model, price=PriceWithFee(model.price, fee), reserve_price=PriceWithFee(reserve_price, fee), tier_prices=tiers
    )


def find_kinds(body: Json, wire: Wire) -> set[str]:
    """Return the kinds of the tools in a request that run at the provider."""
    kinds = {kind for tool in get_dicts(body, "tools") if (kind := _find_kind(tool, wire)) is not None}
    return kinds | ({"web_search"} if body.get("web_search_options") is not None else set())


def compute_max_fee(body: Json, wire: Wire, fees: Mapping[str, int]) -> int:
    """Return the highest fee of a request, in billionths of a dollar, when its tools are limited."""
    paid = [fees[kind] for kind in find_kinds(body, wire) if kind in fees]
    if wire is ANTHROPIC:  # each tool has its own maximum
        return MAX_PAID_USES * sum(paid)
    return max(paid, default=0) * (1 if body.get("web_search_options") is not None else MAX_PAID_USES)


def find_unpriced_kinds(body: Json, wire: Wire, fees: Mapping[str, int]) -> set[str]:
    """Return the kinds of offered tools that cost an unknown fee."""
    return find_kinds(body, wire) - _FREE - set(fees)


def drop_tools(body: Json, wire: Wire, kinds: set[str]) -> Json:
    """Return a request that does not offer tools of these kinds."""
    kept = dict(body)
    if "web_search" in kinds:
        kept.pop("web_search_options", None)
    if "tools" in body:
        tools = cast("list[Any]", body["tools"])
        kept["tools"] = [tool for tool in tools if not isinstance(tool, dict) or _find_kind(tool, wire) not in kinds]  # pyright: ignore[reportUnknownArgumentType]
    choice: Any = kept.get("tool_choice")
    if not kept.get("tools"):
        for key in ("tools", "tool_choice", "parallel_tool_calls"):
            kept.pop(key, None)
    elif isinstance(choice, dict) and str(cast("Json", choice).get("type")).startswith(tuple(kinds)):
        kept.pop("tool_choice")
    return kept


def limit_server_tools(body: Json, wire: Wire, ceiling: int, left: int) -> bool:
    """Limit the calls that a request may make at the provider; return whether the body was changed.

    Anthropic's tools get the ceiling of the run, which does not change, so that the prompt cache is kept.
    """
    changed = False
    if wire is RESPONSES:
        asked = body.get("max_tool_calls")
        wanted = max(1, min(asked, left) if isinstance(asked, int) else left)
        changed, body["max_tool_calls"] = asked != wanted, wanted
    elif wire is ANTHROPIC:
        tools: list[Any] = []
        for tool in cast("list[Any]", body["tools"]):
            fields = cast("Json", tool) if isinstance(tool, dict) else Json()
            uses = fields.get("max_uses")
            if _find_kind(fields, wire) in _WITH_MAX_USES and (not isinstance(uses, int) or uses > ceiling):
                tools.append(fields | {"max_uses": max(1, ceiling)})
                changed = True
            else:
                tools.append(tool)
        body["tools"] = tools
    return changed


class ServerCallCounter:
    """Counts the calls at the provider that a reply tells of, whole or in events."""

    def __init__(self) -> None:
        self._told: Counter[str] = Counter()
        self._items: dict[object, str] = {}
        """Kinds of calls by the indexes of their items."""

    def note(self, data: Json) -> None:
        """Note a whole reply, or an event of a stream."""
        if "choices" in data or _TELLING.isdisjoint(data):  # most events: a reply has hundreds
            return
        source = dict(data)
        for key in ("response", "message"):
            source = get_dict(source, key) or source
        self._told |= _count_used(source) | _count_output(source) | _count_queries(source)
        kind = _CALL_KINDS.get(str(get_dict(data, "item").get("type")))
        if kind is not None:
            self._items[data.get("output_index")] = kind

    @property
    def counts(self) -> Counter[str]:
        """Calls by the kind of tool."""
        return self._told | Counter(self._items.values()) if self._items else self._told

    @property
    def total(self) -> int:
        """Number of all calls."""
        return sum(self.counts.values())


def _count_used(source: Json) -> Counter[str]:
    used = get_dict(get_dict(source, "usage"), "server_tool_use")
    counts = {name.removesuffix("_requests"): count for name, count in used.items() if isinstance(count, int)}
    return Counter({name: count for name, count in counts.items() if count > 0})


def _count_output(source: Json) -> Counter[str]:
    kinds = [_CALL_KINDS.get(str(item.get("type"))) for item in get_dicts(source, "output")]
    return Counter(kind for kind in kinds if kind is not None)


def _count_queries(source: Json) -> Counter[str]:
    grounding = [get_dict(candidate, "groundingMetadata") for candidate in get_dicts(source, "candidates")]
    queries: list[Any] = [query for item in grounding for query in item.get("webSearchQueries") or ()]
    return Counter({"web_search": len(queries)}) if queries else Counter()


def _find_kind(tool: Json, wire: Wire) -> str | None:
    if wire is GEMINI:
        keys = [_to_camel(key) for key in tool]
        return next((_GEMINI_KINDS[key] for key in keys if key in _GEMINI_KINDS), None)
    return next((kind for kind in _KINDS if str(tool.get("type")).startswith(kind)), None)


def _to_camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.capitalize() for word in rest)
