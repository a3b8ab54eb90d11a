"""The end of a governed program: reports, synthetic replies, errors, and the end of one that goes on."""

import json
from collections import Counter

import pytest

from flyball import Limits
from flyball.gateway import Gateway, GatewayOptions
from flyball.testing.server import LoopingProvider

from .conftest import Run, ask, environment_for

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


TOOL = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}


def go_on(gateway: Gateway, count: int) -> list[tuple[int, str]]:
    """Go on with the state at the provider, whatever was replied; return status and kind of each reply."""
    told, body = list[tuple[int, str]](), {"model": "gpt-4o", "input": "Go.", "tools": [TOOL]}
    for _ in range(count):
        status, reply = ask(gateway, "/responses", body)
        told.append((status, reply["output"][0]["type"] if status == 200 else reply["error"]["code"]))
        if status == 200:
            body["previous_response_id"] = reply["id"]
            results = [
                {"type": "function_call_output", "call_id": item["call_id"], "output": "1"}
                for item in reply["output"]
                if item["type"] == "function_call"
            ]
            body["input"] = results or "Go on."
    return told


def test_synthetic_replies_belong_to_their_conversation_also_with_state_at_the_provider(
    provider: LoopingProvider,
) -> None:
    with Gateway(GatewayOptions(limits=Limits(turns=2), environment=environment_for(provider))) as gateway:
        told = go_on(gateway, 8)
    assert told == [(200, "function_call")] * 2 + [(200, "message")] * 3 + [(400, "run_ended")] * 3
    assert [(chat.turns, chat.requests) for chat in gateway.chats] == [(2, 3)]


def test_the_id_of_a_synthetic_reply_is_never_sent_to_the_provider(provider: LoopingProvider) -> None:
    options = GatewayOptions(limits=Limits(turns=1), per="task", environment=environment_for(provider))
    with Gateway(options) as gateway:
        go_on(gateway, 2)
        told, body = list[str](), {"model": "gpt-4o", "input": "Another conversation."}
        for _ in range(2):  # the second request is a further task, so it has a turn
            reply = ask(gateway, "/responses", body)[1]
            told.append(reply["id"])
            body |= {"previous_response_id": reply["id"], "input": "Go on."}
    assert (told[0].startswith("resp_flyball_"), told[1]) == (True, "resp_2")
    assert "previous_response_id" not in provider.requests[-1].body
