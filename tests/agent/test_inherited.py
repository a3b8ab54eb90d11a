"""Runs inside a request of another agent: they take what its chain leaves, tell the model, and send on the rest."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import anyio
import pytest

from flyball import Agent, ConfigError, Limits, Result, TokenPrice, run_conversation, tool
from flyball.agent.inherited import Inheritance, describe_caller
from flyball.chain import Chain, headers
from flyball.chain.caller import POSITION, Caller, serving
from flyball.testing import ManualClock, ScriptedModel, call, say
from flyball.tools import ToolContext

B = Chain(name="b", host="b.example", settings={})
C = Chain(name="c", host="c.example", settings={})
Through = Callable[[str], Callable[[Agent], Result]]
DOORS = ["sync", "asyncio", "trio"]


def called(clock: Any = None, keys: Any = None, **limits: Any) -> Caller:
    """A caller whose chain leaves so much."""
    options: dict[str, Any] = {} if clock is None else {"clock": clock}
    allowed: dict[str, Any] = {"seconds": 600, **limits}
    sender = Chain(name="a", host="a.example", keys=keys, settings={}, **options)
    envelope = Limits(**allowed).open(grace=False, **options)
    found = Chain(name="b", host="b.example", keys=keys, settings={}, **options).check(sender.headers(envelope))
    assert isinstance(found, Caller)
    return found


def served(caller: Caller) -> AbstractContextManager[None]:
    return serving(caller, B)


def sent_on(sent: dict[str, str]) -> Caller:
    found = C.check(sent)
    assert isinstance(found, Caller), found
    return found


@tool(poll=True)
async def touch() -> str:
    return "touched"


def stubborn(**options: Any) -> Agent:
    model = ScriptedModel.looping(call("touch"), grace=say("I touched."))
    return Agent(model=model, tools=[touch], max_output_tokens=50, **options)


@pytest.mark.parametrize("door", DOORS)
def test_what_the_chain_leaves_narrows_the_limits_of_a_run(door: str, through: Through) -> None:
    with served(called(turns=3)):
        result = through(door)(stubborn(limits=Limits(turns=50)))
    assert (result.stop, result.turns, result.text) == ("budget", 3, "I touched.")
    assert result.budgets["turns"].ceiling == 3
    assert result.flags == ("max_agent_iterations_reached",)


def test_an_inheritance_narrows_below_what_a_clamp_would_allow_and_never_widens() -> None:
    agent = stubborn(limits=Limits(turns=5, tokens=9_000, seconds=30))
    with served(called(turns=90, tokens=10**9, seconds=3_000)):
        plan = agent.plan("go")
    with plan.spec.limits.open(max_seconds=plan.max_seconds, max_amounts=plan.max_amounts) as envelope:
        assert (envelope.budgets["turns"].ceiling, envelope.budgets["tokens"].ceiling, envelope.seconds) == (
            5,
            9_000,
            30,
        )


def test_no_extension_raises_what_is_inherited() -> None:
    with served(called(turns=2)):
        run = stubborn().start("go")
    run.extend(turns=40)
    assert run.result(60).turns == 2


def test_time_that_has_passed_since_the_hop_arrived_counts() -> None:
    clock = ManualClock()
    caller = called(clock, seconds=100)
    clock.move(30)
    with served(caller):
        plan = stubborn().plan("go")
    assert plan.max_seconds == pytest.approx(69.5)  # the caller must still hear of its end


def test_a_run_after_the_chains_time_ends_without_asking_the_model() -> None:
    clock = ManualClock()
    caller = called(clock, seconds=5)
    clock.move(6)
    with served(caller):
        result = stubborn().run("go")
    assert (result.stop, result.requests) == ("deadline", 0)


def test_all_runs_of_a_request_share_what_the_chain_leaves() -> None:
    caller = called(turns=5)
    with served(caller):
        first, second = stubborn(limits=Limits(turns=3)).run("go"), stubborn(limits=Limits(turns=50)).run("go")
    assert (first.turns, second.turns, caller.left) == (3, 2, {"turns": 0})


def test_an_envelope_of_its_own_and_the_chains_both_hold() -> None:
    caller = called(turns=5, tokens=100_000)
    with served(caller), Limits(turns=7, tool_calls=2).open() as shared:
        first = stubborn().run("go", within=shared)
        assert (first.stop, shared.budgets["tool_calls"].used) == ("budget", 2)
        used = shared.budgets["turns"].used
        assert (used, caller.left["turns"]) == (first.turns, 5 - first.turns)
        assert caller.left["tokens"] == 100_000 - first.usage.total
        with Limits(turns=90).open() as other:
            second = stubborn().run("go", within=other)
    assert second.turns == 5 - first.turns


def test_the_less_time_of_the_two_counts() -> None:
    with served(called(seconds=100)), Limits(seconds=20).open(grace=False) as shared:
        assert stubborn().plan("go", within=shared).max_seconds <= 20
    with served(called(seconds=10)), Limits(seconds=20).open(grace=False) as shared:
        assert stubborn().plan("go", within=shared).max_seconds <= 10


def test_a_conversation_keeps_to_the_budget_of_its_caller() -> None:
    with served(called(turns=2)):
        result = run_conversation("go", [touch], stubborn().model)
    assert (result.turns, result.flags) == (2, ("max_conversation_turns_reached",))


def test_money_that_cannot_be_held_is_refused_before_anything_is_asked() -> None:
    model = ScriptedModel(say("done"))
    with served(called(usd=1)), pytest.raises(ConfigError, match="price"):
        Agent(model=model).run("go")
    priced = ScriptedModel(say("done"), price=TokenPrice(1, 1))
    with served(called(usd=1)):
        assert Agent(model=priced).run("go").completed


def test_a_model_that_works_for_another_agent_is_told_so(snapshot: Callable[..., None]) -> None:
    model = ScriptedModel(say("done"))
    with served(called()):
        Agent(model=model, instructions="Be brief.", settings={}).run("go")
    said = str(model.requests[0].instructions)
    assert said.startswith("Be brief.\n\n")
    snapshot(said)


@pytest.mark.parametrize("inside", [False, True])
def test_nobody_is_told_of_a_chain_at_its_top(inside: bool) -> None:
    model, top = ScriptedModel(say("done")), B.check({})
    assert isinstance(top, Caller)
    with serving(top if inside else None):
        assert Inheritance.from_shared(None) == Inheritance()
        Agent(model=model, instructions="Be brief.").run("go")
    assert model.requests[0].instructions == "Be brief."


def test_a_model_is_told_whether_its_caller_is_signed_unsigned_or_unnamed(snapshot: Callable[..., None]) -> None:
    signed = Caller(root="r", depth=1, ceiling=4, agent="a", host="a.example", signed=True)
    unsigned = Caller(root="r", depth=1, ceiling=4, agent="a", host="a.example")
    unnamed = Caller(root="r", depth=1, ceiling=4)
    assert len({describe_caller(caller) for caller in (signed, unsigned, unnamed)}) == 3
    snapshot(describe_caller(signed), "signed")
    snapshot(describe_caller(unsigned), "unsigned")
    snapshot(describe_caller(unnamed), "unnamed")


def test_tools_send_on_what_is_left_of_their_run_and_of_the_chain() -> None:
    seen: list[Caller] = []

    @tool
    async def by_context(ctx: ToolContext) -> None:
        seen.append(sent_on(ctx.chain_headers()))

    @tool(timeout=20)
    def in_a_thread() -> None:
        seen.append(sent_on(headers()))

    model = ScriptedModel(call("by_context"), call("in_a_thread"), say("done"))
    caller = called(turns=9, seconds=300)
    with served(caller):
        Agent(model=model, tools=[by_context, in_a_thread], limits=Limits(turns=50, tokens=9_000)).run("go")
    first, second = seen
    assert first.path == ("a@a.example", "b@b.example")
    assert (first.depth, first.root) == (2, caller.root)
    assert (first.left["turns"], second.left["turns"]) == (8, 7)
    assert first.left["tokens"] > second.left["tokens"]
    assert (first.remaining_s < 300, second.remaining_s <= 20) == (True, True)


@pytest.mark.parametrize("door", DOORS)
def test_a_run_at_the_top_gives_its_chain_its_name(door: str, through: Through) -> None:
    seen: list[Caller] = []

    @tool
    async def out(n: int, ctx: ToolContext) -> None:
        seen.append(sent_on(ctx.chain_headers(B)))

    @tool
    def out_of_a_thread() -> None:
        seen.append(sent_on(B.headers()))

    lines = (call("out", n=1), call("out_of_a_thread"), say("done"))
    result = through(door)(Agent(model=ScriptedModel(*lines), tools=[out, out_of_a_thread], limits=Limits(turns=5)))
    assert result.completed
    assert [found.root for found in seen] == [result.run_id] * 2
    assert [(found.depth, found.path, found.left["turns"]) for found in seen] == [
        (1, ("b@b.example",), 4), (1, ("b@b.example",), 3),
    ]  # fmt: skip


def test_all_calls_of_a_family_belong_to_one_chain() -> None:
    seen: list[str] = []

    @tool
    async def out() -> None:
        seen.append(sent_on(B.headers()).root)

    child = Agent(name="helper", model=ScriptedModel(call("out"), say("done")), tools=[out])
    lines = (call("out"), call("delegate", tasks=[{"child": "helper", "goal": "go"}]), say("done"))
    result = Agent(model=ScriptedModel(*lines), tools=[out], children=[child]).run("go")
    assert result.completed
    assert seen == [result.run_id] * 2


def test_a_call_that_is_over_leaves_no_trace_in_its_task() -> None:
    async def before_and_after() -> None:
        here = POSITION.get()
        await Agent(model=ScriptedModel(call("touch"), say("done")), tools=[touch]).arun("go")
        assert POSITION.get() is here

    anyio.run(before_and_after)


def test_children_count_in_what_the_chain_leaves() -> None:
    child = Agent(name="helper", model=ScriptedModel.looping(call("touch"), grace=say("x")), tools=[touch])
    tasks = [{"child": "helper", "goal": "touch"}]
    model = ScriptedModel(call("delegate", tasks=tasks), say("done"))
    caller = called(turns=6)
    with served(caller):
        result = Agent(model=model, children=[child]).run("go")
    [helped] = result.children
    assert result.turns + helped.turns <= 6
    assert caller.left == {"turns": 0}
