"""The catalog: what is known of models by their names: what their tokens cost, and how much they take at once.

A user's own word is in `[prices]` of the settings. All else is in the table of the package genai-prices as it was
installed: nothing is fetched, and the package is loaded only when somebody looks there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from .._internal import validation
from ..budget.price import Price, Tier, TokenPrice
from ..errors import ConfigError, SettingError, suggest_names
from ..settings import Setting, Settings
from ..unit import Unit
from .model import Model

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

TEST_PROVIDER = "flyball"
"""The provider of models that cost nothing and are in no table: those of tests."""
_PRICE_FIELDS = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cached": "cache_read_mtok",
    "written": "cache_write_mtok",
}
_UNUSED_PRICE_FIELDS = {
    "cache_audio_read_mtok",
    "cache_write_1h_mtok",
    "input_audio_mtok",
    "storage_searches_kcount",
    "web_searches_kcount",
}
"""What costs extra, and no request of ours asks for."""


def find_price(model: Model, settings: Settings) -> Price | None:
    """What a model's tokens cost: its own word, else that of the settings, else that of the table."""
    return price_of(model.provider, model.name, settings) if model.price is None else model.price


def price_of(provider: str | None, name: str, settings: Settings | None = None) -> TokenPrice | None:
    """What the tokens of a known model cost; None where nobody knows.

    >>> price_of("acme", "one", Settings({"prices": {"acme:one": {"input": 0.5, "output": 1.5}}}))
    TokenPrice(input=0.5, output=1.5, cached=None, written=None, tiers=())
    """
    if settings is not None:
        for key in (f"{provider}:{name}", name) if provider else (name,):
            told = settings.at("prices", key)
            if told is not None:
                return _parse_price(settings, told, key)
    known = _find_model(provider, name)
    return None if known is None else _to_token_price(list(_iter_current_prices(known)))


def context_tokens_of(provider: str | None, name: str) -> int | None:
    """How many tokens a known model takes at once; None where nobody knows."""
    known = _find_model(provider, name)
    return None if known is None else known.context_window


def iter_known_models(providers: Sequence[str]) -> Iterator[tuple[str, str, TokenPrice | None, int | None]]:
    """The models of these providers that are in the table and not on their way out: provider, name, price, context."""
    from genai_prices.data_snapshot import get_snapshot

    known = {one.id: one for one in get_snapshot().providers}
    for provider in providers:
        for model in known[provider].models:
            if not model.deprecated:
                yield provider, model.id, _to_token_price(list(_iter_current_prices(model))), model.context_window


def find_price_errors(settings: Settings) -> list[SettingError]:
    """What cannot be used in `[prices]`, table by table."""
    wrong: list[SettingError] = []
    try:
        tables = settings.at("prices")
        for key in _require_table(tables, "a table for each model") if tables is not None else ():
            try:
                price_of(None, key, settings)
            except SettingError as error:
                wrong.append(error)
    except SettingError as error:
        wrong.append(error)
    return wrong


def _parse_price(settings: Settings, setting: Setting, key: str) -> TokenPrice:
    expected = "input and output, and perhaps cached and written, in dollars for a million tokens"
    given: dict[str, Any] = {}
    for name in _require_table(setting, f"a table with {expected}"):
        one = settings.at("prices", key, name)
        assert one is not None, "it is in the table"
        if name not in _PRICE_FIELDS:
            meant = suggest_names(name, _PRICE_FIELDS)[:1] or [*_PRICE_FIELDS]
            raise SettingError(one.key, one.source, name, f"the key {' or '.join(meant)}")
        _check_amount(one)
        given[name] = one.value
    if "input" not in given or "output" not in given:
        raise setting.error(expected)
    return TokenPrice(**given)


def _require_table(setting: Setting, expected: str) -> Mapping[str, object]:
    value = setting.value
    if not isinstance(value, Mapping):
        raise setting.error(expected)
    return cast("Mapping[str, object]", value)


def _check_amount(setting: Setting) -> None:
    try:
        validation.parse_amount(setting.key, setting.value, Unit.USD)
    except ConfigError:
        raise setting.error("dollars for a million tokens, such as 0.5, at least 0") from None


def _find_model(provider: str | None, name: str) -> ModelInfo | None:
    """The model in the table, of the provider that has exactly this name: another's price would be a guess."""
    if provider is None or provider == TEST_PROVIDER or ":" in provider:  # no provider is called like a server's port
        return None
    from genai_prices.data_snapshot import get_snapshot

    providers = get_snapshot().providers
    found = next((one for one in providers if one.id == provider.lower()), None)
    return None if found is None else found.find_model(name, all_providers=providers)


def _iter_current_prices(model: ModelInfo) -> Iterator[ModelPrice]:
    """The prices that hold today: several where they change with the time of day."""
    from genai_prices.types import ModelPrice, TimeOfDateConstraint

    if isinstance(model.prices, ModelPrice):
        yield model.prices
        return
    now = datetime.now(UTC)
    for one in reversed(model.prices):
        if isinstance(one.constraint, TimeOfDateConstraint):
            yield one.prices
        elif one.constraint is None or one.constraint.active(now):
            yield one.prices
            return


def _to_token_price(prices: Sequence[ModelPrice]) -> TokenPrice | None:
    """The price by tokens, the dearest of several; None where something else is billed too, which nobody counts."""
    for price in prices:
        billed = {name for name, value in vars(price).items() if value is not None}
        if not {"input_mtok", "output_mtok"} <= billed <= {*_PRICE_FIELDS.values(), *_UNUSED_PRICE_FIELDS}:
            return None
    values: list[Any] = [value for price in prices for value in vars(price).values()]
    starts = sorted({tier.start for value in values for tier in getattr(value, "tiers", ())})
    if not prices:
        return None
    tiers = tuple(Tier(above=start, **_build_price_row(prices, start + 1)) for start in starts)
    return TokenPrice(**_build_price_row(prices, 0), tiers=tiers)


def _build_price_row(prices: Sequence[ModelPrice], input_tokens: int) -> dict[str, float]:
    """What each kind of token costs in a request with so many tokens of input."""
    rows: list[dict[str, Decimal]] = []
    for price in prices:
        row = {kind: _select_tier_price(getattr(price, name), input_tokens) for kind, name in _PRICE_FIELDS.items()}
        rows.append({kind: dollars for kind, dollars in row.items() if dollars is not None})
    kinds = {kind for row in rows for kind in row}
    return {kind: float(max(row.get(kind, row["input"]) for row in rows)) for kind in sorted(kinds)}


def _select_tier_price(price: Any, input_tokens: int) -> Decimal | None:
    """The price for so much input; above a tier's start that tier's holds for all tokens."""
    if price is None or isinstance(price, Decimal):
        return price
    tiers = [tier.price for tier in price.tiers if input_tokens > tier.start]
    return tiers[-1] if tiers else price.base
