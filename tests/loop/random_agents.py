"""Random agents: limits, tools, rules, hooks and children, and collaborators that may do anything, even raise.

Everything that collaborators do is written into the story of the run it concerns (`Book`), so that the auditor can
judge the loop by it.
"""

import zlib
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from flyball import Agent, Child, Limits, tool
from flyball.budget.price import TokenPrice
from flyball.budget.registry import UNSET
from flyball.event import Event
from flyball.progress import (
    AskPerson,
    Complete,
    Continue,
    Decision,
    Emit,
    Halt,
    Notice,
    Order,
    Point,
    Progress,
    Raise,
    ReplaceResult,
    SetState,
    Unfinished,
    UseModel,
    Veto,
)
from flyball.request import Call, Reply, Request
from flyball.rules.engine import RuleEngine
from flyball.rules.ruleset import RuleSet
from flyball.rules.thresholds import StartCache
from flyball.testing import ManualClock
from flyball.tools import Tool

from .dice import Dice
from .random_rules import draw_rules

Story = list[Any]
"""Everything that happened in one run, in order: effects, answers, events, and tuples for what collaborators did."""


class Book:
    """Stories of all runs of a tree, by run id, and the dice of their collaborators."""

    def __init__(self, does: bytes) -> None:
        self._does = does
        self.restart()

    def restart(self) -> None:
        """Forget all stories, and let the collaborators draw the same again."""
        self.stories = defaultdict[str, Story](list)
        self._dice: dict[str, Dice] = {}

    def dice(self, run_id: str) -> Dice:
        """Return the dice for collaborators of one run. The top run starts with the first byte."""
        if run_id not in self._dice:
            start = zlib.crc32(run_id.encode()) % len(self._does) if "." in run_id else 0
            self._dice[run_id] = Dice(self._does[start:])
        return self._dice[run_id]

    def tell(self, run_id: str, *what: object) -> None:
        self.stories[run_id].append(what)

    def record(self, event: Event) -> None:
        """Receive events of all runs, as a sink."""
        self.stories[event.header.run_id].append(event)

    def tell_orders(self, point: Point, progress: Progress, about: object, orders: Sequence[Order]) -> Sequence[Order]:
        for order in orders:
            self.tell(progress.run_id, "ordered", point.value, order)
            if isinstance(about, Call) and isinstance(order, Veto):
                self.tell(progress.run_id, "vetoed", about.id)
            if isinstance(about, Call) and isinstance(order, AskPerson) and point is Point.CALL_PLANNED:
                self.tell(progress.run_id, "needs approval", about.id)
        return orders


class ToldRules(RuleSet):
    """Rules whose orders are written into the story."""

    __slots__ = ("book",)
    book: Book

    def begin(self, start_cache: StartCache | None = None) -> RuleEngine:
        engine = ToldEngine(self._by_trigger, self._compared, start_cache)
        engine.book = self.book
        return engine

    @classmethod
    def install(cls, agent: Agent, book: Book) -> None:
        """Replace the rules of an agent that has not run yet."""
        rules = agent.plan("Which rules?").spec.rules
        assert rules.ruleset is not None, "an agent has the core rules"
        told = cls(rules.ruleset.rules)
        object.__setattr__(told, "book", book)
        rules.ruleset = told


