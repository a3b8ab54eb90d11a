"""Reservations of requests that share their budgets with others: parallel turns, or other runs.

A request gets what it would get alone. While others hold a part of that, it waits until they settle. It is refused only
when its own need and the units already used exceed a ceiling. It holds nothing while it waits, so that requests cannot
block each other for ever.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..budget.price import compute_max_request_cost
from ..budget.run_budget import Refusal, TurnBudget
from ..budget.spending import NO_HOLDS, Holds, ModelPrice, Spending, compute_affordable_output, compute_report_cost
from ..errors import UsageError

if TYPE_CHECKING:
    from ..budget.budget import Hold
    from ..budget.price import Price
    from .model_card import GovernedModel

TOKENS_PER_BYTE = 0.4
"""Estimate for text whose tokens are not known. Providers report 0.2 to 0.3 for prose and code."""
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.001, 0.02
"""Seconds between two looks at budgets whose units others hold."""


@dataclass(slots=True)
class Need:
    """Units that a request asks for. Not frozen: the run sets `kept`."""

    input_tokens: int = 0
    max_output_tokens: int | None = None
    """Longest reply. None means as much as the budgets allow."""
    turns: int = 0
    is_grace: bool = False
    shares: int = 1
    """Number of reports that the reserve must suffice for, including this one."""
    model: GovernedModel | None = None
    """Model of the request. None means that of the run."""
    min_output_tokens: int = 1
    """Shortest reply that is worth a request."""
    enough_output_tokens: int | None = None
    """Length of a reply that is enough, so that the request does not wait for more. None means as long as possible."""
    report_tokens: int | None = None
    """Output tokens of the report to reserve for the conversation after this turn. None means that the reserve of the
    run is for all conversations."""
    kept: Holds = NO_HOLDS
    """Tokens and money that are reserved for a report of this conversation already."""
    is_pending: bool = False
    """Whether the turn counts only when `ReservedTurn.confirm` is called, because its request may not be delivered."""


@dataclass(slots=True)
class Reservation:
    """Units that a request holds, in the run's own budgets and in shared ones."""

    spending: Spending
    max_output_tokens: int | None
    need: Need
    holds: Holds = NO_HOLDS
    """Tokens and money, the same in the run's own budgets and in each shared one."""
    turns: list[Hold] = field(default_factory=list["Hold"])
    """Held turns, until the turn starts or is confirmed."""
    kept: Holds = NO_HOLDS
    """Tokens and money that are now reserved for a report of the conversation."""

    def start_turn(self) -> None:
        """Count the turn as used."""
        for hold in self.turns:
            hold.settle(hold.amount)

    def release(self) -> None:
        """Release everything that is not settled."""
        for hold in self.turns:
            hold.release()
        self.spending.release(self.holds)
        self.holds = NO_HOLDS


class SharedSpending(Spending):
    """Tokens and money of a run whose requests also count in shared budgets."""

    __slots__ = ("_shared",)

    def __init__(self, envelope: TurnBudget, shared: tuple[TurnBudget, ...], model: GovernedModel) -> None:
        super().__init__(envelope, model.price, model.name, model.reserve_price)
        self._shared = shared

    def release(self, holds: Holds) -> None:
        """Release the reservations of a request in the run's own budgets and in the shared ones."""
        super().release(holds)
        self._settle_shared(holds, NO_HOLDS)

    def _settle_amounts(self, holds: Holds, tokens: int, money: int, model: ModelPrice | None = None) -> None:
        super()._settle_amounts(holds, tokens, money, model)
        self._settle_shared(holds, (tokens, money))

    def _settle_shared(self, holds: Holds, used: Holds) -> None:
        for name, held, amount in zip(("tokens", "usd"), holds, used, strict=True):
            for shared in self._shared if held or amount else ():
                shared.budgets[name].settle(held, amount)


