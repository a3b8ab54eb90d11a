"""Govern unmodified programs of many frameworks: `make test-exec`. It prints a table, and fails if a program deviates.

Each program is an endless tool loop. It must make exactly `TURNS` requests and one for a report, and end by itself.
Each framework has an environment of its own below `.venv/exec`, made from a package index and npm.
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

from flyball import Limits
from flyball.gateway import Execution, GatewayOptions, execute
from flyball.testing import LoopingProvider

ROOT = Path(__file__).parents[1]
PROGRAMS = ROOT / "tests" / "gateway" / "frameworks"
ENVIRONMENTS = ROOT / ".venv" / "exec"
TURNS = 4
REPORT = "The report: the task is not finished."
CODE = '<code>\nfinal_answer("The report: the task is not finished.")\n</code>'
PYTHON = {
    "openai_agents": ["openai-agents==0.24.0"],
    "pydantic_ai": ["pydantic-ai-slim[openai,anthropic]==2.66.0"],
    "langchain": ["langchain==1.4.7", "langchain-openai==1.7.3", "langchain-anthropic==1.7.7"],
    "litellm": ["litellm==1.106.2", "mcp==2.3.0"],
    "smolagents": ["smolagents[openai]==1.26.0"],
    "agno": ["agno==3.1.10", "openai==3.51.0", "anthropic==2.10.0"],
    "transport": ["openai==2.54.0", "anthropic==1.17.0", "-e", str(ROOT)],
}
VARIANTS = {
    "openai_agents": ["responses", "responses stream", "chat", "chat stream", "chat child"],
    "pydantic_ai": ["chat", "responses", "messages", "chat typed", "messages typed"],
    "langchain": ["chat", "chat stream", "messages", "messages stream"],
    "litellm": ["chat", "messages"],
    "smolagents": ["tool", "code"],
    "agno": ["chat", "responses", "messages"],
    "transport": [
        *(f"openai {variant}" for variant in ("chat", "stream", "responses", "responses_stream", "state")),
        *(f"anthropic {variant}" for variant in ("whole", "stream", "thinking")),
    ],
    "sdk.mjs": ["chat", "stream", "responses", "messages", "mstream"],
    "ai_sdk.mjs": ["chat", "responses", "messages", "chat stream", "responses stream", "messages stream"],
    "openai_agents.mjs": ["responses", "chat_completions"],
}


@dataclass
class Row:
    """Outcome of one program."""

    name: str
    execution: Execution
    requests: int
    reports: int
    refused: Sequence[str]
    output: str

    @property
    def is_good(self) -> bool:
        """Whether the program did what it must."""
        return (
            self.execution.exit_code == 0
            and (self.execution.result.turns, self.requests - self.reports) == (TURNS, TURNS)
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
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
        (folder / "ready").touch()


def build_command(name: str, variant: str) -> list[str]:
    """Return the command of a program. Node finds packages beside the program only."""
    if name.endswith(".mjs"):
        shutil.copy(PROGRAMS / name, ENVIRONMENTS / "node")
        return ["node", str(ENVIRONMENTS / "node" / name), *variant.split()]
    return [str(ENVIRONMENTS / name / "bin" / "python"), str(PROGRAMS / f"{name}_agent.py"), *variant.split()]


def govern(name: str, variant: str) -> Row:
    """Run one program under a gateway."""
    tool = "child" if "child" in variant else None
    with LoopingProvider(report=CODE if variant == "code" else REPORT, tool=tool) as provider:
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
        label = f"{name} {variant}"
        last = lines[-1] if lines else ""
        return Row(label, execution, len(provider.requests), provider.last_requests, provider.refused, last)


def main() -> int:
    """Run all programs, or those of the frameworks named, and return the exit code."""
    names = sys.argv[1:] or list(VARIANTS)
    install(names)
    started, failed, count = time.monotonic(), 0, 0
    for name in names:
        for variant in VARIANTS[name]:
            row = govern(name, variant)
            count += 1
            failed += not row.is_good
            print(row, flush=True)
    print(f"{count - failed} of {count} programs in {time.monotonic() - started:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
