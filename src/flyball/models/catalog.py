"""The catalog: prices and context sizes of models by name.

The user's own prices are in `[prices]` of the settings. All others come from the installed package genai-prices.
Nothing is fetched, and the package is imported only when the catalog is used.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from .._internal import validation
from ..budget.price import Price, Tier, TokenPrice
from ..errors import ConfigError, SettingError, suggest_names
from ..settings import Setting, Settings
from ..unit import NANO, Unit
from .model import Model

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

TEST_PROVIDER = "flyball"
"""Provider of test models, which cost nothing and are in no table."""
_PRICE_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "written": "cache_write_mtok",
}
_LONG_CACHE_FIELDS = _PRICE_FIELDS | {"written": "cache_write_1h_mtok"}
"""The same for requests that write to a cache for an hour, which only programs under a gateway do."""
_UNUSED_PRICE_FIELDS = {
    "cache_audio_read_mtok",
    "cache_write_1h_mtok",
    "input_audio_mtok",
    "storage_searches_kcount",
    "web_searches_kcount",
}
"""Extra costs that no request of ours causes."""
_USUAL_TIERS = frozenset({"auto", "default", "standard", "standard_only", "flex", "batch"})
"""Service tiers that cost at most the usual price."""
_FEE_FIELDS = {"web_search": "web_searches_kcount", "file_search": "storage_searches_kcount"}
"""Fields of fees for a thousand uses of a tool that runs at the provider, by the tool."""


def find_price(model: Model, settings: Settings) -> Price | None:
    """Return a model's price: its own, the settings', or the catalog's for its service tier.

    None means that it is not known, as for a faster tier that the catalog does not have.
    """
    if model.price is not None:
        return model.price
    price, tier = price_of(model.provider, model.name, settings), getattr(model, "service_tier", None)
    if tier is None or price is None or price != price_of(model.provider, model.name):
        return price  # the tiers of the settings' own price are not known
    usual = price if tier.lower() in _USUAL_TIERS else None
    return tier_prices_of(model.provider, model.name).get(tier.lower(), usual)


def price_of(provider: str | None, name: str, settings: Settings | None = None) -> TokenPrice | None:
    """Return the price of a model's tokens. None means unknown.

    >>> price_of("acme", "one", Settings({"prices": {"acme:one": {"input": 0.5, "output": 1.5}}}))
    TokenPrice(input=0.5, output=1.5, cached=None, written=None, tiers=())
    """
    if settings is not None:
        for key in (f"{provider}:{name}", name) if provider else (name,):
            setting = settings.at("prices", key)
            if setting is not None:
                return _parse_price(settings, setting, key)
    model = _find_model(provider, name)
    return None if model is None else _to_token_price(list(_iter_current_prices(model)))


def tier_prices_of(provider: str | None, name: str) -> dict[str, TokenPrice]:
    """Return the prices of a model's service tiers, such as `priority`. Empty means that it has one price."""
    model = _find_model(provider, name)
    now, prices = datetime.now(UTC), dict[str, TokenPrice]()
    variants: Sequence[Any] = getattr(model, "price_variants", None) or ()
    for variant in variants:
        if model is None or set(variant.when) != {"service_tier"}:
            continue
        if variant.constraint is None or variant.constraint.active(now):
            fields = cast("dict[str, Any]", vars(variant.prices))
            changes = {field: value for field, value in fields.items() if value is not None}
            price = _to_token_price([type(base)(**{**vars(base), **changes}) for base in _iter_current_prices(model)])
            if price is not None:
                prices[str(variant.when["service_tier"])] = price
    return prices


def long_cache_price_of(provider: str | None, name: str) -> TokenPrice | None:
    """Return the price of a model's tokens in requests that write to a cache for an hour. None means the usual one."""
    model = _find_model(provider, name)
    prices = [] if model is None else list(_iter_current_prices(model))
    has_price = prices and all(getattr(price, "cache_write_1h_mtok", None) is not None for price in prices)
    return _to_token_price(prices, _LONG_CACHE_FIELDS) if has_price else None


def fees_of(provider: str | None, name: str) -> dict[str, int]:
    """Return the fees for each use of the provider's own tools, in billionths of a dollar. Tools without a known fee
    are left out."""
    model = _find_model(provider, name)
    prices = [] if model is None else [vars(price) for price in _iter_current_prices(model)]
    known = {tool: [price[field] for price in prices if price.get(field)] for tool, field in _FEE_FIELDS.items()}
    return {
        tool: math.ceil(max(fees) * NANO / 1_000)
        for tool, fees in known.items()
        if fees and all(isinstance(fee, Decimal) for fee in fees)
    }


def context_tokens_of(provider: str | None, name: str) -> int | None:
    """Return the size of a model's context window in tokens.

    None means unknown.
    """
    model = _find_model(provider, name)
    return None if model is None else model.context_window


