"""Servers that cannot answer: the run fails at once, with the cause and what to check."""

import socket

import pytest

from flyball import Agent, Limits, Result
from flyball.models import AnthropicModel, GeminiModel, OpenAIModel, ResponsesModel
from flyball.models.failures import is_unreachable
from flyball.models.http import HttpModel
from flyball.testing import ModelServer, say, status


def free_url() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}/v1"


def run(url: str, limits: Limits) -> Result:
    return Agent(model=OpenAIModel("m", url=url), limits=limits).run("Go.")


@pytest.mark.parametrize("limits", [Limits(), Limits(seconds=3)])
def test_a_refused_connection_fails_at_once_with_its_cause(limits: Limits) -> None:
    url = free_url()
    result = run(url, limits)
    assert (result.stop, result.flags, result.budgets["retries"].used, result.turns) == ("failed", (), 0, 0)
    assert url in result.explain()
    assert "check" in result.explain()


def test_the_error_tells_where_the_address_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    url = free_url()
    assert f"{url} (given with the model)" in run(url, Limits()).explain()
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    result = Agent(model=OpenAIModel("m", key="k")).run("Go.")
    assert f"{url} (from OPENAI_BASE_URL)" in result.explain()


def test_an_unknown_host_fails_at_once() -> None:
    result = run("http://no-such-host.invalid/v1", Limits())
    assert (result.stop, result.budgets["retries"].used) == ("failed", 0)
    assert "check" in result.explain()


@pytest.mark.parametrize("code", [401, 403, 404])
@pytest.mark.parametrize("kind", [OpenAIModel, AnthropicModel, ResponsesModel, GeminiModel])
def test_a_rejected_request_fails_after_one_try(code: int, kind: type[HttpModel]) -> None:
    with ModelServer.looping(status(code, "no")) as server:
        result = Agent(model=kind("m", url=f"{server.url}/v1", key="k"), limits=Limits()).run("Go.")
        assert len(server.requests) == 1
    assert result.stop == "failed"
    if code == 404:
        assert "check the model's name" in result.explain()


def test_a_server_that_breaks_off_is_retried() -> None:
    with ModelServer(status(503, "busy", headers={"retry-after-ms": "1"}), say("done")) as server:
        result = run(f"{server.url}/v1", Limits())
    assert (result.stop, result.budgets["retries"].used) == ("completed", 1)


def test_a_name_that_cannot_be_resolved_now_may_be_later() -> None:
    assert is_unreachable(socket.gaierror(socket.EAI_NONAME, "unknown"))
    assert not is_unreachable(socket.gaierror(socket.EAI_AGAIN, "try again"))
    group = ExceptionGroup("all", [ConnectionRefusedError(), ConnectionRefusedError()])
    assert is_unreachable(group)
    assert not is_unreachable(ExceptionGroup("all", [ConnectionRefusedError(), TimeoutError()]))
    assert not is_unreachable(ValueError())
