"""The run of a transport: when it begins and ends, its one reason, its record, and budgets shared with other runs."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

import flyball
from flyball import Agent, Limits, tool
from flyball.adapters.adapter_options import AdapterOptions
from flyball.adapters.framework_run import FrameworkRun
from flyball.adapters.frameworks import OPENAI_AGENTS
from flyball.errors import UsageError
from flyball.event import Event, ToolEnded
from flyball.history.record import RunRecord, Starter
from flyball.rules import RuleSet
from flyball.store import Entry, open_store
from flyball.testing import ScriptedModel, call, say
from flyball.testing.server import LoopingProvider, ModelServer

from .conftest import environment_for
from .transport_loops import ONCE, REPORT, govern, loop

RULE = """
[rule]
id = "no-add"
trigger = "on_tool_call"

[condition]
expression = "context.call.tool_name == 'add'"

[action]
type = "deny"
message = "adding is not allowed"
"""


def ask(client: Any, server: ModelServer) -> Any:
    return client.post(f"{server.url}/v1/chat/completions", json=ONCE)


def read_stop(entry: Entry | None) -> str | None:
    return None if entry is None or entry.finish is None else entry.finish.stop


def count_threads() -> int:
    return sum("transport" in thread.name for thread in threading.enumerate())


def test_without_a_with_block_the_run_ends_with_end_and_not_with_its_clients(provider: LoopingProvider) -> None:
    governed = govern(provider)
    first, second = governed.http_client(), httpx2.Client(transport=governed)
    with pytest.raises(UsageError, match="after its with block, or after end"):
        _ = governed.result
    assert ask(first, provider).status_code == 200
    first.close()
    assert ask(second, provider).status_code == 200
    second.close()
    assert count_threads() == 1
    governed.end()
    governed.end()
    assert (governed.result.turns, governed.result.stop, count_threads()) == (2, "completed", 0)


def test_requests_share_one_connection_to_the_provider(provider: LoopingProvider) -> None:
    with govern(provider, Limits(turns=20)) as governed, governed.http_client() as client:
        for _ in range(20):
            assert ask(client, provider).status_code == 200
    assert provider.connections == 1


def test_a_request_after_the_end_is_refused_with_an_error_that_clients_do_not_retry(provider: LoopingProvider) -> None:
    with govern(provider) as governed:
        client = governed.http_client()
    response = ask(client, provider)
    assert (response.status_code, response.headers["x-should-retry"]) == (403, "false")
    assert "the run of this transport has ended" in response.json()["error"]["message"]
    assert provider.requests == []
    with pytest.raises(UsageError, match="open another transport"), governed:
        pass


@pytest.mark.parametrize(
    ("error", "stop"), [(ValueError("mine"), "failed"), (KeyboardInterrupt(), "cancelled"), (None, "completed")]
)
def test_the_end_of_the_block_gives_the_one_reason(
    provider: LoopingProvider, error: BaseException | None, stop: str
) -> None:
    governed = govern(provider)
    with suppress(ValueError, KeyboardInterrupt), governed:
        if error is not None:
            raise error
    assert governed.result.stop == stop
    assert (governed.result.error or {}).get("message") == ("mine" if stop == "failed" else None)


def test_an_error_after_a_limit_does_not_hide_the_limit(provider: LoopingProvider) -> None:
    governed = govern(provider)
    with pytest.raises(ValueError, match="mine"), governed, governed.http_client() as client:
        loop(client, provider)
        raise ValueError("mine")
    assert (governed.result.stop, governed.result.text) == ("budget", REPORT)


def test_a_forgotten_transport_ends_its_run(provider: LoopingProvider, wait_for: Callable[..., None]) -> None:
    events: list[Event] = []
    governed = govern(provider, sinks=[events.append])
    ask(governed.http_client(), provider)
    del governed
    gc.collect()
    wait_for(lambda: "run_ended" in [event.kind for event in events] and count_threads() == 0)


def test_the_interpreter_ends_with_an_open_transport_and_its_run_is_recorded(
    provider: LoopingProvider, tmp_path: Path
) -> None:
    program = f"""
