"""Programs that are logged in to a subscription: imputed money, and a share of the plan."""

import json
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.budget.registry import IterationBudgetRegistry
from flyball.cli.exec_command import ExecOptions, build_options
from flyball.errors import ConfigError, UsageError
from flyball.gateway.execution import execute
from flyball.gateway.gateway import Gateway
from flyball.gateway.gateway_options import GatewayOptions
from flyball.gateway.plan import Plan
from flyball.gateway.programs.claude import CLAUDE_CODE
from flyball.models.scripted import call, say
from flyball.request import Usage
from flyball.testing.server import ModelServer, sent

from .conftest import PROGRAMS, environment_for

Exec = Callable[..., subprocess.CompletedProcess[str]]
REPORT = "The report: the task is not finished."
TOOL: Any = {"name": "add", "description": "Add.", "input_schema": {"type": "object", "properties": {}}}


def tell(line: Any, **shares: str) -> Any:
    headers = {
        f"anthropic-ratelimit-unified-{name.removeprefix('of_')}-utilization": share for name, share in shares.items()
    }
    return sent(line.using(Usage(100, 10)), headers=headers)


def ask(gateway: Gateway, **headers: str) -> httpx2.Response:
    body = {
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Count."}],
        "tools": [TOOL],
    }
    given = gateway.addresses["anthropic"]
    session = {
        "x-claude-code-session-id": "s1",
        "authorization": "Bearer sk-ant-oat01-login",
        **given.headers,
        **headers,
    }
    return httpx2.post(f"{given.url}/v1/messages", json=body, headers=session, timeout=30)


def test_a_run_ends_with_a_report_when_its_share_of_the_plan_is_used_up() -> None:
    lines = (
        tell(call("add"), of_5h="0.42", of_7d="0.10"),
        tell(call("add"), of_5h="0.61", of_7d="0.11"),
        tell(call("add"), of_5h="0.73", of_7d="0.12"),
        tell(say(REPORT), of_5h="0.74", of_7d="0.12"),
    )
    with ModelServer(*lines) as server:
        environment = environment_for(server) | {"ANTHROPIC_API_KEY": ""}
        with Gateway(GatewayOptions(environment=environment, plan_share=0.3)) as gateway:
            texts = [ask(gateway).json()["content"][0].get("text") for _ in range(5)]
    assert texts == [None, None, None, REPORT, REPORT]
    result = gateway.result
    assert (len(server.requests), result.turns, result.stop.value, result.text) == (4, 3, "halted", REPORT)
    assert result.warning == "31 % of the plan for 5 hours was used (--plan-share 30 %)."
    plan = result.state["plan"]
    assert (plan["is_cost_imputed"], plan["max_share"]) == (True, 0.3)
    assert plan["windows"]["5 hours"]["used"] == pytest.approx(0.32)
    assert plan["windows"]["7 days"]["used"] == pytest.approx(0.02)
    assert gateway.desk.plan.list_remarks() == [
        "32 % of the plan for 5 hours was used",
        "2 % of the plan for 7 days was used",
    ]
    assert server.requests[0].headers["authorization"] == "Bearer sk-ant-oat01-login"


def note(plan: Plan, *replies: Mapping[str, str]) -> Plan:
    for headers in replies:
        plan.note_reply(headers)
    return plan


def test_the_share_of_codex_is_read_in_percent_with_the_length_of_its_windows() -> None:
    told = {"x-codex-primary-window-minutes": "300", "x-codex-secondary-window-minutes": "10080"}
    plan = note(
        Plan(0.05, is_used=True),
        {"x-codex-primary-used-percent": "12.5", "x-codex-secondary-used-percent": "3", **told},
        {"x-codex-primary-used-percent": "18.5", "x-codex-secondary-used-percent": "4", **told},
    )
    assert plan.used_up == "6 % of the plan for 5 hours was used (--plan-share 5 %)."
    assert plan.list_remarks()[1] == "1 % of the plan for 7 days was used"


