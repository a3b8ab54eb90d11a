"""Limits of turns and time for each message of the user of an interactive program."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from flyball import IterationBudgetRegistry, Limits
from flyball.gateway import Gateway, GatewayOptions
from flyball.testing import call
from flyball.testing.server import LoopingProvider

from .conftest import BOUND_S, PROGRAMS, Run, environment_for

REPORT = "The report: the task is not finished."
Exec = Callable[..., subprocess.CompletedProcess[str]]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": PARAMETERS}}]
PLAIN = [sys.executable, str(PROGRAMS / "plain_agent.py")]


def test_each_message_of_the_user_has_turns_of_its_own(run: Run, provider: LoopingProvider) -> None:
    ran = run(provider, "plain_agent.py", "chat", "2", limits=Limits(turns=3), per="task")
    assert json.loads(ran.output) == {"answers": [REPORT] * 2, "statuses": [200] * 8}
    assert (len(provider.requests), provider.last_requests, provider.refused) == (8, 2, [])
    assert (ran.code, ran.stop, ran.execution.result.turns) == (0, "budget", 6)
    assert len(ran.execution.conversations) == 1


def test_turns_for_tasks_are_not_bounded_by_the_maximum_of_a_run(run: Run, provider: LoopingProvider) -> None:
    registry = IterationBudgetRegistry(settings={"clamp.max_iterations": "3"})
    ran = run(provider, "plain_agent.py", "chat", "3", limits=Limits(turns=9), per="task", registry=registry)
    assert (len(provider.requests), provider.last_requests) == (12, 3)
    assert ran.execution.result.turns == 9


def test_all_messages_share_the_turns_of_the_program_by_default(run: Run, provider: LoopingProvider) -> None:
    ran = run(provider, "plain_agent.py", "chat", "2", limits=Limits(turns=3))
    answers = json.loads(ran.output)["answers"]
    assert (answers[0], len(provider.requests), provider.last_requests) == (REPORT, 4, 1)
    assert "Stopped by flyball" in answers[1]


@pytest.mark.parametrize("limits", [Limits(turns=3, tokens=4_000), Limits(turns=3, usd=0.02)])
def test_tokens_and_money_remain_those_of_the_program(run: Run, limits: Limits) -> None:
    with LoopingProvider() as provider:
        ran = run(provider, "plain_agent.py", "chat", "9", limits=limits, per="task")
    answers = json.loads(ran.output)["answers"]
    assert answers[0] == REPORT
    assert "Stopped by flyball" in answers[-1]
    budgets = ran.execution.result.budgets
    budget = budgets["tokens" if budgets["tokens"].ceiling else "usd"]
    assert budget.ceiling
    assert budget.used <= budget.ceiling
    assert ran.stop == "budget"


def test_each_message_of_the_user_has_time_of_its_own_and_waiting_for_it_takes_none(run: Run) -> None:
    with LoopingProvider(call("add", a=1).after(0.3)) as provider:
        environment = environment_for(provider, PAUSE_S="1.7")
        limits = Limits(turns=100, seconds=1.6)
        ran = run(provider, "plain_agent.py", "chat", "2", limits=limits, per="task", environment=environment)
    assert json.loads(ran.output)["answers"] == [REPORT] * 2
    assert (provider.last_requests, ran.code, ran.stop) == (2, 0, "deadline")
    assert ran.execution.result.seconds > 3.4


def ask(gateway: Gateway, *messages: str, session: str = "") -> dict[str, Any]:
    """Send a history in which the user and the model take turns."""
    roles = [("user", "assistant")[number % 2] for number in range(len(messages))]
    history = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=True)]
    body = {"model": "gpt-4o", "messages": history, "tools": TOOLS}
    given = gateway.environment
    headers = {"authorization": f"Bearer {given['OPENAI_API_KEY']}", "x-session-id": session}
    reply = httpx2.post(f"{given['OPENAI_BASE_URL']}/chat/completions", json=body, headers=headers, timeout=BOUND_S)
    return reply.json()["choices"][0]["message"]


def test_a_message_to_an_agent_that_another_one_called_is_no_new_task(provider: LoopingProvider) -> None:
    options = GatewayOptions(limits=Limits(turns=3), environment=environment_for(provider), per="task")
    with Gateway(options) as gateway:
        assert ask(gateway, "Call the other agent.")["tool_calls"]
        assert ask(gateway, "Do this.")["tool_calls"]
        assert ask(gateway, "Do this.", "It is done.", "Do that.")["tool_calls"]
        assert ask(gateway, "Do this.", "It is done.", "Do that.", "Done, too.", "Go on.")["content"] == REPORT
    assert gateway.result.turns == 3


def test_a_history_that_the_program_has_shortened_is_no_new_task(provider: LoopingProvider) -> None:
    options = GatewayOptions(limits=Limits(turns=2), environment=environment_for(provider), per="task")
    with Gateway(options) as gateway:
        assert ask(gateway, "Do this.", session="one")["tool_calls"]
        assert ask(gateway, "A summary of what was done.", session="one")["tool_calls"]
        assert ask(gateway, "A shorter summary of it.", session="one")["content"] == REPORT
        assert ask(gateway, "A shorter summary.", "The end.", "Do that.", session="one")["tool_calls"]
    assert gateway.result.turns == 3


def test_the_option_is_said_at_the_start(flyball_exec: Exec, provider: LoopingProvider) -> None:
    done = flyball_exec(provider, "--turns", "3", "--per", "task", "--", *PLAIN, "chat", "2")
    assert (done.returncode, json.loads(done.stdout)["answers"]) == (0, [REPORT] * 2)
    assert done.stderr.splitlines()[0].endswith("; turns and seconds for each message of the user")


@pytest.mark.parametrize("arguments", [("--per", "day"), ("--per", "task", "--observe")])
def test_an_option_that_cannot_hold_is_refused(
    flyball_exec: Exec, provider: LoopingProvider, arguments: tuple[str, ...]
) -> None:
    done = flyball_exec(provider, *arguments, "--", *PLAIN, "chat", "2")
    assert done.returncode == 2
    assert "--per" in done.stderr
    assert provider.requests == []
