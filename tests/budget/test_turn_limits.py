"""Limits of turns: one setting for every kind of run, no turn at all, and clamps that are always said."""

import logging

import pytest

from flyball import Agent, IterationBudgetRegistry, Limits, govern
from flyball.budget.limits import RunKind
from flyball.errors import SettingError
from flyball.testing import ScriptedModel, say


def turns(settings: dict[str, object], kind: RunKind) -> tuple[int | None, str]:
    resolution = Limits().explain(IterationBudgetRegistry(settings=settings), kind)["turns"]
    return resolution.ceiling, resolution.source


@pytest.mark.parametrize("kind", list(RunKind))
def test_max_turns_limits_the_turns_of_every_kind_of_run(kind: RunKind) -> None:
    assert turns({"max_turns": 5}, kind)[0] == 5


def test_a_more_specific_setting_of_turns_counts_before_max_turns() -> None:
    settings: dict[str, object] = {"max_turns": 5, "max_iterations": 7, "delegation": {"max_iterations": 3}}
    found = [turns(settings, kind)[0] for kind in (RunKind.AGENT, RunKind.CONVERSATION, RunKind.CHILD)]
    assert found == [7, 5, 3]


def test_the_explanation_names_the_setting_that_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYBALL_MAX_TURNS", "5")
    resolution = Limits().explain()["turns"]
    assert (resolution.ceiling, "FLYBALL_MAX_TURNS" in resolution.source) == (5, True)


def test_a_clamp_of_max_iterations_holds_for_max_turns() -> None:
    assert turns({"max_turns": 400, "clamp": {"max_iterations": 100}}, RunKind.AGENT)[0] == 100


@pytest.mark.parametrize("kind", list(RunKind))
def test_a_clamp_of_max_turns_holds_for_every_kind_of_run(kind: RunKind) -> None:
    assert turns({"clamp": {"max_turns": 5}}, kind)[0] == 5
    assert turns({"clamp": {"max_turns": 5}, "max_iterations": 90, "delegation.max_iterations": 80}, kind)[0] == 5


def test_a_more_specific_clamp_counts_before_that_of_max_turns() -> None:
    settings: dict[str, object] = {"clamp": {"max_turns": 5, "max_iterations": 60, "delegation": {"max_iterations": 9}}}
    found = [turns(settings, kind)[0] for kind in (RunKind.AGENT, RunKind.CONVERSATION, RunKind.CHILD)]
    assert found == [60, 5, 9]


def test_a_clamp_of_max_turns_that_is_no_limit_is_an_error_for_every_kind_of_run() -> None:
    for kind in RunKind:
        with pytest.raises(SettingError, match=r"clamp\.max_turns"):
            turns({"clamp": {"max_turns": 0}}, kind)
    assert turns({"clamp": {"max_turns": 300}}, RunKind.AGENT)[0] == 90
    assert turns({"clamp": {"max_turns": 300}}, RunKind.CHILD)[0] == 50  # 250 at most anyway


def test_a_limit_that_is_clamped_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    registry = IterationBudgetRegistry(settings={})
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert Limits(turns=100_000).resolve(registry).budgets["turns"].ceiling == 500
        registry.create("agent_iterations", ceiling=0)
    assert ["100,000" in record.message for record in caplog.records] == [True, False]


def test_an_agent_without_turns_ends_at_once_without_asking_its_model() -> None:
    model = ScriptedModel(say("never asked"))
    result = Agent(model=model, limits=Limits(turns=0)).run("Go.")
    assert (result.stop, result.turns, result.requests, model.requests) == ("budget", 0, 0, [])
    assert result.flags == ("max_agent_iterations_reached",)
    assert "no report" in result.text
    assert "turns=0" not in result.explain()


def test_a_governed_loop_without_turns_has_none() -> None:
    with govern(Limits(turns=0)) as run:
        assert list(run) == []
    assert (run.result().stop, run.result().requests) == ("budget", 0)
    with govern(Limits(turns=0)) as run:
        assert (run.begin_turn("a"), run.enter_grace("a")) == (None, None)


def test_settings_and_ceilings_of_0_turns_are_clamped_to_1(caplog: pytest.LogCaptureFixture) -> None:
    registry = IterationBudgetRegistry(settings={"max_turns": 0})
    with caplog.at_level(logging.WARNING):
        assert Limits().resolve(registry).budgets["turns"].ceiling == 1
        assert registry.create("agent_iterations", ceiling=0).ceiling == 1
    assert caplog.records


def test_a_clamped_limit_is_in_the_first_event_and_in_the_explanation() -> None:
    agent = Agent(model=ScriptedModel(say("done")), limits=Limits(turns=100_000))
    with govern(Limits(turns=100_000)) as run:
        run.complete("done")
    for result in (agent.run("Go."), run.result()):
        assert "100,000" in result.events[0].to_dict()["limits"]["clamped"]["turns"]
        assert "clamped from 100,000" in result.explain()
    assert "clamped" not in Agent(model=ScriptedModel(say("done")), limits=Limits(turns=5)).run("Go.").explain()


def test_a_refusal_of_a_long_prompt_tells_what_is_used_reserved_and_estimated() -> None:
    model = ScriptedModel(say("done"))
    result = Agent(model=model, limits=Limits(tokens=10_000)).run("12345 " * 2_000)
    assert (result.stop, result.budgets["tokens"].used) == ("budget", 0)
    for part in ("0 used", "2,000 reserved", "estimated 12,", "Limits(tokens=20000)"):
        assert part in result.explain()
