"""Limits per model: what they count, when they refuse, and how they are set."""

from typing import Any, ClassVar

import pytest

import flyball
from flyball import Agent, ConfigError, Limits, SettingError, tool
from flyball.budget.limits import Reserve
from flyball.budget.price import TokenPrice
from flyball.errors import ModelError, UsageError
from flyball.event import BudgetRefused, BudgetWarned
from flyball.request import Usage
from flyball.result import Result
from flyball.store import MemoryStore
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUM = call("add", a=1, b=2)


def model(name: str, *lines: Line, **options: Any) -> ScriptedModel:
    report = say("Reported.").using(Usage(50, 5))
    if lines:
        scripted = ScriptedModel(*lines, grace=report, **options)
    else:
        scripted = ScriptedModel.looping(SUM.using(Usage(90, 10)), grace=report, **options)
    scripted.name = name
    return scripted


def run(main: ScriptedModel, by_model: dict[str, Limits], **options: Any) -> Result:
    agent = Agent(model=main, tools=[add], limits=Limits(by_model=by_model), max_output_tokens=50, **options)
    return assert_honest(ScriptDriver(agent).run("Go.", run_id="run"))


class TestCounting:
    def test_the_tokens_of_a_matching_model_are_limited(self) -> None:
        result = run(model("gpt-5.5"), {"gpt-*": Limits(tokens=3_000)})
        assert (result.stop, result.flags, result.text) == ("budget", ("max_tokens_of_gpt-*_reached",), "Reported.")
        own = result.budgets["tokens.gpt-*"]
        assert 2_000 < own.used <= 3_000
        assert (own.used, own.held) == (result.usage.total, 0)
        assert result.budgets["tokens"].ceiling is None
        [refused] = [event for event in result.events if isinstance(event, BudgetRefused)]
        assert refused.remedy.startswith('Limits(by_model={"gpt-*": Limits(tokens=6000)})')
        assert 'by_model."gpt-*".max_tokens' in result.explain()
        assert [event.budget for event in result.events if isinstance(event, BudgetWarned)] == ["tokens.gpt-*"]

    def test_another_model_is_not_limited(self) -> None:
        main = model("claude-opus-5", SUM, SUM, SUM, SUM, say("done").using(Usage(90, 10)))
        result = run(main, {"gpt-*": Limits(tokens=50)})
        assert (result.stop, result.budgets["tokens.gpt-*"].used) == ("completed", 0)

    def test_a_pattern_may_name_the_provider(self) -> None:
        main = model("any")
        main.provider = "openai"
        assert run(main, {"openai:*": Limits(tokens=1_000)}).flags == ("max_tokens_of_openai:*_reached",)

    def test_money_is_limited_per_model(self) -> None:
        result = run(model("gpt-5.5", price=TokenPrice(1_000, 1_000)), {"gpt-*": Limits(usd=1.0)})
        assert result.flags == ("max_cost_usd_of_gpt-*_reached",)
        assert 0 < result.budgets["usd.gpt-*"].used == sum(result.cost.values()) <= 10**9
        assert "$1.00 of gpt-*" in result.explain()

    def test_all_patterns_that_match_hold(self) -> None:
        result = run(model("gpt-5.5"), {"gpt-*": Limits(tokens=5_000), "*-5.5": Limits(tokens=700)})
        assert result.flags == ("max_tokens_of_*-5.5_reached",)
        assert result.budgets["tokens.gpt-*"].used == result.budgets["tokens.*-5.5"].used

    def test_the_limit_of_the_run_holds_too(self) -> None:
        agent = Agent(
            model=model("gpt-5.5"), tools=[add], limits=Limits(tokens=600, by_model={"gpt-*": Limits(tokens=5_000)})
        )
        assert ScriptDriver(agent).run("Go.").flags == ("max_tokens_reached",)

    def test_each_model_counts_in_its_own_limit(self) -> None:
        spare = model("spare", say("done").using(Usage(70, 7)))
        main = model("main", SUM.using(Usage(100, 10)), fail(ModelError("no key")))
        result = run(main, {"main": Limits(tokens=9_000), "spare": Limits(tokens=9_000)}, fallback_models=[spare])
        used = {key: result.budgets[key].used for key in ("tokens.main", "tokens.spare")}
        assert used == {"tokens.main": 110, "tokens.spare": 77}

    def test_context_tokens_are_limited_per_model(self) -> None:
        result = run(model("gpt-5.5"), {"gpt-*": Limits(context_tokens=20)})
        assert (result.stop, result.flags) == ("budget", ("max_context_tokens_reached",))

    def test_a_part_is_reserved_for_the_report(self) -> None:
        limits = Limits(by_model={"gpt-*": Limits(tokens=1_000, reserve=Reserve(tokens=400))})
        agent = Agent(model=model("gpt-5.5"), tools=[add], limits=limits, max_output_tokens=50)
        result = ScriptDriver(agent).run("Go.")
        assert result.text == "Reported."
        assert result.budgets["tokens.gpt-*"].used <= 700


