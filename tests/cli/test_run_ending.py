import re

from flyball import Agent, TokenPrice
from flyball.cli.run_ending import summarize_ending
from flyball.testing import ScriptedModel, say


def test_a_summary_has_the_cost_among_the_amounts_or_says_last_that_it_is_not_known() -> None:
    unpriced = Agent(model=ScriptedModel(say("hello"))).run("Go.")
    priced = Agent(model=ScriptedModel(say("hello"), price=TokenPrice(input=1, output=1))).run("Go.")
    found = [summarize_ending(result, with_next=False) for result in (unpriced, priced)]
    texts = [re.sub(r"in [\d.]+ s", "in 0 s", text) for text in found]
    assert texts[0].startswith("It completed. It used 1 of 90 turns, 15 tokens in 0 s, cost not known.")
    assert texts[1].startswith("It completed. It used 1 of 90 turns, 15 tokens, $0.000015 in 0 s.")
