"""Result of a run, with the one reason why it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypedDict

from ._internal.text import pluralize
from ._internal.type_variables import Output
from .budget.model_limits import split_key
from .budget.remedy import describe_remedy, describe_seconds_remedy
from .budget.snapshot import BudgetSnapshot
from .budget.usage import Usage
from .errors import RunStopped, truncate
from .event import BudgetRefused, Event
from .message import Message
from .outcome import Outcome
from .person import About, Question
from .request import Call
from .unit import Unit

if TYPE_CHECKING:
    from .budget.spending import Spending
    from .recorder import Recorder


class Stop(StrEnum):
    """Reason why a run ended.

    If several hold, the first in this list wins.
    """

    CONTENDED = "contended"
    CANCELLED = "cancelled"
    FAILED = "failed"
    DEADLINE = "deadline"
    BUDGET = "budget"
    HALTED = "halted"
    STALLED = "stalled"
    PAUSED = "paused"
    UNFINISHED = "unfinished"
    COMPLETED = "completed"


_MAX_SHOWN_CHARACTERS = 60
"""Characters of an answer in the `repr` of its result."""


class RunFacts(TypedDict):
    """Fields of a result that every kind of run reads in the same way."""

    usage: Usage
    cost: Mapping[str, int]
    unpriced: tuple[str, ...]
    estimated_requests: int
    events: Sequence[Event]
    events_dropped: int
    sink_errors: int


def read_facts(spending: Spending, recorder: Recorder) -> RunFacts:
    """Return what a run has spent, and its events."""
    return {
        "usage": spending.usage,
        "cost": spending.costs,
        "unpriced": spending.unpriced,
        "estimated_requests": spending.estimated_requests,
        "events": recorder.recorded_events,
        "events_dropped": recorder.dropped,
        "sink_errors": recorder.sink_errors,
    }


@dataclass(slots=True, kw_only=True, repr=False)
class Result(Generic[Output]):
    """Full result of a run.

    Not frozen, for speed; treat it as a value.
    """

    stop: Stop
    text: str = ""
    """Answer of the model, or the report of a run that was stopped."""
    output: Output | None = None
    """Answer of the type that the caller asked for. None if the caller asked for none, or the run has none."""
    stopped_by: str | None = None
    """Origin of a halt: a rule, a callback, `single_turn`, or the caller. None for other ends."""
    flags: tuple[str, ...] = ()
    """One flag per budget that refused a claim, in the order of the first refusals."""
    warning: str | None = None
    """Sentence about the limit that ended the run, or None."""
    turns: int = 0
    """Number of turns that took place. Refunds do not lower it; `budgets` has what counts against the limit."""
    requests: int = 0
    """Number of model requests. Refunds do not lower it."""
    messages: Sequence[Message] = ()
    tool_results: Sequence[Outcome] = ()
    last_calls: Sequence[Call] = ()
    """Calls of the model's last turn."""
    usage: Usage = field(default_factory=Usage)
    cost: Mapping[str, int] = field(default_factory=dict[str, int])
    """Billionths of a dollar, by model. Models without a known price are missing."""
    unpriced: tuple[str, ...] = ()
    """Models without a known price that were used. Their cost is not counted, and no money limit applied to it."""
    estimated_requests: int = 0
    """Number of requests without reported usage. Budgets were charged an estimate; `usage` excludes them."""
    budgets: Mapping[str, BudgetSnapshot] = field(default_factory=dict[str, BudgetSnapshot])
    events: Sequence[Event] = ()
    events_dropped: int = 0
    """Number of oldest events that are not kept here."""
    sink_errors: int = 0
    finish: str | None = None
    """Why the model's last reply ended: `stop`, `length` (incomplete), `content_filter`, or `cut` (by Flyball)."""
    hung: int = 0
    """Number of tools, async models and async approvers that were left behind and still ran at the end of the run."""
    state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Values that tools have set."""
    sensitive: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Parameters, by tool, whose values `to_dict` hides."""
    completion: Mapping[str, Any] = field(default_factory=dict[str, Any])
    unsupported: Sequence[str] = ()
    """Claims of the report that no outcome supports, with the reason."""
    reflections: Sequence[str] = ()
    faults: Sequence[Mapping[str, str]] = ()
    """Faults of rules: `rule`, `trigger` and `reason`."""
    fallbacks: Sequence[Mapping[str, str]] = ()
    """Changes to a fallback model, oldest first: `model`, `to`, `code` and `error`."""
    children: Sequence[Result] = ()
    cancelled_children: tuple[str, ...] = ()
    """Ids of child runs in the background that were cancelled, because the run ended before them."""
    questions: Sequence[Question] = ()
    """Open questions of a paused run."""
    pause: object = field(default=None, repr=False, compare=False)
    """State that `agent.resume` continues from. Kept in memory only."""
    error: Mapping[str, Any] | None = None
    """Error of a failed run: `code`, `kind` and `message`. None if there was none."""
    store_error: Mapping[str, Any] | None = None
    """Error of the store, with the same keys, if it does not have the end of this run. None if nothing is missing."""
    run_id: str = ""
    session_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    """Seconds that the run took."""

    @property
    def completed(self) -> bool:
        """True if the run ended with an answer to the whole task."""
        return self.stop is Stop.COMPLETED

    @property
    def usage_with_children(self) -> Usage:
        """Return the token usage of this run and all runs below it."""
        return sum((child.usage_with_children for child in self.children), self.usage)

    @property
    def cost_with_children(self) -> dict[str, int]:
        """Return the cost of this run and all runs below it, by model."""
        total = dict(self.cost)
        for child in self.children:
            for model, cost in child.cost_with_children.items():
                total[model] = total.get(model, 0) + cost
        return total

    @property
    def awaits_client_tools(self) -> bool:
        """True if the run is paused until its caller passes the results of client tools."""
        return any(getattr(question, "about", None) is About.CLIENT_TOOL for question in self.questions)

    def raise_for_stop(self) -> None:
        """Raise RunStopped, with this result on it, unless the run completed."""
        if not self.completed:
            raise RunStopped(self.stop.value, self.explain(), self)

    def explain(self) -> str:
        """Explain in plain sentences why the run ended and what would continue it.

        The text includes what the run used of each budget.
        """
        used = self.list_used()
        seconds = Unit.SECONDS.show(round(self.seconds, 1))
        spent = f"{self._explain_turns()} used {', '.join(used)} in {seconds}." if used else ""
        why = f"{self._explain_stop()}."
        parts = (why, spent, *self.list_remarks(), self._explain_next_step())
        return " ".join(part for part in parts if part)

    def list_remarks(self) -> list[str]:
        """Return what differs from what was asked for, such as clamped limits and models without a price."""
        remarks = (
            self._explain_background(),
            self._explain_fallbacks(),
            self._explain_clamped(),
            self._explain_unsupported(),
            self._explain_unpriced(),
        )
        return [remark for remark in remarks if remark]

    def list_used(self) -> list[str]:
        """Return what was used of each budget, as in `3 of 8 turns`."""
        budgets = self.budgets.items()
        return [_format_used(name, snapshot) for name, snapshot in budgets if snapshot.used and name != "depth"]

    def _explain_stop(self) -> str:
        why = "It waits for the results of client tools" if self.awaits_client_tools else _REASONS[self.stop]
        if self.stop is Stop.HALTED and self.stopped_by:
            why = f"{why} by {self.stopped_by}"
        if self.stop in _REASONS_WITH_WARNING and self.warning:
            why = f"{why}: {self.warning.removesuffix('.')}"
        if self.error:
            why = f"{why} ({self.error.get('message')})"
        return why

    def _explain_turns(self) -> str:
        """Return the start of a sentence about usage, with the turns if their budget says another number."""
        turns = self.budgets.get("turns")
        if turns is None or turns.used == self.turns or not self.turns:
            return "It"
        return f"It took {pluralize(self.turns, 'turn')} and"

    def _explain_next_step(self) -> str:
        """Return what would let the run continue, with the options to set."""
        if self.store_error is not None:
            return self._explain_unstored(self.store_error)
        if self.awaits_client_tools:
            return "It continues when they are passed to resume."
        next_step = _NEXT_STEPS[self.stop]
        remedies = self._list_remedies() if self.stop in (Stop.BUDGET, Stop.DEADLINE) else []
        return f"{next_step.removesuffix('.')}: {'; '.join(remedies)}." if remedies else next_step

    def _list_remedies(self) -> list[str]:
        shared = {event.flag for event in self.events if isinstance(event, BudgetRefused) and event.is_shared}
        keys = {f"max_{snapshot.name}_reached": key for key, snapshot in self.budgets.items()}
        keys = {flag: key for flag, key in keys.items() if flag not in shared}
        remedies = [
            describe_remedy(keys[flag], self.budgets[keys[flag]]) if flag in keys else self._find_remedy(flag)
            for flag in self.flags
        ]
        return [remedy for remedy in remedies if remedy]

    def _find_remedy(self, flag: str) -> str:
        """Return how to raise a limit without a budget of this run, such as time, as the event of its refusal says."""
        refusals = (event for event in reversed(self.events) if getattr(event, "flag", "") == flag)
        remedy: str = getattr(next(refusals, None), "remedy", "")
        if not remedy and flag == "max_seconds_reached":
            return describe_seconds_remedy(round(self.seconds, 1))
        return remedy

    def _explain_unstored(self, error: Mapping[str, Any]) -> str:
        reason = "" if error == self.error else f" ({error.get('message')})"
        return f"The end of this run is not stored{reason}."

    def _explain_background(self) -> str:
        """Return what became of child runs that had not ended."""
        count = len(self.cancelled_children)
        return f"{pluralize(count, 'child run')} in the background had to be cancelled." if count else ""

    def _explain_fallbacks(self) -> str:
        """Return which models failed and were replaced by another."""
        return " ".join(
            f"{one['model']} failed ({one['error'].removesuffix('.')}), so {one['to']} was asked."
            for one in self.fallbacks
        )

    def _explain_clamped(self) -> str:
        """Return which limits were not as requested, as the first event tells."""
        limits: Mapping[str, Any] = getattr(self.events[0], "limits", {}) if self.events else {}
        clamped: Mapping[str, str] = limits.get("clamped", {})
        return " ".join(f"Limit {text}." for text in clamped.values())

    def _explain_unsupported(self) -> str:
        if not self.unsupported:
            return ""
        return f"The report has {pluralize(len(self.unsupported), 'claim')} that the record does not support."

    def _explain_unpriced(self) -> str:
        money = self.budgets.get("usd")
        if not self.unpriced or money is None or money.ceiling is None:
            return ""
        return f"The money limit did not apply to {', '.join(self.unpriced)}, because the price is not known."

    def __repr__(self) -> str:
        flags = f" ({', '.join(self.flags)})" if self.flags else ""
        tokens, cost = self.usage_with_children.total, sum(self.cost_with_children.values())
        spent = [
            pluralize(self.turns, "turn"),
            f"{tokens:,} tokens" if tokens else "",
            Unit.USD.show(cost) if cost else "",
            Unit.SECONDS.show(round(self.seconds, 1)),
        ]
        answer = self.text if self.output is None else self.output
        shown = f": {truncate(repr(answer), _MAX_SHOWN_CHARACTERS)}" if answer else ""
        return f"<Result {self.stop}{flags}, {', '.join(filter(None, spent))}{shown}>"

    def _repr_html_(self) -> str:
        """Return the reason, the budgets and the timeline for a notebook."""
        from .display.result_html import render_result

        return render_result(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the Data Machine record with Flyball's own fields, in JSON types."""
        from .record import to_record  # cycle: the module also parses records, into results

        return to_record(self)


_REASONS = {
    Stop.CONTENDED: "Another run holds the session",
    Stop.CANCELLED: "It was cancelled",
    Stop.FAILED: "It failed",
    Stop.DEADLINE: "It ran out of time",
    Stop.BUDGET: "It reached a limit",
    Stop.HALTED: "It was halted",
    Stop.STALLED: "It stopped making progress",
    Stop.PAUSED: "It waits for a person",
    Stop.UNFINISHED: "The model stopped, but the task is not complete",
    Stop.COMPLETED: "It completed",
}


_REASONS_WITH_WARNING = frozenset({Stop.CONTENDED, Stop.BUDGET, Stop.DEADLINE, Stop.STALLED, Stop.HALTED})
"""Stop reasons whose explanation has the warning: the limit that was reached, or the message of a rule."""
_NEXT_STEPS = {
    Stop.CONTENDED: "Run it again when the other run has ended.",
    Stop.CANCELLED: "The work done so far is kept.",
    Stop.FAILED: "The work done so far is kept; see the error.",
    Stop.DEADLINE: "More time would let it continue.",
    Stop.BUDGET: "A higher limit would let it continue.",
    Stop.HALTED: "A new run can continue its work.",
    Stop.STALLED: "Another tool, or another task, would help more than a higher limit.",
    Stop.PAUSED: "It continues when its questions are answered.",
    Stop.UNFINISHED: "More nudges, or a clearer task, may help.",
    Stop.COMPLETED: "",
}


_SINGULARS = {
    "turns": "turn", "tool_calls": "tool call", "tokens": "token", "reflections": "reflection", "nudges": "nudge",
    "retries": "retry", "children": "child",
}  # fmt: skip


def _format_used(name: str, snapshot: BudgetSnapshot) -> str:
    show = snapshot.unit.show
    amount = show(snapshot.used) if snapshot.ceiling is None else f"{show(snapshot.used)} of {show(snapshot.ceiling)}"
    split = split_key(name)
    if split is not None:
        return f"{amount}{'' if snapshot.unit is Unit.USD else ' tokens'} of {split[1]}"
    if snapshot.unit is Unit.USD:
        return amount
    is_one = snapshot.ceiling is None and snapshot.used == 1
    return f"{amount} {_SINGULARS.get(name, name.replace('_', ' ')) if is_one else name.replace('_', ' ')}"
