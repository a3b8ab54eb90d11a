"""The programs of docs/adapters.md with frameworks that need an environment of their own: `make test-adapters`."""

import os
from pathlib import Path

import pytest

from ..house.pages import ROOT, Session, Typed, blocks

PAGE = ROOT / "docs" / "adapters.md"
SECTIONS = {
    "openai_agents": "OpenAI Agents SDK",
    "langchain": "LangChain",
    "pydantic_ai": "pydantic-ai",
    "litellm": "LiteLLM",
    "claude": "Claude Agent SDK",
    "crewai": "CrewAI",
    "agno": "Agno",
    "smolagents": "smolagents",
}
TESTED = os.environ.get("ADAPTER_UNDER_TEST")
NAMES = [TESTED] if TESTED else ["litellm", "claude", "crewai", "agno", "smolagents"]


@pytest.mark.parametrize("framework", NAMES)
def test_the_program_with(framework: str, tmp_path: Path, typed: Typed) -> None:
    chosen = [block for block in blocks(PAGE) if not block.section or SECTIONS[framework] in block.section]
    if not any(block.kind == "python" and block.section and not block.missing for block in chosen):
        pytest.skip("the framework needs an environment of its own: make test-adapters")
    with Session(PAGE, tmp_path, typed) as session:
        for block in chosen:
            session.run(block)
