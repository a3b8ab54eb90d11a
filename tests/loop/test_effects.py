"""Effects and their fingerprints: the same run does the same, and plays again from its answers."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.loop import Act, Append, Ask, Decide, Effect, Fingerprint, Grant, Plan, Wait
from flyball.loop.effects import Cancel, Extend, Steer, TimeUp
from flyball.message import Message, MessageType, Role
from flyball.outcome import Outcome
from flyball.person import Question
from flyball.progress import Complete, Continue, Notice, Order, Point, Progress
from flyball.request import Call, Purpose, Request, Usage
from flyball.result import Result
from flyball.testing import (
    Line,
    ManualClock,
    ScriptDriver,
    ScriptedModel,
    assert_honest,
    call,
    fail,
    replay,
    say,
    together,
)


@tool(effects="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(cheap=True)
def look() -> str:
    """Look."""
    return "nothing"


@tool(approve=True)
def careful() -> str:
    """Do something that a person must agree to."""
    return "done"


SUM = call("add", a=1, b=2)
BUSY = fail(Retryable("busy"))


def notice(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
    return [Notice(f"turn {progress.turn}")] if point is Point.TURN_STARTED else ()


def nudged(progress: Progress) -> Complete | Continue:
    return Complete() if progress.budgets["nudges"].used else Continue("More.")


RUNS: dict[str, tuple[tuple[Line, ...], dict[str, Any], dict[str, Any]]] = {
    "an answer": ((say("Hi."),), {}, {}),
    "calls": ((SUM, together(SUM, SUM), say("3")), {}, {}),
    "retries": ((BUSY, SUM, BUSY, BUSY, say("3")), {}, {}),
    "no retries left": ((*[BUSY] * 5,), {"limits": Limits(retries=2)}, {}),
    "turns": ((SUM, SUM, SUM), {"limits": Limits(turns=2)}, {}),
    "tokens": ((SUM.using(Usage(900, 90)),) * 9, {"limits": Limits(tokens=4_000)}, {}),
    "no usage": ((SUM.using(None),) * 9, {"limits": Limits(tokens=9_000), "max_output_tokens": 500}, {}),
    "seconds": ((SUM, SUM, SUM), {"limits": Limits(seconds=100)}, {"seconds": {"add": 40.0}}),
    "context": ((SUM, fail(ContextTooLong("no"))), {}, {}),
    "an error": ((SUM, fail(ModelError("no"))), {}, {}),
    "calls denied": ((together(SUM, SUM), SUM), {"limits": Limits(tool_calls=1)}, {}),
    "cheap rounds": ((call("look"),) * 3 + (say("3"),), {}, {}),
    "mistakes": ((call("unknown"), call("add", a="x"), say("3")), {}, {}),
    "notices": ((SUM, SUM, say("3")), {"hooks": [notice]}, {}),
    "nudges": ((say("a"), say("b")), {"completion": nudged}, {}),
    "a person": ((call("careful"), say("3")), {}, {}),
    "steered": ((SUM, say("a"), say("b")), {}, {"signals": {1: [Steer("x")], 3: [Steer("y")]}}),
    "extended": ((SUM, SUM, say("3")), {"limits": Limits(turns=1)}, {"signals": {1: [Extend({"turns": 5}, 60.0)]}}),
    "cancelled": ((SUM, SUM, say("3")), {}, {"signals": {2: [Cancel()]}}),
    "time up": ((SUM, SUM, say("3")), {}, {"signals": {2: [TimeUp()]}}),
}


def driven(name: str) -> tuple[ScriptDriver, Result]:
    lines, options, driving = RUNS[name]
    agent = Agent(
        model=ScriptedModel(*lines, grace=say("Reported.")), tools=[add, look, careful], clock=ManualClock(), **options
    )
    script = ScriptDriver(agent, **driving)
    return script, assert_honest(script.run("Go.", run_id="the-run"))


def plan(agent: Agent) -> Plan:
    """The same as the script driver makes."""
    made = agent.plan("Go.", run_id="the-run")
    made.has_transcript = True
    return made


def prints(effects: Sequence[Effect[Any]]) -> list[int]:
    fingerprint = Fingerprint()
    return [fingerprint.add(effect) for effect in effects]


@cache
def prints_of(name: str) -> tuple[int, ...]:
    return tuple(prints(driven(name)[0].effects))


def told(result: Result) -> dict[str, Any]:
    """All that a result says, but for the time of day."""
    record = result.to_dict()
    for message in record["messages"]:
        del message["created_at"]
    for event in record["events"]:
        del event["time"]
    return record


@pytest.mark.parametrize("name", RUNS)
class TestEveryRun:
    def test_does_the_same_when_it_is_made_again(self, name: str) -> None:
        (first, one), (second, two) = driven(name), driven(name)
        assert prints(first.effects) == prints(second.effects)
        assert told(one) == told(two)

    def test_plays_again_from_its_answers_and_asks_nobody(self, name: str) -> None:
        script, result = driven(name)
        lines, options, _ = RUNS[name]
        model = ScriptedModel(*lines)
        agent = Agent(model=model, tools=[add, look, careful], clock=ManualClock(), **options)
        again = assert_honest(replay(agent, plan(agent), script.answers))
        assert told(again) == told(result)
        model.assert_asked(0)

    def test_has_another_fingerprint_than_every_other_run(self, name: str) -> None:
        assert [other for other in RUNS if prints_of(other) == prints_of(name)] == [name]

    def test_answers_are_as_many_as_effects(self, name: str) -> None:
        script, _ = driven(name)
        assert len(script.answers) == len(script.effects)


def message(text: str, n: int = 0, at: float = 0.0) -> Message:
    return Message("r", n, at, MessageType.TEXT, Role.USER, text)


class Doing:
    """A call that is to be made."""

    def __init__(self, call_id: str, arguments: str = "{}") -> None:
        self.call = Call(call_id, "add", arguments)


def ask(purpose: Purpose = Purpose.TURN, deadline: float = 1.0, most: int | None = None, **more: Any) -> Ask:
    return Ask(Request([message("x")], purpose=purpose, max_output_tokens=most, **more), deadline, 1)


class TestFingerprint:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (ask(deadline=1.0), ask(deadline=2.0)),
            (ask(most=10), ask(most=20)),
            (Act([Doing("1")], 1.0), Act([Doing("1")], 2.0)),
            (Append([message("x", at=1.0)]), Append([message("x", at=2.0)])),
            (Wait(1.0), Wait(2.0)),
            (Grant({"tokens": 5}, {"tokens": 1}), Grant({"tokens": 9}, {"tokens": 2})),
        ],
    )
    def test_nothing_in_a_fingerprint_comes_from_the_time_or_from_what_is_left(self, one: Any, other: Any) -> None:
        assert prints([one]) == prints([other])

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (ask(), ask(Purpose.GRACE)),
            (ask(), ask(notices=("Hurry.",))),
            (ask(), Wait(1.0)),
            (Act([Doing("1")], 1.0), Act([Doing("2")], 1.0)),
            (Act([Doing("1")], 1.0), Act([Doing("1", '{"a": 1}')], 1.0)),
            (Act([Doing("1")], 1.0), Act([Doing("1"), Doing("2")], 1.0)),
            (Append([message("x")]), Append([message("y")])),
            (Append([message("x")]), Append([message("x", 1)])),
            (Grant({"tokens": 5}), Grant(settle={"tokens": 5})),
            (Grant({"tokens": 5}), Grant({"turns": 5})),
            (Grant(refund={"a": {"turns": 1}}), Grant(refund={"b": {"turns": 1}})),
            (Decide(Question("1", "May it?")), Decide(Question("2", "May it?"))),
            (Decide(Question("1", "May it?")), Decide(Question("1", "May he?"))),
        ],
    )
    def test_what_is_new_in_an_effect_is_in_it(self, one: Any, other: Any) -> None:
        assert prints([one]) != prints([other])

    def test_a_fingerprint_is_of_all_effects_so_far(self) -> None:
        effects: list[Effect[Any]] = [ask(), Wait(1.0)]
        assert prints(effects)[-1] != prints(effects[1:])[-1]
        assert prints(effects) != prints(effects[::-1])

    def test_another_answer_of_a_tool_is_seen_in_what_is_kept(self) -> None:
        def of(a: int) -> list[int]:
            script = ScriptDriver(Agent(model=ScriptedModel(call("add", a=a, b=2), say("."))))
            script.run("Go.", run_id="r")
            return prints(script.effects)

        assert of(1) == of(1) != of(2)

    def test_another_task_is_another_run_where_it_is_kept(self) -> None:
        assert prints([Append([message("a")])]) != prints([Append([message("b")])])


def test_answers_that_end_too_early_are_told() -> None:
    script, _ = driven("calls")
    with pytest.raises(AssertionError, match="answers"):
        replay(script.agent, plan(script.agent), script.answers[:-1])


def test_the_outcomes_of_an_act_come_as_its_answer() -> None:
    script, result = driven("calls")
    made: list[Outcome] = [
        outcome
        for effect, answer in zip(script.effects, script.answers, strict=True)
        if isinstance(effect, Act)
        for outcome in answer.value
    ]
    assert made == list(result.tool_results)
