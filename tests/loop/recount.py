"""The numbers that the auditor keeps: see audit.py."""

from collections import Counter
from fnmatch import fnmatchcase
from math import inf
from typing import Any, cast

from flyball import Agent, Result
from flyball.budget.price import TokenPrice
from flyball.loop import Plan
from flyball.loop.child_task import ChildTask
from flyball.models import Model
from flyball.outcome import Outcome
from flyball.progress import apply_changes
from flyball.request import Call, ModelFailure, Reply

from .audit_gates import Gates

MAX_DEPTH = 8
"""Levels that an extension can reach, by the registry."""


class Recount:
    """What a run may do and has done, counted from its story alone."""

    failed: bool = False
    halted: bool = False
    must_halt: bool = False
    stalled: bool = False
    children_paused: bool = False
    paused_at_reply: bool = False
    """True if child runs were paused when the last reply came. Calls that were admitted before a pause start theirs."""
    were_paused: bool = False
    """True if child runs were paused at any moment since the last reply."""
    more: int = 0
    """Orders and signals that raised a limit."""
    report_until: float = 0.0
    """Moment at which a report must be there."""
    last: Reply | ModelFailure | None = None

    def __init__(self, agent: Agent, plan: Plan) -> None:
        self.agent, self.plan = agent, plan
        self._set_ceilings()
        self._set_time()
        self._set_reserve()
        self.used, self.shared, self.below = Counter[str](), Counter[str](), Counter[str]()
        self.held, self.lent = dict[str, int](), dict[str, int]()
        self.at, self.heard = 0.0, list[Any]()
        self.time_up = self.called_off = self.shared_refused = self.limited = self.taken = False
        self.estimated, self.first_of_turn, self.open, self.begun = 0, False, list[str](), set[str]()
        self.refunded = self.turn_shared = False
        self.asked: list[Call] = []
        self.replies: list[Reply] = []
        self.batch_ceilings, self.outcomes = dict[str, float](), dict[str, Outcome]()
        self.answered, self.vetoed, self.guarded = dict[bool | None, set[str]](), set[str](), set[str]()
        self.flags, self.said = list[str](), dict[str, Any]()
        self.reasons: list[str | None] = []
        self.was_over = self.out_of_calls = self.has_reply = self.may_retry = False
        self.state, self.notices = dict(plan.state), set[str]()
        self.model: str = ""
        self.fallbacks = [f"fallback_models[{n}]" for n in range(len(agent.fallback_models))]
        self.usable = ["", *self.fallbacks]
        """Models that a failure can lead to, in their order. One that failed for good is removed."""
        self.next_model: str | None = None
        """Model that must be asked after the last failure. None if that must be the same one, or none."""
        self.tried_all: bool = True
        self.children: dict[str, str | None] = {}
        """Stop reason of each child run by id. None while it is in progress."""
        self.background: dict[str, ChildTask] = {}
        """Child runs in the background that have not ended."""
        self.done: dict[str, Result] = {}
        """Results of child runs in the background, as they arrived."""
        self.ended_children: list[Result | str] = []
        """Results of child runs in the order of their ends. Only the id of one that gave none."""
        self.gates = Gates([dict(rule) for rule in cast("Any", agent.tool_rules or ())])
        self.pending: dict[str, str] = {}
        """Tools of the calls that the client was asked for, and that have no outcome yet, by call id."""
        self.claimed: int = 0
        """Number of calls that the client was asked for, and that were not made."""
        self.has_artifact: bool = False
        """True once a result was shown in part."""
        self.may_report: bool = False
        """True if an order halted the run and wants a report."""

    def _set_ceilings(self) -> None:
        limits, caps, level = self.agent.limits, dict(self.plan.max_amounts or {}), self.plan.level
        own = {name: _number(getattr(limits, name)) for name in ("turns", "tool_calls", "retries", "nudges", "tokens")}
        own["usd"] = _number(limits.usd) * 10**9
        own |= {"children": _number(limits.children, 16), "depth": level + _number(limits.depth, 2)}
        self.fixed = {name for name, cap in caps.items() if own[name] >= cap} | ({"depth"} if level else set[str]())
        """Inherited ceilings, which no order or signal can raise."""
        self.own_ceilings = own
        self.ceilings = {name: min(ceiling, caps.get(name, inf)) for name, ceiling in own.items()}
        self.ceilings |= {f"calls.{name}": ceiling for name, ceiling in limits.calls.items()}
        self.by_model = dict[str, float]()
        for pattern, of_model in limits.by_model.items():
            self.by_model[f"tokens.{pattern}"] = _number(of_model.tokens)
            self.by_model[f"usd.{pattern}"] = _number(of_model.usd) * 10**9
        self.by_model = {key: ceiling for key, ceiling in self.by_model.items() if ceiling < inf}
        self.ceilings |= self.by_model

    def _set_time(self) -> None:
        until = self.agent.limits.until
        self.seconds = _number(self.agent.limits.seconds)
        until_s = inf if until is None else max(0.0, until.timestamp() - self.plan.started_at)
        self.until_s = min(self.plan.max_seconds, until_s)
        least = min(self.seconds, self.until_s)
        self.reserve_s = min(20.0, least * 0.15) if self.agent.grace and least < inf else 0.0

    def _set_reserve(self) -> None:
        """Count the part of the run's limits, its own and inherited ones, that is kept for its report."""
        self.reserve: dict[str, float] = {}
        for name in ("tokens", "usd") if self.agent.grace else ():
            ceiling = self.ceilings[name]
            if ceiling < inf:
                self.reserve[name] = min(2_000, ceiling // 5) if name == "tokens" else ceiling // 10

        for key, ceiling in self.by_model.items() if self.agent.grace else ():
            self.reserve[key] = min(2_000, ceiling // 5) if key.startswith("tokens") else ceiling // 10

    def by_model_of(self, name: str, tokens: int, usd: int) -> dict[str, int]:
        """Return what a request counts in the limits of its model."""
        splits = [key.partition(".") for key in self.by_model]
        asked = self.find_model(name).name
        return {
            f"{kind}.{pattern}": tokens if kind == "tokens" else usd
            for kind, _, pattern in splits
            if fnmatchcase(asked, pattern)
        }

    def find_model(self, name: str) -> Model:
        if name in self.fallbacks:
            return cast("Model", self.agent.fallback_models[self.fallbacks.index(name)])
        return cast("Model", self.agent.models[name] if name else self.agent.model)

    def expect_fallback(self, is_final: bool) -> None:
        """Work out which model must be asked after the present one failed."""
        place = self.usable.index(self.model) if self.model in self.usable else -1
        after = self.usable[place + 1 :]
        self.usable = [name for name in self.usable if name != self.model or not is_final]
        self.tried_all = not after
        self.next_model = (after or self.usable or [None])[0]

    def use_model(self, name: str) -> None:
        """Follow the order to ask another model."""
        if name != self.model:
            self.model, self.usable = name, [name, *self.fallbacks]

    @property
    def is_ready(self) -> bool:
        """Whether the model that the run asks now can be asked."""
        return self.find_model(self.model).ready() is None

    @property
    def has_no_calls(self) -> bool:
        """Whether a whole batch was denied because no call was left, and none was added since."""
        return self.out_of_calls and self.used["tool_calls"] >= self.ceilings["tool_calls"]

    def find_price(self, name: str) -> Any:
        return self.find_model(name).price or TokenPrice(input=0, output=0)

    def raise_limit(self, name: str, amount: float) -> None:
        self.more += 1
        if name == "seconds":
            self.seconds += amount
            self.was_over = self.was_over and self.time_is_over
        elif name not in self.fixed:
            self.ceilings[name] += amount
            self.ceilings["depth"] = min(self.ceilings["depth"], max(MAX_DEPTH, self.plan.level))

    def change_state(self, changes: dict[str, Any]) -> None:
        apply_changes(self.state, changes)

    @property
    def hard_at(self) -> float:
        return min(self.seconds, self.until_s)

    @property
    def time_is_over(self) -> bool:
        return self.time_up or self.at >= self.hard_at - self.reserve_s


def _number(limit: Any, default: float = inf) -> float:
    return limit if isinstance(limit, int | float) else default
