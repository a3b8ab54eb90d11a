"""The `Model` protocol: all that a run needs of a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from ..budget.price import Price
from ..request import Reply, Request

OnText = Callable[[str], None]
"""Callback for a piece of streamed text. It must not block. Any thread may call it."""


class Model(Protocol):
    """Model that answers requests. An adapter makes one attempt; the run retries.

    `ask` may be `async def` or `def`. A `def` is called in a worker thread, and is abandoned on timeout. It fails with
    Retryable, ContextTooLong or another ModelError. The run does not retry after any other exception.

    A model may also have these optional members:

    - `count(request) -> int`: tokens of a request. Without it, Flyball estimates.
    - `max_output_tokens`: maximum tokens of a reply when tokens or money are limited.
    - `context_tokens`: size of its context window in tokens.
    - `secrets() -> Sequence[str]`: texts that no recording may contain.
    """

    @property
    def name(self) -> str:
        """Name of the model in results and events."""
        ...

    @property
    def provider(self) -> str | None:
        """Name of the provider. None means unknown."""
        ...

    @property
    def price(self) -> Price | None:
        """Price of its tokens.

        None means that the settings and the catalog are asked.
        """
        ...

    def ready(self) -> str | None:
        """Return None, or the reason why the model cannot be used.

        Reasons are for example a missing key or a missing file.
        """
        ...

    def ask(self, request: Request, tell: OnText, /) -> Reply | Awaitable[Reply]:
        """Answer the request, and pass streamed text to `tell`."""
        ...
