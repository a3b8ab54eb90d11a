"""Chain as one service sees it: its identity, the check of callers, outgoing headers."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from .._internal import validation
from ..budget.budget_set import narrow
from ..budget.deadline import SYSTEM, Clock
from ..budget.registry import UNSET, IterationBudgetRegistry, Unset
from ..budget.run_budget import TurnBudget
from ..errors import ConfigError
from ..settings import Settings
from .caller import Caller, Position, find_position, read_remaining
from .foreign import ForeignHeaders
from .hop import CONTEXT_HEADER, DEPTH_HEADER, ROOT_HEADER, Header, HopCheck, create_root_id
from .hop_context import HOST, NAME, ROOT, HopContext, format_address
from .keys import CURRENT, PREVIOUS, Keys
from .outgoing import attach_headers
from .refusal import ChainRefusal, RefusalCode

SETTINGS = ("chain.name", "chain.host", CURRENT, PREVIOUS, "chain.require_signature")
"""Configuration keys that `Chain` reads."""
_MAX_VALID_S = 86_400
_COMPATIBLE = {"datamachine": "datamachine_chain_depth_exceeded"}
"""Codes of a refused depth by the system that knows them."""
_COUNTERS = ("receiver", "sender")
_HEADER_NAMES = {
    "x-flyball-chain": "X-Flyball-Chain",
    DEPTH_HEADER: "X-Flyball-Chain-Depth",
    ROOT_HEADER: "X-Flyball-Chain-Root",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Chain:
    """Service in a chain of agents.

    It checks incoming calls, and tells the services it calls what they may still use. Fields left out come from the
    settings `chain.name`, `chain.host`, `chain.key` and so on.
    """

    name: str | None = None
    """Name of this service's agent on the path of a chain. None means the setting.

    Without a setting it is a random name, different for each replica, so that two unnamed services are never mistaken
    for one.
    """
    host: str | None = None
    """Host of the service, equal for all replicas. None means the setting, then the machine's name."""
    keys: Keys | None = None
    ceiling: int | Unset = UNSET
    """Lowest refused depth. Left out, it is the setting `max_chain_depth`, then 3."""
    require_signature: bool | None = None
    """True to refuse contexts not signed by a known key.

    None means the setting; without a setting, signatures are required if there are keys.
    """
    compat: Literal["datamachine"] | None = None
    """System whose headers and error code are used in addition to ours. None means none.

    `datamachine` includes the headers of the Agents API.
    """
    counted_by: Literal["receiver", "sender"] = "receiver"
    """Service that counts a hop in the headers of `compat`. Our own headers are always counted by the receiver."""
    valid_s: float = 60.0
    """Seconds that an outgoing context stays valid; at most a day."""
    registry: IterationBudgetRegistry | None = None
    settings: Settings | Mapping[str, object] | None = None
    clock: Clock = SYSTEM
    _check: HopCheck = field(init=False)

    def __post_init__(self) -> None:
        registry = self.registry or IterationBudgetRegistry(settings=self.settings)
        settings = registry.settings
        name = _resolve_name("name", self.name, settings, f"agent-{create_root_id()[:12]}")
        host = _resolve_name("host", self.host, settings, platform.node())
        keys = Keys.from_settings(settings) if self.keys is None else self.keys
        required = _resolve_require_signature(self.require_signature, settings, keys)
        if not validation.parse_timeout("chain, valid_s", self.valid_s) <= _MAX_VALID_S:
            raise ConfigError("chain, valid_s", self.valid_s, f"at most {_MAX_VALID_S:,} seconds")
        if self.compat is not None and self.compat not in _COMPATIBLE:
            raise ConfigError("chain, compat", self.compat, f"None, or one of {', '.join(_COMPATIBLE)}")
        if self.counted_by not in _COUNTERS or (self.counted_by == "sender" and self.compat is None):
            raise ConfigError("chain, counted_by", self.counted_by, "receiver, or with compat= also sender")
        foreign = None if self.compat is None else ForeignHeaders(self.counted_by == "sender")
        for attribute, value in (("name", name), ("host", host), ("keys", keys), ("require_signature", required)):
            object.__setattr__(self, attribute, value)
        hop = HopCheck(
            address=format_address(name, host),
            depth=registry.create("chain_depth", ceiling=self.ceiling),
            keys=keys,
            signature_required=required,
            foreign=foreign,
            depth_code=_COMPATIBLE.get(self.compat or "", RefusalCode.DEPTH.value),
            clock=self.clock,
        )
        object.__setattr__(self, "_check", hop)

    def check(self, headers: Iterable[Header] | Mapping[str, str]) -> Caller | ChainRefusal:
        """Check the headers of an incoming call.

        Returns the caller, or the refusal to answer with. Pass pairs rather than a mapping to detect duplicate headers.
        """
        pairs = cast("Mapping[str, str]", headers).items() if isinstance(headers, Mapping) else headers
        return self._check.check(pairs)

    def headers(self, within: TurnBudget | None = None) -> dict[str, str]:
        """Return the headers for a call to another agent.

        They carry the depth and the budget left to this chain and this run. `within` is a budget of your own that
        narrows it further; None adds no limit.
        """
        return self.headers_at(find_position(), within)

    def headers_at(self, position: Position, within: TurnBudget | None = None) -> dict[str, str]:
        """Return the headers for a call from a given position."""
        context = self._build_context(position, within)
        values = {
            CONTEXT_HEADER: context.to_header(self.keys),
            DEPTH_HEADER: str(context.depth),
            ROOT_HEADER: context.root,
        }
        headers = {_HEADER_NAMES[name]: text for name, text in values.items()}
        foreign = self._check.foreign
        return headers if foreign is None else {**headers, **foreign.build(context)}

    def hook(self, request: Any) -> None:
        """Add the headers to a request of an httpx2 or httpx client.

        Use it as `event_hooks={"request": [chain.hook]}`. It replaces chain headers already on the request. A redirect
        to another host gets none.
        """
        attach_headers(request, self.headers)

    async def ahook(self, request: Any) -> None:
        """Add the headers to a request of an async client."""
        attach_headers(request, self.headers)

    def __repr__(self) -> str:
        return f"<Chain {self._check.address}: ceiling {self._check.ceiling}, {self.keys or 'no keys'}>"

    def _build_context(self, position: Position, within: TurnBudget | None) -> HopContext:
        caller = position.caller or _create_top_caller(position.run_id, self._check.ceiling)
        seconds = min(position.remaining_s, caller.remaining_s, math.inf if within is None else within.remaining_s())
        remaining = narrow(read_remaining(position.envelope), caller.left, read_remaining(within))
        assert self.name is not None
        assert self.host is not None
        return HopContext(
            agent=self.name,
            host=self.host,
            root=caller.root,
            depth=caller.depth,
            ceiling=min(self._check.ceiling, caller.ceiling),
            path=(*caller.path, self._check.address),
            seconds=None if seconds == math.inf else math.floor(seconds * 1000) / 1000,
            turns=remaining.get("turns"),
            tokens=remaining.get("tokens"),
            usd=remaining.get("usd"),
            expires=round(self.clock.wall() + self.valid_s, 3),
        )


