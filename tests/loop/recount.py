"""The numbers that the auditor keeps: see audit.py."""

from collections import Counter
from math import inf
from typing import Any, cast

from flyball import Agent
from flyball.budget.price import TokenPrice
from flyball.models import Model
from flyball.outcome import Outcome
from flyball.request import Call, ModelFailure, Reply


class Recount:
    """What a run may do and has done, counted from its story alone."""

    failed: bool = False
    halted: bool = False
    must_halt: bool = False
    more: int = 0
    last: Reply | ModelFailure | None = None

    def __init__(self, agent: Agent, most_s: float) -> None:
        limits, self.agent = agent.limits, agent
        self.price = cast("Model", agent.model).price or TokenPrice(input=0, output=0)
        named = ("turns", "tool_calls", "retries", "nudges", "tokens")
        self.ceilings = {name: _number(getattr(limits, name)) for name in named}
        self.ceilings["usd"] = _number(limits.usd) * 10**9
        self.ceilings |= {f"calls.{name}": most for name, most in limits.calls.items()}
        self.seconds = _number(limits.seconds)
        self.until_s = min(most_s, inf if limits.until is None else limits.until.timestamp() - agent.clock.wall())
        least = min(self.seconds, self.until_s)
        self.reserve_s = min(20.0, least * 0.15) if agent.grace and least < inf else 0.0
        tokens, usd = self.ceilings["tokens"], self.ceilings["usd"]
        usual = {"tokens": min(2_000, tokens // 5), "usd": usd // 10} if agent.grace else {}
        self.reserve = {name: most for name, most in usual.items() if self.ceilings[name] < inf}
        self.used, self.shared = Counter[str](), Counter[str]()
        self.held, self.lent = dict[str, int](), dict[str, int]()
        self.at, self.heard = 0.0, list[Any]()
        self.time_up = self.called_off = self.shared_refused = self.limited = self.taken = False
        self.estimated, self.first_of_turn, self.open, self.begun = 0, False, list[str](), set[str]()
        self.refunded = self.turn_shared = False
        self.asked: list[Call] = []
        self.replies: list[Reply] = []
        self.batch_ceilings, self.outcomes = dict[str, float](), dict[str, Outcome]()
        self.answered, self.vetoed = dict[bool | None, set[str]](), set[str]()
        self.flags, self.said = list[str](), dict[str, Any]()
        self.reasons: list[str | None] = []
        self.was_over = self.out_of_calls = self.has_reply = self.may_retry = False

    @property
    def hard_at(self) -> float:
        return min(self.seconds, self.until_s)

    @property
    def time_is_over(self) -> bool:
        return self.time_up or self.at >= self.hard_at - self.reserve_s


def _number(limit: Any) -> float:
    return limit if isinstance(limit, int | float) else inf
