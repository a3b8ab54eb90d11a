"""What is known of models by their names: the user's word first, then the table that is installed, else nothing."""

import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from datetime import time
from decimal import Decimal
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import (
    ClauseEquals,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    Provider,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)
from genai_prices.types import Usage as Counted

from flyball import SettingError, Settings, TokenPrice, Usage
from flyball.budget import price as pricing
from flyball.models import catalog, context_tokens_of, price_of
from flyball.testing import ScriptedModel

TABLE = """
[prices."my-model"]
input = 0.5
output = 1.5

[prices."acme:gpt-5.5"]
input = 2
output = 3
cached = 0.2
written = 2.5
"""


BY_TIME_OF_DAY = {
    model.id
    for provider in get_snapshot().providers
    for model in provider.models
    if isinstance(model.prices, list) and any(isinstance(one.constraint, TimeOfDateConstraint) for one in model.prices)
}


def settings_of(folder: Path, text: str) -> Settings:
    (folder / "flyball.toml").write_text(text, encoding="utf-8")
    return Settings.load(folder, {})


class TestTheUsersWord:
    def test_a_price_of_the_user_is_found_by_name_and_by_provider_and_name(self, tmp_path: Path) -> None:
        settings = settings_of(tmp_path, TABLE)
        assert price_of(None, "my-model", settings) == price_of("any", "my-model", settings) == TokenPrice(0.5, 1.5)
        assert price_of("acme", "gpt-5.5", settings) == TokenPrice(2, 3, cached=0.2, written=2.5)
        assert price_of("other", "gpt-5.5", settings) is None

    def test_a_price_of_the_user_wins_over_the_table_and_one_with_provider_over_the_name_alone(self) -> None:
        prices = {"gpt-5.5": {"input": 1, "output": 1}, "openai:gpt-5.5": {"input": 2, "output": 2}}
        settings = Settings({"prices": prices})
        assert price_of("openai", "gpt-5.5", settings) == TokenPrice(2, 2)
        assert price_of("azure", "gpt-5.5", settings) == TokenPrice(1, 1)

    def test_the_models_own_word_goes_before_both(self) -> None:
        settings = Settings({"prices": {"scripted": {"input": 1, "output": 1}}})
        own = TokenPrice(7, 8)
        assert catalog.find_price(ScriptedModel(price=own), settings) is own
        assert catalog.find_price(ScriptedModel(), settings) == TokenPrice(1, 1)
        assert catalog.find_price(ScriptedModel(), Settings()) is None

    @pytest.mark.parametrize(
        ("text", "line", "where", "found"),
        [
            ("prices = 3", 1, "prices", "3"),
            ("[prices]\nm = 3", 2, 'prices."m"', "3"),
            ("[prices.m]\ninput = 1", 1, 'prices."m"', ""),
            ("[prices.m]\ninput = 1\noutptu = 2", 3, 'prices."m".outptu', "'outptu'"),
            ("[prices.m]\ninput = 1\noutput = -2", 3, 'prices."m".output', "-2"),
            ('[prices.m]\ninput = "1"\noutput = 2', 2, 'prices."m".input', "'1'"),
            ("[prices.m]\ninput = nan\noutput = 2", 2, 'prices."m".input', "nan"),
        ],
    )
    def test_a_wrong_price_is_told_with_its_line_and_key(
        self, tmp_path: Path, text: str, line: int, where: str, found: str
    ) -> None:
        settings = settings_of(tmp_path, text)
        with pytest.raises(SettingError) as caught:
            price_of(None, "m", settings)
        assert (caught.value.where, caught.value.source) == (where, f"flyball.toml:{line}")
        assert repr(caught.value.found).startswith(found)
        [error] = catalog.find_price_errors(settings)
        assert error.where == where

    def test_texts_of_wrong_prices_are_as_stored(self, tmp_path: Path, snapshot: Callable[..., None]) -> None:
        wrong = {"table": "[prices]\nm = 3", "key": "[prices.m]\noutptu = 2", "value": "[prices.m]\ninput = nan"}
        for name, text in wrong.items():
            [error] = catalog.find_price_errors(settings_of(tmp_path, text))
            snapshot(error, name)

    def test_the_price_of_another_model_may_be_wrong(self, tmp_path: Path) -> None:
        settings = settings_of(tmp_path, f"{TABLE}[prices.other]\ninput = 1\n[prices.third]\n")
        assert price_of(None, "my-model", settings) == TokenPrice(0.5, 1.5)
        assert [error.where for error in catalog.find_price_errors(settings)] == ['prices."other"', 'prices."third"']
        assert catalog.find_price_errors(Settings()) == []


