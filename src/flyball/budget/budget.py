"""Named, thread-safe counters with a ceiling, and holds on them.

Everything that Flyball limits by number (turns, tool calls, tokens, money, child runs) is an `IterationBudget`.
"""

# IterationBudget and Hold are one mechanism in two classes, so they use each other's private attributes.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from itertools import islice
from threading import RLock
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from .._internal import validation
from ..errors import BudgetExceeded, ConfigError, UsageError
from ..unit import Unit
from .changes import CountChange, RunChanges
from .lock import create_lock
from .snapshot import BudgetSnapshot, Extension, compute_ratio

_NO_REFUNDS: Mapping[str, int] = MappingProxyType({})


class _Settings(NamedTuple):
    """Settings that a budget shares with the fresh ones created from it."""

    name: str
    maximum: int | None
    refund_limit: int | None
    unit: Unit
    mark: float = 0.0
    """Count from which on the copies for runs report that they have changed."""


class _Past(NamedTuple):
    """Counts that few budgets have."""

    brought: int = 0
    """Units used before the budget existed."""
    unsettled: int = 0
    refunds: Mapping[str, int] = _NO_REFUNDS
    extensions: tuple[Extension, ...] = ()


_NO_PAST = _Past()


class IterationBudget:
    """Named counter with a ceiling. A refused claim changes nothing.

    >>> turns = IterationBudget("conversation_turns", 2)
    >>> turns.consume(), turns.consume(), turns.consume()
    (True, True, False)
    >>> turns.to_response_flag()
    'max_conversation_turns_reached'

    With `parent=`, a claim counts here and in every ancestor, or nowhere. `beside=` only shares the lock of another
    budget: the budgets of one run use it, so that a claim on several of them is atomic. `start` is the amount used
    before this budget existed. It counts here but not in the ancestors, so a refund never returns it to them.

    Amounts are whole numbers in `unit`. All methods are thread-safe.
    """

    __slots__ = ("_held", "_limit", "_lock", "_parent", "_past", "_settings", "_used", "changes", "mark")

    def __init__(
        self,
        name: str,
        ceiling: int | None,
        *,
        start: int = 0,
        parent: IterationBudget | None = None,
        beside: IterationBudget | None = None,
        maximum: int | None = None,
        refund_limit: int | None = None,
        unit: Unit = Unit.COUNT,
    ) -> None:
        where = f"budget {validation.check_text('budget name', name)!r}"
        self._settings = _Settings(
            name,
            validation.check_optional_int(f"{where}, maximum", maximum),
            validation.check_optional_int(f"{where}, refund_limit", refund_limit),
            validation.parse_enum(f"{where}, unit", unit, Unit),
        )
        validation.check_optional_int(f"{where}, ceiling", ceiling)
        if maximum is not None and (ceiling is None or ceiling > maximum):
            raise ConfigError(f"{where}, ceiling", ceiling, f"at most its maximum of {maximum}")
        self._limit: int | float = math.inf if ceiling is None else ceiling
        """The ceiling; infinity if there is none, so that one comparison decides a claim."""
        self._used = validation.check_int(f"{where}, start", start)
        self._held = 0
        self._past = _Past(start) if start else _NO_PAST
        self.changes: RunChanges | None = None
        """Receives the changes that rules and warnings of a run must know. None outside of runs."""
        self.mark = math.inf
        """Count from which on each claim is such a change. Rules and warnings set it."""
        self._parent = parent
        self._lock = self._choose_lock(parent, beside)

    def create_fresh(self, beside: IterationBudget | None = None) -> IterationBudget:
        """Return an unused budget for a run, with the same settings and ceiling, without re-validating them.

        `beside` is the budget whose lock it shares.
        """
        fresh = object.__new__(IterationBudget)
        fresh._settings = self._settings
        fresh._limit = self._limit
        fresh._used = fresh._held = 0
        fresh._past = _NO_PAST
        fresh._parent = None
        fresh.mark = self._settings.mark
        if beside is None:
            fresh.changes, fresh._lock = RunChanges(), create_lock()
        else:
            fresh.changes, fresh._lock = beside.changes, beside._lock
        return fresh

    def create_marked(self, mark: float) -> IterationBudget:
        """Return a template with the same settings, whose copies have this mark from the start."""
        template = self.create_fresh()
        template._settings = self._settings._replace(mark=mark)
        return template

    def create_capped(
        self, beside: IterationBudget | None, max_amount: int | None, parent: IterationBudget | None
    ) -> IterationBudget:
        """Return a fresh budget below a parent. `max_amount` caps its ceiling; None keeps it."""
        capped = self.create_fresh(beside)
        if parent is not None:
            capped._parent, capped._lock = parent, parent._lock
        if max_amount is not None and self._limit >= max_amount:
            capped._limit = max_amount
            capped._settings = self._settings._replace(maximum=max_amount)  # an inherited cap can never be raised
        return capped

    @property
    def name(self) -> str:
        """Name in flags, events and messages."""
        return self._settings.name

    @property
    def maximum(self) -> int | None:
        """Highest ceiling that `extend` can set. None means no maximum."""
        return self._settings.maximum

    @property
    def refund_limit(self) -> int | None:
        """Units that can be refunded in all. None means as many as the ceiling."""
        return self._settings.refund_limit

    @property
    def unit(self) -> Unit:
        """Unit of the amounts."""
        return self._settings.unit

    def consume(self, amount: int = 1) -> bool:
        """Claim `amount` and return True, or return False if refused."""
        return self._claim(amount) is None

    def consume_one(self) -> bool:
        """Claim one unit and return True, or return False if refused. Takes a third less time than `consume`."""
        if self._parent is not None:
            return self._claim(1) is None
        lock = self._lock
        lock.acquire()  # `with` takes twice as long
        try:
            used = self._used + 1
            if used + self._held > self._limit:
                return False
            self._used = used
            if used >= self.mark:
                self._report_change()
            return True
        finally:
            lock.release()

    def spend(self, amount: int = 1) -> None:
        """Claim `amount`, or raise BudgetExceeded naming the budget that refused."""
        refusal = self._claim(amount)
        if refusal is not None:
            raise refusal

    def try_hold(self, amount: int) -> Hold | None:
        """Reserve `amount` until it is settled; return None if refused."""
        try:
            return Hold(self, amount)
        except BudgetExceeded:
            return None

    def hold(self, amount: int) -> Hold:
        """Reserve `amount` until it is settled, or raise BudgetExceeded."""
        return Hold(self, amount)

    def reserve(self, min_amount: int, max_amount: float) -> int:
        """Reserve as much as is available, from `min_amount` up to `max_amount`, until `settle`.

        Returns the amount. It is 0 if fewer than `min_amount` units are available, or if it would be infinite.
        """
        lock = self._lock
        lock.acquire()
        try:
            room = self._limit - self._held - self._used if self._parent is None else self.available
            amount: Any = max_amount if max_amount < room else room
            if amount < min_amount or amount == math.inf:
                return 0
            self._held += amount
            if self._parent is not None:
                self._parent._count(0, amount)
            return amount
        finally:
            lock.release()

    def settle(self, reserved: int, used: int) -> None:
        """Replace an amount that `reserve` returned by the amount used, which may exceed it."""
        lock = self._lock
        lock.acquire()
        try:
            self._held -= reserved
            self._used += used
            if self._used >= self.mark:
                self._report_change()
            if self._parent is not None:
                self._parent._count(used, -reserved)
        finally:
            lock.release()

    def increment(self, amount: int = 1) -> int:
        """Count `amount` even above the ceiling, and return the new count."""
        validation.check_amount(self.name, amount)
        self._lock.acquire()  # not `with`, which a forked child may enter
        try:
            self._count(amount, 0)
            return self._used
        finally:
            self._lock.release()

    def set_current(self, count: int) -> int:
        """Set the count, here and by the same difference in every ancestor, and return the difference.

        It may pass the ceiling. In a run the count can only rise, because it is a fact; the run emits an event. Raises
        UsageError for a lower count there.
        """
        validation.check_int(f"budget {self.name!r}, current", count)
        with self._lock:
            difference = count - self._used
            if difference < 0 and any(budget.changes is not None for budget in self._with_ancestors()):
                raise UsageError(
                    f"budget {self.name!r}: the count of a run can only rise, and {self._used:,} is more than "
                    f"{count:,}; use refund() to return units"
                )
            brought = self._past.brought
            own = max(difference, brought - self._used)  # ancestors never had what was brought
            self._used, self._past = count, self._past._replace(brought=min(brought, count))
            for budget in islice(self._with_ancestors(), 1, None):
                budget._used = max(0, budget._used + own)
            if difference and self.changes is not None:
                self.changes.add_count(CountChange(self, difference, count))
            for budget in self._with_ancestors():
                budget._report_change()
            return difference

    def refund(self, amount: int = 1, *, reason: str) -> int:
        """Return up to `amount` to this budget and every ancestor.

        Returns the refunded amount: the largest that all of them can refund, possibly 0.
        """
        validation.check_amount(self.name, amount)
        validation.check_text(f"budget {self.name!r}, reason of the refund", reason)
        self._lock.acquire()  # not `with`, which a forked child may enter
        try:
            refunded = min(amount, *(budget._refundable() for budget in self._with_ancestors()))
            if refunded <= 0:
                return 0
            self._count(-refunded, 0)
            for budget in self._with_ancestors():
                refunds = budget._past.refunds
                budget._past = budget._past._replace(refunds={**refunds, reason: refunds.get(reason, 0) + refunded})
            return refunded
        finally:
            self._lock.release()

    def extend(self, amount: int, *, by: str) -> int:
        """Raise the ceiling by up to `amount`, and return the increase.

        The ceiling never rises above `maximum`. The ceilings of ancestors do not change.
        """
        validation.check_amount(self.name, amount)
        validation.check_text(f"budget {self.name!r}, by (who extends it)", by)
        self._lock.acquire()  # not `with`, which a forked child may enter
        try:
            ceiling = self.ceiling
            if ceiling is None:
                return 0
            raised = amount if self.maximum is None else min(amount, self.maximum - ceiling)
            if raised > 0:
                self._limit += raised
                self._past = self._past._replace(extensions=(*self._past.extensions, Extension(raised, by)))
                self._report_change()
            return raised
        finally:
            self._lock.release()

    @property
    def used(self) -> int:
        """Units counted against the ceiling now."""
        return self._used

    @property
    def current(self) -> int:
        """Alias of `used`."""
        return self._used

    @property
    def ceiling(self) -> int | None:
        """Maximum of `used`. None means no limit."""
        limit: Any = self._limit
        return None if limit == math.inf else limit

    @property
    def held(self) -> int:
        """Units reserved by open holds."""
        return self._held

    @property
    def remaining(self) -> int | float:
        """Units left in this budget alone; `math.inf` without a ceiling."""
        with self._lock:
            return max(0, self._limit - self._held - self._used)

    @property
    def available(self) -> int | float:
        """Units a claim can get here and from every ancestor."""
        with self._lock:
            room = self._limit - self._held - self._used
            if self._parent is not None:
                room = min(room, self._parent.available)
            return room if room > 0 else 0

    @property
    def unspent(self) -> int | float:
        """Units that are not used here and in every ancestor, whether held or not."""
        with self._lock:
            return max(0, min(self._limit - self._used, math.inf if self._parent is None else self._parent.unspent))

    def find_short(self, amount: int = 1) -> IterationBudget | None:
        """Return the budget that would refuse `amount`: this one or the nearest ancestor. None if it is available."""
        with self._lock:
            return next((one for one in self._with_ancestors() if one._used + one._held + amount > one._limit), None)

    @property
    def exceeded(self) -> bool:
        """True once the ceiling is reached."""
        return self._used >= self._limit

    @property
    def ratio(self) -> float:
        """Share of the ceiling that is used.

        0.0 without a ceiling. Above 1.0 when `increment` or a settled hold went past the ceiling.
        """
        return compute_ratio(self._used, self.ceiling)

    @property
    def claimed(self) -> int:
        """Units ever counted, including those refunded later."""
        return self.snapshot().claimed

    @property
    def refunds(self) -> dict[str, int]:
        """Refunded units by reason."""
        return dict(self._past.refunds)

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """Increases of the ceiling, oldest first."""
        return self._past.extensions

    @property
    def warning(self) -> str:
        """Message for a person or a model when the ceiling is reached."""
        return f"Maximum {self.name.replace('_', ' ')} ({self.unit.show(self.ceiling)}) reached."

    @property
    def lock(self) -> RLock:
        """Lock shared with all related budgets (`parent=`, `beside=`).

        Hold it to claim from several of them atomically.
        """
        return self._lock

    def to_response_flag(self) -> str:
        """Return the flag for a reached ceiling: `max_NAME_reached`."""
        return f"max_{self.name}_reached"

    def snapshot(self) -> BudgetSnapshot:
        """Return a consistent copy of all counters."""
        with self._lock:
            settings, past = self._settings, self._past
            return BudgetSnapshot(
                name=settings.name,
                ceiling=self.ceiling,
                used=self._used,
                held=self._held,
                unsettled=past.unsettled,
                brought=past.brought,
                refunds=dict(past.refunds),
                refund_limit=settings.refund_limit,
                maximum=settings.maximum,
                extensions=past.extensions,
                unit=settings.unit,
            )

    @classmethod
    def restore(
        cls,
        snapshot: BudgetSnapshot | Mapping[str, Any],
        *,
        parent: IterationBudget | None = None,
        beside: IterationBudget | None = None,
    ) -> Self:
        """Create a budget that continues from a snapshot or its dict.

        Restore the parent first and pass it as `parent`. Holds that were open in the snapshot can no longer be settled.
        They count as used, and later snapshots report their sum as `unsettled`.
        """
        if not isinstance(snapshot, BudgetSnapshot):
            snapshot = BudgetSnapshot.from_dict(snapshot)
        budget = cls(
            snapshot.name,
            snapshot.ceiling,
            start=snapshot.used + snapshot.held,
            parent=parent,
            beside=beside,
            maximum=snapshot.maximum,
            refund_limit=snapshot.refund_limit,
            unit=snapshot.unit,
        )
        unsettled = snapshot.unsettled + snapshot.held
        budget._past = _Past(snapshot.brought, unsettled, dict(snapshot.refunds), snapshot.extensions)
        return budget

    def __reduce__(self) -> str:
        # A copy would count separately, so the program could spend the ceiling twice.
        raise TypeError("a budget cannot be copied or pickled; use snapshot() and restore()")

    def __repr__(self) -> str:
        snapshot = self.snapshot()
        held = f", {self.unit.show(snapshot.held)} held" if snapshot.held else ""
        used, ceiling = self.unit.show(snapshot.used), self.unit.show(snapshot.ceiling)
        return f"<IterationBudget {self.name}: {used} of {ceiling}{held}>"

    def _choose_lock(self, parent: IterationBudget | None, beside: IterationBudget | None) -> RLock:
        for role, budget in (("parent", parent), ("beside", beside)):
            if budget is not None and not isinstance(budget, IterationBudget):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"budget {self.name!r}, {role}", budget, "an IterationBudget")
        if parent is not None and beside is not None and parent._lock is not beside._lock:
            family = f"a budget in the same tree as its parent {parent.name!r}"
            raise ConfigError(f"budget {self.name!r}, beside", beside.name, family)
        relative = parent or beside
        # Re-entrant, because a finaliser may run inside a critical section of its own thread and release a hold there
        # (the `with` block of an abandoned generator). A plain lock would deadlock. This costs 3 % of a claim.
        return create_lock() if relative is None else relative._lock

    def _with_ancestors(self) -> Iterator[IterationBudget]:
        budget: IterationBudget | None = self
        while budget is not None:
            yield budget
            budget = budget._parent

    def _count(self, used: int, held: int) -> None:
        """Change the counters here and in every ancestor. The caller holds the lock."""
        budget: IterationBudget | None = self
        while budget is not None:
            budget._used += used
            budget._held += held
            if used < 0 or budget._used >= budget.mark:
                budget._report_change()
            budget = budget._parent

    def _report_change(self) -> None:
        if self.changes is not None:
            self.changes.is_due = True

    def _claim(self, amount: int, *, hold: bool = False) -> BudgetExceeded | None:
        """Claim from this budget and all ancestors, or from none.

        Returns the error of the first budget that refused, or None. With `hold=True` the amount is held instead of
        used.
        """
        if amount.__class__ is not int or amount < 1:
            validation.check_amount(self.name, amount)
        self._lock.acquire()  # not `with`, which a forked child may enter
        try:
            budget: IterationBudget | None = self
            while budget is not None:
                if budget._used + budget._held + amount > budget._limit:
                    return BudgetExceeded(budget.name, amount, budget.remaining, budget.ceiling, budget.unit)
                budget = budget._parent
            self._count(*((0, amount) if hold else (amount, 0)))
            return None
        finally:
            self._lock.release()

    def _refundable(self) -> int:
        used = self._used if self._parent is None else self._used - self._past.brought
        limit = self.ceiling if self.refund_limit is None else self.refund_limit
        return used if limit is None else min(used, limit - sum(self._past.refunds.values()))


