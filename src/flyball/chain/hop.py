"""Check of an incoming hop: accept or refuse a call by its headers alone."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..budget.budget import IterationBudget
from ..budget.deadline import Clock, Deadline
from ..budget.run_budget import TurnBudget
from ..errors import quote_value
from .caller import COUNTED_BUDGETS, Caller
from .foreign import DEPTH, DEPTH_EXPECTED, ROOT_EXPECTED, ForeignHeaders
from .foreign import NAMES as FOREIGN_NAMES
from .hop_context import MAX_LENGTH, ROOT, HopContext, SignedContext
from .keys import Keys
from .refusal import ChainRefusal, RefusalCode

CONTEXT_HEADER, DEPTH_HEADER, ROOT_HEADER = "x-flyball-chain", "x-flyball-chain-depth", "x-flyball-chain-root"
_LEEWAY_S = 30.0
"""Seconds that the clocks of two services may differ; only the expiry depends on them."""
Header = tuple[str | bytes, str | bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class HopCheck:
    """Configuration and checks of incoming hops. Checking changes no state."""

    address: str
    """Address of this service on a path."""
    depth: IterationBudget
    """Template of the registered budget `chain_depth`; each request gets its own copy."""
    keys: Keys | None
    signature_required: bool
    foreign: ForeignHeaders | None
    """Headers of other systems that are read too. None means none."""
    depth_code: str
    clock: Clock
    _header_names: dict[bytes, str] = field(init=False)

    def __post_init__(self) -> None:
        names = (CONTEXT_HEADER, ROOT_HEADER, DEPTH_HEADER, *(() if self.foreign is None else FOREIGN_NAMES))
        object.__setattr__(self, "_header_names", {name.encode(): name for name in names})

    @property
    def ceiling(self) -> int:
        """Lowest refused depth."""
        ceiling = self.depth.ceiling
        assert ceiling is not None, "the registry bounds chain_depth"
        return ceiling

    def check(self, headers: Iterable[Header]) -> Caller | ChainRefusal:
        """Return the caller to serve, or the refusal.

        Without chain headers the request is the top of a new chain.
        """
        chain_headers: dict[str, str] = {}
        header_names = self._header_names
        for key, value in headers:
            name = header_names.get((key if isinstance(key, bytes) else key.encode("utf-8", "replace")).lower())
            if name is not None:
                text = value.decode("latin-1") if isinstance(value, bytes) else value
                if name in chain_headers:
                    return self._refuse_invalid(f"{name}: the header was sent twice; send it once")
                if len(text) > MAX_LENGTH:
                    return self._refuse_invalid(
                        f"{name}: found {len(text):,} characters; expected at most {MAX_LENGTH:,}"
                    )
                chain_headers[name] = text
        if not chain_headers:
            return Caller(root=create_root_id(), ceiling=self.ceiling)
        context = chain_headers.pop(CONTEXT_HEADER, None)
        return self._check_unsigned(chain_headers) if context is None else self._check_signed(context, chain_headers)

    def _check_unsigned(self, headers: dict[str, str]) -> Caller | ChainRefusal:
        """Check a call that has only the plain headers."""
        if self.signature_required:
            return self._refuse(
                RefusalCode.UNSIGNED, f"{CONTEXT_HEADER}: the header is missing; this service requires a signed one"
            )
        problem = self._find_malformed(headers)
        if problem:
            return self._refuse_invalid(problem)
        depths = self._read_depths(headers)
        if len(set(depths.values())) != 1:
            problem = "the depth headers differ" if depths else "the header is missing"
            return self._refuse_invalid(f"{next(iter(depths), DEPTH_HEADER)}: {problem}; send one depth")
        depth, root = next(iter(depths.values())), self._read_root(headers) or create_root_id()
        if depth < 0:  # a sender that counts is at the top of its chain
            return Caller(root=root, ceiling=self.ceiling)
        if self.foreign is None:
            return self._count_hop(HopContext(root=root, depth=depth), signed=False)
        return self._count_hop(self.foreign.read_context(headers, root, depth), signed=False)

    def _read_depths(self, headers: dict[str, str]) -> dict[str, int]:
        """Return the sender's depth by header."""
        own = {DEPTH_HEADER: int(headers[DEPTH_HEADER])} if DEPTH_HEADER in headers else {}
        return own if self.foreign is None else {**self.foreign.read_depths(headers), **own}

    def _read_root(self, headers: dict[str, str]) -> str | None:
        root = headers.get(ROOT_HEADER)
        return self.foreign.read_root(headers) if root is None and self.foreign is not None else root

    def _check_signed(self, value: str, headers: dict[str, str]) -> Caller | ChainRefusal:
        try:
            signed_context = SignedContext.parse(value)
            refusal_code = signed_context.check_signature(self.keys, self.signature_required)
            if refusal_code is not None:
                problem = "is not signed" if refusal_code is RefusalCode.UNSIGNED else "has an invalid signature"
                return self._refuse(
                    refusal_code, f"{CONTEXT_HEADER}: the context {problem}; sign it with a key that this service has"
                )
            context = signed_context.decode()
        except ValueError as error:
            return self._refuse_invalid(f"{CONTEXT_HEADER}: {error}")
        problem = self._find_malformed(headers) or self._find_mismatch(context, headers)
        if problem:
            return self._refuse_invalid(problem)
        if context.expires is not None and context.expires + _LEEWAY_S < self.clock.wall():
            return self._refuse(RefusalCode.EXPIRED, f"{CONTEXT_HEADER}: the context has expired; send a new one")
        return self._count_hop(context, signed=self.keys is not None and bool(signed_context.signature))

    def _find_malformed(self, headers: dict[str, str]) -> str | None:
        """Return the first malformed plain header as an error text, or None."""
        root, depth = headers.get(ROOT_HEADER), headers.get(DEPTH_HEADER)
        if root is not None and ROOT.fullmatch(root) is None:
            return f"{ROOT_HEADER}: found {quote_value(root)}; expected {ROOT_EXPECTED}"
        if depth is not None and DEPTH.fullmatch(depth) is None:
            return f"{DEPTH_HEADER}: found {quote_value(depth)}; expected {DEPTH_EXPECTED}"
        return None if self.foreign is None else self.foreign.find_problem(headers)

    def _find_mismatch(self, context: HopContext, headers: dict[str, str]) -> str | None:
        """Return the first plain header that contradicts the signed context, or None."""
        root = self._read_root(headers)
        if root is not None and root != context.root:
            return f"{ROOT_HEADER}: found {quote_value(root)}; expected {context.root}, as in {CONTEXT_HEADER}"
        for name, depth in self._read_depths(headers).items():
            if depth != context.depth:
                return f"{name}: found {quote_value(headers[name])}; expected the depth of {CONTEXT_HEADER}"
        return None

    def _count_hop(self, context: HopContext, signed: bool) -> Caller | ChainRefusal:
        """Count the hop, then check depth, cycle and remaining budget."""
        budget = self.depth.create_capped(None, context.ceiling, None)
        context.depth, context.ceiling = budget.increment(context.depth + 1), budget.ceiling
        if budget.exceeded:
            return self._refuse(RefusalCode.DEPTH, f"{budget.warning} This would be hop {context.depth}.", context)
        if self.address in context.path:
            path = " -> ".join((*context.path, self.address))
            return self._refuse(
                RefusalCode.CYCLE, f"{self.address} is already on the path of this chain: {path}.", context
            )
        exhausted = [name for name in ("seconds", *COUNTED_BUDGETS) if getattr(context, name) == 0]
        if exhausted:
            return self._refuse(RefusalCode.BUDGET, f"The chain has nothing left of: {', '.join(exhausted)}.", context)
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
        """Build the budget shared by the runs of this hop; None if the chain sets none."""
        if context.turns is None and context.tokens is None and context.usd is None:
            return None
        ceilings = {"turns": context.turns, "tokens": context.tokens, "usd": context.usd}
        return TurnBudget.of(ceilings, deadline, prefix="chain_")

    def _refuse_invalid(self, message: str) -> ChainRefusal:
        return self._refuse(RefusalCode.INVALID, message)

    def _refuse(self, code: RefusalCode, message: str, context: HopContext | None = None) -> ChainRefusal:
        code_text = self.depth_code if code is RefusalCode.DEPTH else code.value
        if context is None:
            return ChainRefusal(code_text, code.status, message, ceiling=self.ceiling)
        return ChainRefusal(code_text, code.status, message, context.depth, context.ceiling, context.root)


def create_root_id() -> str:
    """Create a random id for a new chain."""
    return os.urandom(16).hex()
