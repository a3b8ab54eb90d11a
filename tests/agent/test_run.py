import math
from threading import Event
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits
from flyball.errors import UnknownBudget
from flyball.testing import ScriptedModel, call, say

LONG = 60.0


def waiting(release: Event) -> Agent:
    def wait() -> None:
        release.wait(LONG)

    return Agent(model=ScriptedModel(call("wait"), say("done")), tools=[wait], limits=Limits(turns=5))


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("steer", {"text": ""}),
        ("cancel", {"by": ""}),
        ("extend", {"turns": -1}),
        ("extend", {"seconds": -1}),
        ("extend", {"seconds": None}),
        ("extend", {"seconds": math.inf}),
    ],
)
def test_what_makes_no_sense_is_refused_and_does_not_reach_the_run(method: str, given: dict[str, Any]) -> None:
    release = Event()
    with waiting(release).start("go") as run:
        with pytest.raises((ConfigError, ValueError)):
            getattr(run, method)(**given)
        release.set()
        assert run.result(LONG).completed


@pytest.mark.parametrize("timeout", [-1, math.nan, "5"])
def test_only_a_duration_can_be_waited_for(timeout: Any) -> None:
    run = Agent(model=ScriptedModel(say("x"))).start("go")
    with pytest.raises(ConfigError, match="timeout"):
        run.result(timeout)
    assert run.result(math.inf).completed


def test_only_budgets_that_there_are_can_be_extended() -> None:
    release = Event()
    with waiting(release).start("go") as run:
        with pytest.raises(UnknownBudget, match="turn"):
            run.extend(turn=1)
        release.set()


def test_an_extension_is_told_with_who_gave_it_and_never_passes_the_clamp() -> None:
    release = Event()
    with waiting(release).start("go") as run:
        assert run.extend(turns=1, seconds=5, by="boss")
        assert run.extend(turns=10_000, by="boss")
        release.set()
        result = run.result(LONG)
    told = [event.to_dict() for event in result.events if event.kind in ("extended", "postponed")]
    assert [(one["event"], one.get("amount"), one.get("by")) for one in told] == [
        ("extended", 1, "boss"),
        ("postponed", None, None),
        ("extended", 494, "boss"),
    ]
    assert result.budgets["turns"].ceiling == 500


def test_what_is_not_begun_costs_nothing_and_can_be_thrown_away() -> None:
    model = ScriptedModel(say("x"))
    run = Agent(model=model).open("go", run_id="mine")
    assert (run.run_id, run.ended) == ("mine", False)
    del run
    model.assert_asked(0)


def test_a_sync_call_on_the_private_loop_is_refused_and_names_what_waits_there() -> None:
    told: list[str] = []

    def hook(*_: object) -> tuple[()]:
        inner = Agent(model=ScriptedModel(say("x"))).start("go")
        for wait in (inner.result, inner.__enter__, lambda: list(inner)):
            with pytest.raises(ConfigError) as caught:
                wait()
            told.append(str(caught.value))
        return ()

    Agent(model=ScriptedModel(say("x")), hooks=[hook]).run("go")
    for words, instead in zip(
        told, ("`await run.aresult()`", "`async with`", "`async for event in run`"), strict=False
    ):
        assert "`await agent.arun(...)`" in words
        assert instead in words
    assert len(told) >= 3
