"""The one thing a run needs of a model: an answer to a request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ..budget.price import Price
from ..request import Reply, Request

OnText = Callable[[str], None]
"""Takes a piece of text as it streams in. It does not block, and may be called from any thread."""


class Model(Protocol):
    """Answers requests. A run tries once and asks again by itself, so an adapter makes one attempt.

    `ask` may be `async def` or `def`; a `def` is called in a worker thread, and is abandoned when its time is over. It
    fails with Retryable, ContextTooLong or another ModelError; whatever else it raises is final.

    A model may also have `count(request) -> int`, the tokens of a request, without which Flyball estimates;
    `max_output_tokens`, the most that a reply may have where tokens or money are limited; `context_tokens`, how much it
    can read; and `secrets() -> Sequence[str]`, what no recording may contain.
    """

    @property
    def name(self) -> str:
        """What results and events call it."""
        ...

    @property
    def provider(self) -> str | None:
        """Who runs it."""
        ...

    @property
    def price(self) -> Price | None:
        """What its tokens cost; None where it does not know, and then the settings and the catalog are asked."""
        ...

    def ready(self) -> str | None:
        """None, or why it cannot be asked at all: a key that is missing, a file that is not there."""
        ...

    def ask(self, request: Request, tell: OnText, /) -> Reply | Awaitable[Reply]:
        """Answer, and tell the text as it comes, where it comes piece by piece."""
        ...
