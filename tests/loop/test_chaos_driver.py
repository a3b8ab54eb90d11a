"""The real driver under chaos, on asyncio and trio, with real but small delays. Every run must pass the audit."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import pytest
from hypothesis import Phase, given, settings

from flyball import Agent, Limits, Result, TurnBudget, tool
from flyball.budget.registry import UNSET
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.event import Event, Header
from flyball.loop import Answer, Effect
from flyball.loop.effects import Cancel, Extend, LeaseLost, Signal, Steer
from flyball.loop.plan import Plan
from flyball.loop.player import LoopPlayer
from flyball.progress import Complete, Continue, Decision, Halt, Notice, Order, Point, Progress, Unfinished, Veto
from flyball.recorder import Recorder
from flyball.request import Call, Finish, Reply, Request, Usage
from flyball.runtime import RunDriver
from flyball.tools import ToolContext

from .audit_result import audit_run
from .dice import IS_SOAK, Dice, count_examples, sized
from .random_agents import Book, Story, ToldRules

EXAMPLES = count_examples(500) // 25
BOUND_S = 60.0
BROKE = Retryable("the stream broke", 0.001, began=True)


class NappingDice(Dice):
    """Dice that also draw small delays."""

    def nap(self) -> float:
        return self.pick(0.0, 0.0, 0.0, 0.001, 0.003, 0.01)


class Restless:
    """A model that takes its time, streams, fails, and asks for anything."""

    name, provider, price = "restless", None, None

    def __init__(self, dice: NappingDice) -> None:
        self.dice = dice

    def ready(self) -> str | None:
        return None

    async def ask(self, request: Request, tell: Callable[[str], object], /) -> Reply:
        tell("a piece")
        await anyio.sleep(self.dice.nap())
        return self.said()

    def said(self) -> Reply:
        dice = self.dice
        error = dice.pick(
            *[None] * 20,
            Retryable("busy", 0.001),
            BROKE,
            ContextTooLong("long"),
            ModelError("no"),
            SystemExit(3),
        )
        if error is not None:
            raise error
        names = [dice.pick("look", "write", "block", "look", "nobody") for _ in range(dice.pick(1, 0, 1, 2, 3))]
        calls = tuple(Call("a", name, dice.pick("{}", "{}", "{}", '{"n":')) for name in names)
        finish = dice.pick(*[Finish.CALLS if calls else Finish.STOP] * 15, Finish.LENGTH, Finish.CONTENT_FILTER)
        return Reply(dice.pick("done", "", "5"), calls, dice.pick(Usage(200, 20), None), finish)


class Blocking(Restless):
    """The same in a worker."""

    def ask(self, request: Request, tell: Callable[[str], object], /) -> Reply:  # pyright: ignore[reportIncompatibleMethodOverride]
        tell("a piece")
        time.sleep(self.dice.nap())
        return self.said()


class Around:
    """The collaborators: what they do follows from how far the run is, so that it is the same when it is replayed."""

    def __init__(self, seed: int, story: Story) -> None:
        self.seed, self.story = seed, story

    def _drawn(self, progress: Progress, *options: Any) -> Any:
        return options[(self.seed + 7 * progress.turn + 3 * len(progress.results)) % len(options)]

    def hook(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        order = self._drawn(progress, *[None] * 9, Notice("look out"), Veto("no"), Halt("chaos"), "raise")
        if order == "raise":
            self.story.append(("vetoed", about.id) if isinstance(about, Call) else ("raised", point.value))
            raise ValueError("chaos")
        if order is None:
            return ()
        self.story.append(("ordered", point.value, order))
        if isinstance(order, Veto) and isinstance(about, Call):
            self.story.append(("vetoed", about.id))
        return (order,)

    def policy(self, progress: Progress, /) -> Decision:
        decision = self._drawn(progress, Complete(), Continue("go on"), Unfinished(), Complete(text="5"))
        self.story.append(("decided", decision, progress.after_calls))
        return decision

    def sink(self, event: Event) -> None:
        if event.seq % 11 == 7 and event.kind not in ("delta", "tool_reported"):
            self.story.append(("sink raised",))
            raise ValueError("chaos")


def made_tools(dice: NappingDice) -> list[Any]:
    @tool(effects="read", timeout=0.005)
    async def look(ctx: ToolContext, n: int = 0) -> int:
        """Look."""
        ctx.report("looking")
        await anyio.sleep(dice.nap())
        return n

    @tool
    async def write(ctx: ToolContext, n: int = 0) -> int:
        """Write."""
        await anyio.sleep(dice.nap())
        ctx.state["n"] = n
        if dice.pick(False, False, True):
            raise ValueError("chaos")
        return n

    @tool(timeout=0.005, retry_on_timeout=True)
    def block(n: int = 0) -> int:
        """Look in a thread."""
        time.sleep(dice.nap())
        return n

    return [look, write, block]


def made_agent(who: bytes, comes: NappingDice, story: Story) -> Agent:
    dice, around, book = Dice(who), Around(who[0], story), Book(bytes(1))
    book.stories["run"] = story
    agent = Agent(
        model=dice.pick(Restless, Restless, Blocking)(comes),
        tools=made_tools(comes),
        limits=Limits(
            turns=dice.pick(4, 2, 8, 1),
            tool_calls=dice.pick(UNSET, 6, 2),
            retries=dice.pick(1, 2, 0),
            nudges=dice.pick(1, 0),
            tokens=dice.pick(UNSET, UNSET, 4_000, 1_000),
            seconds=3_600,
        ),
        grace=dice.pick(True, True, False),
        completion=dice.pick(None, around.policy),
        hooks=dice.pick([], [around.hook]),
        sinks=[
            lambda event: story.append(event) if event.kind not in ("delta", "tool_reported") else None,
            around.sink,
        ],
    )
    ToldRules.install(agent, book)
    return agent


def shared_of(dice: Dice) -> TurnBudget | None:
    kind = dice.pick("none", "short", "none", "none", "counts", "long")
    if kind == "counts":
        return Limits(turns=3, tool_calls=3, tokens=2_500).open(grace=False)
    return {"none": None, "short": TurnBudget.create(0.02), "long": TurnBudget.create(None)}[kind]


async def driven(driver: RunDriver, dice: NappingDice) -> list[Signal]:
    """Drive a run while signals arrive and its task may be cancelled. Return the signals that were accepted."""
    taken: list[Signal] = []

    async def send_signals() -> None:
        for _ in range(dice.pick(0, 1, 2, 4)):
            await anyio.sleep(dice.nap())
            signal = dice.pick(Steer("and this"), Extend({"turns": 1}, 0.01), Cancel("chaos"), LeaseLost())
            if driver.signals.send(signal):
                taken.append(signal)

    with anyio.fail_after(BOUND_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_signals)
            with anyio.move_on_after(dice.pick(BOUND_S, BOUND_S, BOUND_S, 0.004)):
                await driver.drive()
            tasks.cancel_scope.cancel()
    return taken


def recorder_of(plan: Plan, agent: Agent) -> Recorder:
    return Recorder(Header(plan.run_id, None, plan.started_at, plan.metadata), agent.sinks)


def replayed(agent: Agent, plan: Plan, story: Story, answers: Sequence[Answer[Any]]) -> Result:
    def matches(n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        story.extend((effect, answer))
        return True

    player = LoopPlayer(plan, recorder_of(plan, agent))
    player.replay(answers, matches)
    assert player.result is not None, "the answers end before the run does"
    return player.result


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(
    max_examples=EXAMPLES,
    derandomize=not IS_SOAK,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(sized(16), sized(150))
def test_what_the_driver_did_stands_the_audit_and_can_be_played_again(backend: str, who: bytes, comes: bytes) -> None:
    dice, ignored = NappingDice(comes), Story()
    shared = shared_of(dice)
    agent = made_agent(who, dice, ignored)
    plan = agent.plan("Do it.", run_id="run") if shared is None else agent.plan("Do it.", run_id="run", within=shared)
    plan.has_transcript = dice.pick(True, False)
    driver = RunDriver(plan, recorder_of(plan, agent), shared_budget=shared)
    taken = anyio.run(driven, driver, dice, backend=backend)
    result, answers = driver.result, driver.answers
    assert result is not None, "it has no result"
    received = [signal for answer in answers for signal in answer.signals]
    assert all(signal in received for signal in taken), "a signal was accepted and never received"

    story = Story()
    same = made_agent(who, NappingDice(b""), story)
    again = agent.plan("Do it.", run_id="run")
    again.spec, again.has_shared_budget, again.has_transcript = (
        same.plan("x").spec,
        plan.has_shared_budget,
        plan.has_transcript,
    )
    again.max_seconds, again.max_amounts = plan.max_seconds, plan.max_amounts
    again.started_at, again.messages = plan.started_at, plan.messages
    assert replayed(same, again, story, answers) == result
    audit_run(same, plan, story, result)
    if shared is not None:
        used = {name: budget for name, budget in shared.budgets.items() if name in ("turns", "tool_calls", "tokens")}
        assert {name: (budget.used, budget.held) for name, budget in used.items()} == {
            name: (result.budgets[name].used, 0) for name in used
        }
