"""`exec_env`: the variables of this process for a while. What they reach, and what they do not."""

import os
import subprocess
import sys
from typing import Any

import httpx2
import openai
import pytest

from flyball import Limits
from flyball.errors import Ungoverned, UsageError
from flyball.gateway import exec_env
from flyball.testing.server import LoopingProvider

from .conftest import PROGRAMS, REAL_KEY, environment_for
from .transport_loops import REPORT, TOOLS

MESSAGES: Any = [{"role": "user", "content": "Go."}]


@pytest.fixture(autouse=True)
def in_environment(provider: LoopingProvider, monkeypatch: pytest.MonkeyPatch) -> LoopingProvider:
    for name, value in environment_for(provider).items():
        monkeypatch.setenv(name, value)
    return provider


def ask(client: openai.OpenAI) -> None:
    client.chat.completions.create(model="gpt-4o", messages=MESSAGES, tools=TOOLS)  # pyright: ignore[reportArgumentType]


def test_clients_that_are_created_in_the_block_are_governed(provider: LoopingProvider) -> None:
    with exec_env(Limits(turns=3)) as governed, openai.OpenAI() as client:
        for _ in range(2):
            ask(client)
        assert client.api_key != REAL_KEY
    assert (governed.result.turns, governed.result.stop) == (2, "completed")
    assert {request.headers["authorization"] for request in provider.requests} == {f"Bearer {REAL_KEY}"}


def test_programs_that_the_block_starts_with_its_environment_are_governed(provider: LoopingProvider) -> None:
    with exec_env(Limits(turns=3)) as governed:
        program = [sys.executable, str(PROGRAMS / "plain_agent.py"), "loop"]
        done = subprocess.run(program, capture_output=True, text=True, timeout=30)
    assert REPORT in done.stdout
    assert (governed.result.turns, governed.result.stop, len(provider.requests)) == (3, "budget", 4)


def test_a_client_that_was_created_before_is_not_governed_and_that_is_an_error(provider: LoopingProvider) -> None:
    early = openai.OpenAI()
    with early, pytest.raises(Ungoverned, match="created before the block"), exec_env(Limits(turns=3)):
        ask(early)
    assert len(provider.requests) == 1
    with exec_env(Limits(turns=3), allow_ungoverned=True) as governed:
        pass
    assert governed.result.requests == 0


def test_an_address_in_code_is_not_governed_but_has_no_key_of_the_environment(provider: LoopingProvider) -> None:
    with exec_env(Limits(turns=3)) as governed:
        with openai.OpenAI() as client:
            ask(client)
        with openai.OpenAI(base_url=f"{provider.url}/v1") as client:
            ask(client)
    assert governed.result.requests == 1
    assert [REAL_KEY in request.headers["authorization"] for request in provider.requests] == [True, False]


def test_the_variables_are_restored_also_after_an_error() -> None:
    before = dict(os.environ)
    with pytest.raises(ValueError, match="mine"), exec_env(Limits(turns=3)) as governed:
        assert "127.0.0.1" in os.environ["NO_PROXY"]
        os.environ["OF_THE_BLOCK"] = "1"
        raise ValueError("mine")
    assert os.environ.pop("OF_THE_BLOCK") == "1"
    assert dict(os.environ) == before
    assert governed.result.stop == "failed"


def test_a_second_block_at_once_and_a_second_use_are_errors() -> None:
    first = exec_env(Limits(turns=3), allow_ungoverned=True)
    with first, pytest.raises(UsageError, match="one environment"), exec_env(Limits(turns=3)):
        pass
    with pytest.raises(UsageError, match="already used"), first:
        pass
    with exec_env(Limits(turns=3), allow_ungoverned=True):
        pass


def test_a_variable_that_leads_around_the_gateway_is_an_error_before_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CODE_USE_BEDROCK", "1")
    with pytest.raises(Ungoverned, match="CLAUDE_CODE_USE_BEDROCK"), exec_env(Limits(turns=3)):
        pass


def test_a_request_without_the_stand_in_is_refused() -> None:
    with exec_env(Limits(turns=3), allow_ungoverned=True):
        url = os.environ["OPENAI_BASE_URL"]
        assert httpx2.post(f"{url}/chat/completions", headers={"authorization": "Bearer x"}).status_code == 401
