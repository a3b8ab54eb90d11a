"""The one primitive that counts everything: a named count with a ceiling, safe to share between threads."""

# A budget and its holds are one mechanism in two classes; for anybody else the underscore means what it says.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from threading import RLock
from types import MappingProxyType
from typing import Any, Final, Self

from .._internal import validation
from ..errors import BudgetExceeded, ConfigError
from ..unit import Unit
from .snapshot import BudgetSnapshot, Extension, compute_ratio

_NO_REFUNDS: Mapping[str, int] = MappingProxyType({})


class IterationBudget:
    """A named count with a ceiling: claim before acting; a refused claim changes nothing.

    >>> turns = IterationBudget("conversation_turns", 2)
    >>> turns.consume(), turns.consume(), turns.consume()
    (True, True, False)
    >>> turns.to_response_flag()
    'max_conversation_turns_reached'

    `parent=` makes a family: what counts here counts for every ancestor too, or for none. `beside=` shares the other
    budget's lock without counting in it, for the dimensions of one run. `start` is what was used before; it counts
    here only, and a refund never gives it back to an ancestor. Every method may be called from any thread.
    """

    __slots__ = (
        "_brought", "_ceiling", "_extensions", "_held", "_lock", "_parent", "_refunds", "_room", "_unsettled", "_used",
        "maximum", "name", "refund_limit", "unit",
    )  # fmt: skip

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
        self.name: Final = validation.check_text("budget name", name)
        where = f"budget {name!r}"
        self.maximum: Final = validation.check_optional_int(f"{where}, maximum", maximum)
        self.refund_limit: Final = validation.check_optional_int(f"{where}, refund_limit", refund_limit)
        self.unit: Final = validation.parse_enum(f"{where}, unit", unit, Unit)
        self._ceiling = validation.check_optional_int(f"{where}, ceiling", ceiling)
        if self.maximum is not None and (self._ceiling is None or self._ceiling > self.maximum):
            raise ConfigError(f"{where}, ceiling", ceiling, f"at most its maximum of {maximum}")
        self._used = self._brought = validation.check_int(f"{where}, start", start)
        self._held = self._unsettled = 0
        # What `used` may grow to: the ceiling less what is held. So one comparison decides a claim.
        self._room: int | float = math.inf if self._ceiling is None else self._ceiling
        self._refunds = _NO_REFUNDS
        self._extensions: tuple[Extension, ...] = ()
        self._parent = parent
        self._lock = self._choose_lock(parent, beside)

    def anew(self, beside: IterationBudget | None = None, most: int | None = None) -> IterationBudget:
        """A fresh budget with this one's ceiling, `most` at most; faster than a new one, as all was checked before."""
        fresh: Any = object.__new__(IterationBudget)
        fresh.name, fresh.unit = self.name, self.unit
        fresh.refund_limit = self.refund_limit
        ceiling, maximum = self._ceiling, self.maximum
        if most is not None and (ceiling is None or ceiling >= most):
            ceiling = maximum = most  # what is inherited is never raised
        fresh._ceiling, fresh.maximum = ceiling, maximum
        fresh._room = math.inf if ceiling is None else ceiling
        fresh._used = fresh._brought = fresh._held = fresh._unsettled = 0
        fresh._refunds, fresh._extensions, fresh._parent = _NO_REFUNDS, (), None
        fresh._lock = RLock() if beside is None else beside._lock
        return fresh

    def consume(self, amount: int = 1) -> bool:
        """Claim `amount`: True when it was counted, False when it was refused."""
        # Nearly every claim is on a single budget, so this path is written out: it takes a third less time.
        if self._parent is None and amount.__class__ is int and amount > 0:
            lock = self._lock
            lock.acquire()  # `with` takes twice the time
            try:
                used = self._used + amount
                if used > self._room:
                    return False
                self._used = used
                return True
            finally:
                lock.release()
        return self._claim(amount) is None

    def spend(self, amount: int = 1) -> None:
        """Claim `amount`, or raise the BudgetExceeded of the budget that refused."""
        refusal = self._claim(amount)
        if refusal is not None:
            raise refusal

    def try_hold(self, amount: int) -> Hold | None:
        """Set `amount` aside until the fact is known, or None where that is refused."""
        try:
            return Hold(self, amount)
        except BudgetExceeded:
            return None

    def hold(self, amount: int) -> Hold:
        """Set `amount` aside until the fact is known, or raise BudgetExceeded."""
        return Hold(self, amount)

    def hold_some(self, least: int, most: float) -> Hold | None:
        """Set aside as much as there is room for, up to `most`; None if that is less than `least`, or without end."""
        lock = self._lock
        lock.acquire()
        try:
            room = self._room - self._used if self._parent is None else self.available
            amount: Any = most if most < room else room
            if amount < least or amount == math.inf:
                return None
            budget: IterationBudget | None = self
            while budget is not None:
                budget._held += amount
                budget._room -= amount
                budget = budget._parent
        finally:
            lock.release()
        return Hold.made(self, amount)

    def increment(self, amount: int = 1) -> int:
        """Count a fact, whatever the ceiling says, and give the new count."""
        validation.check_amount(self.name, amount)
        with self._lock:
            for budget in self._with_ancestors():
                budget._used += amount
            return self._used

    def refund(self, amount: int = 1, *, reason: str) -> int:
        """Give back up to `amount` and tell how much it was: the least that this budget and every ancestor can."""
        validation.check_amount(self.name, amount)
        validation.check_text(f"budget {self.name!r}, reason of a refund", reason)
        with self._lock:
            given = min(amount, *(budget._refundable() for budget in self._with_ancestors()))
            if given <= 0:
                return 0
            for budget in self._with_ancestors():
                budget._used -= given
                budget._refunds = {**budget._refunds, reason: budget._refunds.get(reason, 0) + given}
            return given

    def extend(self, amount: int, *, by: str) -> int:
        """Raise this budget's own ceiling by up to `amount`, never above its maximum, and tell by how much."""
        validation.check_amount(self.name, amount)
        validation.check_text(f"budget {self.name!r}, by whom it is extended", by)
        with self._lock:
            if self._ceiling is None:
                return 0
            raised = amount if self.maximum is None else min(amount, self.maximum - self._ceiling)
            if raised > 0:
                self._ceiling += raised
                self._room += raised
                self._extensions += (Extension(raised, by),)
            return raised

    @property
    def used(self) -> int:
        """What counts against the ceiling now."""
        return self._used

    @property
    def current(self) -> int:
        """The same as `used`, under the name loops know."""
        return self._used

    @property
    def ceiling(self) -> int | None:
        """The most that may be used, or None."""
        return self._ceiling

    @property
    def held(self) -> int:
        """What is set aside by open holds."""
        return self._held

    @property
    def remaining(self) -> int | float:
        """What this budget itself still allows; `math.inf` without a ceiling."""
        with self._lock:
            return max(0, self._room - self._used)

    @property
    def available(self) -> int | float:
        """What a claim can get: the least that remains here or with any ancestor."""
        with self._lock:
            if self._parent is None:
                return self._room - self._used if self._room > self._used else 0
            return max(0, min(one._room - one._used for one in self._with_ancestors()))

    @property
    def exceeded(self) -> bool:
        """Whether the ceiling is reached."""
        return self._ceiling is not None and self._used >= self._ceiling

    @property
    def ratio(self) -> float:
        """Used of ceiling: 0.0 without a ceiling, above 1.0 when facts have passed it."""
        return compute_ratio(self._used, self._ceiling)

    @property
    def claimed(self) -> int:
        """How much was ever counted: a fact that no refund takes back."""
        return self.snapshot().claimed

    @property
    def refunds(self) -> dict[str, int]:
        """What was given back, by reason."""
        return dict(self._refunds)

    @property
    def extensions(self) -> tuple[Extension, ...]:
        """Every raise of the ceiling, oldest first."""
        return self._extensions

    @property
    def warning(self) -> str:
        """The sentence for a person or a model who met the ceiling."""
        return f"Maximum {self.name.replace('_', ' ')} ({self.unit.show(self._ceiling)}) reached."

    @property
    def lock(self) -> RLock:
        """The family's lock. Whoever holds it can claim from several of its budgets as in one step."""
        return self._lock

    def to_response_flag(self) -> str:
        """The flag that every consumer of a bounded loop looks for."""
        return f"max_{self.name}_reached"

    def snapshot(self) -> BudgetSnapshot:
        """All there is to know about this budget at one moment."""
        with self._lock:
            return BudgetSnapshot(
                name=self.name,
                ceiling=self._ceiling,
                used=self._used,
                held=self._held,
                unsettled=self._unsettled,
                brought=self._brought,
                refunds=dict(self._refunds),
                refund_limit=self.refund_limit,
                maximum=self.maximum,
                extensions=self._extensions,
                unit=self.unit,
            )

    @classmethod
    def restore(
        cls,
        snapshot: BudgetSnapshot | Mapping[str, Any],
        *,
        parent: IterationBudget | None = None,
        beside: IterationBudget | None = None,
    ) -> Self:
        """Continue where a snapshot, or its dict, was taken; a parent is to be restored first, and then given here.

        Nobody is left to settle a hold that was open then: it counts as used, and the snapshots to come tell how much
        that is (`unsettled`).
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
        budget._brought = snapshot.brought
        budget._unsettled = snapshot.unsettled + snapshot.held
        budget._refunds = dict(snapshot.refunds)
        budget._extensions = snapshot.extensions
        return budget

    def __reduce__(self) -> str:
        # A copy would count on its own, beside the original, and so allow everything twice.
        raise TypeError("a budget cannot be copied or pickled; take its snapshot() and restore() that")

    def __repr__(self) -> str:
        now = self.snapshot()
        held = f", {self.unit.show(now.held)} held" if now.held else ""
        return f"<IterationBudget {self.name}: {self.unit.show(now.used)} of {self.unit.show(now.ceiling)}{held}>"

    def _choose_lock(self, parent: IterationBudget | None, beside: IterationBudget | None) -> RLock:
        """The lock of the family this budget joins, or a new one.

        It can be re-entered because a finaliser may run inside a critical section of its own thread and release a hold
        there (the `with` block of an abandoned generator): a plain lock would deadlock. It costs 3 % of a claim.
        """
        for role, budget in (("parent", parent), ("beside", beside)):
            if budget is not None and not isinstance(budget, IterationBudget):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigError(f"budget {self.name!r}, {role}", budget, "an IterationBudget")
        if parent is not None and beside is not None and parent._lock is not beside._lock:
            family = f"a budget of the family of its parent {parent.name!r}"
            raise ConfigError(f"budget {self.name!r}, beside", beside.name, family)
        relative = parent or beside
        return RLock() if relative is None else relative._lock

    def _with_ancestors(self) -> Iterator[IterationBudget]:
        """This budget and its ancestors. The lock is held."""
        budget: IterationBudget | None = self
        while budget is not None:
            yield budget
            budget = budget._parent

    def _claim(self, amount: int, *, hold: bool = False) -> BudgetExceeded | None:
        """Count or hold for the whole line, or for none of it: then the error that says who refused."""
        if amount.__class__ is not int or amount < 1:
            validation.check_amount(self.name, amount)
        with self._lock:
            budget: IterationBudget | None = self
            while budget is not None:
                if budget._used + amount > budget._room:
                    return BudgetExceeded(budget.name, amount, budget.remaining, budget._ceiling, budget.unit)
                budget = budget._parent
            budget = self
            while budget is not None:
                if hold:
                    budget._held += amount
                    budget._room -= amount
                else:
                    budget._used += amount
                budget = budget._parent
            return None

    def _refundable(self) -> int:
        used = self._used if self._parent is None else self._used - self._brought
        limit = self._ceiling if self.refund_limit is None else self.refund_limit
        return used if limit is None else min(used, limit - sum(self._refunds.values()))


class LazyBudgets(dict[str, IterationBudget]):
    """The budgets of one run beside each other, each made when somebody looks at it: at most of them nobody does."""

    __slots__ = ("_templates", "_turns")

    def __init__(self, templates: Mapping[str, IterationBudget], turns: IterationBudget) -> None:
        self["turns"] = turns
        self._templates = templates
        self._turns = turns

    def __missing__(self, name: str) -> IterationBudget:
        return self.setdefault(name, self._templates[name].anew(self._turns))  # of two threads, one has made it

    def __contains__(self, name: object) -> bool:
        return name in self._templates or super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The budget of that name, or the default."""
        return self[name] if name in self else default  # noqa: SIM401 - this is `get`

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._templates, *super().keys()]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def keys(self) -> Any:
        """All names, in the order of the limits."""
        return list(iter(self))

    def values(self) -> Any:
        """All budgets."""
        return [self[name] for name in self]

    def items(self) -> Any:
        """Both."""
        return [(name, self[name]) for name in self]


