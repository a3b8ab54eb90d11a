"""What every test relies on: settings are empty unless a test gives them, and nothing depends on how fast it runs."""

import os
from collections.abc import Callable, Generator

import anyio
import hypothesis
import pytest

from flyball import Agent, Result
from flyball.testing.plugin import clear_settings

BOUND_S = 60.0
KEY = "sk-flyball-0123456789-nobody-may-see-this"
_OF_PROVIDERS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "FLYBALL_API_KEY")


def pytest_configure() -> None:
    clear_settings(os.environ)
    for variable in _OF_PROVIDERS:
        os.environ.pop(variable, None)
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("flyball", deadline=None, print_blob=True, suppress_health_check=slow)
    hypothesis.settings.load_profile("flyball")


@pytest.fixture(scope="session")
def key() -> str:
    """The key that tests give to models. A test after which it is in any captured text fails."""
    return KEY


@pytest.fixture(scope="session")
def through() -> Callable[[str], Callable[[Agent], Result]]:
    """Runs an agent through a door: `sync`, `asyncio` or `trio`; none waits for ever."""

    def through(door: str) -> Callable[[Agent], Result]:
        async def bounded(agent: Agent) -> Result:
            with anyio.fail_after(BOUND_S):
                return await agent.arun("go")

        if door == "sync":
            return lambda agent: agent.start("go").result(BOUND_S)
        return lambda agent: anyio.run(bounded, agent, backend=door)

    return through


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    captured = [text for _, text in report.sections]
    if any(KEY in text for text in [*captured, str(report.longrepr or "")]):
        report.outcome = "failed"
        report.longrepr = "the key is in what was printed, logged or raised"
    return report