import flyball.gateway
governed = flyball.gateway.transport(store="sqlite:///{tmp_path}/runs.db", run_id="left-open")
client = governed.http_client()
request = client.build_request("POST", "{provider.url}/v1/chat/completions", json={ONCE})
print(client.send(request, stream=True).status_code)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment_for(provider), capture_output=True, text=True, timeout=30
    )
    assert (done.stdout, done.stderr, done.returncode) == ("200\n", "", 0)
    with open_store(f"sqlite:///{tmp_path}/runs.db") as store:
        assert read_stop(store.runs.get("left-open")) == "completed"


def test_a_forked_process_is_refused_and_ends_nothing(provider: LoopingProvider) -> None:
    with govern(provider) as governed, governed.http_client() as client:
        child = os.fork()
        if child == 0:
            refused = ask(client, provider).status_code == 403
            governed.end()
            os._exit(0 if refused else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ask(client, provider).status_code == 200
    assert governed.result.requests == 1


def test_a_stream_that_is_open_at_a_fork_breaks_in_the_child_at_once_and_stays_whole_in_the_parent(
    provider: LoopingProvider,
) -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Go on."}], "stream": True}
    with govern(provider) as governed, governed.http_client() as client:
        request = client.build_request("POST", f"{provider.url}/v1/chat/completions", json=body)
        stream = client.send(request, stream=True)
        child = os.fork()
        if child == 0:
            signal.alarm(4)  # closing must not wait for a thread that is in the other process
            try:
                stream.read()
            except httpx2.RemoteProtocolError:
                stream.close()
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert b"[DONE]" in stream.read()
    assert governed.result.turns == 1


def test_a_sink_that_waits_for_a_request_of_its_own_run_is_an_error_and_no_deadlock(provider: LoopingProvider) -> None:
    errors: list[str] = []

    def sink(event: Event) -> None:
        if event.kind == "model_replied":
            with pytest.raises(UsageError) as refused:
                ask(client, provider)
            errors.append(str(refused.value))

    governed = govern(provider, sinks=[sink])
    client = governed.http_client()
    with governed:
        assert ask(client, provider).status_code == 200
    assert errors == ["a rule or a sink of the run cannot wait for a request of the same run"]


def test_rules_sinks_and_metadata_are_those_of_the_run(provider: LoopingProvider, tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text(RULE)
    events: list[Event] = []
    with govern(
        provider, Limits(turns=3), rules=RuleSet.load(rules), sinks=[events.append], metadata={"job": 7},
        run_id="mine", session_id="s",
    ) as governed, governed.http_client() as client:  # fmt: skip
        assert loop(client, provider) == REPORT
    result = governed.result
    assert (result.run_id, result.session_id, result.metadata) == ("mine", "s", {"job": 7})
    assert [event.reason for event in events if isinstance(event, ToolEnded)] == ["adding is not allowed"] * 3
    assert events[-1].kind == "run_ended"


def test_the_run_is_recorded_in_a_store(provider: LoopingProvider, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/runs.db"
    with govern(provider, store=address, metadata={"job": 7}) as governed, governed.http_client() as client:
        loop(client, provider)
    with open_store(address) as store:
        entry = store.runs.get(governed.result.run_id)
        assert entry is not None
        assert (read_stop(entry), entry.start.agent, entry.start.metadata) == ("budget", "transport", {"job": 7})
        assert [event["event"] for event in store.runs.events(governed.result.run_id)][-1] == "run_ended"
    record = RunRecord.from_dict(governed.result.to_dict())
    assert record.starter is Starter.PROGRAM  # so that `flyball why` does not say how to resume it


def test_a_store_that_fails_changes_no_run_and_a_wrong_address_is_an_error(provider: LoopingProvider) -> None:
    with govern(provider, store="sqlite:////nowhere/runs.db") as governed, governed.http_client() as client:
        assert loop(client, provider) == REPORT
    assert (governed.result.store_error or {})["code"] == "store_failed"
    with pytest.raises(flyball.errors.ConfigError, match="address of a store"), govern(provider, store="nowhere:"):
        pass
    assert count_threads() == 0


@tool
def look(at: int) -> str:
    """Look."""
    return "nothing"


def test_one_envelope_is_shared_with_govern_and_an_agent(provider: LoopingProvider) -> None:
    agent = Agent(
        model=ScriptedModel.looping(call("look", at=1), call("look", at=2), grace=say("I looked.")),
        tools=[look],
        limits=Limits(turns=5),
    )
    with Limits(turns=12).open() as shared:
        with govern(provider, Limits(turns=50), within=shared) as governed, governed.http_client() as client:
            with flyball.govern(Limits(turns=4), within=shared) as own:
                for turn in own:
                    turn.settle({"input_tokens": 1, "output_tokens": 1})
            agent.run("Go.", within=shared)
            assert loop(client, provider) == REPORT
        assert shared.budgets["turns"].used == 12
    assert (governed.result.turns, governed.result.stop, len(provider.requests)) == (3, "budget", 4)


def test_the_envelope_of_a_transport_serves_others(provider: LoopingProvider) -> None:
    agent = Agent(
        model=ScriptedModel.looping(call("look", at=1), call("look", at=2), grace=say("I looked.")),
        tools=[look],
        limits=Limits(turns=3),
    )
    with govern(provider, Limits(turns=5)) as governed, governed.http_client() as client:
        assert agent.run("Go.", within=governed.envelope).turns == 3
        assert loop(client, provider) == REPORT
    assert (governed.result.turns, len(provider.requests)) == (2, 3)


def test_a_transport_in_a_run_of_an_adapter_draws_on_its_budgets(provider: LoopingProvider) -> None:
    with (
        FrameworkRun(AdapterOptions(Limits(turns=2)), OPENAI_AGENTS) as run,
        govern(provider, Limits(turns=9)) as inner,
    ):
        assert loop(inner.http_client(), provider) == REPORT
    assert (inner.result.turns, run.envelope.budgets["turns"].used, inner.result.stop) == (2, 2, "budget")
    with govern(provider) as later:
        assert loop(later.http_client(), provider) == REPORT
    assert later.result.turns == 3


@pytest.mark.parametrize(("name", "ceiling"), [("tokens", 9_000), ("usd", 0.2)])
def test_transports_that_share_a_budget_keep_it_and_each_conversation_has_its_report(name: str, ceiling: float) -> None:
    limits: Any = {name: ceiling}
    with LoopingProvider() as provider, Limits(**limits).open() as shared:
        answers: list[str] = []
        governed = [govern(provider, Limits(turns=90), within=shared) for _ in range(3)]

        def work(number: int) -> None:
            with governed[number % 3].http_client() as client:
                answers.append(loop(client, provider, f"Count {number}."))

        own_reserve = shared.reserve
        with governed[0], governed[1], governed[2]:
            threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
        assert answers == [REPORT] * 6
        budget = shared.budgets[name]
        assert budget.ceiling is not None
        assert budget.used <= budget.ceiling
        assert shared.reserve == own_reserve
        assert sum(usage.total for usage in provider.billed) == shared.budgets["tokens"].used
        assert {run.result.stop for run in governed} == {"budget"}


def test_async_with_ends_the_run_of_several_event_loops(provider: LoopingProvider) -> None:
    governed = govern(provider, Limits(turns=9))

    async def once() -> None:
        async with governed.async_http_client() as client:
            assert (await ask_async(client, provider)).status_code == 200

    with governed:
        threads = [threading.Thread(target=asyncio.run, args=(once(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        asyncio.run(once())
    assert (governed.result.turns, count_threads()) == (3, 0)


async def ask_async(client: httpx2.AsyncClient, server: ModelServer) -> httpx2.Response:
    return await client.post(f"{server.url}/v1/chat/completions", json=ONCE)