class Hold:
    """An amount set aside until the fact is known: `budget.hold(500)` is `Hold(budget, 500)`.

    Settle it to the fact, or release it. As a context manager it gives back what was not settled, also when the block
    raised. Whichever comes first stands: what comes later changes nothing and says so by returning False.
    """

    __slots__ = ("_amount", "_budget", "_settled")

    def __init__(self, budget: IterationBudget, amount: int) -> None:
        self._settled: int | None = 0  # closed, for the case that the claim is refused
        refusal = budget._claim(amount, hold=True)
        if refusal is not None:
            raise refusal
        self._budget = budget
        self._amount = amount
        self._settled = None

    @classmethod
    def made(cls, budget: IterationBudget, amount: int) -> Hold:
        """The handle of what was set aside already."""
        hold = object.__new__(cls)
        hold._budget, hold._amount, hold._settled = budget, amount, None
        return hold

    @property
    def amount(self) -> int:
        """What was set aside."""
        return self._amount

    @property
    def open(self) -> bool:
        """Whether it still waits to be settled or released."""
        return self._settled is None

    @property
    def settled(self) -> int | None:
        """The fact that was booked, 0 after a release; None while open."""
        return self._settled

    @property
    def overshoot(self) -> int:
        """By how much the fact was more than what was held."""
        return max(0, (self._settled or 0) - self._amount)

    def settle(self, amount: int) -> bool:
        """Book the fact, 0 or more, also when it is more than was held; False if this hold was closed before."""
        if amount.__class__ is not int or amount < 0:
            validation.check_amount(self._budget.name, amount, min_value=0)
        budget, held = self._budget, self._amount
        lock = budget._lock
        lock.acquire()
        try:
            if self._settled is not None:
                return False
            self._settled = amount
            while budget is not None:
                budget._used += amount
                budget._held -= held
                budget._room += held
                budget = budget._parent
            return True
        finally:
            lock.release()

    def release(self) -> bool:
        """Give everything back: the fact is that nothing was used."""
        return self.settle(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        # Only a warning: nobody decides when the collector runs, so it must not be what changes a count.
        if self._settled is None:
            warnings.warn(f"{self!r} was never settled or released", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        show = self._budget.unit.show
        state = "open" if self._settled is None else f"settled at {show(self._settled)}"
        return f"<Hold of {show(self._amount)} on {self._budget.name}: {state}>"
