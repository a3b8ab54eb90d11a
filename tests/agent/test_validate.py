"""A money limit and a model whose price nobody knows: refused before anything is asked, or said to hold for no cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, Result, Settings, TokenPrice, Usage, govern, run_conversation, tool
from flyball.agent.model import build_model_card
from flyball.models import AnthropicModel, Model, OpenAIModel
from flyball.progress import Order, Point, Progress, UseModel
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say

PRICE = TokenPrice(input=1, output=10)
CHEAP = {"prices": {"my-model": {"input": 1, "output": 10}}}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model(**options: Any) -> ScriptedModel:
    return ScriptedModel(say("x").using(Usage(100, 10)), name="my-model", **options)


class TestRefused:
    def test_a_money_limit_without_a_price_is_refused_before_anything_is_asked(
        self, snapshot: Callable[..., None]
    ) -> None:
        asked = model(provider="acme")
        with pytest.raises(ConfigError) as caught:
            Agent(model=asked, limits=Limits(usd=2))
        told = str(caught.value)
        assert caught.value.code == "usage_error"
        for word in ("$2.00", "my-model", "price=TokenPrice(", '[prices."acme:my-model"]', 'unpriced="tokens_only"'):
            assert word in told
        assert asked.requests == []
        snapshot(told)

    def test_a_money_limit_is_refused_where_only_another_model_has_no_price(self) -> None:
        with pytest.raises(ConfigError, match=r"price of other"):
            Agent(model=model(price=PRICE), models={"other": ScriptedModel(name="other")}, limits=Limits(usd=2))

    def test_a_shared_money_limit_is_refused_where_the_model_has_no_price(self) -> None:
        with (
            Limits(usd=2).open() as shared,
            pytest.raises(ConfigError, match=r"\$2\.00.*my-model"),
        ):
            Agent(model=model()).run("Go.", within=shared)

    def test_a_money_limit_of_a_setting_is_refused_in_a_conversation_without_a_price(self) -> None:
        with pytest.raises(ConfigError, match=r"\$2\.00.*my-model"):
            run_conversation("Go.", [], model(), settings={"max_usd": 2})

    def test_a_money_limit_is_refused_for_a_governed_loop_without_a_price(self) -> None:
        with pytest.raises(ConfigError, match=r"\$2\.00.*TokenPrice"), govern(Limits(usd=2)):
            pass

    @pytest.mark.parametrize("word", ["ignore", None, 1])
    def test_another_word_for_unpriced_models_is_refused(self, word: Any) -> None:
        with pytest.raises(ConfigError, match=r"agent, unpriced.*refuse, tokens_only"):
            Agent(model=model(), unpriced=word)
        with pytest.raises(ConfigError, match="govern, unpriced"):
            govern(unpriced=word)


class TestPricesInSettings:
    def test_prices_make_a_money_limit_hold(self) -> None:
        result = assert_honest(Agent(model=model(), limits=Limits(usd=2), settings=CHEAP).run("Go."))
        assert result.cost == {"my-model": PRICE.cost(Usage(100, 10))}
        assert (result.budgets["usd"].used, result.unpriced) == (result.cost["my-model"], ())

    def test_prices_are_read_from_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flyball_settings: Any
    ) -> None:
        (tmp_path / "flyball.toml").write_text('[prices."my-model"]\ninput = 1\noutput = 10\n')
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("FLYBALL_CONFIG", raising=False)
        assert Agent(model=model(), limits=Limits(usd=2)).run("Go.").cost == {"my-model": 200_000}

    def test_prices_tell_the_worst_case_in_dollars(self, snapshot: Callable[..., None]) -> None:
        agent = Agent(model=model(), limits=Limits(tokens=1_000_000), settings=CHEAP)
        assert agent.worst_case().cost == 10_000_000_000
        snapshot(agent.worst_case())

    def test_prices_count_in_a_conversation_too(self) -> None:
        result = run_conversation("Go.", [], model(), settings=CHEAP, limits=Limits(usd=2))
        assert result.cost == {"my-model": 200_000}


class TestTokensOnly:
    @staticmethod
    def checked(result: Result) -> None:
        assert (result.completed, result.unpriced, result.cost) == (True, ("my-model",), {})
        assert result.to_dict()["unpriced"] == ["my-model"]
        assert result.budgets["usd"].used == 0

    def test_the_money_limit_does_not_hold_and_the_result_says_so(self, snapshot: Callable[..., None]) -> None:
        agent = Agent(model=model(), limits=Limits(usd=0.001), unpriced="tokens_only")
        self.checked(assert_honest(agent.run("Go.")))
        result = ScriptDriver(agent).run("Go.")
        self.checked(result)
        snapshot(result.explain())

    def test_the_money_limit_does_not_hold_in_a_conversation_or_another_envelope(self) -> None:
        self.checked(
            run_conversation("Go.", [], model(), limits=Limits(usd=0.001), unpriced="tokens_only", settings={})
        )
        with Limits(usd=0.001).open() as shared:
            self.checked(Agent(model=model(), unpriced="tokens_only").run("Go.", within=shared))
            assert shared.budgets["usd"].used == 0

    def test_the_money_limit_does_not_hold_in_a_governed_loop(self) -> None:
        with govern(Limits(usd=0.001, turns=2), model="my-model", unpriced="tokens_only") as run:
            for turn in run:
                turn.settle(Usage(100, 10))
                run.complete("x")
        self.checked(run.result())

    def test_the_worst_case_is_any_amount_of_money(self) -> None:
        agent = Agent(model=model(), limits=Limits(usd=1, tokens=5_000), unpriced="tokens_only")
        assert agent.worst_case().cost is None

    def test_the_money_limit_holds_for_a_model_with_a_price(self) -> None:
        def switch(point: Point, progress: Progress, about: object = None) -> list[Order]:
            return [UseModel("dear", by="me")] if point is Point.TURN_ENDED and progress.turn == 1 else []

        own = ScriptedModel(call("add", a=1, b=2).using(Usage(9, 1)), name="my-model")
        dear = ScriptedModel(say("never"), name="dear", price=TokenPrice(input=100, output=100))
        agent = Agent(
            model=own,
            models={"dear": dear},
            tools=[add],
            hooks=[switch],
            limits=Limits(usd=0.0001),
            unpriced="tokens_only",
        )
        result = assert_honest(agent.run("Go."))
        assert (result.stop, result.flags, result.unpriced) == ("budget", ("max_cost_usd_reached",), ("my-model",))
        assert (result.cost, dear.requests) == ({"dear": 0}, [])

    def test_a_run_without_a_money_limit_names_what_it_could_not_price(self) -> None:
        result = Agent(model=model()).run("Go.")
        assert (result.unpriced, "money" in result.explain()) == (("my-model",), False)


class TestTurnsThatNobodySettled:
    def test_unsettled_turns_are_counted_in_the_result(self) -> None:
        with govern(Limits(turns=3, tokens=5_000), grace=False, max_output_tokens=50) as run:
            for turn in run:
                assert turn.max_output_tokens
                if turn.number == 2:
                    turn.settle(Usage(10, 5))
        assert (run.result().requests, run.result().estimated_requests) == (3, 2)
        assert run.result().budgets["tokens"].used == 50 + 15 + (10 + 50)

    def test_unsettled_turns_are_counted_where_nothing_was_set_aside(self) -> None:
        with govern(Limits(turns=2), grace=False) as run:
            asked = sum(1 for _ in run)
        assert (run.result().requests, run.result().estimated_requests) == (asked, asked) == (2, 2)

    def test_a_turn_that_was_given_back_is_not_counted_as_unsettled(self) -> None:
        with govern(Limits(turns=1), grace=False) as run:
            for turn in run:
                turn.refund("round_never_started")
                run.complete()
        assert run.result().estimated_requests == 0


@pytest.mark.parametrize("name", ["max_output_tokens", "context_tokens"])
@pytest.mark.parametrize("wrong", [0, -5, "many", True])
def test_what_a_model_says_of_itself_is_checked(name: str, wrong: Any) -> None:
    odd = model()
    setattr(odd, name, wrong)
    with pytest.raises(ConfigError, match=f"agent, model's {name}"):
        Agent(model=odd)


def test_how_much_a_model_reads_is_its_own_word_or_else_looked_up() -> None:
    def room(known: Model) -> int | None:
        return build_model_card("agent, model", known, Settings(), None).context_tokens

    assert room(AnthropicModel("claude-opus-4-6")) == 1_000_000
    assert room(AnthropicModel("claude-opus-4-6", context_tokens=50_000)) == 50_000
    assert room(AnthropicModel("claude-of-tomorrow-9")) is None
    assert room(OpenAIModel("gpt-5.5", url="http://127.0.0.1:8080/v1")) is None