def headers(within: TurnBudget | None = None) -> dict[str, str]:
    """Return the headers for a call to another agent.

    Uses the chain of the service being called, otherwise one from the settings.
    """
    return headers_at(find_position(), within)


def headers_at(position: Position, within: TurnBudget | None = None) -> dict[str, str]:
    """Return the headers for a call from a given position."""
    chain = position.chain if isinstance(position.chain, Chain) else Chain()
    return chain.headers_at(position, within)


def _create_top_caller(run_id: str, ceiling: int) -> Caller:
    # No agent called. The run's id names the chain, so that all calls of a run belong to one chain.
    return Caller(root=run_id if ROOT.fullmatch(run_id) else create_root_id(), ceiling=ceiling)


def _resolve_name(field_name: Literal["name", "host"], value: object, settings: Settings, default: str) -> str:
    pattern = NAME if field_name == "name" else HOST
    max_length = 64 if field_name == "name" else 253
    expected = f"at most {max_length} letters, digits, or {'. _ -' if field_name == 'name' else '. : _ - [ ]'}"
    setting = settings.find(f"chain.{field_name}") if value is None else None
    resolved = value if setting is None else setting.value
    if resolved is None:
        return default if pattern.fullmatch(default) else ""
    if isinstance(resolved, str) and pattern.fullmatch(resolved):
        return resolved
    raise ConfigError(f"chain, {field_name}", value, expected) if setting is None else setting.error(expected)


def _resolve_require_signature(value: bool | None, settings: Settings, keys: Keys | None) -> bool:
    setting = settings.find("chain.require_signature") if value is None else None
    flags = {"true": True, "false": False}
    resolved = value if setting is None else flags.get(str(setting.value).lower(), setting.value)
    if resolved is None:
        return keys is not None
    # Without a key no signature can be verified, so none can be required.
    expected = "true or false" if keys else f"false, because there is no key; set {CURRENT} to require signatures"
    if isinstance(resolved, bool) and (keys is not None or not resolved):
        return resolved
    raise ConfigError("chain, require_signature", value, expected) if setting is None else setting.error(expected)
