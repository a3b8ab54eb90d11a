"""Unmodified programs, each an endless tool loop, under a limit of turns."""

import json

import pytest

from flyball import Limits
from flyball.testing.server import LoopingProvider

from .conftest import Run

TURNS = 3
PROGRAMS = [
    *(("openai_agent.py", name) for name in ("chat", "stream", "trimmed", "responses", "responses_stream", "state")),
    *(("anthropic_agent.py", name) for name in ("whole", "stream", "thinking", "cached")),
]


@pytest.mark.parametrize(("program", "variant"), PROGRAMS, ids=[f"{name}-{variant}" for name, variant in PROGRAMS])
def test_an_endless_program_makes_the_allowed_turns_and_one_report_and_ends_by_itself(
    run: Run, provider: LoopingProvider, program: str, variant: str
) -> None:
    ran = run(provider, program, variant)
    assert provider.refused == []
    assert (len(provider.requests), provider.last_requests) == (TURNS + 1, 1)
    assert (ran.code, ran.stop) == (0, "budget")
    assert ran.output.strip() == "The report: the task is not finished."
    assert (ran.execution.result.turns, ran.execution.result.text) == (TURNS, ran.output.strip())
    assert len(ran.execution.conversations) == 1


@pytest.mark.parametrize("mode", ["gemini", "gemini_stream"])
def test_a_program_that_asks_gemini_is_governed_in_the_same_way(run: Run, provider: LoopingProvider, mode: str) -> None:
    ran = run(provider, "plain_agent.py", mode, limits=Limits(turns=TURNS, usd=1))
    assert (len(provider.requests), provider.last_requests) == (TURNS + 1, 1)
    assert json.loads(ran.output)["answers"] == ["The report: the task is not finished."]
    assert (ran.code, ran.stop, len(ran.execution.conversations)) == (0, "budget", 1)
    assert ran.execution.result.cost["gemini-2.5-flash"] > 0
    assert provider.requests[0].headers["x-goog-api-key"] == "AIza-real-key-of-the-user"


def test_an_answer_with_a_schema_keeps_its_schema_in_the_report(run: Run) -> None:
    with LoopingProvider(report=json.dumps({"text": "Not finished."})) as provider:
        ran = run(provider, "openai_agent.py", "schema")
    assert (len(provider.requests), provider.last_requests, provider.refused) == (TURNS + 1, 1, [])
    assert json.loads(ran.output) == {"text": "Not finished."}
    assert "response_format" in provider.requests[-1].body
