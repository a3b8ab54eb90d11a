"""Forecasts of runs: for hooks, rules, events and governed loops, from what the run has recorded anyway."""

from typing import Any

import pytest

from flyball import Agent, Limits, govern, tool
from flyball.budget.forecast import Forecast
from flyball.event import BudgetWarned, Event, RuleEmitted
from flyball.progress import Point, Progress
from flyball.request import Usage
from flyball.rules import RuleSet
from flyball.store import MemoryStore
from flyball.testing import RuleFolder, ScriptDriver, ScriptedModel, assert_honest, call, say


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def ignore(event: Event) -> None:
    pass


def build_model(*tokens: int) -> ScriptedModel:
    """Return a model whose turns use these tokens, and the last of them again and again."""
    lines = [call("add", a=1, b=2).using(Usage(count - 10, 10)) for count in tokens]
    return ScriptedModel(*lines, *lines[-1:] * 60, grace=say("I added."))


def watch(limits: Limits, *tokens: int, **options: Any) -> list[Forecast | None]:
    """Return the forecast at the start of each turn."""
    seen: list[Forecast | None] = []

    def note(point: Point, progress: Progress, about: object = None) -> None:
        if point is Point.TURN_STARTED:
            seen.append(progress.forecast)

    agent = Agent(model=build_model(*tokens), tools=[add], limits=limits, hooks=[note], **options)
    assert_honest(ScriptDriver(agent).run("Go."))
    return seen


def test_hooks_see_which_limit_is_met_first_and_when() -> None:
    seen = watch(Limits(tokens=10_000), 500)
    assert seen[:5] == [None, None, None, Forecast("tokens", 12), Forecast("tokens", 11)]
    assert seen[-1] == Forecast("tokens", 0)


def test_turns_are_counted_exactly() -> None:
    seen = watch(Limits(turns=7), 500)
    assert seen[3:] == [Forecast("turns", left) for left in (3, 2, 1, 0)]


def test_it_is_the_same_if_the_run_has_sinks_and_if_few_events_are_kept() -> None:
    expected = watch(Limits(tokens=10_000), 500, 600, 400)
    assert watch(Limits(tokens=10_000), 500, 600, 400, sinks=[ignore]) == expected
    assert watch(Limits(tokens=10_000), 500, 600, 400, events_kept=30) == expected


def test_without_kept_events_it_is_not_known() -> None:
    assert set(watch(Limits(turns=7), 500, events_kept=0)) == {None}


@pytest.mark.parametrize("has_sink", [False, True])
def test_the_event_before_a_limit_has_it_if_a_sink_listens(has_sink: bool) -> None:
    sinks = [ignore] if has_sink else []
    agent = Agent(model=build_model(500), tools=[add], limits=Limits(tokens=10_000), sinks=sinks)
    result = ScriptDriver(agent).run("Go.")
    [warned] = [event for event in result.events if isinstance(event, BudgetWarned)]
    assert warned.used == 7_500
    assert (warned.forecast, warned.turns_left) == (("tokens", 0) if has_sink else (None, None))


def test_the_event_is_the_same_after_a_resume() -> None:
    store = MemoryStore()
    agent = Agent(model=build_model(500), tools=[add], limits=Limits(tokens=9_000, turns=13), store=store)
    first = agent.run("Go.")
    again = agent.resume(first.run_id, extend={"turns": 2})
    warned = [
        [(event.budget, event.forecast, event.turns_left) for event in result.events if isinstance(event, BudgetWarned)]
        for result in (first, again)
    ]
    assert warned[0]
    assert warned[1][: len(warned[0])] == warned[0]
    assert all(forecast for _, forecast, _ in warned[0])


def load_rules(folder: Any, condition: str) -> RuleSet:
    message = "{{ context.forecast.limit }} {{ context.forecast.turns_left }}"
    action = f'type = "emit_event"\nname = "soon"\ndata = {{ message = "{message}" }}'
    return RuleFolder(folder).add("on_turn_start", action, condition).load()


def emitted(result: Any) -> list[tuple[int, str]]:
    return [(event.turn, event.data["message"]) for event in result.events if isinstance(event, RuleEmitted)]


SOON = "context.forecast.turns_left is not none and context.forecast.turns_left < 3"


def test_rules_see_it(tmp_path: Any) -> None:
    rules = load_rules(tmp_path, SOON)
    agent = Agent(model=build_model(500), tools=[add], limits=Limits(tokens=10_000), rules=rules)
    result = ScriptDriver(agent).run("Go.")
    assert (emitted(result)[0], result.faults) == ((14, "tokens 2"), ())


def test_for_rules_it_is_none_while_it_is_not_known(tmp_path: Any) -> None:
    rules = load_rules(tmp_path, "context.forecast.turns_left is none and context.forecast.limit is none")
    agent = Agent(model=build_model(500), tools=[add], limits=Limits(turns=6), rules=rules)
    assert [turn for turn, _ in emitted(ScriptDriver(agent).run("Go."))] == [1, 2, 3]


def test_a_misspelt_field_is_an_error(tmp_path: Any) -> None:
    folder = RuleFolder(tmp_path).add("on_turn_start", 'type = "log"', "context.forecast.turns > 1")
    assert "turns_left" in str(RuleSet.load(folder.path).problems[0])


def test_a_governed_loop_has_it_with_and_without_rules(tmp_path: Any) -> None:
    seen: list[object] = []
    with govern(Limits(tokens=10_000), rules=load_rules(tmp_path, SOON), sinks=[ignore]) as run:
        for turn in run:
            seen.append(None if run.forecast is None else (run.forecast.limit, run.forecast.turns_left))
            if turn.grace:
                break
            assert turn.max_output_tokens
            turn.settle({"input_tokens": 400, "output_tokens": 100})
    result = run.result()
    assert seen[:4] == [None, None, None, ("tokens", 12)]
    assert emitted(result)[0] == (14, "tokens 2")
    [warned] = [event for event in result.events if isinstance(event, BudgetWarned)]
    assert (warned.forecast, warned.turns_left) == ("tokens", 0)


def test_a_governed_loop_with_parallel_turns_has_it() -> None:
    with govern(Limits(tokens=10_000), max_output_tokens=100) as run:
        for n in range(8):
            turns = [run.begin_turn(name, input_tokens=100) for name in ("a", "b")]
            for turn in turns:
                assert turn is not None
                turn.settle({"input_tokens": 100 + n, "output_tokens": 100})
                turn.end()
        assert run.forecast is not None
        assert run.forecast.limit == "tokens"
        assert 20 <= run.forecast.turns_left <= 24
