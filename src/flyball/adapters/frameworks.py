"""Frameworks with an adapter: their packages and the versions that were tested."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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
            return import_module(self.module)
        except ImportError as error:
            raise UsageError(self._describe(error)) from error

    def warn(self, reason: str) -> None:
        """Warn of something that the adapter cannot hold."""
        text = f"{self.title}: {reason}; `flyball exec` governs every request of a program (docs/exec.md)"
        warnings.warn(text, AdapterWarning, stacklevel=2)

    def _describe(self, error: ImportError) -> str:
        try:
            found = f"{self.package} {version(self.package)} cannot be imported ({error})"
        except PackageNotFoundError:
            found = f"{self.package} is not installed"
        return f"{found}: pip install '{self.package}>={self.oldest}' (tested with {self.oldest} to {self.newest})"


CLAUDE = Framework("Claude Agent SDK", "claude-agent-sdk", "claude_agent_sdk", "0.2.150", "0.2.184")
LANGCHAIN = Framework("LangChain", "langchain", "langchain.agents", "1.2.13", "1.4.7")
LITELLM = Framework("LiteLLM", "litellm", "litellm", "1.83.0", "1.106.2")
OPENAI_AGENTS = Framework("OpenAI Agents SDK", "openai-agents", "agents", "0.14.0", "0.24.0")
PYDANTIC_AI = Framework("pydantic-ai", "pydantic-ai-slim", "pydantic_ai", "2.0.0", "2.66.0")
