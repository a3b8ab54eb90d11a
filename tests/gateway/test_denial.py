"""Calls that are denied: the program never sees them, and the model learns why."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.rules import RuleSet
from flyball.testing import call, say, together
from flyball.testing.server import LoopingProvider, ModelServer, sent

from .conftest import Run, environment_for

RULE = """
[rule]
id = "no-delete"
trigger = "on_tool_call"

[condition]
expression = "context.call.tool_name == 'delete'"

[action]
type = "deny"
message = "deleting is not allowed"
"""
PROMPT = [{"role": "user", "content": "Go."}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMES = ("add", "delete")
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {
        "model": "gpt-4o",
        "messages": PROMPT,
        "tools": [{"type": "function", "function": {"name": name, "parameters": SCHEMA}} for name in NAMES],
    },
    "/messages": {
        "model": "claude-sonnet-4-5",
        "max_tokens": 200,
        "messages": PROMPT,
        "tools": [{"name": name, "input_schema": SCHEMA} for name in NAMES],
    },
    "/responses": {
        "model": "gpt-4o",
        "input": "Go.",
        "tools": [{"type": "function", "name": name, "parameters": SCHEMA} for name in NAMES],
    },
}


def ask(gateway: Gateway, path: str, stream: bool) -> tuple[int, str]:
    name = "ANTHROPIC" if path == "/messages" else "OPENAI"
    key, url = gateway.environment[f"{name}_API_KEY"], gateway.environment[f"{name}_BASE_URL"]
    with httpx2.Client(timeout=30) as client:
        headers = {"authorization": f"Bearer {key}"}
        reply = client.post(f"{url}{path}", json=BODIES[path] | {"stream": stream}, headers=headers)
    return reply.status_code, reply.text


@pytest.fixture
def rules(tmp_path: Path) -> RuleSet:
    (tmp_path / "rules.toml").write_text(RULE)
    return RuleSet.load(tmp_path, strict=True)


def options_for(server: ModelServer, rules: RuleSet) -> GatewayOptions:
    return GatewayOptions(limits=Limits(turns=9), rules=rules, environment=environment_for(server))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", BODIES)
def test_a_reply_of_denied_calls_only_is_answered_by_the_gateway(path: str, stream: bool, rules: RuleSet) -> None:
    script = [call("delete", a=1), say("All done.")]
    with ModelServer.looping(*script) as server, Gateway(options_for(server, rules)) as gateway:
        status, text = ask(gateway, path, stream)
    assert status == 200
    assert "done." in text
    assert '"delete"' not in text
    assert len(server.requests) == 2
    assert "denied: deleting is not allowed" in json.dumps(server.requests[1].body)
    assert (gateway.result.turns, gateway.result.requests) == (2, 2)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", BODIES)
def test_the_other_calls_of_a_reply_go_on(path: str, stream: bool, rules: RuleSet) -> None:
    line = sent(together(call("add", a=1), call("delete", a=2), call("add", a=3)), ids=["one", "two", "three"])
    with ModelServer.looping(line) as server, Gateway(options_for(server, rules)) as gateway:
        status, text = ask(gateway, path, stream)
    assert status == 200
    assert ("one" in text, "two" in text, "three" in text, '"delete"' in text) == (True, False, True, False)
    assert len(server.requests) == 1


def test_a_program_never_makes_more_calls_than_allowed(run: Run) -> None:
    with LoopingProvider(together(call("add", a=1), call("add", a=2))) as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=50, tool_calls=5))
    assert (ran.code, ran.stop, provider.refused) == (0, "budget", [])
    last = provider.requests[-1].body["messages"]
    assert sum(message["role"] == "tool" for message in last) == 5
    assert ran.execution.result.budgets["tool_calls"].used == 5
    assert (len(provider.requests), provider.last_requests) == (4, 1)


def test_a_limit_for_one_tool_denies_its_calls_only(run: Run) -> None:
    with LoopingProvider() as provider:
        ran = run(provider, "plain_agent.py", "loop", limits=Limits(turns=6, calls={"add": 2}))
    assert (ran.code, provider.refused) == (0, [])
    last = json.dumps(provider.requests[-1].body["messages"])
    assert last.count('"tool_call_id"') - last.count("denied: ") == 2
