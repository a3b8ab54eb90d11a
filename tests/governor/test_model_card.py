"""Price and longest reply of a governed loop's model, by its name."""

from functools import partial
from types import SimpleNamespace

import pytest

from flyball import ConfigError, IterationBudgetRegistry, Limits, TokenPrice, govern
from flyball.budget.price import Tier
from flyball.models.catalog import price_of, tier_prices_of
from flyball.models.output_limits import max_output_tokens_of


def test_a_money_limit_takes_the_price_of_the_named_model() -> None:
    with govern(Limits(turns=2, usd=0.5), model="openai:gpt-4o") as run:
        for turn in run:
            turn.settle({"prompt_tokens": 1_000, "completion_tokens": 100})
    assert run.result().cost == {"gpt-4o": 3 * (2_500_000 + 1_000_000)}
    assert run.result().unpriced == ()


def test_the_name_counts_also_behind_another_base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with govern(Limits(usd=0.5), model="openai:gpt-4o") as run:
        assert next(run).max_output_tokens
        run.complete()
    assert run.result().unpriced == ()


@pytest.mark.parametrize("name", ["gpt-4o", "acme:one", "openai:unheard-of", "http://127.0.0.1:9/v1#gpt-4o"])
def test_a_money_limit_with_a_model_of_unknown_price_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"without a price, and that of '{name}' is not known"):
        govern(Limits(usd=0.5), model=name).__enter__()


def test_a_price_of_the_settings_counts() -> None:
    registry = IterationBudgetRegistry(settings={"prices": {"acme:one": {"input": 1_000, "output": 1_000}}})
    with govern(Limits(usd=0.5), model="acme:one", registry=registry) as run:
        assert next(run).max_output_tokens == 450
        run.complete()


@pytest.mark.parametrize(
    ("name", "longest"),
    [("openai:gpt-4o", 16_384), ("openai:gpt-4.1-mini", 32_768), ("anthropic:claude-3-opus-latest", 4_096)],
)
def test_a_reply_is_never_longer_than_the_model_can_give(name: str, longest: int) -> None:
    for limits in (Limits(usd=100), Limits(tokens=10_000_000), Limits(turns=3)):
        with govern(limits, model=name) as run:
            assert next(run).max_output_tokens == longest
            run.complete()
    with govern(Limits(turns=3), model=name, max_output_tokens=50) as run:
        assert next(run).max_output_tokens == 50
        run.complete()


def test_the_longest_reply_of_an_unlisted_model_is_one_that_every_model_can_give() -> None:
    assert max_output_tokens_of("openai", "unheard-of") == 4_096
    assert max_output_tokens_of("acme", "one") is None
    assert max_output_tokens_of(None, "gpt-4o") is None


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("openrouter:openai/gpt-4o", 16_384),
        ("openrouter:google/gemini-2.0-flash", 8_192),
        ("azure:gpt-4o", 16_384),
        ("aws:us.anthropic.claude-3-opus-20240229-v1:0", 4_096),
    ],
)
def test_a_model_that_another_provider_serves_has_the_same_longest_reply(name: str, longest: int) -> None:
    with govern(Limits(tokens=100_000), model=name) as run:
        assert next(run).max_output_tokens == longest
        run.complete()


def test_a_reservation_assumes_the_long_context_tier_because_the_input_is_not_known() -> None:
    price = TokenPrice(input=1_000, output=1_000, tiers=(Tier(above=100, input=2_000, output=4_000),))
    with govern(Limits(usd=2), price=price) as run:
        turn = next(run)
        assert turn.max_output_tokens == 450
        turn.settle({"input_tokens": 10, "output_tokens": 10})
        run.complete()
    assert run.result().budgets["usd"].used == 20 * 10**6  # the fact is settled at its own price


def test_a_reservation_assumes_the_dearest_service_tier_and_cache_writes() -> None:
    tiers = tier_prices_of("openai", "gpt-4o")
    usual = price_of("openai", "gpt-4o")
    assert usual is not None
    assert tiers["priority"].output > usual.output
    highest = usual.highest(*tiers.values())
    assert (highest.input, highest.output) == (tiers["priority"].input, tiers["priority"].output)
    claude = price_of("anthropic", "claude-opus-5")
    assert claude is not None
    assert claude.highest().written == claude.written


def test_a_reply_of_a_dearer_service_tier_is_settled_at_its_price() -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 0}
    costs: list[int] = []
    for tier in ("default", "priority"):
        with govern(Limits(usd=1), model="openai:gpt-4o") as run:
            next(run).call(partial(SimpleNamespace, usage=usage, service_tier=tier))
            run.complete()
        costs.append(sum(run.result().cost.values()))
    assert costs == [2_500_000, 4_250_000]
