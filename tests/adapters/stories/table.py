"""Table of docs/adapters.md, written from the stored verdicts. `make snapshots ARGS=tests/adapters` runs it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "adapters.md"
VERDICTS = ROOT / "tests" / "snapshots" / "adapters.json"
BEGIN, END = "<!-- stories: written by `make snapshots ARGS=tests/adapters` -->", "<!-- end of stories -->"
TITLES = {
    "openai_agents": "OpenAI Agents SDK",
    "langchain": "LangChain",
    "pydantic_ai": "pydantic-ai",
    "claude": "Claude Agent SDK",
    "litellm": "LiteLLM",
}
"""Columns, in this order. The name is that of the test file: `test_stories_NAME.py`."""
SHOWN = {
    "enforced before it happens": "**before**",
    "noticed after one": "after one",
    "only seen": "seen",
    "not seen": "not seen",
}
_KEY = re.compile(r"test_stories_(\w+)\.py::\w+\[(.+)\]")
_NOT_APPLICABLE = "does not apply: "


def read_verdicts() -> dict[str, dict[str, str]]:
    """Return the verdicts by framework and story."""
    found: dict[str, dict[str, str]] = {}
    for key, verdict in json.loads(VERDICTS.read_text()).items():
        if match := _KEY.fullmatch(key):
            found.setdefault(match[1], {})[match[2]] = verdict
    return found


def build_table(verdicts: Mapping[str, Mapping[str, str]], stories: list[str]) -> str:
    """Return the table, and below it the reasons why stories do not apply."""
    names = [name for name in TITLES if name in verdicts]
    lines = [f"| story | {' | '.join(TITLES[name] for name in names)} |", f"|---|{'---|' * len(names)}"]
    reasons: dict[str, list[str]] = {}
    for story in stories:
        cells: list[str] = []
        for name in names:
            verdict = verdicts[name].get(story, "")
            cells.append(SHOWN.get(verdict, "-"))
            if verdict.startswith(_NOT_APPLICABLE):
                reasons.setdefault(f"{TITLES[name]}: {verdict.removeprefix(_NOT_APPLICABLE)}", []).append(story)
        lines.append(f"| {story} | {' | '.join(cells)} |")
    notes = [f"- {reason} ({', '.join(of)})" for reason, of in reasons.items()]
    return "\n".join([*lines, *(["", "Stories that do not apply (-):", ""] if notes else []), *notes])


def list_stories() -> list[str]:
    """Return the names of the stories in their order, read from the source, which needs no framework."""
    source = Path(__file__).with_name("stories.py").read_text()
    return re.findall(r'^@story\("(.+)"\)$', source, re.MULTILINE)


def render_page(page: str) -> str:
    """Return the page with the table of the stored verdicts."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n\n{build_table(read_verdicts(), list_stories())}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text()))
