"""Frameworks with an adapter: their packages and the versions that were tested."""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from ..errors import UsageError


class AdapterWarning(UserWarning):
    """Warning at the start of a run about something that its adapter cannot hold."""


@dataclass(frozen=True, slots=True)
class Framework:
    """Package of a framework, with the oldest and the newest version that its adapter was tested with."""

    title: str
    package: str
    module: str
    oldest: str
    newest: str

    def load(self) -> ModuleType:
        """Import the framework. Raises UsageError if it is not installed, or older than the tested versions."""
        try:
            module = import_module(self.module)
        except ImportError as error:
            raise UsageError(self._describe(f"cannot be imported ({error})")) from error
        if _is_older(self.package, self.oldest):
            raise UsageError(self._describe("is too old"))
        return module

    def warn(self, reason: str) -> None:
        """Warn of something that the adapter cannot hold."""
        text = f"{self.title}: {reason}; `flyball exec` governs every request of a program (docs/exec.md)"
        warnings.warn(text, AdapterWarning, stacklevel=2)

    def _describe(self, problem: str) -> str:
        try:
            found = f"{self.package} {version(self.package)} {problem}"
        except PackageNotFoundError:
            found = f"{self.package} is not installed"
        return f"{found}: pip install '{self.package}>={self.oldest}' (tested with {self.oldest} to {self.newest})"


@cache
def _is_older(package: str, oldest: str) -> bool:
    with suppress(PackageNotFoundError):
        return _parse_release(version(package)) < _parse_release(oldest)
    return False


def _parse_release(text: str) -> list[int]:
    return [int(part) for part in text.split(".")[:3] if part.isdecimal()]


CLAUDE = Framework("Claude Agent SDK", "claude-agent-sdk", "claude_agent_sdk", "0.2.150", "0.2.184")
LANGCHAIN = Framework("LangChain", "langchain", "langchain.agents", "1.2.13", "1.4.7")
LITELLM = Framework("LiteLLM", "litellm", "litellm", "1.83.0", "1.106.2")
OPENAI_AGENTS = Framework("OpenAI Agents SDK", "openai-agents", "agents", "0.14.0", "0.24.0")
PYDANTIC_AI = Framework("pydantic-ai", "pydantic-ai-slim", "pydantic_ai", "2.17.0", "2.66.0")
"""Before 2.17, it reads no usage with the release of genai-prices that Flyball needs."""
