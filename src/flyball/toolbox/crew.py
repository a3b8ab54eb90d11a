"""A crew for work that blocks, beside the event loop: daemon workers, which never keep a process from exiting."""

from __future__ import annotations

import math
import socket
from collections.abc import Callable
from typing import TypeVar

from .._internal.workers import WorkerPool, free_worker, hand_over

T = TypeVar("T")


class Crew:
    """A few workers. Who is cancelled while one of them works does not wait for it."""

    def __init__(self) -> None:
        self._workers = WorkerPool(workers=8, most_hung=32)

    async def do(self, work: Callable[[], T]) -> T:
        """What `work` gives, or raises; OSError where no worker is to be had."""
        worker = await free_worker(self._workers, lambda: False)
        if worker is None:
            raise OSError(f"no worker is free; {self._workers.hung} hang")
        values: list[T] = []
        errors: list[Exception] = []

        def kept() -> None:
            try:
                values.append(work())
            except Exception as error:
                errors.append(error)

        try:
            await hand_over(worker, kept, math.inf)
        finally:
            self._workers.give_up(worker)
        if errors:
            raise errors[0]
        return values[0]

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host, as the system knows them."""
        found = await self.do(lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        return [str(address[0]) for *_, address in found]