class TestSettings:
    SETTINGS: ClassVar[Any] = {"by_model": {"gpt-4.1*": {"max_tokens": 900, "max_context_tokens": 5_000}}}

    def test_settings_limit_models_too(self) -> None:
        result = run(model("gpt-4.1-mini"), {}, settings=self.SETTINGS)
        assert result.flags == ("max_tokens_of_gpt-4.1*_reached",)

    def test_a_limit_in_code_counts_before_a_setting(self) -> None:
        agent = Agent(model=model("gpt-4.1-mini"), limits=Limits(by_model={"gpt-4.1*": Limits(tokens=7_000)}),
                      settings=self.SETTINGS)  # fmt: skip
        assert agent.plan("Go.").spec.limits.budgets["tokens.gpt-4.1*"].ceiling == 7_000

    @pytest.mark.parametrize(
        "table", [{"gpt": 5}, {"gpt": {"max_turns": 3}}, {"gpt": {"max_tokens": "many"}}, {"gpt": {"max_usd": -1}}, 7]
    )
    def test_settings_that_cannot_be_read_are_refused(self, table: Any) -> None:
        with pytest.raises(SettingError, match="by_model"):
            Agent(model=model("gpt"), settings={"by_model": table})


class TestChecks:
    @pytest.mark.parametrize(
        "by_model",
        [
            [],
            {"": Limits(tokens=1)},
            {7: Limits(tokens=1)},
            {"gpt": 50},
            {"gpt": Limits(turns=5)},
            {"gpt": Limits(by_model={"x": Limits(tokens=1)})},
            {"gpt": Limits(calls={"add": 1})},
        ],
    )
    def test_other_limits_are_refused(self, by_model: Any) -> None:
        with pytest.raises(ConfigError, match="by_model"):
            Limits(by_model=by_model)

    @pytest.mark.parametrize("tokens", [-1, 1.5, "many"])
    def test_amounts_are_checked(self, tokens: Any) -> None:
        with pytest.raises(ConfigError):
            Agent(model=model("gpt"), limits=Limits(by_model={"gpt": Limits(tokens=tokens)}))

    def test_a_money_limit_of_a_model_without_a_price_is_refused(self) -> None:
        with pytest.raises(UsageError, match=r"the price of gpt-5\.5"):
            Agent(model=model("gpt-5.5"), limits=Limits(by_model={"gpt-*": Limits(usd=1)}))
        Agent(model=model("other"), limits=Limits(by_model={"gpt-*": Limits(usd=1)}))

    def test_they_are_refused_where_models_are_unknown(self) -> None:
        limits = Limits(by_model={"gpt-*": Limits(tokens=5)})
        with pytest.raises(UsageError, match="holds for the runs of an Agent"):
            limits.open()
        with pytest.raises(UsageError, match="holds for the runs of an Agent"):
            flyball.govern(limits).__enter__()


class TestRuns:
    def test_a_stored_run_is_extended_and_resumed(self) -> None:
        store = MemoryStore()
        main = model("gpt-5.5", *[SUM.using(Usage(90, 10))] * 7, say("done").using(Usage(9, 1)))
        agent = Agent(
            model=main,
            tools=[add],
            limits=Limits(by_model={"gpt-*": Limits(tokens=800)}),
            max_output_tokens=50,
            store=store,
        )
        result = agent.run("Go.", run_id="r1")
        assert result.flags == ("max_tokens_of_gpt-*_reached",)
        resumed = agent.resume("r1", extend={"tokens.gpt-*": 2_000})
        assert (resumed.stop, resumed.text) == ("completed", "done")
        assert resumed.budgets["tokens.gpt-*"].ceiling == 2_800
