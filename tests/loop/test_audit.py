"""Stories that were once audited wrongly, and stories that the auditor must reject."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from flyball import Agent, Limits, Result
from flyball.loop import Act, Answer, Ask, Effect
from flyball.loop.effects import Extend, Signal, Stalled
from flyball.loop.plan import Plan
from flyball.loop.player import LoopPlayer
from flyball.outcome import Success
from flyball.progress import Halt, Point, Progress
from flyball.recorder import Recorder
from flyball.request import Call, Finish, Reply, Usage
from flyball.testing import ScriptedModel

from .audit_result import audit_run
from .random_agents import Book, Story, ToldRules, look

LIMITS = Limits(turns=4, retries=2, nudges=1, seconds=3_600)
"""The auditor knows no defaults, so these limits are explicit."""
CALL = Reply("It looks.", (Call("a", "look", "{}"),), Usage(300, 20), Finish.CALLS)


def play(
    limits: Limits, signals: Mapping[int, list[Signal]], halts_at: Point | None = None
) -> tuple[Agent, Plan, Story, Result]:
    """Play a run whose model always calls a tool. `signals` come with the n-th answer."""
    book = Book(bytes(1))

    def hook(point: Point, progress: Progress, about: object = None, /) -> Any:
        return book.tell_orders(point, progress, None, [Halt("hook")] if point is halts_at else [])

    agent = Agent(model=ScriptedModel(), tools=[look], limits=limits, hooks=[hook], sinks=[book.record])
    ToldRules.install(agent, book)
    plan = agent.plan("Go.", run_id="run")
    player, story = LoopPlayer(replace(plan), Recorder(plan.header, agent.sinks)), book.stories["run"]
    effect = player.start()
    while effect is not None:
        answer = Answer(_answer(effect), 0.0, signals.get(len(player.answers), ()))
        story += [effect, answer]
        effect = player.send(answer)
    assert player.result is not None
    return agent, plan, story, player.result


def _answer(effect: Effect[Any]) -> Any:
    match effect:
        case Ask():
            return CALL
        case Act(acts):
            return [Success(call_id=act.call.id, tool=act.call.name, content="4") for act in acts]
        case _:
            return None


@pytest.mark.parametrize(
    ("halts_at", "signals", "stop"),
    [
        (Point.TOOL_ENDED, {}, "budget"),
        (Point.TOOL_ENDED, {1: [Extend({"tool_calls": 1})]}, "halted"),
        (None, {1: [Extend({"tool_calls": 1}), Stalled(3.0)]}, "stalled"),
    ],
)
def test_a_limit_that_is_raised_during_the_report_no_longer_hides_a_weaker_reason(
    halts_at: Point | None, signals: Mapping[int, list[Signal]], stop: str
) -> None:
    agent, plan, story, result = play(replace(LIMITS, tool_calls=0), signals, halts_at)
    assert result.stop == stop
    audit_run(agent, plan, story, result)


@pytest.mark.parametrize(
    "changes",
    [{"requests": 1}, {"flags": ()}, {"usage": Usage(1, 1)}, {"events": ()}, {"state": {"k": 1}}, {"text": ""}],
    ids=str,
)
def test_a_result_that_differs_from_its_story_is_rejected(changes: dict[str, Any]) -> None:
    agent, plan, story, result = play(LIMITS, {})
    audit_run(agent, plan, story, result)
    with pytest.raises(AssertionError):
        audit_run(agent, plan, story, replace(result, **changes))