class ToldEngine(RuleEngine):
    """Rule engine of one run that writes its orders into the story."""

    __slots__ = ("book",)
    book: Book

    def __call__(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        return self.book.tell_orders(point, progress, about, super().__call__(point, progress, about))


@tool(effects="read")
def look(n: int = 0) -> int:
    """Look."""
    return n


@tool(effects="read", approve=True)
def ask_first(n: int = 0) -> int:
    """Look, if a person agrees."""
    return n


@tool(effects="read", cheap=True)
def glance(n: int = 0) -> int:
    """Look for free."""
    return n


@tool
def write(n: int = 0) -> int:
    """Write."""
    return n


@tool(max_calls=2, sensitive=["n"], retry_on_timeout=True)
def twice(n: int = 0) -> int:
    """Write twice at most."""
    return n


fetch = Tool.from_schema("fetch", "Fetch it at the client.", parameters={"properties": {"n": {"type": "integer"}}})
GATES: list[list[dict[str, Any]]] = [
    [{"require_tool_use": True}],
    [{"tool": "write", "prior_tools": ["look", "glance"], "blocks_completion": True}],
    [{"tool": "fetch", "prior_tools": ["write"]}, {"require_tool_use": True}],
    [{"block_until_tool": "look", "blocks_completion": True}],
    [{"limited_tools": ["write", "fetch"], "max_calls": 1, "then_require_one_of": ["glance"], "deny": "all"}],
    [{"limited_tools": ["look", "write"], "max_calls": 2, "then_require_one_of": ["glance"], "deny": "only"}],
]


class Chaos:
    """A model, and the collaborators of its agent. Each may do anything that it is allowed to, and may raise."""

    provider = None

    def __init__(self, name: str, dice: Dice, book: Book) -> None:
        self.name, self.book = name, book
        self.price = dice.pick(None, TokenPrice(1.0, 2.0), TokenPrice(1.0, 2.0, cached=3.0), TokenPrice(0.0, 1.0))
        self.not_ready = "no key" if dice.once_in(40) else None
        if dice.once_in(4):
            self.count = self._count

    def ready(self) -> str | None:
        return self.not_ready

    def ask(self, request: Request, tell: object = None, /) -> Reply:
        raise AssertionError("the driver of this test answers")

    def _count(self, request: Request) -> int:
        self._raise_once_in(40, request.run_id, "raised", "count")
        tokens = self.book.dice(request.run_id).pick(300, 300, 300, 0, 900)
        self.book.tell(request.run_id, "count", tokens)
        return tokens

    def _raise_once_in(self, times: int, run_id: str, *what: str) -> None:
        dice = self.book.dice(run_id)
        if dice.once_in(times):
            self.book.tell(run_id, *what)
            raise dice.pick(ValueError("chaos"), SystemExit(3), RecursionError())

    def sink(self, event: Event) -> None:
        run_id = event.header.run_id
        if event.kind.startswith("child_"):  # the driver emits those of a tool's child run, and a replay has none
            return
        if self.book.dice(run_id).once_in(20):
            self.book.tell(run_id, "sink raised")
            raise self.book.dice(run_id).pick(ValueError("chaos"), SystemExit(3))

    def hook(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        dice = self.book.dice(progress.run_id)
        if not dice.once_in(12):
            return ()
        guarded = about if point is Point.TOOL_CALLED and isinstance(about, Call) else None
        self._raise_once_in(
            5, progress.run_id, *(("raised", point.value) if guarded is None else ("vetoed", guarded.id))
        )
        orders = [self._order(dice) for _ in range(dice.pick(1, 2))]
        return self.book.tell_orders(point, progress, guarded, orders)

    def _order(self, dice: Dice) -> Order:
        return dice.pick(
            Notice("look out"),
            Veto("no"),
            Veto("no"),
            Raise("turns", 1),
            Raise("tool_calls", 1),
            Halt("chaos"),
            Halt("chaos", "enough", grace=True),
            SetState(dice.pick("k", "n"), dice.pick(5, None)),
            UseModel("other"),
            AskPerson("Continue?", "chaos"),
            Raise("seconds", 2.0),
            Raise("children", 1),
            Emit("ping"),
            ReplaceResult("seen"),
        )

    def policy(self, progress: Progress, /) -> Decision:
        self._raise_once_in(12, progress.run_id, "raised", "policy")
        decision = self.book.dice(progress.run_id).pick(
            Complete(7), Continue("go on", ("x",)), Continue("again"), Unfinished(), Complete(8, text="5")
        )
        self.book.tell(progress.run_id, "decided", decision, progress.after_calls)
        return decision

    def should_continue(self, progress: Progress) -> bool:
        self._raise_once_in(12, progress.run_id, "raised", "should_continue")
        goes_on = not self.book.dice(progress.run_id).once_in(16)
        self.book.tell(progress.run_id, "continue", goes_on)
        return goes_on


def draw_agent(dice: Dice, book: Book, clock: ManualClock, name: str = "top") -> Agent:
    """Return a random agent. The top one may have children, and they may have children."""
    children = _draw_children(dice, book, clock, name)
    chaos, other = Chaos(name, dice, book), Chaos("other", dice, book)
    spares = [Chaos(f"spare {n}", dice, book) for n in range(dice.pick(0, 0, 0, 1, 2))]
    all_tools = [look, ask_first, glance, write, twice, fetch]
    tools: list[Any] = dice.pick(*[all_tools] * 4, [look, glance, write], [glance], [])
    agent = Agent(
        name=name,
        model=chaos,
        models={"other": other},
        fallback_models=spares,
        tools=tools,
        limits=_draw_limits(dice, clock, all(model.price for model in (chaos, other, *spares))),
        instructions=dice.pick(None, "Do it."),
        grace=not dice.once_in(4),
        single_turn=dice.once_in(12),
        completion=dice.pick(None, chaos.policy),
        should_continue=dice.pick(None, None, chaos.should_continue),
        tool_rules=dice.pick(None, None, *(GATES if fetch in tools else GATES[:1])),
        announce_limits=dice.pick(False, True),
        recall=dice.pick(True, True, False),
        hooks=dice.pick([], [], [chaos.hook], [chaos.hook, chaos.hook]),
        sinks=[book.record, *dice.pick([], [chaos.sink])],
        output=dice.pick(None, None, None, int),
        max_output_tokens=dice.pick(None, 100, 1_000),
        rules=draw_rules(dice) if dice.once_in(3) else RuleSet(),
        children=children,
        background_children=bool(children) and dice.pick(False, True),
        settings={
            "delegation.join_duplicates": dice.pick(False, True),
            "delegation.max_concurrent_children": dice.pick(3, 1),
        },
        clock=clock,
    )
    ToldRules.install(agent, book)
    return agent


def _draw_limits(dice: Dice, clock: ManualClock, has_prices: bool) -> Limits:
    until = dice.pick(*[None] * 7, 5.0)
    return Limits(
        turns=dice.pick(6, 12, 4, 8, 2, 1),
        tool_calls=dice.pick(*[UNSET] * 5, 6, 4, 2, 1, 0),
        calls=dice.pick({}, {}, {"write": 1}, {"look": 0, "glance": 2}),
        retries=dice.pick(2, 0, 1),
        nudges=dice.pick(1, 0, 2),
        tokens=dice.pick(*[UNSET] * 4, 100_000, 100_000, 9_000, 4_000, 1_500, 50),
        context_tokens=dice.pick(*[UNSET] * 16, 2_000, 700),
        usd=dice.pick(UNSET, UNSET, UNSET, 1.0, 1.0, 0.01, 0.003, 0.0001) if has_prices else UNSET,
        by_model=dice.pick(
            *[{}] * 5, {"top*": Limits(tokens=3_000)}, {"*": Limits(tokens=5_000), "o*": Limits(tokens=0)}
        ),
        seconds=dice.pick(3_600, 3_600, 3_600, 60, 10, 1),
        until=None if until is None else datetime.fromtimestamp(clock.wall(), UTC) + timedelta(seconds=until),
        children=dice.pick(*[UNSET] * 4, 3, 1, 0),
        depth=dice.pick(*[UNSET] * 5, 1, 0),
    )


def _draw_children(dice: Dice, book: Book, clock: ManualClock, name: str) -> list[Child]:
    level = name.count("-")
    count = dice.pick(0, 1, 2) if level == 0 else dice.pick(0, 1) if level == 1 else 0
    modes = [dice.pick("shared", "carved", "independent") for _ in range(count)]
    return [Child(draw_agent(dice, book, clock, f"{name}-{n}"), mode) for n, mode in enumerate(modes)]
