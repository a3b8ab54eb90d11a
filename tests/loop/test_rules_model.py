"""Rules that have another model asked: only one that can be, with its own counter and price."""

from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, TurnBudget, tool
from flyball.budget.price import TokenPrice
from flyball.event import ModelRequested
from flyball.request import Request
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say


@tool(effects="read")
def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.toml").write_text(
        '[rule]\nid = "switch"\ntrigger = "on_turn_end"\n[action]\ntype = "use_model"\nmodel = "small"\n'
    )
    return tmp_path


class Counting(ScriptedModel):
    """One with a counter of its own."""

    def count(self, request: Request) -> int:
        return 7


class Broken(ScriptedModel):
    """One that cannot even say whether it is ready."""

    def ready(self) -> str | None:
        raise OSError("no network")


@pytest.mark.parametrize(
    ("small", "reason"),
    [(ScriptedModel(not_ready="no key"), "no key"), (Broken(), "OSError: no network")],
    ids=["not ready", "broken"],
)
def test_a_model_that_is_not_ready_is_not_asked_and_the_run_goes_on(
    folder: Path, small: ScriptedModel, reason: str
) -> None:
    model = ScriptedModel(call("look"), say("ok"))
    agent = Agent(model=model, models={"small": small}, tools=[look], rules=folder)
    result = assert_honest(ScriptDriver(agent).run("Go."))
    assert (result.text, small.requests) == ("ok", [])
    assert "small" in result.faults[0]["reason"]
    assert result.faults[0]["reason"].endswith(f": {reason}")


def test_the_counter_of_the_other_model_counts(folder: Path) -> None:
    agent = Agent(model=ScriptedModel(call("look")), models={"small": Counting(say("ok"))}, tools=[look], rules=folder)
    result = assert_honest(ScriptDriver(agent).run("Go."))
    asked = [event.estimated_tokens for event in result.events if isinstance(event, ModelRequested)]
    assert asked[0] != 7
    assert asked[1] == 7


def test_the_worst_case_is_that_of_the_dearest(folder: Path) -> None:
    dear = ScriptedModel(price=TokenPrice(input=10, output=10))
    cheap = ScriptedModel(price=TokenPrice(input=1, output=1))
    agent = Agent(model=cheap, models={"small": dear}, rules=folder, limits=Limits(tokens=1_000))
    assert agent.worst_case().cost == Agent(model=dear, limits=Limits(tokens=1_000)).worst_case().cost


def test_where_money_is_shared_every_model_has_a_price(folder: Path) -> None:
    priced = ScriptedModel(say("ok"), price=TokenPrice(input=1, output=1), name="priced")
    agent = Agent(model=priced, models={"small": ScriptedModel(name="free")}, rules=folder)
    with Limits(usd=1.0).open() as shared, pytest.raises(ConfigError, match=r"price of free"):
        agent.run("Go.", within=shared)
    assert isinstance(shared, TurnBudget)


@pytest.mark.parametrize("wrong", ["gpt", None, ScriptedModel])
def test_what_is_no_model_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="agent, models, small"):
        Agent(model=ScriptedModel(say("x")), models={"small": wrong})
