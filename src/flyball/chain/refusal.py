"""Refusal of a hop, and its HTTP response."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum


class RefusalCode(StrEnum):
    """Reason why a hop is refused; clients read the values."""

    INVALID = "chain_context_invalid"
    UNSIGNED = "chain_signature_required"
    FORGED = "chain_signature_invalid"
    EXPIRED = "chain_context_expired"
    DEPTH = "chain_depth_exceeded"
    CYCLE = "chain_cycle_detected"
    BUDGET = "chain_budget_exceeded"

    @property
    def status(self) -> int:
        """HTTP status: malformed request, untrusted sender, or limit exceeded."""
        match self:
            case RefusalCode.INVALID:
                return 400
            case RefusalCode.UNSIGNED | RefusalCode.FORGED | RefusalCode.EXPIRED:
                return 401
            case RefusalCode.DEPTH | RefusalCode.CYCLE | RefusalCode.BUDGET:
                return 429


@dataclass(frozen=True, slots=True)
class ChainRefusal:
    """Refused hop.

    Waiting never helps, so the response has no Retry-After header.
    """

    code: str
    status: int
    message: str
    depth: int | None = None
    """Depth that the hop would have had. None if unknown."""
    ceiling: int | None = None
    root: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the response body in JSON types."""
        data = {"status": self.status, "chain_depth": self.depth, "ceiling": self.ceiling, "chain_root": self.root}
        return {"code": self.code, "message": self.message, "data": data}

    @property
    def body(self) -> bytes:
        """Response body as JSON bytes."""
        return json.dumps(self.to_dict()).encode()

    @property
    def headers(self) -> dict[str, str]:
        """Response headers."""
        authenticate = {"www-authenticate": "Flyball-Chain"} if self.status == 401 else {}
        return {"content-type": "application/json", "cache-control": "no-store", **authenticate}
