"""The chain as one service sees it: who we are in it, whom we believe, and what we tell the next hop."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from .._internal import validation
from ..budget.deadline import SYSTEM, Clock
from ..budget.registry import UNSET, IterationBudgetRegistry, Unset
from ..budget.run_budget import TurnBudget
from ..errors import ConfigError
from ..settings import Settings
from .caller import POSITION, Caller, Position, get_remaining
from .hop import CONTEXT_HEADER, DEPTH_HEADER, ROOT_HEADER, Header, HopCheck, create_root_id
from .hop_context import HOST, NAME, ROOT, HopContext, format_address
from .keys import CURRENT, PREVIOUS, Keys
from .outgoing import attach_headers
from .refusal import ChainRefusal, RefusalCode

SETTINGS = ("chain.name", "chain.host", CURRENT, PREVIOUS, "chain.require_signature")
"""The keys that are read."""
_MAX_VALID_S = 86_400
_COMPATIBLE = {"datamachine": ("X-Datamachine-Chain-Depth", "datamachine_chain_depth_exceeded")}
_HEADER_NAMES = {
    "x-flyball-chain": "X-Flyball-Chain",
    DEPTH_HEADER: "X-Flyball-Chain-Depth",
    ROOT_HEADER: "X-Flyball-Chain-Root",
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Chain:
    """A service in chains of agents: it checks who calls, and tells those it calls what they may still do.

    What is left out comes from the settings `chain.name`, `chain.host`, `chain.key` and so on.
    """

    name: str | None = None
    """What the agent of this service is called on the path of a chain; else the setting's. Without either it is a name
    that nobody else has, also no replica, so that two services that nobody has named are not taken for one."""
    host: str | None = None
    """Where it is, the same for all its replicas; else the setting's, else the machine's name."""
    keys: Keys | None = None
    ceiling: int | Unset = UNSET
    """The depth that is refused; else the setting `max_chain_depth`, else 3."""
    require_signature: bool | None = None
    """Whether a context that no known key has signed is refused; else the setting's, else it is where there are keys.
    """
    compat: Literal["datamachine"] | None = None
    """Whose header and code for the depth are used beside our own."""
    valid_s: float = 60.0
    """How long a context may be on its way, a day at most."""
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
        header, code = _COMPATIBLE.get(self.compat or "", ("", RefusalCode.DEPTH.value))
        for attribute, value in (("name", name), ("host", host), ("keys", keys), ("require_signature", required)):
            object.__setattr__(self, attribute, value)
        hop = HopCheck(
            address=format_address(name, host),
            depth=registry.create("chain_depth", ceiling=self.ceiling),
            keys=keys,
            signature_required=required,
            depth_headers=(header.lower(), DEPTH_HEADER) if header else (DEPTH_HEADER,),
            depth_code=code,
            clock=self.clock,
        )
        object.__setattr__(self, "_check", hop)

    def check(self, headers: Iterable[Header] | Mapping[str, str]) -> Caller | ChainRefusal:
        """Whether a call with such headers is served: its caller, or the refusal that answers it.

        Pairs show a header that is there twice; a mapping cannot.
        """
        pairs = cast("Mapping[str, str]", headers).items() if isinstance(headers, Mapping) else headers
        return self._check.check(pairs)

    def headers(self, within: TurnBudget | None = None) -> dict[str, str]:
        """What to send with a call to another agent: our depth, and what is left of this chain, and of this run.

        `within` is an envelope of your own that narrows it further.
        """
        return self.headers_at(POSITION.get(), within)

    def headers_at(self, position: Position, within: TurnBudget | None = None) -> dict[str, str]:
        """The same for a certain place in a chain."""
        context = self._build_context(position, within)
        sent = {
            CONTEXT_HEADER: context.to_header(self.keys),
            DEPTH_HEADER: str(context.depth),
            ROOT_HEADER: context.root,
        }
        named = {_HEADER_NAMES[name]: text for name, text in sent.items()}
        return named if self.compat is None else {**named, _COMPATIBLE[self.compat][0]: str(context.depth)}

    def hook(self, request: Any) -> None:
        """For `event_hooks={"request": [chain.hook]}` of an httpx2 or httpx client: adds the headers to each request.

        What the request had under these names is gone then. A redirect to another host gets none of them.
        """
        attach_headers(request, self.headers)

    async def ahook(self, request: Any) -> None:
        """The same for an async client."""
        attach_headers(request, self.headers)

    def __repr__(self) -> str:
        return f"<Chain {self._check.address}: ceiling {self._check.ceiling}, {self.keys or 'no keys'}>"

    def _build_context(self, position: Position, within: TurnBudget | None) -> HopContext:
        caller = position.caller or _create_top_caller(position.run_id, self._check.ceiling)
        seconds = min(position.remaining_s, caller.remaining_s, math.inf if within is None else within.remaining_s())
        left: dict[str, int] = {}
        for some in (get_remaining(position.envelope), caller.left, get_remaining(within)):
            left |= {name: min(amount, left.get(name, amount)) for name, amount in some.items()}
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
            turns=left.get("turns"),
            tokens=left.get("tokens"),
            usd=left.get("usd"),
            expires=round(self.clock.wall() + self.valid_s, 3),
        )


def headers(within: TurnBudget | None = None) -> dict[str, str]:
    """What to send with a call to another agent, as the service that is being called here; else as the settings say."""
    return headers_at(POSITION.get(), within)


def headers_at(position: Position, within: TurnBudget | None = None) -> dict[str, str]:
    """The same for a certain place in a chain."""
    chain = position.chain if isinstance(position.chain, Chain) else Chain()
    return chain.headers_at(position, within)


def _create_top_caller(run_id: str, ceiling: int) -> Caller:
    """Where nobody has called: all calls of one run belong to one chain, which has its name."""
    return Caller(root=run_id if ROOT.fullmatch(run_id) else create_root_id(), ceiling=ceiling)


def _resolve_name(field_name: Literal["name", "host"], value: object, settings: Settings, default: str) -> str:
    pattern = NAME if field_name == "name" else HOST
    most = 64 if field_name == "name" else 253
    expected = f"at most {most} letters, digits, or {'. _ -' if field_name == 'name' else '. : _ - [ ]'}"
    setting = settings.find(f"chain.{field_name}") if value is None else None
    found = value if setting is None else setting.value
    if found is None:
        return default if pattern.fullmatch(default) else ""
    if isinstance(found, str) and pattern.fullmatch(found):
        return found
    raise ConfigError(f"chain, {field_name}", value, expected) if setting is None else setting.error(expected)


def _resolve_require_signature(value: bool | None, settings: Settings, keys: Keys | None) -> bool:
    """Whether contexts must be signed; that cannot be, where no key is known to look at a signature with."""
    setting = settings.find("chain.require_signature") if value is None else None
    found = value if setting is None else {"true": True, "false": False}.get(str(setting.value).lower(), setting.value)
    if found is None:
        return keys is not None
    expected = "true or false" if keys else f"false, as there is no key; {CURRENT} would be one"
    if isinstance(found, bool) and (keys is not None or not found):
        return found
    raise ConfigError("chain, require_signature", value, expected) if setting is None else setting.error(expected)
