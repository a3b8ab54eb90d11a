"""The runner: whoever brings one run to its end, here or elsewhere."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from ..recorder import Recorder
from ..result import Result
from .mailbox import Mailbox


class Runner(Protocol):
    """What a family and a handle need of it. A Driver is one; a remote agent has another."""

    @property
    def agent(self) -> str:
        """Whose run it is."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Who records the run."""
        ...

    @property
    def mailbox(self) -> Mailbox:
        """Where letters for the run are left."""
        ...

    @property
    def children(self) -> Mapping[str, Runner]:
        """Those of its children that go on now, by the ids of their runs."""
        ...

    @property
    def result(self) -> Result | None:
        """What it came to, as soon as that is known; also after a cancel."""
        ...

    @property
    def idle_s(self) -> float:
        """For how long nothing has come of it."""
        ...

    def drive(self) -> Coroutine[Any, Any, Result]:
        """Bring it to its end."""
        ...

    def stall(self, idle_s: float) -> None:
        """Cut what is under way, as nothing comes of it."""
        ...
