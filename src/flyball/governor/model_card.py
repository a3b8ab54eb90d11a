"""Price and longest reply of the model of a governed loop, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ..budget.price import Price, TokenPrice
from ..budget.registry import IterationBudgetRegistry
from ..budget.spending import ModelPrice

if TYPE_CHECKING:
    from .govern_options import GovernOptions


@dataclass(frozen=True, slots=True)
class GovernedModel(ModelPrice):
    """Name, prices and longest reply of a model."""

    max_output_tokens: int | None = None
    tier_prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """Prices of service tiers by name."""
    fees: Mapping[str, int] = field(default_factory=dict[str, int])
    """Billionths of a dollar for each use of a tool that runs at the provider, by the kind of tool."""
    long_cache_price: TokenPrice | None = None
    """Price of a request whose cache lasts an hour. None means that of any other."""


_known: WeakKeyDictionary[IterationBudgetRegistry, dict[str, GovernedModel]] = WeakKeyDictionary()
"""Models by name and registry, whose settings have prices. To look one up takes as long as several turns."""


def find_model(options: GovernOptions) -> GovernedModel:
    """Return the model of these options. A name such as `openai:gpt-4o` is looked up, also for another base URL."""
    return find_named_model(options.model, options)


def find_named_model(model: str, options: GovernOptions) -> GovernedModel:
    """Return the model of this name for a run with these options."""
    provider, _, name = model.partition(":")
    caps, price, tiers = [options.max_output_tokens], options.price, dict[str, TokenPrice]()
    fees: Mapping[str, int] = {}
    long_cache_price: TokenPrice | None = None
    if name and not name.startswith("//"):
        from ..models import catalog  # imported here, because the tables are large
        from ..models.by_name import provider_of
        from ..models.output_limits import max_output_tokens_of
        from ..settings import Settings

        provider = provider_of(provider)
        caps.append(max_output_tokens_of(provider, name))
        fees = catalog.fees_of(provider, name)
        if price is None:
            settings = Settings.load() if options.registry is None else options.registry.settings
            price = catalog.price_of(provider, name, settings)
            if price == catalog.price_of(provider, name):  # the tiers of the settings' own price are not known
                tiers = catalog.tier_prices_of(provider, name)
                long_cache_price = catalog.long_cache_price_of(provider, name)
    reserve_price = price.highest(*tiers.values()) if isinstance(price, TokenPrice) else price
    max_output_tokens = min((cap for cap in caps if cap is not None), default=None)
    return GovernedModel(name or provider, price, reserve_price, max_output_tokens, tiers, fees, long_cache_price)


def find_known_model(model: str, options: GovernOptions) -> GovernedModel:
    """Return the model of this name in the same way. Runs with the same registry look it up once."""
    if options.registry is None or options.price is not None or options.max_output_tokens is not None:
        return find_named_model(model, options)
    known = _known.setdefault(options.registry, {})
    if model not in known:
        known[model] = find_named_model(model, options)
    return known[model]
