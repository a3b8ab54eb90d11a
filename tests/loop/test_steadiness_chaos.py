"""Random models that repeat themselves, reflect and run out of room: every run ends, honestly and inside its limits."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flyball import Agent, Limits, Result, TurnBudget, tool
from flyball.budget.registry import UNSET
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.event import ModelReplied, ModelRequested, ToolStarted
from flyball.loop.effects import Act, Ask, Cancel, Extend, LeaseLost, Signal, Steer, TimeUp
from flyball.message import Message, check_pairs
from flyball.outcome import Denied
from flyball.request import Call, Finish, Purpose, Reply, Request, Usage, estimate_request_tokens
from flyball.steadiness import Reflection, Thresholds
from flyball.testing import ScriptDriver, assert_honest
from flyball.wire import to_anthropic, to_openai

from .dice import IS_SOAK, Dice, count_examples, sized

EXAMPLES = count_examples(100)


class Disk:
    """Tools that read and write, so that whatever is stale shows."""

    def __init__(self) -> None:
        self.content = 0
        self.made: list[str] = []

    def tools(self, **options: Any) -> list[Any]:
        def read(n: int = 0) -> str:
            """Read."""
            self.made.append("read")
            if n == 3:
                raise ValueError("not there")
            return f"{n}: {self.content} " + "word " * (n * 100)

        def write(n: int = 0) -> str:
            """Write."""
            self.made.append("write")
            self.content += 1
            return "written"

        def status() -> str:
            """Look how far it is."""
            self.made.append("status")
            return "pending"

        reads = tool(effects="read", **options)
        return [reads(read), tool(**options)(write), tool(effects="read", poll=True)(status)]


class Chaos:
    """A model that does anything, and says that less or more is too long."""

    name, provider, price = "chaos", None, None

    def __init__(self, dice: Dice, told: float | None, counts: float | None) -> None:
        self.dice = dice
        self.told = told
        self.takes = dice.pick(10**9, 10**9, 10**9, 2_500, 900, 0)
        self.favourites = dice.pick((0,), (0, 1), (0, 1, 2, 3))
        self.asked: list[Request] = []
        self.share = counts
        if counts is not None:
            self.count = self.counted

    def counted(self, request: Request) -> int:
        return int(estimate_request_tokens(request) * (self.share or 1.0))

    def ready(self) -> str | None:
        return None

    def ask(self, request: Request, tell: object, /) -> Reply:
        self.asked.append(request)
        tokens = estimate_request_tokens(request)
        if tokens > self.takes:
            raise ContextTooLong(f"{tokens} tokens are too many")
        usage = None if self.told is None else Usage(max(1, int(tokens * self.told)), 5)
        if request.purpose is not Purpose.TURN:
            return Reply(self.dice.pick("I looked.", "", "x" * 9_000), usage=usage)
        match self.dice.pick(*[0] * 12, 1, 2, 3, 4):
            case 1:
                raise self.dice.pick(Retryable("busy"), ModelError("down"))
            case 2:
                return Reply(self.dice.pick("done", "", " "), usage=usage)
            case 3:
                return Reply("", (self._call(0),), usage, Finish.LENGTH)
            case _:
                calls = tuple(self._call(n) for n in range(self.dice.pick(1, 1, 1, 2, 3)))
                return Reply(self.dice.pick("", "hm"), calls, usage, Finish.CALLS)

    def _call(self, n: int) -> Call:
        name = self.dice.pick("read", "read", "read", "read", "write", "status", "nobody")
        given: dict[str, Any] = {} if name == "status" else {"n": self.dice.pick(*self.favourites)}
        spaced = json.dumps(given, indent=self.dice.pick(None, 2))
        return Call(
            self.dice.pick("a", "", f"b{n}"), name, self.dice.pick(spaced, spaced, spaced, given, {"n": "漢" * 90})
        )


def made_agent(who: bytes, does: bytes) -> tuple[Agent, Disk, Chaos]:
    dice, disk = Dice(who), Disk()
    model = Chaos(Dice(does), dice.pick(None, 0.3, 1.0), dice.pick(None, None, None, 0.25, 1.5))

    def compact(messages: Sequence[Message]) -> Any:
        said = dice.pick("Read.", "", "long " * 900, None, SystemExit(3))
        if isinstance(said, BaseException):
            raise said
        return said

    agent = Agent(
        model=model,
        tools=disk.tools(**dice.pick({}, {"duplicates": "reuse"}, {"duplicates": "reject"})),
        duplicates=dice.pick("allow", "reuse", "reject"),
        limits=Limits(
            turns=dice.pick(12, 30, 3),
            context_tokens=dice.pick(UNSET, 3_000, 1_500, 700, 200),
            tokens=dice.pick(UNSET, UNSET, 30_000, 3_000),
            tool_calls=dice.pick(UNSET, UNSET, 5),
            reflections=dice.pick(4, 1, 0),
            seconds=dice.pick(3_600, 3_600, 40),
        ),
        repetition=dice.pick(None, Thresholds(same=2), Thresholds(same=None, rounds=None)),
        reflection=dice.pick(None, Reflection(every=1), Reflection(every=3, after_failure=True)),
        compact=dice.pick(None, None, compact),
        grace=dice.pick(True, True, False),
        single_turn=dice.pick(*[False] * 9, True),
    )
    return agent, disk, model


def draw_signals(comes: bytes) -> dict[int, list[Signal]]:
    dice = Dice(comes)
    kinds: list[Any] = [
        Steer("and this"),
        Steer("or that"),
        Extend({"turns": 1}),
        TimeUp(),
        Cancel("chaos"),
        LeaseLost(),
    ]
    return {dice.pick(*range(40)): [dice.pick(*kinds)] for _ in range(dice.pick(0, 0, 1, 2))}


def check_tokens(result: Result, agent: Agent, model: Chaos) -> None:
    """No request is over the limit, by the estimate of the loop or by the model's own counter."""
    most = agent.limits.context_tokens
    asked = [event for event in result.events if isinstance(event, ModelRequested)]
    overflowed = any(isinstance(event, ModelReplied) and event.code == ContextTooLong.code for event in result.events)
    for event, request in zip(asked, model.asked, strict=True):
        assert event.estimated_tokens > 0
        assert event.size > 0
        if model.told is None and model.share is None:
            upper, limits = estimate_request_tokens(request), agent.limits
            limited = limits.tokens is not UNSET or limits.usd is not UNSET or overflowed
            limited = limited or (isinstance(most, int) and upper > most)
            assert event.estimated_tokens >= (upper // 3 if limited else upper), "near a limit it is a nearer one"
        if not isinstance(most, int):
            continue
        own = model.share is not None and request.purpose is Purpose.TURN
        assert (model.counted(request) if own else event.estimated_tokens) <= most


def check_shapes(model: Chaos) -> None:
    """Every request has its pairs, and can be written for both providers."""
    for request in model.asked[-6:]:
        assert check_pairs(request.messages) == []
        to_openai(request.messages)
        system, written = to_anthropic(request.messages)
        assert (system, written[0]["role"]) == (None, "user")


def check_calls(result: Result, driver: ScriptDriver, disk: Disk) -> None:
    """What was denied or answered from before was not made, and all else was, once."""
    made = [act.call for effect in driver.effects if isinstance(effect, Act) for act in effect.acts]
    calls = {call.id: call for call in made if call.name != "compact"}
    kept = {outcome.call_id: outcome for outcome in result.tool_results}
    assert not [call_id for call_id in calls if isinstance(kept[call_id], Denied) or kept[call_id].same_as]
    assert [event.call_id for event in result.events if isinstance(event, ToolStarted)] == list(calls)
    assert len(disk.made) == len(calls) == result.budgets["tool_calls"].used


def check_reuse(result: Result) -> None:
    """A result that stands for an equal call is the newest, of the time since the last write."""
    content = 0
    for outcome in result.tool_results:
        if outcome.tool == "write" and outcome.ok and outcome.same_as is None:
            content += 1
        if outcome.tool == "read" and (outcome.ok or outcome.same_as):
            assert f": {content} " in outcome.text


@settings(max_examples=EXAMPLES, derandomize=not IS_SOAK)
@example(who=bytes(24), does=bytes(80), comes=bytes(6), shares=False)
@given(sized(24), sized(160), sized(6), st.booleans())
def test_whatever_a_model_does_it_ends_honestly_inside_its_context(
    who: bytes, does: bytes, comes: bytes, shares: bool
) -> None:
    agent, disk, model = made_agent(who, does)
    driver = ScriptDriver(agent, signals=draw_signals(comes))
    shared = TurnBudget.create(None, max_steps=8) if shares else None
    result = assert_honest(driver.run("Do it.") if shared is None else driver.run("Do it.", within=shared))
    assert sum(isinstance(effect, Ask) for effect in driver.effects) == result.requests <= 200
    check_tokens(result, agent, model)
    check_shapes(model)
    check_calls(result, driver, disk)
    check_reuse(result)
    again = driver.replay()
    assert again == result, "it does not play again as it was"


class Busy:
    """A model that reads page after page, fails now and then, and looks back when it is asked to."""

    name, provider, price = "busy", None, None

    def __init__(self) -> None:
        self.turns = 0

    def ready(self) -> str | None:
        return None

    def ask(self, request: Request, tell: object, /) -> Reply:
        if request.purpose is not Purpose.TURN:
            return Reply("I looked.", usage=Usage(100, 5))
        self.turns += 1
        if self.turns == 4:
            raise ContextTooLong("too long")
        arguments = json.dumps({"n": self.turns % 5})
        return Reply("", (Call("c", "read", arguments), Call("c", "write", arguments)), Usage(900, 5), Finish.CALLS)


def busy_script(signals: dict[int, list[Signal]]) -> ScriptDriver:
    agent = Agent(
        model=Busy(),
        tools=Disk().tools(),
        duplicates="reuse",
        limits=Limits(turns=6, context_tokens=1_600, tokens=50_000),
        reflection=Reflection(every=2, after_failure=True),
        compact=lambda messages: f"{len(messages)} messages.",
    )
    return ScriptDriver(agent, signals=signals)


@pytest.mark.parametrize(
    ("signal", "stop", "shares"),
    [
        (Cancel(), "cancelled", True),
        (LeaseLost(), "contended", False),
        (TimeUp(), "deadline", False),
        (TimeUp(), "deadline", True),
        (Steer("And this."), "budget", False),
    ],
    ids=str,
)
def test_a_signal_with_any_answer_is_received_there(signal: Signal, stop: str, shares: bool) -> None:
    def played(signals: dict[int, list[Signal]]) -> tuple[ScriptDriver, Result]:
        driver = busy_script(signals)
        shared = TurnBudget.create(None, max_steps=50, max_tool_calls=50)
        result = driver.run("Go.", within=shared) if shares else driver.run("Go.")
        assert driver.replay() == assert_honest(result)
        return driver, result

    whole, result = played({})
    assert {"elided", "reflected", "refunded"} <= {event.kind for event in result.events}
    last_act = max(n for n, effect in enumerate(whole.effects) if isinstance(effect, Act))
    for n in range(last_act + 1):
        driver, result = played({n: [signal]})
        assert result.stop == stop, f"the signal came with answer {n}"
        if isinstance(signal, Steer):
            assert [message.content for message in result.messages].count("And this.") == 1
            continue
        begun = [effect for effect in driver.effects[n + 1 :] if isinstance(effect, Ask | Act)]
        assert [type(effect) for effect in begun] == ([Ask] if stop == "deadline" else [])
