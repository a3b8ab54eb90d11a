"""Requests that known programs make beside their loop: titles, routers, loop checks, compaction.

They cost money and tokens, but are no turns. What is not recognised counts as a turn.
"""

from __future__ import annotations

import json

from .inbound import Inbound
from .programs import KNOWN_PROGRAMS, SideRequest

__all__ = ["SideRequest", "find_side_request"]

_MARKS = tuple(side for program in KNOWN_PROGRAMS for side in program.side_requests)
_AGENTS = tuple(agent for side in _MARKS for agent in side.agents)


def find_side_request(inbound: Inbound) -> SideRequest | None:
    """Return the kind of side request that this is, or None."""
    agent = inbound.headers.get("user-agent", "")
    if not agent.startswith(_AGENTS):
        return None
    candidates = (side for side in _MARKS if agent.startswith(side.agents))
    return next((side for side in candidates if _has_marks(inbound, side)), None)


def _has_marks(inbound: Inbound, side: SideRequest) -> bool:
    if inbound.request.tools and not side.is_compaction:
        return False
    if side.max_output_tokens is not None and inbound.request.max_output_tokens != side.max_output_tokens:
        return False
    if side.path:
        return inbound.route.path == side.path
    if side.header is not None:
        name, text = side.header
        return text in inbound.headers.get(name, "")
    if side.text.encode() not in inbound.raw:  # most requests end here, and need not be encoded again
        return False
    body = inbound.body
    instructions = [body.get(key) for key in ("system", "instructions", "systemInstruction", "system_instruction")]
    places = (instructions, inbound.items[:1], inbound.items[-1:])
    return side.text in json.dumps(places, ensure_ascii=False)
