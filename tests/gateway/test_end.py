"""The end of a governed program: reports, synthetic replies, errors, and the end of one that goes on."""

import json
from collections import Counter

import pytest

from flyball import Limits
from flyball.testing.server import LoopingProvider

from .conftest import Run

REPORT = "The report: the task is not finished."


@pytest.mark.parametrize("mode", ["many", "same"])
def test_fifty_agents_at_once_share_twenty_turns_and_report_once_each(
    run: Run, provider: LoopingProvider, mode: str
) -> None:
    ran = run(provider, "plain_agent.py", mode, "50", limits=Limits(turns=20))
    answers: list[str] = json.loads(ran.output)["answers"]
    assert provider.refused == []
    reports = provider.last_requests
    assert (len(provider.requests) - reports, ran.execution.result.turns, ran.code) == (20, 20, 0)
    had_a_turn = sum(chat.turns > 0 for chat in ran.execution.conversations)
    assert reports == had_a_turn == answers.count(REPORT)
    assert len(answers) == 50
    assert sum("before this conversation began" in answer for answer in answers) == 50 - had_a_turn


def test_a_loop_of_single_requests_sends_exactly_the_allowed_ones(run: Run, provider: LoopingProvider) -> None:
    ran = run(provider, "plain_agent.py", "shots", "40", limits=Limits(turns=5))
    assert len(provider.requests) == 5
    assert json.loads(ran.output)["statuses"] == [200] * 40
    assert (ran.code, ran.stop) == (0, "budget")


def test_a_program_that_goes_on_after_its_report_gets_two_replies_and_then_errors(
    run: Run, provider: LoopingProvider
) -> None:
    ran = run(provider, "plain_agent.py", "stubborn", "99")
    output = json.loads(ran.output)
    assert len(provider.requests) == 4
    assert Counter(output["statuses"]) == {200: 3 + 1 + 2, 400: 1}
    assert output["answers"][0].endswith("Maximum agent iterations (3) reached.")
    assert ran.code == 0


def test_a_program_that_goes_on_in_spite_of_errors_is_ended(run: Run, provider: LoopingProvider) -> None:
    ran = run(provider, "plain_agent.py", "shots", "100000", limits=Limits(turns=1, seconds=50))
    assert len(provider.requests) == 1
    assert (ran.code, ran.stop) == (None, "budget")
    assert ran.execution.result.seconds < 40
