"""Govern unmodified programs of many frameworks: `make test-exec`. It prints a table, and fails if a program deviates.

Each program is an endless tool loop. It must make exactly `TURNS` requests and one for a report, and end by itself.
Each framework has an environment of its own below `.venv/exec`, made from a package index and npm. Then come the real
command lines and their stories, from locks with hashes; see `exec_programs.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from exec_install import NPM_OPTIONS, find_node, run_npm
from exec_programs import check_stand_in, run_programs
from exec_table import NOT_TRIED, STORIES
from exec_table import PROGRAMS as COMMAND_LINES

from flyball import Limits
from flyball.gateway import Execution, GatewayOptions, execute
from flyball.testing import LoopingProvider

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "gateway" / "frameworks"
ENVIRONMENTS = ROOT / ".venv" / "exec"
TURNS = 4
REPORT = "The report: the task is not finished."
REPORTS = {
    "smolagents code": f'<code>\nfinal_answer("{REPORT}")\n</code>',
    "openai_agents responses typed": f'{{"text": "{REPORT}"}}',
    "langchain chat typed": f'{{"text": "{REPORT}"}}',
}
"""Reports of the model, by program. Otherwise it is plain text."""
PYTHON = {
    "openai_agents": ["openai-agents==0.24.0"],
    "pydantic_ai": ["pydantic-ai-slim[openai,anthropic]==2.66.0"],
    "langchain": ["langchain==1.4.7", "langchain-openai==1.7.3", "langchain-anthropic==1.7.7"],
    "litellm": ["litellm==1.106.2", "mcp==2.3.0"],
    "smolagents": ["smolagents[openai]==1.26.0"],
    "agno": ["agno==3.1.10", "openai==3.51.0", "anthropic==2.10.0"],
    "crewai": ["crewai[anthropic]==1.15.30"],
    "claude_agent": ["claude-agent-sdk==0.2.182"],
    "transport": ["openai==2.54.0", "anthropic==1.17.0", "-e", str(ROOT)],
}
VARIANTS = {
    "openai_agents": [
        "responses",
        "responses stream",
        "chat",
        "chat stream",
        "chat child",
        "responses typed",
        "responses handoff",
        "responses state",
    ],
    "pydantic_ai": ["chat", "responses", "messages", "chat typed", "messages typed"],
    "langchain": ["chat", "chat stream", "messages", "messages stream", "chat typed", "chat called", "messages called"],
    "litellm": ["chat", "messages"],
    "smolagents": ["tool", "code"],
    "agno": ["chat", "responses", "messages"],
    "crewai": ["chat", "messages"],
    "claude_agent": ["alone", "child"],
    "transport": [
        *(f"openai {variant}" for variant in ("chat", "stream", "responses", "responses_stream", "state")),
        *(f"anthropic {variant}" for variant in ("whole", "stream", "thinking")),
    ],
    "sdk.mjs": ["chat", "stream", "responses", "messages", "mstream"],
    "ai_sdk.mjs": ["chat", "responses", "messages", "chat stream", "responses stream", "messages stream"],
    "openai_agents.mjs": ["responses", "chat_completions"],
}
TOOLS = {"claude_agent alone": "Read", "openai_agents chat child": ("child", "add")}
"""Tools that the model calls, by program. Otherwise it calls the first one that it is offered, such as a sub-agent."""
SIDE_REQUESTS = {"claude_agent": 1}
"""Requests beside the turns that a program may make, such as one for a title."""


@dataclass
class Row:
    """Outcome of one program."""

    name: str
    execution: Execution
    requests: int
    reports: int
    refused: Sequence[str]
    output: str
    side_requests: int = 0
    """Requests beside the turns that it may make."""

    @property
    def is_good(self) -> bool:
        """Whether the program did what it must."""
        return (
            self.execution.exit_code == 0
            and self.execution.result.turns == TURNS
            and TURNS <= self.requests - self.reports <= TURNS + self.side_requests
            and self.reports >= 1
            and not self.refused
        )

    def __str__(self) -> str:
        result, chats = self.execution.result, len(self.execution.conversations)
        verdict = "ok  " if self.is_good else "FAIL"
        return (
            f"{verdict} {self.name:32} {self.requests} requests, {self.reports} for a report, {chats} conversations, "
            f"{result.stop}, exit {self.execution.exit_code}: {self.output[-60:]}"
        )


def install(names: Sequence[str]) -> None:
    """Make the environments that are missing."""
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    for name, packages in PYTHON.items():
        folder = ENVIRONMENTS / name
        if name in names and not (folder / "ready").exists():
            subprocess.run([uv, "venv", "-q", "--clear", folder], check=True)
            python = folder / "bin" / "python"
            subprocess.run([uv, "pip", "install", "-q", "-p", python, *packages], check=True)
            (folder / "ready").touch()
    folder = ENVIRONMENTS / "node"
    if any(name.endswith(".mjs") for name in names) and not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROGRAMS / "package.json", folder)
        run_npm("install", *NPM_OPTIONS, folder=folder)
        (folder / "ready").touch()


def build_command(name: str, variant: str) -> list[str]:
    """Return the command of a program. Node finds packages beside the program only."""
    if name.endswith(".mjs"):
        shutil.copy(PROGRAMS / name, ENVIRONMENTS / "node")
        return [str(find_node() / "node"), str(ENVIRONMENTS / "node" / name), *variant.split()]
    return [str(ENVIRONMENTS / name / "bin" / "python"), str(PROGRAMS / f"{name}_agent.py"), *variant.split()]


def govern(name: str, variant: str) -> Row:
    """Run one program under a gateway."""
    program = f"{name} {variant}"
    with LoopingProvider(report=REPORTS.get(program, REPORT), tool=TOOLS.get(program)) as provider:
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": f"{provider.url}/v1",
            "ANTHROPIC_BASE_URL": provider.url,
            "OPENAI_API_KEY": "sk-no-real-key",
            "ANTHROPIC_API_KEY": "sk-ant-api03-no-real-key",
        }
        options = GatewayOptions(limits=Limits(turns=TURNS, seconds=120), environment=environment)
        with tempfile.TemporaryFile() as file:
            saved = os.dup(1), os.dup(2)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                execution = execute(build_command(name, variant), options, lambda gateway: None)
            finally:
                for number, copy in zip((1, 2), saved, strict=True):
                    os.dup2(copy, number)
                    os.close(copy)
            file.seek(0)
            lines = file.read().decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else ""
        requests = sum("count_tokens" not in request.path for request in provider.requests)  # counting is free
        return Row(
            program, execution, requests, provider.last_requests, provider.refused, last, SIDE_REQUESTS.get(name, 0)
        )


def run_frameworks(names: Sequence[str]) -> tuple[int, int]:
    """Run the programs of these frameworks. Return how many were good, and how many there are."""
    install(names)
    good = count = 0
    for name in names:
        for variant in VARIANTS[name]:
            row = govern(name, variant)
            count += 1
            good += row.is_good
            print(row, flush=True)
    return good, count


def main() -> int:
    """Run everything, or the frameworks and the command lines that are named, and return the exit code."""
    started, names = time.monotonic(), sys.argv[1:]
    known = {*VARIANTS, *(line.name for line in COMMAND_LINES)}
    if unknown := [name for name in names if name not in known]:
        print(f"unknown: {', '.join(unknown)}; expected {', '.join(sorted(known))}", file=sys.stderr)
        return 2
    print("Frameworks", flush=True)
    results = [run_frameworks([name for name in VARIANTS if not names or name in names])]
    lines = [line for line in (*COMMAND_LINES, *STORIES) if not names or line.name in names]
    print("Command lines, and where each tried to go besides", flush=True)
    results.append(run_programs(lines))
    for name, reason in NOT_TRIED.items():
        print(f"--   {name:34} not tried: {reason}", flush=True)
    print("Without a gateway: a stand-in for the outside sees each", flush=True)
    results.append(check_stand_in([line for line in COMMAND_LINES if not names or line.name in names]))
    good, count = (sum(numbers) for numbers in zip(*results, strict=True))
    print(f"{good} of {count} in {time.monotonic() - started:.0f} s")
    return 0 if good == count else 1


if __name__ == "__main__":
    sys.exit(main())
