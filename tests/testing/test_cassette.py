"""What a recording must keep so that a run played back books the same."""

from pathlib import Path

import pytest

from flyball import Agent, Limits, Result, TokenPrice
from flyball.budget.price import Tier
from flyball.errors import ModelError, Retryable
from flyball.testing import RecordedModel, ScriptedModel, fail, say

PRICE = TokenPrice(3, 15, cached=0.3, written=3.75, tiers=(Tier(above=200_000, input=6, output=22.5),))


def played(model: RecordedModel) -> Result:
    return Agent(model=model, limits=Limits(usd=1), max_output_tokens=100, settings={}).run("Go.", run_id="r")


@pytest.mark.parametrize("error", [Retryable("it broke", 0.0, began=True), ModelError("it timed out", began=True)])
def test_a_failure_that_had_begun_and_a_price_with_tiers_come_back(tmp_path: Path, error: ModelError) -> None:
    script = ScriptedModel(fail(error), say("x"), price=PRICE)
    first = played(RecordedModel(tmp_path / "a.json", script))
    model = RecordedModel(tmp_path / "a.json")
    again = played(model)
    assert model.price == PRICE
    assert (again.estimated_requests, again.cost) == (first.estimated_requests, first.cost)
    assert first.estimated_requests == 1
