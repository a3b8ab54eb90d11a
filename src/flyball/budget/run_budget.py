"""Budgets and deadlines of one run, as one object."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from .._internal import validation
from ..errors import UnknownBudget, UsageError
from ..unit import Unit
from .budget import Hold, IterationBudget
from .budget_set import BudgetSet, build_templates
from .changes import CountChange
from .deadline import SYSTEM, Clock, Deadline
from .snapshot import BudgetSnapshot
from .warnings import BudgetWarnings, UseThresholds, find_nearly_over, find_thresholds

_NO_LIMITS: Mapping[str, float] = MappingProxyType({})
_NO_AMOUNTS: Mapping[str, int] = MappingProxyType({})
NOT_CLAMPED: Mapping[str, str] = MappingProxyType({})


class TurnBudget:
    """Budgets and deadlines of one run.

    `Limits.open()` creates it with a reserve for the final report, which work cannot spend. `TurnBudget.create()` makes
    one without a reserve. Every budget in `COUNTED` exists: one that was not given has no ceiling, and snapshots leave
    it out. All methods are thread-safe. All budgets share one lock, so a claim on several of them counts in all or in
    none.
    """

    __slots__ = (
        "_deadline_at", "_postponements", "_refusals", "_reserve", "_reserved", "_until_at", "budgets", "changes",
        "clamped", "clock", "context_tokens", "counts_tools", "hard_at", "is_time_shared", "lock", "look_at", "moves",
        "nearly_over_at", "reserve_s", "seconds", "tool_seconds", "warnings", "work_at",
    )  # fmt: skip

    def __init__(
        self,
        budgets: Mapping[str, IterationBudget],
        deadline: Deadline,
        *,
        seconds: float = math.inf,
        until: Deadline | None = None,
        context_tokens: int | None = None,
        reserve_s: float = 0.0,
        reserve: Mapping[str, int] | None = None,
        tool_seconds: Mapping[str, float] | None = None,
        counts_tools: bool = True,
        thresholds: UseThresholds | None = None,
    ) -> None:
        if not isinstance(budgets, BudgetSet):
            budgets = BudgetSet.of(budgets)
        self.budgets: BudgetSet = budgets
        self.changes = budgets["turns"].changes
        """Changes that rules and warnings have not seen. None if the budgets are not a run's own, and do not tell."""
        self.look_at = 0.0
        """Clock time at which rules or warnings look at the budgets even if no count has changed."""
        self.context_tokens = context_tokens
        self.tool_seconds = tool_seconds or _NO_LIMITS
        self.reserve_s = reserve_s
        self.clock = deadline.clock
        """Clock of the deadlines."""
        self.lock = budgets.lock
        """Lock of all budgets; hold it to read or change several atomically."""
        self.seconds = seconds
        """Seconds granted to the run; `math.inf` means no limit."""
        self._deadline_at = deadline.at
        self._until_at = math.inf if until is None else until.at
        self._postponements: tuple[Postponement, ...] = ()
        self._update_deadlines()
        self.counts_tools = counts_tools
        """True if at least one tool has a budget of its own."""
        self.moves = 0
        """Number of changes to the deadline or reserve; a new number invalidates values derived from them."""
        self.warnings = BudgetWarnings(find_thresholds(budgets) if thresholds is None else thresholds)
        """Warnings that the run is near a limit."""
        self.clamped: Mapping[str, str] = NOT_CLAMPED
        """Explanations of the limits that are not as requested, by name."""
        self.is_time_shared = False
        """True if the deadline is that of a parent or shared budget, which is before the run's own."""
        self._refusals: dict[str, Refusal] = {}
        self._reserve: Mapping[str, int] = reserve or _NO_AMOUNTS
        """Units to reserve for the report, by budget."""
        self._reserved: dict[str, int] = {}
        """Units that are reserved now."""
        for name, amount in self._reserve.items():
            if amount:
                budget = budgets[name]
                if not budget.reserve(amount, amount):
                    budget.hold(amount)  # raises with the reason
                self._reserved[name] = amount

    @classmethod
    def create(
        cls,
        timeout_s: float | None = 60,
        max_steps: int = 6,
        max_tool_calls: int | None = None,
        max_reflections: int = 4,
        max_context_tokens: int | None = 200_000,
        clock: Clock = SYSTEM,
    ) -> TurnBudget:
        """Create a budget from plain numbers; `max_tool_calls=None` means `max_steps`."""
        seconds = validation.parse_timeout("turn budget, timeout_s", timeout_s)
        calls = max_steps if max_tool_calls is None else max_tool_calls
        templates = {
            "turns": IterationBudget("agent_iterations", max_steps),
            "tool_calls": IterationBudget("tool_calls", calls),
            "reflections": IterationBudget("reflections", max_reflections),
        }
        context = validation.check_optional_int("turn budget, max_context_tokens", max_context_tokens)
        return cls(BudgetSet(templates), Deadline.after(seconds, clock), seconds=seconds, context_tokens=context)

    @classmethod
    def of(
        cls,
        ceilings: Mapping[str, int | None],
        deadline: Deadline,
        *,
        seconds: float = math.inf,
        prefix: str = "",
        parent: TurnBudget | None = None,
    ) -> TurnBudget:
        """Create a budget for several runs, whose ceilings cannot be raised.

        A ceiling that is None or left out means no limit. `prefix` is the start of the budgets' names. Claims on the
        budgets in `ceilings` also count in `parent`.
        """
        budgets = BudgetSet(build_templates(prefix), ceilings, None if parent is None else parent.budgets)
        return cls(budgets, deadline, seconds=seconds)

    @property
    def hard(self) -> Deadline:
        """Deadline of the whole run, including the grace turn."""
        return Deadline(self.hard_at, self.clock)

    @property
    def work(self) -> Deadline:
        """Deadline of work: the hard deadline minus the reserve."""
        return Deadline(self.work_at, self.clock)

    def remaining_s(self) -> float:
        """Return the seconds left for work, never negative."""
        return max(0.0, self.work_at - self.clock.now())

    def remaining(self, *names: str) -> dict[str, int]:
        """Return the units that claims can get from these budgets, without unlimited ones."""
        available = [(name, self.budgets[name].available) for name in names]
        return {name: int(amount) for name, amount in available if amount != math.inf}

    def is_expired(self) -> bool:
        """Check whether the time for work is over."""
        return self.clock.now() >= self.work_at

    def tool_deadline(self, cap_s: float | None = None, tool: str | None = None) -> float:
        """Return the clock time by which one tool call must end.

        The earliest of the end of work, `cap_s` seconds from now, and the limit of `tool`.
        """
        own = self.tool_seconds.get(tool, math.inf) if tool is not None else math.inf
        cap = min(validation.parse_duration("cap_s of a tool", cap_s), own)
        return min(self.work_at, self.clock.now() + cap)

    def per_tool_remaining_s(self, cap_s: float, floor_s: float = 5.0) -> float:
        """Return the seconds left for one call, between `floor_s` and `cap_s`.

        The floor lets a call outlive its run. Pass 0 to prevent that.
        """
        cap, floor = (
            validation.parse_duration("cap_s of a tool", cap_s),
            validation.parse_duration("floor_s of a tool", floor_s),
        )
        return min(cap, max(floor, self.remaining_s()))

    def postpone(self, seconds: float, reason: str) -> None:
        """Move the deadline later, for time spent waiting for a person.

        The absolute time `Limits.until` does not move.
        """
        validation.check_text("envelope, reason of a postponement", reason)
        with self.lock:
            self._deadline_at = Deadline(self._deadline_at, self.clock).postponed(seconds).at
            self._postponements += (Postponement(seconds, reason),)
            self._update_deadlines()
            self._note_move()

    def _note_move(self) -> None:
        self.moves += 1
        self.expect_change()

    @property
    def work_seconds(self) -> float:
        """Seconds for work in all, without the reserve."""
        granted = self.seconds + self.postponed_s if self._postponements else self.seconds
        return granted - self.reserve_s

    @property
    def postponed_s(self) -> float:
        """Total seconds by which the deadline was moved."""
        return sum([move.seconds for move in self._postponements], 0.0)

    @property
    def postponements(self) -> tuple[Postponement, ...]:
        """Moves of the deadline, oldest first."""
        return self._postponements

    def claim_step(self) -> bool:
        """Claim a turn; return False if none is left."""
        return self.budgets["turns"].consume_one() or not self.refuse("turns")

    def claim_tool_call(self, tool: str | None = None) -> bool:
        """Claim a tool call; return False if none is left, also for `tool`."""
        if tool and self.counts_tools and (own := f"calls.{tool}") in self.budgets:
            return self.claim(tool_calls=1, **{own: 1})
        return self.budgets["tool_calls"].consume_one() or not self.refuse("tool_calls")

    def claim_reflection(self) -> bool:
        """Claim a reflection; return False if none is left."""
        return self.claim(reflections=1)

    def claim(self, **amounts: int) -> bool:
        """Claim from several budgets, all or nothing; refusals appear in `flags`."""
        if len(amounts) == 1:
            [(name, amount)] = amounts.items()
            if self._require_budget(name).consume(amount):
                return True
            self.refuse(name)
            return False
        with self.lock:
            holds = self.try_hold(**amounts)
            for name, hold in (holds or {}).items():
                hold.settle(amounts[name])
            return holds is not None

    def try_hold(self, **amounts: int) -> dict[str, Hold] | None:
        """Reserve in several budgets, all or nothing; refusals appear in `flags`."""
        budgets = {name: self._require_budget(name) for name in amounts}
        for name, amount in amounts.items():
            validation.check_amount(budgets[name].name, amount)
        with self.lock:
            holds = {name: hold for name, budget in budgets.items() if (hold := budget.try_hold(amounts[name]))}
            if len(holds) == len(amounts):
                return holds
            for hold in holds.values():
                hold.release()
            for name in amounts:
                if name not in holds:
                    self.refuse(name, amounts[name])
            return None

    def refuse(self, name: str, amount: int = 1, input_tokens: int = 0) -> Refusal:
        """Record that a budget refused `amount`, or that an ancestor did: the message names the one that is short.

        `input_tokens` is the estimated input of a request that was refused although units are left.
        `seconds` and `context_tokens` are also accepted, although they have no counter.
        """
        match name:
            case "seconds":
                shown = Unit.SECONDS.show(self.seconds)
                warning = f"Maximum seconds ({shown}) reached."
                refusal = Refusal(name, "max_seconds_reached", warning, self.is_time_shared)
            case "context_tokens":
                shown = Unit.COUNT.show(self.context_tokens)
                refusal = Refusal(name, "max_context_tokens_reached", f"Maximum context tokens ({shown}) reached.")
            case _:
                budget = self._require_budget(name)
                budget = budget.find_short(amount) or budget
                warning = budget.warning
                if input_tokens and not budget.exceeded:
                    warning = _describe_shortage(budget, self.reserved(name), input_tokens)
                refusal = Refusal(name, budget.to_response_flag(), warning, self.budgets.is_capped(name))
                earlier = self._refusals.get(name)
                if budget.extensions and earlier is not None and not earlier.is_shared:
                    self._refusals[name] = refusal  # the old message names the ceiling before the extension
        return self.remember(refusal)

    def take_changes(self, now: float) -> bool:
        """Return True if rules and warnings must look at the budgets at this clock time. They then set new marks."""
        changes = self.changes
        if changes is None:
            return True
        is_due, changes.is_due = changes.is_due or now >= self.look_at, False
        return is_due

    def expect_change(self) -> None:
        """Have rules and warnings look at the budgets in the next turn."""
        if self.changes is not None:
            self.changes.is_due = True

    def clear_marks(self) -> None:
        """Remove the marks of all budgets. Rules and warnings then set those at which they want to look."""
        for budget in self.budgets.created:
            budget.mark = math.inf

    @property
    def has_count_changes(self) -> bool:
        """True if a count was set since the last `take_count_changes`."""
        return self.changes is not None and bool(self.changes.counts)

    def take_count_changes(self) -> list[tuple[str, CountChange]]:
        """Return the counts set since the last call, each with the key of its budget."""
        with self.lock:
            changes = () if self.changes is None else self.changes.take_counts()
        keys = {id(budget): key for key, budget in self.budgets.items()}
        return [(keys.get(id(change.budget), change.budget.name), change) for change in changes]

    def remember(self, refusal: Refusal) -> Refusal:
        """Record a refusal, possibly one of a shared budget.

        Only the first refusal of each budget is kept.
        """
        return self._refusals.setdefault(refusal.budget, refusal)

    @property
    def refusals(self) -> tuple[Refusal, ...]:
        """First refusal of each budget in order; the latest one after an extension."""
        return tuple(self._refusals.values())

    @property
    def refusal_count(self) -> int:
        """Number of budgets that have refused."""
        return len(self._refusals)

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of the budgets that refused, in order of first refusal."""
        return tuple([refusal.flag for refusal in self._refusals.values()]) if self._refusals else ()

    @property
    def reserve(self) -> dict[str, int]:
        """Units reserved for the report by budget; empty once opened."""
        return dict(self._reserved)

    def reserved(self, name: str) -> int:
        """Return the units of one budget reserved for the report."""
        return self._reserved.get(name, 0)

    def open_reserve(self) -> None:
        """Release the reserve to the report; work is over."""
        with self.lock:
            self._note_move()
            for name, amount in self._reserved.items():
                with suppress(UsageError):  # after a fork
                    self.budgets[name].settle(amount, 0)
            self._reserved = {}

    def restore_reserve(self) -> None:
        """Reserve again what is available, when work continues after a report."""
        with self.lock:
            self._note_move()
            for name, amount in self._reserve.items():
                if amount and name not in self._reserved:
                    restored = self.budgets[name].reserve(1, amount)
                    if restored:
                        self._reserved[name] = restored

    def keep(self, name: str, amount: int) -> int:
        """Reserve `amount` more of a budget for reports, or fewer if it is negative.

        Returns the change, which is smaller if fewer units are available.
        """
        if not amount:
            return 0
        with self.lock:
            budget = self.budgets[name]
            if budget.ceiling is None:
                return 0
            kept = self._reserved.get(name, 0)
            change = budget.reserve(1, amount) if amount > 0 else -min(kept, -amount)
            if change < 0:
                budget.settle(-change, 0)
            self._reserved[name] = kept + change
            return change

    def reserve_seconds(self, seconds: float) -> None:
        """Reserve this time for the report instead of the earlier one."""
        with self.lock:
            self.reserve_s = seconds
            self._update_deadlines()
            self.moves += 1

    def close(self) -> None:
        """Release all reserves at the end of the run."""
        self.open_reserve()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def snapshots(self) -> dict[str, BudgetSnapshot]:
        """Return snapshots of all budgets, taken at the same moment."""
        with self.lock:
            return {name: budget.snapshot() for name, budget in self.budgets.items()}

    def final_snapshots(self) -> Mapping[str, BudgetSnapshot]:
        """Return snapshots of a finished run, taken on first access.

        Most callers never read them.
        """
        return _FinalSnapshots(self)

    def snapshot(self) -> dict[str, Any]:
        """Return the run's counters in JSON types; None means no limit."""
        with self.lock:
            remaining = self.remaining_s()
            counts = dict[str, int | None]()
            for name, budget in self.budgets.items():
                key = _SNAPSHOT_NAMES.get(name, name)
                counts |= {f"{key}_used": budget.used, f"{key}_max": budget.ceiling}
            return {
                "remaining_s": None if math.isinf(remaining) else remaining,
                "expired": self.is_expired(),
                **counts,
                "context_tokens_max": self.context_tokens,
                **({"clamped": dict(self.clamped)} if self.clamped else {}),
            }

    def _update_deadlines(self) -> None:
        """Recompute the two moments that the loop reads all the time."""
        at, until_at = self._deadline_at, self._until_at
        self.hard_at = at if at <= until_at else until_at
        """Clock time of `hard`, in seconds."""
        self.work_at = self.hard_at - self.reserve_s
        """Clock time of `work`, in seconds."""
        self.nearly_over_at = find_nearly_over(self.work_at, self.work_seconds)
        """Clock time after which little time for work is left."""

    def _require_budget(self, name: str) -> IterationBudget:
        budget = self.budgets.get(name)
        if budget is None:
            raise UnknownBudget(name, tuple(self.budgets))
        return budget