class Reserver:
    """Reserves the requests of one run in its own budgets and in the shared ones. Thread-safe."""

    def __init__(
        self,
        spending: Spending,
        shared: tuple[TurnBudget, ...],
        now: Callable[[], float],
        is_over: Callable[[], bool],
    ) -> None:
        self._spending = spending
        self._envelope = spending.envelope
        self._shared = shared
        self._envelopes = (self._envelope, *shared)
        self._kept: list[Counter[str]] = [Counter() for _ in shared]
        """Units that are reserved for reports of this run in the shared budgets, by envelope and budget."""
        self._now = now
        self._is_over = is_over
        """Function that tells whether the run has ended, so that waiting is useless."""
        self.drop_report: Callable[[], bool] = lambda: False
        """Function that releases the reserve of a conversation that may be over. It returns False if there is none."""

    def reserve(self, need: Need) -> Reservation | Refusal | None:
        """Reserve a request, and wait while others hold what it needs. None means that the run ended meanwhile."""
        pause_s = _MIN_PAUSE_S
        while (found := self.try_reserve(need)) is None and not self._is_over():
            _check_may_block()
            time.sleep(pause_s)
            pause_s = min(_MAX_PAUSE_S, 2 * pause_s)
        return found

    async def areserve(self, need: Need) -> Reservation | Refusal | None:
        """Reserve a request in the same way as `reserve`, without blocking the event loop."""
        pause_s = _MIN_PAUSE_S
        while (found := self.try_reserve(need)) is None and not self._is_over():
            from .._internal.timeouts import sleep  # imported here, because requests rarely wait

            await sleep(pause_s)
            pause_s = min(_MAX_PAUSE_S, 2 * pause_s)
        return found

    def try_reserve(self, need: Need) -> Reservation | Refusal | None:
        """Reserve a request in one step. None means that others hold what it needs."""
        if not self._shared:
            with self._envelope.lock:
                return self._reserve_locked(need)
        with ExitStack() as locks:
            for one in self._envelopes:  # from the innermost on, as every run does
                locks.enter_context(one.lock)
            return self._reserve_locked(need)

    def _reserve_locked(self, need: Need) -> Reservation | Refusal | None:
        late = self._find_late(need)
        if late is not None:
            return late
        if not need.is_grace or need.report_tokens is not None:
            return self._reserve(need)
        self._envelope.open_reserve()
        try:
            return self._reserve(need)
        finally:
            self._envelope.restore_reserve()  # for the reports of other conversations

    def _reserve(self, need: Need) -> Reservation | Refusal | None:
        longest = math.inf if need.max_output_tokens is None else need.max_output_tokens
        output, _, _ = self._find_room(need, count_held=True)
        if output < max(longest, need.min_output_tokens):  # otherwise it would get no more alone
            found = self._find_shorter(need)
            if not isinstance(found, int | float):
                return found
            output = found
        if need.shares > 1:
            room, _, _ = self._find_room(replace(need, max_output_tokens=None), count_held=True)
            if room != math.inf:
                output = min(output, max(1, (need.input_tokens + room) // need.shares - need.input_tokens))
        return self._hold(need, output)

    def _find_shorter(self, need: Need) -> float | Refusal | None:
        """Return the length of a reply that is shorter than asked for. None means that others hold what it needs."""
        alone, name, envelope = self._find_room(need, count_held=False)
        while (
            alone < need.min_output_tokens and name != "turns" and need.report_tokens is not None and self.drop_report()
        ):
            alone, name, envelope = self._find_room(need, count_held=False)
        if alone < need.min_output_tokens:
            return self._refuse(envelope, name, need)
        output, _, _ = self._find_room(need, count_held=True)
        enough = alone if need.enough_output_tokens is None else min(alone, need.enough_output_tokens)
        return None if output < (need.min_output_tokens if need.is_grace else enough) else output

    def keep_report(self, need: Need, input_tokens: int, output_tokens: int) -> Holds:
        """Reserve a report after a request with these tokens, or what is available of it; return the amounts."""
        return self.keep(self._compute_report(need, input_tokens, output_tokens))

    def renew_report(self, kept: Holds, need: Need, input_tokens: int, output_tokens: int) -> Holds:
        """Reserve a report in the same way, instead of an earlier one; return the amounts."""
        tokens, money = self._compute_report(need, input_tokens, output_tokens)
        more_tokens, more_money = self.keep((tokens - kept[0], money - kept[1]))
        return kept[0] + more_tokens, kept[1] + more_money

    def _compute_report(self, need: Need, input_tokens: int, output_tokens: int) -> Holds:
        price, report = self._find_reserve_price(need), need.report_tokens or 0
        cost = 0 if price is None else compute_report_cost(price, input_tokens, output_tokens, report)
        return input_tokens + output_tokens + report, cost

    def keep(self, amounts: Holds) -> Holds:
        """Reserve these tokens and this money for a report, or what is available of them; return the amounts."""
        return self._keep("tokens", amounts[0]), self._keep("usd", amounts[1])

    def _keep(self, name: str, amount: int) -> int:
        """Reserve more of a budget for reports, or fewer if it is negative, in all envelopes; return the change."""
        change = self._envelope.keep(name, amount)
        for index, shared in enumerate(self._shared):
            if not change or shared.budgets[name].ceiling is None:
                continue
            in_shared = self._keep_shared(index, name, change)
            if in_shared < change and amount > 0:
                self._envelope.keep(name, in_shared - change)
                for inner in range(index):
                    self._keep_shared(inner, name, in_shared - change)
                change = in_shared
        return change

    def _keep_shared(self, index: int, name: str, amount: int) -> int:
        change = self._shared[index].keep(name, amount)
        self._kept[index][name] += change
        return change

    def close(self) -> None:
        """Release what is reserved for reports in the shared budgets."""
        for shared, kept in zip(self._shared, self._kept, strict=True):
            for name, amount in kept.items():
                shared.keep(name, -amount)
            kept.clear()

    def release_report(self, kept: Holds) -> None:
        """Release what is reserved for a report."""
        if kept == NO_HOLDS:  # of most requests
            return
        self.keep((-kept[0], -kept[1]))

    def _find_room(self, need: Need, *, count_held: bool) -> tuple[float, str, TurnBudget]:
        """Return the longest possible reply, with the budget that bounds it."""
        price = self._find_reserve_price(need)
        longest = math.inf if need.max_output_tokens is None else need.max_output_tokens
        found: tuple[float, str, TurnBudget] = (longest, "tokens", self._envelope)
        report = None if need.is_grace else need.report_tokens
        for envelope in self._envelopes:
            if need.turns and found[0] > 0 and _count_free(envelope, "turns", count_held) < need.turns:
                found = (0, "turns", envelope)
            room = _count_free(envelope, "tokens", count_held) + need.kept[0] - need.input_tokens
            if report is not None:  # which reads the request and its reply once more
                room = (room - need.input_tokens - report) // 2
            if room < found[0]:
                found = (room, "tokens", envelope)
            if price is not None and (money := _count_free(envelope, "usd", count_held) + need.kept[1]) != math.inf:
                room = compute_affordable_output(price, need.input_tokens, int(money), report)
                if room < found[0]:
                    found = (room, "usd", envelope)
        return found

    def _hold(self, need: Need, output: float) -> Reservation:
        self.release_report(need.kept)
        if output == math.inf:
            reservation = Reservation(self._spending, None, need)
        else:
            tokens, price = int(output), self._find_reserve_price(need)
            cost = 0 if price is None else compute_max_request_cost(price, need.input_tokens, tokens)
            holds = need.input_tokens + tokens, cost
            for envelope in self._envelopes:
                for name, amount in zip(("tokens", "usd"), holds, strict=True):
                    if amount:
                        envelope.budgets[name].reserve(amount, amount)
            reservation = Reservation(self._spending, tokens, need, holds)
            if need.report_tokens is not None and not need.is_grace:
                reservation.kept = self.keep_report(need, need.input_tokens, tokens)
        if need.turns:
            reservation.turns = [envelope.budgets["turns"].hold(need.turns) for envelope in self._envelopes]
        return reservation

    def _find_reserve_price(self, need: Need) -> Price | None:
        model = need.model
        return self._spending.reserve_price if model is None else model.reserve_price or model.price

    def _find_late(self, need: Need) -> Refusal | None:
        envelope = self._envelope
        if self._now() >= (envelope.hard_at if need.is_grace else envelope.work_at):
            return envelope.refuse("seconds")
        late = next((shared for shared in self._shared if shared.is_expired()), None)
        return None if late is None else self._refuse(late, "seconds", need)

    def _refuse(self, envelope: TurnBudget, name: str, need: Need) -> Refusal:
        amount = need.input_tokens + 1 if name == "tokens" else 1
        refusal = envelope.refuse(name, amount, need.input_tokens if name in ("tokens", "usd") else 0)
        return refusal if envelope is self._envelope else self._envelope.remember(replace(refusal, is_shared=True))


def _count_free(envelope: TurnBudget, name: str, count_held: bool) -> float:
    budget = envelope.budgets[name]
    return budget.available if count_held else budget.unspent - envelope.reserved(name)


def is_in_event_loop() -> bool:
    """Check whether an event loop of asyncio or trio runs on this thread, which must not be blocked."""
    if asyncio._get_running_loop() is not None:  # pyright: ignore[reportPrivateUsage]
        return True
    trio: Any = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def _check_may_block() -> None:
    if is_in_event_loop():
        raise UsageError(
            "other requests hold the units that this one needs, and waiting for them here would block the event loop: "
            "use `await run.abegin_turn(...)` and `await run.aenter_grace(...)`, or `async for turn in run`"
        )
