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
from ..errors import quote_value
from ..unit import Unit
from .caller import COUNTED_BUDGETS, Caller
from .hop_context import MAX_LENGTH, ROOT, HopContext, SignedContext
from .keys import Keys
from .refusal import ChainRefusal, RefusalCode

CONTEXT_HEADER, DEPTH_HEADER, ROOT_HEADER = "x-flyball-chain", "x-flyball-chain-depth", "x-flyball-chain-root"
_DEPTH = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
_LEEWAY_S = 30.0
"""How much the clocks of two services may differ; only the expiry depends on them."""
Header = tuple[str | bytes, str | bytes]


def create_root_id() -> str:
    """The id of a chain that begins here."""
    return os.urandom(16).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class HopCheck:
    """All that decides whether a hop is served. Asking it changes nothing."""

    address: str
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
        names = (CONTEXT_HEADER, ROOT_HEADER, *self.depth_headers)
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
                    return self._refuse_invalid(f"{name}: found it twice; expected it once")
                if len(text) > MAX_LENGTH:
                    return self._refuse_invalid(
                        f"{name}: found {len(text):,} characters; expected {MAX_LENGTH:,} at most"
                    )
                told[name] = text
        if not told:
            return Caller(root=create_root_id(), ceiling=self.ceiling)
        sealed = told.pop(CONTEXT_HEADER, None)
        return self._check_unsigned(told) if sealed is None else self._check_signed(sealed, told)

    def _check_unsigned(self, headers: dict[str, str]) -> Caller | ChainRefusal:
        """Nothing but the headers for people who read logs."""
        if self.signature_required:
            return self._refuse(RefusalCode.UNSIGNED, f"{CONTEXT_HEADER}: found none; expected one that is signed")
        problem = self._find_malformed(headers)
        if problem:
            return self._refuse_invalid(problem)
        depths = {headers[name] for name in self.depth_headers if name in headers}
        if len(depths) != 1:
            found = f"{len(depths)} different ones" if depths else "none"
            return self._refuse_invalid(f"{self.depth_headers[0]}: found {found}; expected one depth")
        return self._count_hop(
            HopContext(root=headers.get(ROOT_HEADER) or create_root_id(), depth=int(depths.pop())), signed=False
        )

    def _check_signed(self, value: str, headers: dict[str, str]) -> Caller | ChainRefusal:
        try:
            sealed = SignedContext.parse(value)
            distrust = sealed.check_signature(self.keys, self.signature_required)
            if distrust is not None:
                found = "no signature" if distrust is RefusalCode.UNSIGNED else "a signature that is not right"
                return self._refuse(
                    distrust, f"{CONTEXT_HEADER}: found {found}; expected one by a key that is known here"
                )
            context = sealed.decode()
        except ValueError as error:
            return self._refuse_invalid(f"{CONTEXT_HEADER}: {error}")
        problem = self._find_malformed(headers) or self._find_mismatch(context, headers)
        if problem:
            return self._refuse_invalid(problem)
        if context.expires is not None and context.expires + _LEEWAY_S < self.clock.wall():
            return self._refuse(
                RefusalCode.EXPIRED, f"{CONTEXT_HEADER}: found one that has expired; expected a fresh one"
            )
        return self._count_hop(context, signed=self.keys is not None and bool(sealed.signature))

    def _find_malformed(self, headers: dict[str, str]) -> str | None:
        """What is wrong with the plain headers by themselves."""
        for name, text in headers.items():
            if name == ROOT_HEADER and ROOT.fullmatch(text) is None:
                return f"{name}: found {quote_value(text)}; expected 1 to 64 letters, digits, or . _ : -"
            if name != ROOT_HEADER and _DEPTH.fullmatch(text) is None:
                return f"{name}: found {quote_value(text)}; expected a whole number from 0 to 999999"
        return None

    def _find_mismatch(self, context: HopContext, headers: dict[str, str]) -> str | None:
        """Where a plain header says something else than the signed value."""
        for name, text in headers.items():
            value = context.root if name == ROOT_HEADER else str(context.depth)
            if text != value:
                return f"{name}: found {quote_value(text)}; expected {value}, as {CONTEXT_HEADER} says"
        return None

    def _count_hop(self, context: HopContext, signed: bool) -> Caller | ChainRefusal:
        """Count the hop before looking at the ceiling: reaching that refuses."""
        budget = self.depth.anew(most=context.ceiling)
        context.depth, context.ceiling = budget.increment(context.depth + 1), budget.ceiling
        if budget.exceeded:
            return self._refuse(RefusalCode.DEPTH, f"{budget.warning} This would be hop {context.depth}.", context)
        if self.address in context.path:
            way = " -> ".join((*context.path, self.address))
            return self._refuse(
                RefusalCode.CYCLE, f"{self.address} is on the path of this chain already: {way}.", context
            )
        spent = [name for name in ("seconds", *COUNTED_BUDGETS) if getattr(context, name) == 0]
        if spent:
            return self._refuse(RefusalCode.BUDGET, f"The chain has nothing left of: {', '.join(spent)}.", context)
        return self._build_caller(context, signed)

    def _build_caller(self, context: HopContext, signed: bool) -> Caller:
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
            envelope=self._build_envelope(context, deadline),
            expires=context.expires,
            signed=signed,
        )

    def _build_envelope(self, context: HopContext, deadline: Deadline) -> TurnBudget | None:
        """What the runs of this hop share; None where the chain says nothing of budgets."""
        if context.turns is None and context.tokens is None and context.usd is None:
            return None
        turns = self._left["turns"].anew(most=context.turns)
        tokens, usd = self._left["tokens"].anew(turns, context.tokens), self._left["usd"].anew(turns, context.usd)
        return TurnBudget({"turns": turns, "tokens": tokens, "usd": usd}, deadline)

    def _refuse_invalid(self, message: str) -> ChainRefusal:
        return self._refuse(RefusalCode.INVALID, message)

    def _refuse(self, code: RefusalCode, message: str, context: HopContext | None = None) -> ChainRefusal:
        named = self.depth_code if code is RefusalCode.DEPTH else code.value
        if context is None:
            return ChainRefusal(named, code.status, message, ceiling=self.ceiling)
        return ChainRefusal(named, code.status, message, context.depth, context.ceiling, context.root)
