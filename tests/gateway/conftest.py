"""Programs under a gateway, and a provider that never stops calling tools."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from flyball import Limits
from flyball.gateway import Gateway
from flyball.gateway.execution import Execution, execute
from flyball.gateway.gateway_options import GatewayOptions
from flyball.testing.server import LoopingProvider, ModelServer

PROGRAMS = Path(__file__).parent / "programs"
REAL_KEY = "sk-real-key-of-the-user"
BOUND_S = 60.0


def environment_for(server: ModelServer, **more: str) -> dict[str, str]:
    """Return an environment in which programs ask this server, with a real key."""
    return {
        **os.environ,
        "OPENAI_BASE_URL": f"{server.url}/v1",
        "ANTHROPIC_BASE_URL": server.url,
        "GOOGLE_GEMINI_BASE_URL": server.url,
        "OPENAI_API_KEY": REAL_KEY,
        "ANTHROPIC_API_KEY": "sk-ant-api03-real-key-of-the-user",
        "GEMINI_API_KEY": "AIza-real-key-of-the-user",
        **more,
    }


KEYS = {"OPENAI": ("OPENAI_API_KEY", "authorization"), "ANTHROPIC": ("ANTHROPIC_API_KEY", "x-api-key"),
        "GOOGLE_GEMINI": ("GEMINI_API_KEY", "x-goog-api-key")}  # fmt: skip


def ask(
    gateway: Gateway, path: str, body: object, provider: str = "OPENAI", method: str = "POST", **headers: str
) -> tuple[int, Any]:
    """Send a request to the gateway as a program does; return status and body."""
    variable, header = KEYS[provider]
    key = gateway.environment[variable]
    sent = {header: f"Bearer {key}" if header == "authorization" else key}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"{gateway.environment[f'{provider}_BASE_URL']}{path}"
    response = httpx2.request(method, url, content=content, headers=sent, timeout=BOUND_S, trust_env=False)
    try:
        return response.status_code, response.json()
    except ValueError:
        return response.status_code, response.content


@dataclass
class Ran:
    """A program that ran under a gateway in this process."""

    execution: Execution
    output: str

    @property
    def code(self) -> int | None:
        return self.execution.exit_code

    @property
    def stop(self) -> str:
        return self.execution.result.stop.value


Run = Callable[..., Ran]


@pytest.fixture
def provider() -> Iterator[LoopingProvider]:
    with LoopingProvider() as server:
        yield server


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a Python program under a gateway in this process."""

    def run(
        server: ModelServer,
        program: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        **options: object,
    ) -> Ran:
        command = [sys.executable, str(PROGRAMS / program), *arguments]
        gateway_options = GatewayOptions(
            limits=limits or Limits(turns=3),
            environment=environment or environment_for(server),
            **options,  # pyright: ignore[reportArgumentType]
        )
        capfd.readouterr()
        execution = execute(command, gateway_options, lambda gateway: None)
        return Ran(execution, capfd.readouterr().out)

    return run


@pytest.fixture
def flyball_exec() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `flyball exec` as a user does."""

    def flyball_exec(server: ModelServer, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as folder:
            environment = environment_for(server, XDG_STATE_HOME=folder, XDG_DATA_HOME=folder, **more)
            return subprocess.run(
                [sys.executable, "-m", "flyball", "exec", *arguments],
                env=environment, capture_output=True, text=True, timeout=BOUND_S, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    return flyball_exec


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Waits until something is so, for a bounded time."""

    def wait_for(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BOUND_S
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.005)

    return wait_for
