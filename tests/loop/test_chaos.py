"""Random answers, letters, delays and raising collaborators, thrown at the loop; every story must stand an audit."""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import hypothesis.strategies as st
from hypothesis import example, given, settings

from flyball import Agent, Limits, Result, TurnBudget, tool
from flyball.budget.price import TokenPrice
from flyball.budget.registry import UNSET
from flyball.budget.run_budget import Refusal
from flyball.event import Event, Header
from flyball.loop import Act, Answer, Append, Ask, Decide, Effect, Fingerprint, Grant, Plan, Wait
from flyball.loop.effects import Cancel, Extend, Late, LeaseLost, Signal, Steer, TimeUp
from flyball.loop.player import LoopPlayer
from flyball.outcome import Cancelled, Denied, Failure, Outcome, Reason, Success, Timeout
from flyball.person import Verdict
from flyball.progress import Complete, Continue, Decision, Halt, Notice, Order, Point, Progress, Raise, Unfinished, Veto
from flyball.recorder import Recorder
from flyball.request import Call, FailureKind, Finish, ModelFailure, Reply, Request, Usage
from flyball.testing import ManualClock

Story = list[Any]
"""All that happened, in order: effects, answers, events, and as tuples what collaborators did."""
Audit = Callable[[Agent, Story, Result, float], None]

EXAMPLES = int(os.environ.get("CHAOS_EXAMPLES", "200"))
NOBODY_ENDS_LATER = 2_000
"""Effects; the audit knows a tighter bound."""


