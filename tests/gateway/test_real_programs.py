"""Two real command lines under the gateway, installed from their locks. `make test-exec` has all of them.

An installation that fails is a failure here, and no reason to skip.
"""

import pytest
from exec_programs import CommandLine, govern, run_free
from exec_table import CLAUDE, LLM, STORIES

SUB_AGENT = next(line for line in STORIES if line.label == "claude, background sub-agent")


@pytest.mark.parametrize("line", [CLAUDE, LLM, SUB_AGENT], ids=lambda line: line.label)
def test_a_real_program_makes_the_allowed_turns_and_one_report_a_conversation(line: CommandLine) -> None:
    outcome = govern(line)
    assert list(outcome.iter_problems()) == [], outcome.output[-2_000:]


@pytest.mark.parametrize("line", [CLAUDE, LLM], ids=lambda line: line.label)
def test_the_stand_in_for_the_outside_sees_a_program_that_is_not_pointed_at_the_gateway(line: CommandLine) -> None:
    assert [arrival for arrival in run_free(line) if arrival.host.startswith("api.")] != []
