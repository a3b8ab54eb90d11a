"""Variables of this process that point its model clients at a gateway, for code that reads them late."""

from __future__ import annotations

import os
import threading
from typing import Self

from ..errors import Ungoverned, UsageError
from ..result import Result
from .environment import check_ways_around
from .gateway import Gateway
from .gateway_options import GatewayOptions

_NO_REQUEST = (
    "NOT GOVERNED: no request to a model came through the gateway, so no limit held. Variables do not reach clients "
    "that were created before the block, addresses in code, and other providers. Give such clients "
    "flyball.gateway.transport(limits).http_client(), or pass allow_ungoverned=True"
)
_lock = threading.Lock()
"""Held while a block is open: there is one environment for the whole process."""


class exec_env(GatewayOptions):  # noqa: N801  (reads as a verb: `with exec_env(limits) as governed`)
    """Point the variables of this process at a gateway: `with flyball.gateway.exec_env(limits) as governed`.

    Clients that are created in the block ask the gateway, and so do programs that it starts with its environment. Not
    governed are clients that exist already, addresses and keys that are written in code, and providers that no variable
    points at. Their keys from the environment do not work, because the block has stand-ins in their place.

    Raises Ungoverned before the block if a variable leads around the gateway, and after it if no request came through.
    """

    _gateway: Gateway | None = None

    def __enter__(self) -> Self:
        if self._gateway is not None:
            raise UsageError("this exec_env object was already used: create a new exec_env(...) for each block")
        if not self.allow_ungoverned:
            check_ways_around(self.environment)
        if not _lock.acquire(blocking=False):
            raise UsageError(
                "another exec_env block is open, and a process has one environment: use transport() in one of them"
            )
        try:
            self._gateway = Gateway(self)
            given = self._gateway.__enter__().environment
        except BaseException:
            _lock.release()
            raise
        changed = {name: value for name, value in given.items() if self.environment.get(name) != value}
        self._before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        gateway = self._require_gateway()
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        try:
            gateway.__exit__(kind, error, None)
        finally:
            _lock.release()
        if error is None and not gateway.desk.requests and not self.allow_ungoverned:
            raise Ungoverned(_NO_REQUEST)

    @property
    def result(self) -> Result:
        """Result of the run, after the block."""
        return self._require_gateway().result

    def _require_gateway(self) -> Gateway:
        if self._gateway is None:
            raise UsageError("this run is not open: use `with exec_env(...)` around the code")
        return self._gateway
