"""LoopPlayer: start, send, replay and close, with answers made by hand."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from flyball import Agent
from flyball.event import Header
from flyball.loop import Answer, Ask, Effect
from flyball.loop.effects import Cancel
from flyball.loop.player import LoopPlayer
from flyball.progress import Order, Point, Progress
from flyball.recorder import Recorder
from flyball.request import Reply, Usage
from flyball.testing import ScriptedModel, say

ANSWER = Answer[Any](Reply("hello", usage=Usage(1, 1)), 2.0)


def player_of(hook: Callable[..., Sequence[Order]] | None = None) -> tuple[LoopPlayer, Recorder]:
    agent = Agent(model=ScriptedModel(say("never asked")), hooks=() if hook is None else (hook,))
    recorder = Recorder(Header("run"))
    return LoopPlayer(agent.plan("Go.", run_id="run"), recorder), recorder


def test_a_player_yields_effects_until_the_result() -> None:
    player, _ = player_of()
    assert (player.effect, player.result) == (None, None)
    effect = player.start()
    assert isinstance(effect, Ask)
    assert player.effect is effect
    assert player.send(ANSWER) is None
    assert player.effect is None
    assert player.result is not None
    assert (player.result.text, player.result.seconds, player.answers) == ("hello", 2.0, [ANSWER])


def test_signals_of_an_answer_reach_the_loop() -> None:
    player, _ = player_of()
    player.start()
    player.send(Answer(ANSWER.value, 1.0, [Cancel("me")]))
    assert player.result is not None
    assert (player.result.stop, player.result.stopped_by) == ("cancelled", "me")


def test_replay_sends_answers_to_the_end_and_ignores_the_rest() -> None:
    player, _ = player_of()
    assert player.replay([ANSWER, ANSWER]) == 1
    assert player.result is not None


def test_replay_stops_before_the_first_effect_that_does_not_match() -> None:
    seen: list[tuple[int, Effect[Any], Answer[Any]]] = []

    def matches(n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        seen.append((n, effect, answer))
        return False

    player, _ = player_of()
    assert player.replay([ANSWER], matches) == 0
    assert isinstance(player.effect, Ask)
    assert (seen, player.answers) == ([(0, player.effect, ANSWER)], [])


def test_a_closed_player_has_told_the_end_of_its_run() -> None:
    player, recorder = player_of()
    player.start()
    player.close()
    assert recorder.events[-1].kind == "run_ended"


def test_a_loop_that_raises_has_no_effect_and_no_result() -> None:
    def interrupt(point: Point, progress: Progress, about: object = None, /) -> tuple[()]:
        if point is Point.TURN_ENDED:
            raise KeyboardInterrupt
        return ()

    player, _ = player_of(interrupt)
    player.start()
    with pytest.raises(KeyboardInterrupt):
        player.send(ANSWER)
    assert (player.effect, player.result) == (None, None)
