"""Options of a governed transport."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .._internal import validation
from ..budget.limits import Limits
from ..budget.price import Unpriced
from ..errors import ConfigError, UsageError
from .gateway_options import EngineOptions

if TYPE_CHECKING:
    from ..store import Store


@dataclass(kw_only=True, eq=False, repr=False)
class TransportOptions(EngineOptions):
    """Constructor arguments of `transport`."""

    upstreams: Mapping[str, str] = field(default_factory=dict[str, str])
    """URLs of further providers by name. OpenAI, Anthropic and Gemini are known, also where their variables lead."""
    verify: ssl.SSLContext | bool = True
    """Verification of the provider's certificate, as in httpx."""
    proxy: str | None = None
    """URL of a proxy. None means that of the environment, if it names one."""
    store: Store | str | None = None
    """Store that gets a record of the run, or its address. None means that the run is not stored."""

    def __post_init__(self) -> None:
        validation.check_type("transport, limits", self.limits, Limits)
        validation.check_type("transport, upstreams", self.upstreams, Mapping)
        validation.parse_enum("transport, unpriced", self.unpriced, Unpriced)
        if self.per not in ("program", "task"):
            raise ConfigError("transport, per", self.per, "program or task")
        if self.per == "task" and self.observe:
            raise UsageError("observe adds up the whole program, so it cannot be used with per='task'")