@dataclass(frozen=True, slots=True)
class Postponement:
    """Move of a run's deadline: seconds and reason."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """First refusal of a budget: its key in `budgets`, flag and message."""

    budget: str
    flag: str
    warning: str
    is_shared: bool = False
    """True if the limit is that of a shared budget or of the parent run, not the run's own."""


def describe_postponement(by: str, max_seconds: float | None = None) -> str:
    """Return the reason of a deadline that was extended, with the maximum if that allowed less than was asked for."""
    return f"extended by {by}" + ("" if max_seconds is None else f"; the maximum is {Unit.SECONDS.show(max_seconds)}")


def _describe_shortage(budget: IterationBudget, reserved: int, input_tokens: int) -> str:
    """Describe why a budget that is not used up refuses a request."""
    show = budget.unit.show
    kept = f", {show(reserved)} reserved for the report" if reserved else ""
    return (
        f"{budget.warning.removesuffix('.')}: {show(budget.used)} used{kept}, and "
        f"the next request has an estimated {Unit.COUNT.show(input_tokens)} input tokens."
    )


_SNAPSHOT_NAMES = {"turns": "steps"}
"""Budget names that have a different name in snapshots."""


class _FinalSnapshots(Mapping[str, BudgetSnapshot]):
    """Snapshots of a finished run, taken on first access."""

    __slots__ = ("_envelope", "_taken")

    def __init__(self, envelope: TurnBudget) -> None:
        self._envelope: TurnBudget | None = envelope
        self._taken: dict[str, BudgetSnapshot] = {}

    def _take(self) -> dict[str, BudgetSnapshot]:
        if self._envelope is not None:
            self._taken, self._envelope = self._envelope.snapshots(), None
        return self._taken

    def __getitem__(self, name: str) -> BudgetSnapshot:
        return self._take()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._take())

    def __len__(self) -> int:
        return len(self._take())

    def __repr__(self) -> str:
        return repr(self._take())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._take(),)
