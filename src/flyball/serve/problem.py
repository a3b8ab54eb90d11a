"""A problem: why a request is not answered with a result, as HTTP says it. It has no trace and no secret."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .asgi import Send


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal, or a fault of ours: `code` is for programs, `message` for people."""

    status: int
    code: str
    message: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])

    async def send(self, send: Send) -> None:
        """Answer with it, as RFC 9457 writes problems."""
        record = {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.message}
        await answer(send, self.status, "application/problem+json", record, self.headers)


async def answer(
    send: Send, status: int, kind: str, record: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    """Answer with JSON, whole."""
    body = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace")
    more = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store", **(headers or {})}
    await send({"type": "http.response.start", "status": status, "headers": raw(more)})
    await send({"type": "http.response.body", "body": body})


def raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """Headers as ASGI wants them."""
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items()]