class Dice:
    """Draws from bytes; past their end, and where they are 0, it is always the first and simplest that is drawn."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def pick(self, *options: Any) -> Any:
        return options[next(self._left, 0) % len(options)]

    def once_in(self, times: int) -> bool:
        return next(self._left, 0) % times == times - 1


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


class Chaos:
    """A model and all who have a say in a run, each of whom may do anything that it is allowed, and raise."""

    name, provider = "chaos", None

    def __init__(self, dice: Dice, story: Story, price: TokenPrice | None, counts: bool) -> None:
        self.dice, self.story, self.price = dice, story, price
        if counts:
            self.count = self._count

    def _told(self, *what: object) -> None:
        self.story.append(what)

    def ready(self) -> str | None:
        if self.dice.once_in(60):
            self._told("raised", "ready")
            return "no key"
        return None

    def ask(self, request: Request, tell: object = None, /) -> Reply:
        raise AssertionError("the driver of this test answers")

    def _count(self, request: Request) -> int:
        self._raise_once_in(40, "raised", "count")
        self._told("count", self.dice.pick(300, 300, 300, 0, 900))
        return self.story[-1][1]

    def _raise_once_in(self, times: int, *what: str) -> None:
        if self.dice.once_in(times):
            self._told(*what)
            raise self.dice.pick(ValueError("chaos"), SystemExit(3), RecursionError())

    def sink(self, event: Event) -> None:
        if self.dice.once_in(20):
            self._told("sink raised")
            raise self.dice.pick(ValueError("chaos"), SystemExit(3))

    def hook(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        if self.dice.once_in(12):
            self._raise_once_in(5, *(("vetoed", about.id) if isinstance(about, Call) else ("raised", point.value)))
            orders: list[Order] = [
                self.dice.pick(
                    Notice("look out"), Veto("no"), Veto("no"), Raise("turns", 1), Raise("tool_calls", 1), Halt("chaos")
                )
                for _ in range(self.dice.pick(1, 2))
            ]
            for order in orders:
                self._told("ordered", point.value, order)
                if isinstance(order, Veto) and isinstance(about, Call):
                    self._told("vetoed", about.id)
            return orders
        return ()

    def policy(self, progress: Progress, /) -> Decision:
        self._raise_once_in(12, "raised", "policy")
        decision = self.dice.pick(Complete(7), Continue("go on", ("x",)), Continue("again"), Unfinished())
        self._told("decided", decision)
        return decision

    def should_continue(self, progress: Progress) -> bool:
        self._raise_once_in(12, "raised", "should_continue")
        self._told("continue", not self.dice.once_in(16))
        return self.story[-1][1]


CLOCK = ManualClock()


def made_agent(dice: Dice, does: Dice, story: Story) -> Agent:
    price = dice.pick(None, TokenPrice(1.0, 2.0), TokenPrice(1.0, 2.0, cached=3.0), TokenPrice(0.0, 1.0))
    chaos = Chaos(does, story, price, dice.once_in(4))
    until = dice.pick(*[None] * 7, 5.0)
    limits = Limits(
        turns=dice.pick(4, 3, 8, 2, 1),
        tool_calls=dice.pick(UNSET, UNSET, 6, 4, 2, 1, 0),
        calls=dice.pick({}, {}, {"write": 1}, {"look": 0, "glance": 2}),
        retries=dice.pick(2, 0, 1),
        nudges=dice.pick(1, 0, 2),
        tokens=dice.pick(UNSET, UNSET, UNSET, 100_000, 9_000, 4_000, 1_500, 50),
        context_tokens=dice.pick(*[UNSET] * 6, 2_000, 700),
        usd=dice.pick(UNSET, UNSET, 1.0, 0.01, 0.003, 0.0001) if price else UNSET,
        seconds=dice.pick(3_600, 3_600, 60, 10, 1),
        until=None if until is None else datetime.fromtimestamp(CLOCK.wall(), UTC) + timedelta(seconds=until),
    )
    return Agent(
        model=chaos,
        tools=dice.pick(*[[look, ask_first, glance, write, twice]] * 4, [look, glance, write], [glance], []),
        limits=limits,
        instructions=dice.pick(None, "Do it."),
        grace=not dice.once_in(4),
        single_turn=dice.once_in(12),
        completion=dice.pick(None, chaos.policy),
        should_continue=dice.pick(None, None, chaos.should_continue),
        hooks=dice.pick([], [], [chaos.hook], [chaos.hook, chaos.hook]),
        sinks=[story.append, *dice.pick([], [chaos.sink])],
        output=dice.pick(None, None, None, int),
        max_output_tokens=dice.pick(None, 100, 1_000),
        clock=CLOCK,
    )


class World:
    """Answers every effect with anything that could come of it."""

    def __init__(self, dice: Dice) -> None:
        self.dice = dice
        self.at = 0.0
        self.favourite = dice.pick("", "", "glance", "look", "write", "ask_first")
        """The only tool that is called, where there is one: so that a run goes on in the same way for long."""
        self.hung: list[tuple[str, str]] = []

    def answer(self, effect: Effect[Any]) -> Answer[Any]:
        due = getattr(effect, "deadline", self.at)
        self.at += self.dice.pick(*[0.0] * 10, 0.1, 0.1, 0.1, 2.0, max(0.0, due - self.at))
        value, signals = self._value(effect), self._mail()
        if isinstance(effect, Ask) and isinstance(value, Reply) and value.finish is Finish.CUT and self.at < due:
            signals.append(Cancel("chaos"))  # nothing else cuts a reply before its deadline
        return Answer(value, self.at, signals)

    def _value(self, effect: Effect[Any]) -> Any:
        match effect:
            case Ask():
                return self._failure() if self.dice.once_in(9) else self._reply()
            case Act(acts):
                return [self._outcome(act.call.id, act.call.name) for act in acts]
            case Decide():
                return Verdict(self.dice.pick(True, True, False, None))
            case Grant(take) if take and self.dice.once_in(16):
                name = self.dice.pick(*take, "seconds")
                return Refusal(name, f"max_shared_{name}_reached", "Others took it all.")
            case Wait(until):
                self.at = max(self.at, until + self.dice.pick(0.0, -0.2, 30.0))
                return None
            case _:
                return None

    def _reply(self) -> Reply:
        dice = self.dice
        calls = tuple(self._call() for _ in range(dice.pick(0, 1, 1, 1, 2, 2, 3, 5)))
        text = dice.pick("done", "done", "", "5", "5", " ", "x" * 5_000, "\ud800 é ```json\n5\n```")
        usage = dice.pick(
            *[Usage(300, 20)] * 9, None, Usage(), Usage(1, 1, 900, 900), Usage(800, 300), Usage(10**9, 10**9)
        )
        usual = Finish.CALLS if calls else Finish.STOP
        finish = dice.pick(*[usual] * 30, Finish.LENGTH, Finish.CONTENT_FILTER, Finish.CUT, Finish.STOP, Finish.CALLS)
        return Reply(text, calls, usage, finish)

    def _call(self) -> Call:
        dice = self.dice
        name = self.favourite or dice.pick(
            "look", "write", "glance", "glance", "ask_first", "twice", "look", "nobody", ""
        )
        given = dice.pick(*["{}"] * 8, {"n": 3}, "", '{"n": ', '{"n": "many"}', "[" * 5_000, '{"m": 1}')
        return Call(dice.pick("a", "a-1", "a-2", "b", ""), name, given)

    def _failure(self) -> ModelFailure:
        kind = self.dice.pick(*[FailureKind.RETRYABLE] * 5, FailureKind.CONTEXT, FailureKind.FINAL)
        after_s, began = self.dice.pick(None, 0.0, 3.0, 1e6), self.dice.pick(False, False, True)
        return ModelFailure(kind, "Overloaded", "model", "too much to do", after_s, began)

    def _outcome(self, call_id: str, name: str) -> Outcome:
        dice, hung = self.dice, self.dice.pick(False, True)
        outcome: Outcome = dice.pick(
            Success(
                call_id=call_id, tool=name, content="4", value=4, changes={dice.pick("k", "l"): dice.pick(1, None)}
            ),
            Success(call_id=call_id, tool=name, content="z" * dice.pick(0, 3_000)),
            Failure(call_id=call_id, tool=name, kind="ValueError", error="no"),
            Timeout(call_id=call_id, tool=name, cap_s=1.0, hung=hung),
            Cancelled(call_id=call_id, tool=name, hung=hung),
            Denied(call_id=call_id, tool=name, reason=Reason.OVERLOAD, message="no worker"),
        )
        if isinstance(outcome, Timeout | Cancelled) and outcome.hung:
            self.hung.append((call_id, name))
        return outcome

    def _mail(self) -> list[Signal]:
        dice, signals = self.dice, list[Signal]()
        for _ in range(dice.pick(1, 2, 3, 4) if dice.once_in(12) else 0):
            letter = dice.pick(
                Steer("and this"),
                Extend({"turns": 1, "tool_calls": 1}),
                Extend({"tokens": 500, "retries": 1, "nudges": 1, "usd": 10**6}, 2.0),
                TimeUp(),
                LeaseLost(),
                Cancel("chaos"),
                None,
            )
            signals.append(letter or (Late(*self.hung.pop()) if self.hung else Steer("late")))
        return signals


def planned(agent: Agent, shared: TurnBudget | None, keeps: bool) -> Plan:
    plan = agent.plan("Do it.", run_id="run") if shared is None else agent.plan("Do it.", run_id="run", within=shared)
    plan.has_transcript = keeps
    return plan


def played(
    agent: Agent, plan: Plan, story: Story, answer: Callable[[Effect[Any]], Answer[Any]]
) -> tuple[Result, list[int]]:
    """Drive a run with these answers: its result, and the fingerprints of its effects."""
    recorder = Recorder(Header(plan.run_id, None, plan.started_at, plan.metadata), agent.sinks)
    player, prints, mark = LoopPlayer(plan, recorder), list[int](), Fingerprint()
    effect = player.start()
    while effect is not None and len(prints) < NOBODY_ENDS_LATER:
        prints.append(mark.add(effect))
        story.append(effect)
        said = answer(effect)
        story.append(said)
        effect = player.send(said)
    assert player.result is not None, "it does not end"
    return player.result, prints


def sized(most: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=most, max_size=most)


PLAIN_TOOLS = bytes(12) + bytes([4]) + bytes(11)
ENDLESS_CHEAP_ROUNDS = bytes([2]) + bytes([1]) * 299
CANCELLED_WITH_A_CALL = bytes([0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 11, 0, 5]) + bytes(287)


@settings(max_examples=EXAMPLES, derandomize="CHAOS_EXAMPLES" not in os.environ)
@example(who=bytes(24), does=bytes(80), comes=ENDLESS_CHEAP_ROUNDS)
@example(who=PLAIN_TOOLS, does=bytes(80), comes=CANCELLED_WITH_A_CALL)
@given(sized(24), sized(80), sized(300))
def test_whatever_comes_the_run_ends_once_inside_its_limits_with_its_true_reason(
    audit: Audit, who: bytes, does: bytes, comes: bytes
) -> None:
    def once(answer: Callable[[Effect[Any]], Answer[Any]]) -> tuple[Result, list[int], Story]:
        dice, story = Dice(who), Story()
        shared = TurnBudget.create(dice.pick(None, None, 7.0), clock=CLOCK) if dice.once_in(4) else None
        agent = made_agent(dice, Dice(does), story)
        keeps = not dice.once_in(3)
        result, prints = played(agent, planned(agent, shared, keeps), story, answer)
        assert any(isinstance(effect, Append) for effect in story) <= keeps  # one that pauses at once keeps nothing
        audit(agent, story, result, float("inf") if shared is None else shared.remaining_s())
        return result, prints, story

    result, prints, story = once(World(Dice(comes)).answer)
    recorded = iter(cast("list[Answer[Any]]", [told for told in story if isinstance(told, Answer)]))
    again, same_prints, _ = once(lambda _: next(recorded))
    assert (again, same_prints) == (result, prints), "it does not play again as it was"
    assert next(recorded, None) is None
