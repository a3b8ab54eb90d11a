import asyncio
import gc
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sdk: Any = pytest.importorskip("claude_agent_sdk", reason="it brings a program of 350 MB: make test-adapters")

from flyball import Limits  # noqa: E402
from flyball.adapters import claude, result_of  # noqa: E402
from flyball.errors import Ungoverned, UsageError  # noqa: E402
from flyball.gateway import GatewayOptions  # noqa: E402
from flyball.rules import RuleSet  # noqa: E402
from flyball.testing.server import LoopingProvider  # noqa: E402

TOOL = "mcp__calculator__add"
BOUND_S = 60.0
RULE = """
[rule]
id = "no-adding"
trigger = "on_tool_call"

[condition]
expression = "context.call.tool_name == 'mcp__calculator__add'"

[action]
type = "deny"
message = "no adding today"
"""


@pytest.fixture
def provider() -> Iterator[LoopingProvider]:
    with LoopingProvider(report="I counted.", tool=TOOL) as provider:
        yield provider


@pytest.fixture
def options(provider: LoopingProvider, tmp_path: Path) -> Any:
    """Options of an endless agent with one tool, which asks the scripted provider."""

    @sdk.tool("add", "Add.", {"a": int})
    async def add(arguments: dict[str, Any]) -> dict[str, Any]:
        calls.append(arguments)
        return {"content": [{"type": "text", "text": "1"}]}

    calls = list[dict[str, Any]]()
    environment = {
        "ANTHROPIC_BASE_URL": provider.url,
        "ANTHROPIC_API_KEY": "sk-ant-api03-real",
        "CLAUDE_CONFIG_DIR": str(tmp_path),
        "HOME": str(tmp_path),
    }
    return sdk.ClaudeAgentOptions(
        model="claude-sonnet-4-5",
        tools=[],
        mcp_servers={"calculator": sdk.create_sdk_mcp_server("calculator", tools=[add])},
        allowed_tools=[TOOL],
        env=environment,
        cwd=str(tmp_path),
    )


def run(options: Any, prompt: str = "Count for ever.") -> Any:
    """Return the last message of a query."""

    async def main() -> Any:
        async with asyncio.timeout(BOUND_S):
            return [message async for message in sdk.query(prompt=prompt, options=options)][-1]

    return asyncio.run(main())


def test_an_endless_agent_makes_its_turns_and_one_report(options: Any, provider: LoopingProvider) -> None:
    governed = claude.govern(options, limits=Limits(turns=3))
    last = run(governed)
    result = result_of(governed)
    assert (last.result, last.is_error) == ("I counted.", False)
    assert (result.stop, result.turns, result.text) == ("budget", 3, "I counted.")
    turns = [request for request in provider.requests if request.body.get("tools")]
    assert (len(turns), provider.last_requests, provider.refused) == (4, 1, [])
    assert result.usage.total == sum(usage.total for usage in provider.billed)
    assert (options.settings, options.env["ANTHROPIC_BASE_URL"]) == (None, provider.url)


def test_the_program_gets_no_real_key(options: Any, provider: LoopingProvider) -> None:
    governed = claude.govern(options, limits=Limits(turns=1))
    assert "real" not in governed.env["ANTHROPIC_API_KEY"]
    run(governed)
    assert {request.headers["x-api-key"] for request in provider.requests} == {"sk-ant-api03-real"}


def test_settings_of_the_user_stay_and_cannot_lead_around_the_gateway(options: Any, provider: LoopingProvider) -> None:
    settings = '{"env": {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "MORE": "1"}}'
    governed = claude.govern(replace(options, settings=settings), limits=Limits(turns=1))
    assert '"MORE": "1"' in Path(governed.settings or "").read_text()
    assert "127.0.0.1:9" not in Path(governed.settings or "").read_text()
    result_of(governed)
    assert not Path(governed.settings or "").exists()
    with pytest.raises(Ungoverned, match="Bedrock"):
        claude.govern(replace(options, env={"CLAUDE_CODE_USE_BEDROCK": "1"}))
    assert provider.requests == []


def test_two_queries_with_the_same_options_share_the_limits(options: Any, provider: LoopingProvider) -> None:
    governed = claude.govern(options, limits=Limits(turns=3))
    assert run(governed).result == "I counted."
    assert run(governed).result.startswith("Stopped by flyball")
    assert result_of(governed).turns == 3


