"""A run replayed from its journal tells the same events, whoever drove it and however often it was killed."""

import signal
from pathlib import Path
from typing import Any

import pytest

from flyball import Agent
from flyball.loop.player import LoopPlayer
from flyball.recorder import Recorder
from flyball.runtime.history import parse_journal, restore_plan
from flyball.store import Store, open_store

_OF_THE_STORE = ("seq", "time")
"""What an event has of when it was written."""


def replayed(agent: Agent, store: Store) -> list[dict[str, Any]]:
    """The events of a loop that is told again what it was told, with no model, tool or clock."""
    rows = store.journal.read("run")
    plan = restore_plan(agent.plan("Again.", run_id="run"), rows[0].data, store.transcript)
    plan.has_transcript, plan.stored_count = True, len(plan.messages)
    recorder = Recorder(plan.header)
    player, answers = LoopPlayer(plan, recorder), parse_journal(rows).answers
    assert player.replay(answers) == len(answers)
    assert player.result is not None
    return [event.to_dict() for event in recorder.events]


def without(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if key not in _OF_THE_STORE} for event in events]


@pytest.mark.parametrize("kill_at", [None, 0, 7, 19, 33])
def test_a_journal_gives_the_same_events(kill_at: int | None, nursery: Any, program: Any, tmp_path: Path) -> None:
    if kill_at is not None:
        assert nursery.start(tmp_path, kill_at=kill_at, after=True, asked=True).ended() == -signal.SIGKILL
    nursery.start(tmp_path, asked=True).said()
    place = program.Place(tmp_path)
    with open_store(place.address) as store:
        told, again = store.runs.events("run"), replayed(program.agent_of(place, store), store)
    assert len(told) > 40
    assert without(again) == without(told)
    assert [event["seq"] for event in told] == list(range(len(told)))
