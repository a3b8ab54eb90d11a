from __future__ import annotations

import ast
import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from flyball import adapters
from flyball.adapters import AdapterOptions

from .stories import table
from .stories.plan import AgentPlan, Bench, TooEarly, Verdict
from .stories.stories import STORIES, Story


def test_the_table_of_the_page_is_that_of_the_stories() -> None:
    page = table.PAGE.read_text()
    assert table.render_page(page) == page, "run `make snapshots ARGS=tests/adapters`"


def test_every_framework_has_a_verdict_or_a_reason_for_each_story() -> None:
    names = [story.name for story in STORIES]
    assert table.list_stories() == names
    assert {framework: sorted(set(names) - set(found)) for framework, found in table.read_verdicts().items()} == {
        framework: [] for framework in table.read_verdicts()
    }


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_a_framework_that_does_nothing_is_not_said_to_be_held(story: Story) -> None:
    async def tell() -> Verdict:
        try:
            return await story.tell(Bench(BrokenDriver()))
        except TooEarly:
            return Verdict.UNSEEN

    assert asyncio.run(tell()) is Verdict.UNSEEN


class BrokenDriver:
    """Framework whose agents raise at once."""

    title = "Broken"
    not_applicable: dict[str, str] = {}  # noqa: RUF012

    @asynccontextmanager
    async def open(self, url: str) -> AsyncGenerator[BrokenDriver]:
        """Return the framework."""
        yield self

    def build(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan itself."""
        return plan

    async def run(self, agent: object, options: AdapterOptions, *, streamed: bool = False) -> str:
        """Raise."""
        raise RuntimeError("broken")


def test_the_modules_that_users_import_load_no_framework() -> None:
    folder = Path(adapters.__file__).parent
    public = {"agents", "langchain", "langgraph", "pydantic_ai", "claude_agent_sdk", "litellm"}
    for name in [*adapters._MODULES, "__init__", "framework_run", "model_requests"]:  # pyright: ignore[reportPrivateUsage]
        tree = ast.parse((folder / f"{name}.py").read_text())
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        loaded = {
            (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            for node in imports
            if not isinstance(node, ast.ImportFrom) or not node.level
        }
        assert not {one.partition(".")[0] for one in loaded} & public, name