def test_a_call_that_a_rule_denies_does_not_run(options: Any, provider: LoopingProvider, tmp_path: Path) -> None:
    folder = tmp_path / "rules"
    folder.mkdir()
    (folder / "rule.toml").write_text(RULE)
    rules = RuleSet.load(folder, strict=True)
    governed = claude.govern(options, options=GatewayOptions(Limits(turns=3), rules=rules))
    assert run(governed).result == "I counted."
    assert result_of(governed).budgets["tool_calls"].used == 0


def test_calls_beyond_the_limit_do_not_run(options: Any, provider: LoopingProvider) -> None:
    governed = claude.govern(options, limits=Limits(tool_calls=2))
    assert run(governed).result == "I counted."
    assert (result_of(governed).stop, result_of(governed).budgets["tool_calls"].used) == ("budget", 2)


def test_a_model_without_a_price_is_refused_under_a_limit_of_money(options: Any, provider: LoopingProvider) -> None:
    governed = claude.govern(replace(options, model="claude-made-up"), limits=Limits(usd=1))
    with pytest.raises(sdk.ClaudeSDKError, match="price of anthropic:claude-made-up is not known"):
        run(governed)
    assert "claude-made-up" not in {request.body["model"] for request in provider.requests}
    assert result_of(governed).turns == 0


def test_a_run_within_another_draws_on_its_budgets(options: Any, provider: LoopingProvider) -> None:
    from flyball import govern

    with govern(Limits(turns=2)) as outer:
        within = GatewayOptions(Limits(turns=10), within=outer.envelope)
        governed = claude.govern(options, options=within)
        assert run(governed).result == "I counted."
        assert result_of(governed).turns == 2


def test_a_run_is_recorded_in_a_store(options: Any, tmp_path: Path) -> None:
    from flyball.store import open_store

    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    governed = claude.govern(options, limits=Limits(turns=1), store=uri)
    run(governed)
    result = result_of(governed)
    with open_store(uri) as store:
        stored = store.runs.get(result.run_id)
    assert stored is not None
    assert stored.finish is not None
    assert stored.finish.stop == "budget"


def test_a_run_ends_when_nothing_refers_to_its_options(options: Any) -> None:
    governed = claude.govern(options, limits=Limits(turns=1))
    folder, copy = Path(governed.settings or "").parent, replace(governed, max_turns=3)
    del governed
    gc.collect()
    assert folder.exists()
    del copy
    gc.collect()
    assert not folder.exists()


def test_an_exception_in_the_block_is_that_of_the_run(options: Any) -> None:
    governed = claude.govern(options, limits=Limits(turns=1))
    with pytest.raises(ValueError, match="mine"), governed:
        raise ValueError("mine")
    assert result_of(governed).stop == "failed"


def test_a_cancelled_query_ends_its_run_and_its_program(options: Any, provider: LoopingProvider) -> None:
    governed = claude.govern(options, limits=Limits(turns=100_000))

    async def main() -> None:
        async with governed:
            async for message in sdk.query(prompt="Count for ever.", options=governed):
                if isinstance(message, sdk.AssistantMessage):
                    raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    count = len(provider.requests)
    assert (result_of(governed).stop, count) == ("cancelled", len(provider.requests))


def test_limits_and_options_cannot_both_be_given(options: Any) -> None:
    with pytest.raises(UsageError, match="not both"):
        claude.govern(options, limits=Limits(), options=GatewayOptions())


def test_the_program_gets_timeouts_for_calls_that_hang(options: Any) -> None:
    governed = claude.govern(options, limits=Limits(seconds=10))
    given = {name: int(governed.env[name]) for name in ("BASH_DEFAULT_TIMEOUT_MS", "MCP_TOOL_TIMEOUT")}
    assert all(5_000 < milliseconds < 10_000 for milliseconds in given.values())
    own = replace(options, env=options.env | {"MCP_TOOL_TIMEOUT": "7"})
    assert claude.govern(own, limits=Limits(seconds=10)).env["MCP_TOOL_TIMEOUT"] == "7"
    assert "MCP_TOOL_TIMEOUT" not in os.environ
