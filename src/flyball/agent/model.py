"""Models of an agent: found by name, checked, and described for the loop."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from .._internal import validation
from ..budget.budget import IterationBudget
from ..budget.model_limits import matches_model, split_key
from ..errors import ConfigError, UsageError
from ..loop.plan import ModelCard, ModelSpec
from ..models import Model
from ..models.catalog import context_tokens_of, find_price
from ..settings import Settings

_PORTS = {"http": 80, "https": 443}


def build_model_spec(
    model: Model | str,
    others: Mapping[str, Model | str],
    fallbacks: Sequence[Model | str],
    settings: Settings,
    max_output_tokens: int | None,
) -> ModelSpec:
    """Return the spec of an agent's model, of those that its rules can switch to, and of its fallback models."""
    other_models = {name: resolve_model(f"agent, models, {name}", other) for name, other in others.items()}
    fallback_names = _add_fallbacks(fallbacks, other_models)
    main = resolve_model("agent, model", model)
    cards = {"": build_model_card("agent, model", main, settings, max_output_tokens)}
    for name, other in other_models.items():
        where = f"agent, {name if name in fallback_names and name not in others else f'models, {name}'}"
        cards[name] = build_model_card(where, other, settings, max_output_tokens)
    return ModelSpec(
        main=main,
        is_async=inspect.iscoroutinefunction(main.ask),
        cards=cards,
        others=other_models,
        fallbacks=fallback_names,
        max_output_tokens=max_output_tokens,
    )


def _add_fallbacks(fallbacks: Sequence[Model | str], models: dict[str, Model]) -> tuple[str, ...]:
    """Add the fallback models that `models` does not have, and return the names of all, in their order."""
    names: list[str] = []
    for n, given in enumerate(fallbacks):
        name = given if isinstance(given, str) and given in models else f"fallback_models[{n}]"
        if name not in models:
            models[name] = resolve_model(f"agent, {name}", given)
        if name in names:
            raise ConfigError("agent, fallback_models", name, "each model once")
        names.append(name)
    return tuple(names)


def resolve_model(where: str, model: Any) -> Model:
    """Return the model, or the one that a text names. Raise ConfigError for anything else."""
    if isinstance(model, str):
        from ..models.by_name import named  # lazy: it imports the HTTP client

        return named(model, where)
    missing = [name for name in ("name", "provider", "price") if not hasattr(model, name)]
    missing += [name for name in ("ready", "ask") if not callable(getattr(model, name, None))]
    if missing or isinstance(model, type):
        expected = "a name such as openai:gpt-5.5, or an object with name, provider, price, ready() and ask()"
        raise ConfigError(where, model, expected)
    if model.price is not None and not callable(getattr(model.price, "cost", None)):
        raise ConfigError(f"{where}'s price", model.price, "a price, such as a TokenPrice, or None")
    count = getattr(model, "count", None)
    if count is not None and not callable(count):
        raise ConfigError(f"{where}'s count", count, "a method that counts the tokens of a request, or None")
    return model


def build_model_card(where: str, model: Model, settings: Settings, max_output_tokens: int | None) -> ModelCard:
    """Return the facts about a model that limit what it may be asked."""
    own = validation.check_optional_int(
        f"{where}'s max_output_tokens", getattr(model, "max_output_tokens", None), min_value=1
    )
    context = validation.check_optional_int(
        f"{where}'s context_tokens", getattr(model, "context_tokens", None), min_value=1
    )
    least = validation.check_int(f"{where}'s min_output_tokens", getattr(model, "min_output_tokens", 1), min_value=1)
    longest = min((most for most in (own, max_output_tokens) if most is not None), default=None)
    if longest is not None and longest < least:
        raise ConfigError(f"{where}'s max_output_tokens", longest, f"at least {least}: its provider accepts no less")
    return ModelCard(
        price=find_price(model, settings),
        max_output_tokens=longest,
        min_output_tokens=least,
        context_tokens=context_tokens_of(model.provider, model.name) if context is None else context,
        count=getattr(model, "count", None),
        server=_find_server(getattr(model, "address", None)),
    )


def _find_server(address: object) -> str | None:
    """Return host and port of a URL, without a user or a password. None if it is no such URL."""
    try:
        parts = urlsplit(address) if isinstance(address, str) else None
        port = None if parts is None else parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return f"{parts.hostname}:{port}" if parts is not None and parts.hostname and port else None


def check_model_money_limits(budgets: Mapping[str, IterationBudget], models: ModelSpec) -> None:
    """Raise UsageError if a model has a money limit of its own and its price is unknown."""
    for key, budget in budgets.items():
        split = split_key(key)
        if split is not None and split[0] == "usd":
            check_money_limit(budget, models, split[1])


def check_money_limit(money: IterationBudget | None, models: ModelSpec, pattern: str = "*") -> None:
    """Raise UsageError if there is a money limit and the price of a model is unknown."""
    if money is None or money.ceiling is None:
        return
    for name, card in models.cards.items():
        model = models.find(name)
        if card.price is None and matches_model(pattern, model.provider, model.name):
            key = f"{model.provider}:{model.name}" if model.provider else model.name
            tier = getattr(model, "service_tier", None)
            shown = f"{model.name} in its service tier {tier!r}" if tier else model.name
            why = (
                f"the limit of {money.unit.show(money.ceiling)} cannot be enforced, because the price of {shown} is "
                "not known"
            )
            setting = f'set input and output in [prices."{key}"] of flyball.toml (dollars per million tokens)'
            raise UsageError(
                f"{why}: pass price=TokenPrice(input=..., output=...) to the model, or {setting}, or pass "
                'unpriced="tokens_only" to ignore the limit for this model',
                command_text=f"{why}: {setting}, or use --tokens instead of --usd",
            )
