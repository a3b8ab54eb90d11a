"""Turns that took place and turns that count against the limit, the same for an agent and for a governed loop."""

from flyball import Agent, Limits, govern, tool
from flyball.result import Result
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, say


@tool(effects="read", cheap=True)
def look(n: int = 0) -> str:
    """Look."""
    return f"seen {n}"


def run_agent() -> Result:
    model = ScriptedModel(call("look", n=1), call("look", n=2), say("done"))
    return assert_honest(ScriptDriver(Agent(model=model, tools=[look], limits=Limits(turns=5))).run("Go."))


def run_loop() -> Result:
    with govern(Limits(turns=5)) as run:
        for turn in run:
            turn.settle({"input_tokens": 10, "output_tokens": 5})
            if turn.number == 3:
                run.complete("done")
            else:
                turn.refund("cheap_round")
    return run.result()


def test_refunded_turns_took_place_in_an_agent_and_in_a_governed_loop() -> None:
    for result in (run_agent(), run_loop()):
        turns = result.budgets["turns"]
        assert (result.turns, result.requests, turns.used, turns.refunded) == (3, 3, 1, 2)
        [ended] = [event for event in result.events if event.kind == "run_ended"]
        assert ended.to_dict()["turns"] == 3


def test_an_explanation_has_both_counts_of_turns_when_they_differ() -> None:
    for result in (run_agent(), run_loop()):
        assert "took 3 turns and used 1 of 5 turns" in result.explain()
    with govern(Limits(turns=5)) as run:
        next(run)
        run.complete("done")
    assert "took" not in run.result().explain()


def test_a_governed_turn_that_never_started_did_not_take_place() -> None:
    with govern(Limits(turns=5)) as run:
        for turn in run:
            if turn.number == 1:
                turn.refund("round_never_started")
            else:
                run.complete("done")
    result = run.result()
    assert (result.turns, result.budgets["turns"].used) == (1, 1)
