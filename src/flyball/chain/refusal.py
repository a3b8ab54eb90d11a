"""A refusal: why a hop is not served, and how HTTP says so."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum


class RefusalCode(StrEnum):
    """Why a hop is not served; the values are what clients read."""

    INVALID = "chain_context_invalid"
    UNSIGNED = "chain_signature_required"
    FORGED = "chain_signature_invalid"
    EXPIRED = "chain_context_expired"
    DEPTH = "chain_depth_exceeded"
    CYCLE = "chain_cycle_detected"
    BUDGET = "chain_budget_exceeded"

    @property
    def status(self) -> int:
        """The HTTP status: the request is wrong, its sender is not trusted, or it is too much."""
        match self:
            case RefusalCode.INVALID:
                return 400
            case RefusalCode.UNSIGNED | RefusalCode.FORGED | RefusalCode.EXPIRED:
                return 401
            case RefusalCode.DEPTH | RefusalCode.CYCLE | RefusalCode.BUDGET:
                return 429


@dataclass(frozen=True, slots=True)
class ChainRefusal:
    """A hop that is not served. Waiting does not help against any of them, so none has a Retry-After."""

    code: str
    status: int
    message: str
    depth: int | None = None
    """Which hop it would have been, where that is known."""
    ceiling: int | None = None
    root: str | None = None

    def to_dict(self) -> dict[str, object]:
        """The body of the answer."""
        data = {"status": self.status, "chain_depth": self.depth, "ceiling": self.ceiling, "chain_root": self.root}
        return {"code": self.code, "message": self.message, "data": data}

    @property
    def body(self) -> bytes:
        """The same as JSON."""
        return json.dumps(self.to_dict()).encode()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer."""
        more = {"www-authenticate": "Flyball-Chain"} if self.status == 401 else {}
        return {"content-type": "application/json", "cache-control": "no-store", **more}