def iter_known_models(providers: Sequence[str]) -> Iterator[tuple[str, str, TokenPrice | None, int | None]]:
    """Yield provider, name, price and context size of known models.

    Deprecated models are left out.
    """
    from genai_prices.data_snapshot import get_snapshot

    by_id = {provider.id: provider for provider in get_snapshot().providers}
    for provider in providers:
        for model in by_id[provider].models:
            if not model.deprecated:
                yield provider, model.id, _to_token_price(list(_iter_current_prices(model))), model.context_window


def find_price_errors(settings: Settings) -> list[SettingError]:
    """Return the errors in `[prices]`, at most one per table."""
    errors: list[SettingError] = []
    try:
        tables = settings.at("prices")
        for key in _require_table(tables, "a table for each model") if tables is not None else ():
            try:
                price_of(None, key, settings)
            except SettingError as error:
                errors.append(error)
    except SettingError as error:
        errors.append(error)
    return errors


def _parse_price(settings: Settings, setting: Setting, key: str) -> TokenPrice:
    expected = "input and output, and optionally cached and written, in dollars per million tokens"
    prices: dict[str, Any] = {}
    for name in _require_table(setting, f"a table with {expected}"):
        field = settings.at("prices", key, name)
        assert field is not None, "it is in the table"
        if name not in _PRICE_FIELDS:
            names = suggest_names(name, _PRICE_FIELDS)[:1] or [*_PRICE_FIELDS]
            raise SettingError(field.key, field.source, name, f"the key {' or '.join(names)}")
        _check_amount(field)
        prices[name] = field.value
    if "input" not in prices or "output" not in prices:
        raise setting.error(expected)
    return TokenPrice(**prices)


def _require_table(setting: Setting, expected: str) -> Mapping[str, object]:
    value = setting.value
    if not isinstance(value, Mapping):
        raise setting.error(expected)
    return cast("Mapping[str, object]", value)


def _check_amount(setting: Setting) -> None:
    try:
        validation.parse_amount(setting.key, setting.value, Unit.USD)
    except ConfigError:
        raise setting.error("dollars per million tokens, such as 0.5, at least 0") from None


def _find_model(provider: str | None, name: str) -> ModelInfo | None:
    """Return the model from the table of exactly this provider.

    Another provider's price would be a guess.
    """
    if provider is None or provider == TEST_PROVIDER or ":" in provider:  # a colon means host:port
        return None
    from genai_prices.data_snapshot import get_snapshot

    providers = get_snapshot().providers
    match = next((entry for entry in providers if entry.id == provider.lower()), None)
    return None if match is None else match.find_model(name, all_providers=providers)


def _iter_current_prices(model: ModelInfo) -> Iterator[ModelPrice]:
    """Yield today's prices: several if they depend on the time of day."""
    from genai_prices.types import ModelPrice, TimeOfDateConstraint

    if isinstance(model.prices, ModelPrice):
        yield model.prices
        return
    now = datetime.now(UTC)
    for entry in reversed(model.prices):
        if isinstance(entry.constraint, TimeOfDateConstraint):
            yield entry.prices
        elif entry.constraint is None or entry.constraint.active(now):
            yield entry.prices
            return


def _to_token_price(
    prices: Sequence[ModelPrice], fields: Mapping[str, str] = MappingProxyType(_PRICE_FIELDS)
) -> TokenPrice | None:
    """Return the highest of these prices per token.

    None means that the provider also bills something that Flyball does not count.
    """
    for price in prices:
        billed = {name for name, value in vars(price).items() if value is not None}
        if not {"input_mtok", "output_mtok"} <= billed <= {*_PRICE_FIELDS.values(), *_UNUSED_PRICE_FIELDS}:
            return None
    values: list[Any] = [value for price in prices for value in vars(price).values()]
    starts = sorted({tier.start for value in values for tier in getattr(value, "tiers", ())})
    if not prices:
        return None
    tiers = tuple(Tier(above=start, **_build_price_row(prices, fields, start + 1)) for start in starts)
    return TokenPrice(**_build_price_row(prices, fields, 0), tiers=tiers)


def _build_price_row(prices: Sequence[ModelPrice], fields: Mapping[str, str], input_tokens: int) -> dict[str, float]:
    """Return the price of each kind of token for this input size."""
    rows: list[dict[str, Decimal]] = []
    for price in prices:
        row = {kind: _select_tier_price(getattr(price, name), input_tokens) for kind, name in fields.items()}
        rows.append({kind: dollars for kind, dollars in row.items() if dollars is not None})
    kinds = {kind for row in rows for kind in row}
    return {kind: float(max(row.get(kind, row["input"]) for row in rows)) for kind in sorted(kinds)}


def _select_tier_price(price: Any, input_tokens: int) -> Decimal | None:
    """Return the price for this input size.

    Above a tier's start, the tier's price holds for all tokens.
    """
    if price is None or isinstance(price, Decimal):
        return price
    tiers = [tier.price for tier in price.tiers if input_tokens > tier.start]
    return tiers[-1] if tiers else price.base
