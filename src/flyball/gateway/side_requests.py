"""Requests that known programs make beside their loop: titles, probes, compaction.

They cost money and tokens, but are no turns. What is not recognised counts as a turn.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from .inbound import Inbound


@dataclass(frozen=True, slots=True)
class SideRequest:
    """Marks of one kind of side request. All of them must be there."""

    name: str
    agent: str
    """Start of the program's user agent."""
    text: str = ""
    """Text in the instructions or the last message."""
    header: tuple[str, str] | None = None
    """Header, and a text in its value."""
    max_output_tokens: int | None = None


SIDE_REQUESTS = (
    SideRequest("Claude Code, quota probe", "claude-cli/", "quota", max_output_tokens=1),
    SideRequest("Claude Code, title", "claude-cli/", "sentence-case title"),
    SideRequest("Claude Code, title", "claude-cli/", "You are naming a coding session"),
    SideRequest("Claude Code, topic", "claude-cli/", "indicates a new conversation topic"),
    SideRequest("Claude Code, compaction", "claude-cli/", "create a detailed summary of the conversation so far"),
    SideRequest("Codex, compaction", "codex", header=("x-codex-turn-metadata", '"compaction"')),
    SideRequest("opencode, title", "opencode/", "You are a title generator"),
    SideRequest("Gemini CLI, loop check", "GeminiCLI/", "next_speaker"),
)
"""Observed in Claude Code 2.1.325 and 2.1.327, Codex 0.166, opencode 1.18 and Gemini CLI 0.61."""


def find_side_request(inbound: Inbound) -> SideRequest | None:
    """Return the kind of side request that this is, or None."""
    agent = inbound.headers.get("user-agent", "")
    return next((side for side in SIDE_REQUESTS if agent.startswith(side.agent) and _has_marks(inbound, side)), None)


def _has_marks(inbound: Inbound, side: SideRequest) -> bool:
    if inbound.request.tools and side.header is None and "compaction" not in side.name:
        return False
    if side.max_output_tokens is not None and inbound.request.max_output_tokens != side.max_output_tokens:
        return False
    if side.header is not None:
        name, text = side.header
        return text in inbound.headers.get(name, "")
    places = (inbound.body.get("system"), inbound.body.get("instructions"), inbound.items[:1], inbound.items[-1:])
    return side.text in json.dumps(places, ensure_ascii=False)