class TestTheTable:
    def test_the_table_knows_prices_tiers_and_caches(self) -> None:
        price = price_of("openai", "gpt-5.5")
        assert price is not None
        assert price.cached is not None
        assert price.cached < price.input < price.output
        assert [tier.above for tier in price.tiers] == [272_000]
        claude = price_of("anthropic", "claude-opus-4-6")
        assert claude is not None
        assert claude.written is not None
        assert claude.written > claude.input

    def test_the_table_knows_how_much_a_model_takes(self) -> None:
        assert context_tokens_of("anthropic", "claude-opus-4-6") == 1_000_000
        assert context_tokens_of("anthropic", "claude-none-9") is None
        assert context_tokens_of(None, "claude-opus-4-6") is None

    @pytest.mark.parametrize(
        ("provider", "name"),
        [
            ("openai", "no-such-model"),
            ("openai-compatible", "gpt-5.5"),
            ("my-openai", "gpt-5.5"),
            ("127.0.0.1", "gpt-5.5"),
            (None, "gpt-5.5"),
            ("flyball", "gpt-5.5"),
            ("perplexity", "sonar"),
            ("openai", "gpt-4o-transcribe-none"),
        ],
    )
    def test_a_model_that_the_table_does_not_know_for_sure_has_no_price(self, provider: str | None, name: str) -> None:
        assert price_of(provider, name) is None

    def test_a_price_counts_as_the_package_does_but_never_less_than_a_billionth(self) -> None:
        dice, tried = random.Random(7), 0
        for provider in get_snapshot().providers:
            for model in provider.models:
                price = price_of(provider.id, model.id)
                alone = provider.find_model(model.id) is model and model.id not in BY_TIME_OF_DAY
                if price is None or not alone:
                    continue
                for usage in usages_around(price, dice):
                    assert price.cost(usage) == counted(provider, model, usage), model.id
                    tried += 1
        assert tried > 5_000


def usages_around(price: TokenPrice, dice: random.Random) -> list[Usage]:
    sizes = [
        0,
        1,
        dice.randrange(10**6),
        *[start + more for tier in price.tiers for start in [tier.above] for more in (0, 1)],
    ]
    found: list[Usage] = []
    for size in sizes:
        cached = dice.randint(0, size)
        found.append(Usage(size, dice.randrange(10**5), cached, written=dice.randint(0, size - cached)))
    return found


def counted(provider: Provider, model: ModelInfo, usage: Usage) -> int:
    tokens = Counted(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cached,
        cache_write_tokens=usage.written,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        total = model.calc_price(tokens, provider).total_price
    return ceil(total * 10**9)


class TestOddTables:
    @staticmethod
    def price(*prices: Any) -> TokenPrice | None:
        conditional = [one if isinstance(one, ConditionalPrice) else ConditionalPrice(prices=one) for one in prices]
        model = ModelInfo("m", ClauseEquals("m"), prices=conditional)
        return catalog._to_token_price(list(catalog._iter_current_prices(model)))  # pyright: ignore[reportPrivateUsage]

    def test_of_prices_that_change_with_the_time_of_day_the_dearest_counts(self) -> None:
        by_day = ModelPrice(input_mtok=Decimal(2), output_mtok=Decimal(4))
        at_night = ConditionalPrice(
            TimeOfDateConstraint(time(16), time(1)), prices=ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(5))
        )
        assert self.price(by_day, at_night) == TokenPrice(2.0, 5.0)

    def test_tiers_of_one_kind_are_tiers_of_all(self) -> None:
        tiered = TieredPrices(Decimal(1), [Tier(100, Decimal(2)), Tier(200, Decimal(3))])
        price = self.price(ModelPrice(input_mtok=tiered, output_mtok=Decimal(9)))
        expected = (pricing.Tier(above=100, input=2.0, output=9.0), pricing.Tier(above=200, input=3.0, output=9.0))
        assert price == TokenPrice(1.0, 9.0, tiers=expected)

    @pytest.mark.parametrize("other", ["requests_kcount", "output_reasoning_mtok", "input_image_mtok", "audio_hours"])
    def test_what_is_billed_for_more_than_tokens_has_no_price(self, other: str) -> None:
        assert self.price(ModelPrice(input_mtok=Decimal(1), output_mtok=Decimal(2), **{other: Decimal(1)})) is None

    def test_what_lacks_a_price_for_output_has_none(self) -> None:
        assert self.price(ModelPrice(input_mtok=Decimal(1))) is None
        assert self.price() is None


LOOKS_UP = """
import sys
from flyball import Agent, Limits, TokenPrice
from flyball.testing import ScriptedModel, say
def loaded():
    return "genai_prices" in sys.modules
Agent(model=ScriptedModel(say("x"))).run("Go.")
after_a_run = loaded()
model = ScriptedModel(say("x"), provider="openai", price=TokenPrice(1, 2), context_tokens=9_000)
Agent(model=model, limits=Limits(usd=1)).worst_case()
after_a_worst_case = loaded()
from flyball.models import price_of
price_of("openai", "gpt-5.5")
print(after_a_run, after_a_worst_case, loaded())
"""


def test_the_package_is_loaded_only_when_something_is_looked_up() -> None:
    done = subprocess.run([sys.executable, "-c", LOOKS_UP], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False", "True"]