def test_a_window_that_begins_anew_keeps_what_was_used_before() -> None:
    shares = ("0.90", "0.95", "0.02", "0.04")
    plan = note(Plan(0.2, is_used=True), *({"anthropic-ratelimit-unified-5h-utilization": share} for share in shares))
    assert plan.windows["5 hours"].used == pytest.approx(0.09)
    assert plan.used_up is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("anthropic-ratelimit-unified-30d-utilization", "0.5"),
        ("anthropic-ratelimit-unified-5h-utilization", "most of it"),
        ("anthropic-ratelimit-unified-5h-utilization", "nan"),
        ("x-codex-tertiary-used-percent", "50"),
    ],
)
def test_a_header_that_is_not_known_limits_nothing_and_is_said(name: str, value: str) -> None:
    plan = note(Plan(0.1, is_used=True), {name: value}, {name: value})
    assert plan.used_up is None
    first, second = plan.list_remarks()
    assert first == "the provider reported no use of a plan, so --plan-share limited nothing"
    assert second == f"the header {name} is not known ({value!r}), so it limited nothing"


@pytest.fixture
def claude(tmp_path: Path) -> Path:
    """A home with Claude Code that is logged in to a subscription, and no key."""
    (tmp_path / ".claude").mkdir()
    login = {"claudeAiOauth": {"accessToken": "sk-ant-oat01-login"}}
    (tmp_path / ".claude/.credentials.json").write_text(json.dumps(login))
    script = tmp_path / "claude"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "coding_cli.py"} claude "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_imputed_money_is_labelled_at_the_start_in_the_result_and_in_the_record(
    flyball_exec: Exec, claude: Path, tmp_path: Path
) -> None:
    with ModelServer(tell(call("add"), of_5h="0.42"), tell(say(REPORT), of_5h="0.44")) as server:
        more = {"ANTHROPIC_API_KEY": "", "HOME": str(tmp_path), "DIRECT_URL": "http://127.0.0.1:9"}
        options = ("--usd", "1", "--plan-share", "30%", "--store", f"sqlite:///{tmp_path}/runs.db")
        done = flyball_exec(server, *options, "--", str(claude), "-p", "x", **more)
    assert (done.returncode, done.stdout.strip()) == (0, REPORT)
    start, change, share, end = done.stderr.splitlines()
    assert start.endswith(
        "; at most 30 % of the plan of its subscription; "
        "dollars are imputed, because a subscription is not billed per token"
    )
    assert (
        change
        == f"flyball: Claude Code (tested with {CLAUDE_CODE.version}): --settings with ANTHROPIC_BASE_URL was added"
    )
    assert share == "flyball: 2 % of the plan for 5 hours was used"
    assert "$0.0009 imputed of $1.00" in end
    assert "sk-ant-oat01-login" not in done.stderr
    why = subprocess.run(
        [sys.executable, "-m", "flyball", "why", "last", "--store", f"sqlite:///{tmp_path}/runs.db"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Dollars are imputed: a subscription is not billed per token." in why.stdout
    assert "2 % of the plan for 5 hours was used." in why.stdout


def test_a_share_of_a_plan_that_a_known_program_does_not_use_is_an_error(
    provider: ModelServer, claude: Path, tmp_path: Path
) -> None:
    environment = environment_for(provider) | {"HOME": str(tmp_path)}
    with pytest.raises(UsageError, match="not logged in to a subscription"):
        execute([str(claude)], GatewayOptions(environment=environment, plan_share=0.3), lambda gateway: None)


@pytest.mark.parametrize("text", ["0.3", "30", "0%", "101%", "a third"])
def test_a_share_that_is_no_percentage_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="a percentage, such as 30%"):
        build_options(["claude"], ExecOptions(plan_share=text), IterationBudgetRegistry())


def test_a_share_is_not_limited_without_a_plan(provider: ModelServer) -> None:
    options = GatewayOptions(environment=environment_for(provider), limits=Limits(turns=1), plan_share=0.3)
    with Gateway(options) as gateway:
        key = gateway.environment["ANTHROPIC_API_KEY"]
        ask(gateway, authorization="", **{"x-api-key": key})
    assert gateway.desk.plan.list_remarks() == [
        "the provider reported no use of a plan, so --plan-share limited nothing"
    ]
    assert "plan" not in gateway.result.state
