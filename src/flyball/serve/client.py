"""The client at the other end of a request: what it is sent, and that it may go away."""

from __future__ import annotations

import anyio
import anyio.lowlevel

from ..agent.run import Run
from .asgi import Message, Receive, Send

GONE = "client"
"""Who has cancelled a run whose client went away."""


class Gone(Exception):
    """The client does not take what is sent; nobody outside this room sees it."""


class Client:
    """Sends for as long as the client takes it; knows whether the answer has begun."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds
        self.begun = False

    async def __call__(self, message: Message) -> None:
        """Send it, as ASGI has it; Gone where it is not taken."""
        self.begun = True
        try:
            with anyio.fail_after(self._seconds):
                await self._send(message)
        except OSError as error:  # a TimeoutError is one, and so is what servers raise for a broken connection
            raise Gone from error


async def watch(receive: Receive, run: Run) -> None:
    """End a run whose client goes away."""
    while (await receive())["type"] != "http.disconnect":
        await anyio.lowlevel.checkpoint()
    run.cancel(GONE)
