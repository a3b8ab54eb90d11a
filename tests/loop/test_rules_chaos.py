"""Random rules over random models: every run ends, honestly, plays again to the same, and makes nothing denied."""

from collections import Counter
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from flyball import Agent, Limits, Result, TurnBudget, tool
from flyball.budget.price import TokenPrice
from flyball.budget.registry import UNSET
from flyball.errors import ContextTooLong, ModelError, Retryable
from flyball.event import ModelReplied, ModelRequested, NoticeDelivered, Retried, RuleEmitted, RuleFailed
from flyball.loop.effects import Act, Cancel, Extend, Signal, Steer, TimeUp
from flyball.outcome import Denied
from flyball.person import Question, Verdict
from flyball.request import Call, Finish, Purpose, Reply, Request, Usage, estimate_request_tokens
from flyball.rules import Trigger
from flyball.rules.actions import Deny, StopRun
from flyball.rules.rule import Fire, Rule
from flyball.steadiness import Reflection
from flyball.testing import ScriptDriver, assert_honest

from .dice import IS_SOAK, Dice, count_examples, sized
from .random_rules import draw_rules

EXAMPLES = count_examples(50)


class Chaos:
    """A model that does anything."""

    provider = None

    def __init__(self, name: str, dice: Dice) -> None:
        self.name, self.dice, self.price = name, dice, TokenPrice(input=1, output=2)
        self.takes = dice.pick(10**9, 10**9, 10**9, 2_500)
        self.not_ready = dice.pick(None, None, None, "no key") if name == "other" else None
        self.tells = dice.pick(True, False) if name == "other" else False
        self.asked: list[Request] = []

    def ready(self) -> str | None:
        return self.not_ready

    def ask(self, request: Request, tell: object, /) -> Reply:
        self.asked.append(request)
        if estimate_request_tokens(request) > self.takes:
            raise ContextTooLong("too long")
        usage = Usage(max(1, estimate_request_tokens(request) // 2), 5) if self.tells else None
        if request.purpose is not Purpose.TURN:
            return Reply(self.dice.pick("I looked.", ""), usage=usage)
        match self.dice.pick(*[0] * 9, 1, 2, 3):
            case 1:
                raise self.dice.pick(Retryable("busy"), Retryable("busy"), ModelError("down"))
            case 2:
                return Reply(self.dice.pick("done", "", " "), usage=usage)
            case 3:
                return Reply("", (self._call(),), usage, Finish.LENGTH)
            case _:
                calls = tuple(self._call() for _ in range(self.dice.pick(1, 1, 2, 3)))
                return Reply("", calls, usage, Finish.CALLS)

    def _call(self) -> Call:
        return Call("", self.dice.pick("read", "read", "write", "nobody"), {"n": self.dice.pick(0, 1, 2, 3, 4, 5)})


@tool(effects="read")
def read(n: int = 0) -> str:
    """Read."""
    if n == 3:
        raise ValueError("not there")
    return f"{n} " * n * 20


@tool(cheap=True)
def write(n: int = 0) -> str:
    """Write."""
    return "written"


def agree(question: Question) -> Verdict:
    return Verdict(True)


def refuse(question: Question) -> Verdict:
    return Verdict(False, "No.")


def draw_agent(written: bytes, who: bytes, does: bytes) -> Agent:
    dice, acts = Dice(who), Dice(does)
    return Agent(
        model=Chaos("chaos", acts),
        models={"other": Chaos("other", acts)},
        tools=[read, write],
        rules=draw_rules(Dice(written)),
        duplicates=dice.pick("allow", "reuse", "reject"),
        limits=Limits(
            turns=dice.pick(6, 12, 2),
            context_tokens=dice.pick(UNSET, 3_000, 900),
            tokens=dice.pick(UNSET, 30_000, 4_000),
            usd=dice.pick(UNSET, 1.0, 0.01),
            seconds=dice.pick(3_600, 40),
        ),
        reflection=dice.pick(None, None, Reflection(every=2)),
        approver=dice.pick(None, agree, refuse),
        on_exhausted=dice.pick("grace", "grace", "ask"),
        grace=dice.pick(True, True, False),
        metadata={"user": {"name": "Ada"}},
    )


def draw_signals(comes: bytes) -> dict[int, list[Signal]]:
    dice = Dice(comes)
    kinds: list[Any] = [Steer("and this"), Extend({"turns": 1}), TimeUp(), Cancel("chaos")]
    return {dice.pick(*range(20)): [dice.pick(*kinds)] for _ in range(dice.pick(0, 0, 1))}


def check_notices(result: Result, agent: Agent) -> None:
    """Each is told as often as it was shown, is in no history, and no request is longer than it may be."""
    models: list[Any] = [agent.model, *agent.models.values()]
    shown = Counter(notice for model in models for request in model.asked for notice in request.notices)
    told = Counter(event.text for event in result.events if isinstance(event, NoticeDelivered))
    assert not told - shown, "a notice is told that no request had"
    empty = sum(isinstance(event, Retried) and event.error == "the reply was empty" for event in result.events)
    for rule in agent.ruleset:
        if rule.fire is Fire.CROSSING and always(rule):
            by_it = [event for event in result.events if isinstance(event, NoticeDelivered) and event.rule == rule.id]
            tools = len({outcome.tool for outcome in result.tool_results}) if rule.trigger.startswith("on_tool") else 1
            assert len(by_it) <= tools + empty, "it fires once, and is shown again only where the model said nothing"
    said = {message.content for message in result.messages}
    assert not said & {text for text in shown if text != "x"}
    most, asked = agent.limits.context_tokens, iter(models[0].asked)
    overflowed = any(isinstance(event, ModelReplied) and event.code == ContextTooLong.code for event in result.events)
    is_free = agent.limits.tokens is agent.limits.usd is UNSET and not overflowed
    for event in result.events:
        if isinstance(event, ModelRequested):
            assert event.estimated_tokens <= (most if isinstance(most, int) else 200_000)
            if not models[1].asked:
                upper = estimate_request_tokens(next(asked))
                fits = is_free and not (isinstance(most, int) and upper > most)
                assert event.estimated_tokens >= (upper if fits else upper // 3), "near a limit it is a nearer one"


def always(rule: Rule) -> bool:
    return rule.condition is not None and rule.condition.source.text.strip() == "true"


def check_calls(result: Result, script: ScriptDriver) -> None:
    """What was denied was not made, and every call of the rest was, once."""
    acts = [act.call.id for effect in script.effects if isinstance(effect, Act) for act in effect.acts]
    denied = {outcome.call_id for outcome in result.tool_results if isinstance(outcome, Denied)}
    assert len(acts) == len(set(acts))
    assert not denied & set(acts)
    for rule in script.agent.ruleset:
        if isinstance(rule.action, Deny | StopRun) and rule.trigger is Trigger.TOOL_CALL and always(rule):
            assert rule.fire is Fire.CROSSING or rule.cooldown_turns or not acts


def check_rules(result: Result) -> None:
    """No rule's fault ended the run, each is in the result, and none answered an event with another."""
    if result.stop == "failed":
        assert result.error is not None
        assert result.error["kind"] in ("ModelError", "Retryable"), result.error
    failed = [event for event in result.events if isinstance(event, RuleFailed)]
    assert [(event.rule, event.reason) for event in failed] == [(f["rule"], f["reason"]) for f in result.faults]
    assert all(
        event.name.startswith(("log.", "ping", "pong")) for event in result.events if isinstance(event, RuleEmitted)
    )


@settings(max_examples=EXAMPLES, derandomize=not IS_SOAK)
@example(written=bytes([0, 3, *[0] * 11, 15]), who=b"", does=b"", comes=b"", shares=False)  # denies every call
@example(written=bytes(60), who=bytes(12), does=bytes(80), comes=bytes(3), shares=False)
@given(sized(60), sized(12), sized(80), sized(3), st.booleans())
def test_whatever_rules_say_a_run_ends_honestly(
    written: bytes, who: bytes, does: bytes, comes: bytes, shares: bool
) -> None:
    agent = draw_agent(written, who, does)
    assert agent.ruleset.problems == ()
    script = ScriptDriver(agent, signals=draw_signals(comes))
    shared = TurnBudget.create(None, max_steps=30) if shares else None
    result = assert_honest(script.run("Go.") if shared is None else script.run("Go.", within=shared))
    for _ in range(5):
        assert script.replay() == result, "it does not play again as it was"
        check_notices(result, agent)
        check_calls(result, script)
        check_rules(result)
        if result.stop != "paused":
            break
        result = assert_honest(script.resume({question.id: True for question in result.questions}))
