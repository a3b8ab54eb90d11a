"""The hop check: whether a call from agent to agent is served, decided from its headers alone."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..budget.budget import IterationBudget
from ..budget.deadline import Clock, Deadline
from ..budget.run_budget import TurnBudget
from ..errors import shown
from ..unit import Unit
from .caller import COUNTED, Caller
from .hop_context import LONGEST, ROOT, HopContext, SignedContext
from .keys import Keys
from .refusal import ChainRefusal, RefusalCode

VALUE, DEPTH_HEADER, ROOT_HEADER = "x-flyball-chain", "x-flyball-chain-depth", "x-flyball-chain-root"
_DEPTH = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
_LEEWAY_S = 30.0
"""How much the clocks of two services may differ; only the expiry depends on them."""
Header = tuple[str | bytes, str | bytes]


def fresh_root() -> str:
    """The id of a chain that begins here."""
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class HopCheck:
    """All that decides whether a hop is served. Asking it changes nothing."""

    place: str
    """Who we are on a path."""
    depth: IterationBudget
    """The registered budget `chain_depth`, of which every request gets its own."""
    keys: Keys | None
    signature_required: bool
    depth_headers: tuple[str, ...]
    """The plain headers that tell a depth."""
    depth_code: str
    clock: Clock
    _known: dict[bytes, str] = field(init=False)
    _left: dict[str, IterationBudget] = field(init=False)

    def __post_init__(self) -> None:
        names = (VALUE, ROOT_HEADER, *self.depth_headers)
        left = {name: IterationBudget(f"chain_{name}", None) for name in ("turns", "tokens")}
        object.__setattr__(self, "_known", {name.encode(): name for name in names})
        object.__setattr__(self, "_left", left | {"usd": IterationBudget("chain_usd", None, unit=Unit.USD)})

    @property
    def ceiling(self) -> int:
        """The depth that is refused here."""
        ceiling = self.depth.ceiling
        assert ceiling is not None, "the registry bounds chain_depth"
        return ceiling

    def check(self, headers: Iterable[Header]) -> Caller | ChainRefusal:
        """Count this hop: the caller that is served, or why none is. Without chain headers it is the top of a chain."""
        told: dict[str, str] = {}
        known = self._known
        for key, value in headers:
            name = known.get((key if isinstance(key, bytes) else key.encode("utf-8", "replace")).lower())
            if name is not None:
                text = value.decode("latin-1") if isinstance(value, bytes) else value
                if name in told:
                    return self._invalid(f"{name}: found it twice; expected it once")
                if len(text) > LONGEST:
                    return self._invalid(f"{name}: found {len(text):,} characters; expected {LONGEST:,} at most")
                told[name] = text
        if not told:
            return Caller(root=fresh_root(), ceiling=self.ceiling)
        sealed = told.pop(VALUE, None)
        return self._plain(told) if sealed is None else self._signed(sealed, told)

    def _plain(self, told: dict[str, str]) -> Caller | ChainRefusal:
        """Nothing but the headers for people who read logs."""
        if self.signature_required:
            return self._refusal(RefusalCode.UNSIGNED, f"{VALUE}: found none; expected one that is signed")
        problem = self._malformed(told)
        if problem:
            return self._invalid(problem)
        depths = {told[name] for name in self.depth_headers if name in told}
        if len(depths) != 1:
            found = f"{len(depths)} different ones" if depths else "none"
            return self._invalid(f"{self.depth_headers[0]}: found {found}; expected one depth")
        return self._counted(
            HopContext(root=told.get(ROOT_HEADER) or fresh_root(), depth=int(depths.pop())), signed=False
        )

    def _signed(self, value: str, told: dict[str, str]) -> Caller | ChainRefusal:
        try:
            sealed = SignedContext.of(value)
            distrust = sealed.distrust(self.keys, self.signature_required)
            if distrust is not None:
                found = "no signature" if distrust is RefusalCode.UNSIGNED else "a signature that is not right"
                return self._refusal(distrust, f"{VALUE}: found {found}; expected one by a key that is known here")
            context = sealed.opened()
        except ValueError as error:
            return self._invalid(f"{VALUE}: {error}")
        problem = self._malformed(told) or self._disagreement(context, told)
        if problem:
            return self._invalid(problem)
        if context.expires is not None and context.expires + _LEEWAY_S < self.clock.wall():
            return self._refusal(RefusalCode.EXPIRED, f"{VALUE}: found one that has expired; expected a fresh one")
        return self._counted(context, signed=self.keys is not None and bool(sealed.signature))

    def _malformed(self, told: dict[str, str]) -> str | None:
        """What is wrong with the plain headers by themselves."""
        for name, text in told.items():
            if name == ROOT_HEADER and ROOT.fullmatch(text) is None:
                return f"{name}: found {shown(text)}; expected 1 to 64 letters, digits, or . _ : -"
            if name != ROOT_HEADER and _DEPTH.fullmatch(text) is None:
                return f"{name}: found {shown(text)}; expected a whole number from 0 to 999999"
        return None

    def _disagreement(self, context: HopContext, told: dict[str, str]) -> str | None:
        """Where a plain header says something else than the signed value."""
        for name, text in told.items():
            value = context.root if name == ROOT_HEADER else str(context.depth)
            if text != value:
                return f"{name}: found {shown(text)}; expected {value}, as {VALUE} says"
        return None

    def _counted(self, context: HopContext, signed: bool) -> Caller | ChainRefusal:
        """Count the hop before looking at the ceiling: reaching that refuses."""
        budget = self.depth.anew(most=context.ceiling)
        context.depth, context.ceiling = budget.increment(context.depth + 1), budget.ceiling
        if budget.exceeded:
            return self._refusal(RefusalCode.DEPTH, f"{budget.warning} This would be hop {context.depth}.", context)
        if self.place in context.path:
            way = " -> ".join((*context.path, self.place))
            return self._refusal(
                RefusalCode.CYCLE, f"{self.place} is on the path of this chain already: {way}.", context
            )
        spent = [name for name in ("seconds", *COUNTED) if getattr(context, name) == 0]
        if spent:
            return self._refusal(RefusalCode.BUDGET, f"The chain has nothing left of: {', '.join(spent)}.", context)
        return self._caller(context, signed)

    def _caller(self, context: HopContext, signed: bool) -> Caller:
        seconds = math.inf if context.seconds is None else context.seconds
        deadline = Deadline(self.clock.now() + seconds, self.clock)
        return Caller(
            root=context.root,
            depth=context.depth,
            ceiling=context.ceiling or self.ceiling,
            agent=context.agent,
            host=context.host,
            path=context.path,
            deadline=deadline,
            envelope=self._envelope(context, deadline),
            expires=context.expires,
            signed=signed,
        )

    def _envelope(self, context: HopContext, deadline: Deadline) -> TurnBudget | None:
        """What the runs of this hop share; None where the chain says nothing of budgets."""
        if context.turns is None and context.tokens is None and context.usd is None:
            return None
        turns = self._left["turns"].anew(most=context.turns)
        tokens, usd = self._left["tokens"].anew(turns, context.tokens), self._left["usd"].anew(turns, context.usd)
        return TurnBudget({"turns": turns, "tokens": tokens, "usd": usd}, deadline)

    def _invalid(self, message: str) -> ChainRefusal:
        return self._refusal(RefusalCode.INVALID, message)

    def _refusal(self, code: RefusalCode, message: str, context: HopContext | None = None) -> ChainRefusal:
        named = self.depth_code if code is RefusalCode.DEPTH else code.value
        if context is None:
            return ChainRefusal(named, code.status, message, ceiling=self.ceiling)
        return ChainRefusal(named, code.status, message, context.depth, context.ceiling, context.root)
