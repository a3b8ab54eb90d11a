"""Journals of runs without a store: which one a run gets, and what the one for pauses keeps."""

from pathlib import Path
from typing import Any

import pytest

from flyball import Agent, tool
from flyball.errors import UsageError
from flyball.loop import Answer, Ask, Decide, Fingerprint, Wait
from flyball.loop.effects import Steer, TimeUp
from flyball.loop.player import LoopPlayer
from flyball.person import Question, Verdict
from flyball.progress import Point, Progress
from flyball.recorder import Recorder
from flyball.request import Purpose, Reply, Request
from flyball.result import Result, Stop
from flyball.runtime.effect_journal import NULL_JOURNAL, PauseJournal, build_journal
from flyball.runtime.history import PausedRun
from flyball.testing import RuleFolder, ScriptedModel, say

EFFECTS: list[Any] = [Ask(Request((), purpose=Purpose.TURN), 9.0, 0), Wait(1.0), Decide(Question("q", "May I?"))]
ANSWERS: list[Answer[Any]] = [
    Answer(Reply("x"), 1.0),
    Answer(None, 2.0),
    Answer(Verdict(None), 2.5, [Steer("Hurry."), TimeUp()]),
]


@tool(approve=True)
def delete() -> None:
    """Delete it."""


def approve(question: Question) -> bool:
    return True


def watch(point: Point, progress: Progress, about: object = None, /) -> tuple[()]:
    return ()


def agent_of(**options: Any) -> Agent:
    return Agent(model=ScriptedModel(say("x")), **options)


def recorded() -> PauseJournal:
    journal = PauseJournal()
    for effect in EFFECTS:
        journal.described.extend(effect.describe())
    return journal


def paused() -> PausedRun:
    plan, result = agent_of().plan("go"), Result(stop=Stop.PAUSED, run_id="run", sink_errors=3)
    return PausedRun(plan, recorded().read_history(ANSWERS), result, [Steer("Now."), TimeUp()], None)


@pytest.mark.parametrize(
    ("options", "can_pause"),
    [
        ({}, False),
        ({"approver": approve}, False),
        ({"tools": [delete]}, True),
        ({"on_exhausted": "ask"}, True),
        ({"hooks": [watch]}, True),
    ],
    ids=["plain", "approver only", "approval tool", "asks for more", "hook"],
)
def test_only_a_run_that_can_pause_records_its_effects(options: dict[str, Any], can_pause: bool) -> None:
    journal = build_journal(agent_of(**options).plan("go").spec)
    assert isinstance(journal, PauseJournal) is can_pause
    assert (journal is NULL_JOURNAL) is not can_pause


@pytest.mark.parametrize(("action", "can_pause"), [("ask", True), ("log", False)])
def test_a_run_whose_rule_asks_a_person_before_a_turn_can_pause(tmp_path: Path, action: str, can_pause: bool) -> None:
    rules = RuleFolder(tmp_path).add("on_turn_start", f'type = "{action}"\nmessage = "Go on?"').load()
    journal = build_journal(agent_of(rules=rules).plan("go").spec)
    assert isinstance(journal, PauseJournal) is can_pause


def test_a_pause_journal_has_the_fingerprints_and_the_question() -> None:
    history, fingerprint = recorded().read_history(ANSWERS), Fingerprint()
    assert [one.fingerprint for one in history.started] == [fingerprint.add(effect) for effect in EFFECTS]
    assert [one.question for one in history.started] == [None, None, "q"]
    assert (history.answers, history.at) == (ANSWERS, 2.5)


def test_a_paused_run_keeps_the_answers_before_its_question_and_the_signals_since() -> None:
    history = paused().history
    assert (history.answers, len(history.started), history.sink_errors) == (ANSWERS[:2], 3, 3)
    assert history.signals == [Steer("Hurry."), Steer("Now.")]
    assert history.unanswered is history.started[2]


def test_a_resumed_journal_matches_the_same_effects_only() -> None:
    pause = paused()
    journal = PauseJournal(pause)
    assert journal.history is pause.history
    assert not journal.matches(pause.history.started[0], Wait(1.0))
    for started, effect in zip(pause.history.started, EFFECTS, strict=True):
        assert journal.matches(started, effect)
        journal.record_replayed(effect)


def test_a_player_describes_each_answered_effect_for_the_journal() -> None:
    journal, plan = PauseJournal(), agent_of().plan("go")
    player = LoopPlayer(plan, Recorder(plan.header), journal.described)
    effect = player.start()
    assert isinstance(effect, Ask)
    assert journal.described == []
    player.send(Answer(Reply("x"), 1.0))
    assert tuple(journal.described) == effect.describe()
    assert len(journal.read_history(player.answers).started) == 1


def test_a_paused_run_is_claimed_once_unless_it_is_released() -> None:
    pause = paused()
    pause.claim()
    with pytest.raises(UsageError):
        pause.claim()
    PauseJournal(pause).release()
    pause.claim()