class Hold:
    """Reserved amount, waiting to be settled: `budget.hold(500)` is `Hold(budget, 500)`.

    Call `settle` with the amount really used, or `release`. A `with` block releases the hold if the block did not
    settle it, also after an exception. Only the first call takes effect; later calls change nothing and return False.
    """

    __slots__ = ("_amount", "_budget", "_settled")

    def __init__(self, budget: IterationBudget, amount: int) -> None:
        self._settled: int | None = 0  # closed: keeps __del__ silent if the claim below is refused
        refusal = budget._claim(amount, hold=True)
        if refusal is not None:
            raise refusal
        self._budget = budget
        self._amount = amount
        self._settled = None

    @property
    def amount(self) -> int:
        """Reserved units."""
        return self._amount

    @property
    def open(self) -> bool:
        """True until the hold is settled or released."""
        return self._settled is None

    @property
    def settled(self) -> int | None:
        """Settled units, 0 after a release. None while open."""
        return self._settled

    @property
    def overshoot(self) -> int:
        """Settled units beyond the reserved amount."""
        return max(0, (self._settled or 0) - self._amount)

    def settle(self, amount: int) -> bool:
        """Replace the reserved amount by the amount used, 0 or more.

        The amount may exceed the reservation. Returns False if the hold was already settled or released.
        """
        if amount.__class__ is not int or amount < 0:
            validation.check_amount(self._budget.name, amount, min_value=0)
        lock = self._budget._lock
        lock.acquire()  # not `with`, which a forked child may enter
        try:
            if self._settled is not None:
                return False
            self._settled = amount
            self._budget.settle(self._amount, amount)
            return True
        finally:
            lock.release()

    def release(self) -> bool:
        """Return the whole reserved amount to the budget.

        Returns False if the hold was already settled or released, or belongs to the parent of this forked process.
        """
        try:
            return self.settle(0)
        except UsageError:  # after a fork
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __reduce__(self) -> str:
        # A copy would settle the same units a second time.
        raise TypeError("a hold cannot be copied or pickled; pass the hold itself, and settle it once")

    def __del__(self) -> None:
        # Warn only: garbage collection happens at arbitrary times and must not change a count.
        if self._settled is None:
            warnings.warn(f"{self!r} was never settled or released", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        show = self._budget.unit.show
        state = "open" if self._settled is None else f"settled at {show(self._settled)}"
        return f"<Hold of {show(self._amount)} on {self._budget.name}: {state}>"
