"""A run that pauses at every question and goes on comes to the same as one whose person answers at once."""

from collections.abc import Sequence
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st

from flyball import Agent, Limits, Result, TurnBudget, tool
from flyball.message import Message
from flyball.person import Question, Verdict, allow, deny, edit, extend
from flyball.progress import Notice, Order, Point, Progress
from flyball.request import Usage
from flyball.steadiness import Reflection
from flyball.testing import Line, ScriptedModel, call, say, together
from flyball.tools import ToolContext

CALLS = st.sampled_from(
    [
        call("look"),
        call("look", at="there"),
        call("look", at="x" * 2_000),
        call("delete", path="a"),
        call("delete", path="b"),
        call("delete", pth="a"),
        call("fail"),
    ]
)
LINES = st.lists(st.lists(CALLS, min_size=1, max_size=3), min_size=1, max_size=7)
SAYS = st.sampled_from([allow("fine"), deny("no"), edit(path="z"), extend(2)])
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "duplicates": st.sampled_from(["reuse", "reject"]),
        "on_exhausted": st.just("ask"),
        "reflection": st.just(Reflection(every=2, after_failure=True)),
        "limits": st.sampled_from([Limits(turns=3), Limits(tool_calls=4), Limits(context_tokens=2_000)]),
    },
)


class World:
    """One agent, and what it really did and was asked."""

    def __init__(self, lines: Sequence[Line], options: dict[str, Any]) -> None:
        self.done: list[str] = []
        self.summed = 0
        model = ScriptedModel(*lines, say("ok"), grace=say("I report."), reflection=say("Think."))
        self.model, self.options = model, options

    def agent(self, **more: Any) -> Agent:
        @tool(effects="read")
        async def look(ctx: ToolContext, at: str = "it") -> str:
            ctx.state["looks"] = ctx.state.get("looks", 0) + 1
            self.done.append(f"look {at}")
            return f"seen {at}"

        @tool(approve=True)
        async def delete(ctx: ToolContext, path: str) -> str:
            ctx.state["last"] = path
            self.done.append(f"delete {path}")
            return f"deleted {path}, {ctx.answer}"

        @tool
        async def fail() -> None:
            self.done.append("fail")
            raise ValueError("no")

        async def compact(messages: Sequence[Message]) -> str:
            self.summed += 1
            return "It looked."

        def hook(point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
            return (Notice("Mind the gap.", by="hook"),) if point is Point.TURN_ENDED and progress.turn % 2 else ()

        given: dict[str, Any] = {"max_output_tokens": 100, **self.options, **more}
        return Agent(model=self.model, tools=[look, delete, fail], compact=compact, hooks=[hook], **given)


def shown(result: Result, world: World) -> dict[str, Any]:
    """All that must be the same."""
    kinds = [(event.seq, event.turn, event.kind) for event in result.events]
    return {
        "stop": (result.stop, result.text, result.flags, result.turns, result.requests, result.questions),
        "messages": [(m.n, m.type, m.role, m.content, m.payload) for m in result.messages],
        "outcomes": [(o.call_id, o.status, o.text) for o in result.tool_results],
        "used": {name: (budget.used, budget.ceiling) for name, budget in result.budgets.items()},
        "rest": (dict(result.state), result.usage, result.reflections, kinds),
        "world": (world.done, world.summed, len(world.model.requests)),
    }


def taken(envelope: TurnBudget | None) -> dict[str, Any]:
    """What was taken from budgets that others share, and whether anything is still held there."""
    if envelope is None:
        return {}
    with envelope:
        return {name: (budget.used, budget.available) for name, budget in envelope.budgets.items()}


@given(LINES, st.lists(SAYS, min_size=1, max_size=4), OPTIONS, st.booleans())
def test_a_run_resumed_at_every_question_comes_to_the_same_as_one_answered_at_once(
    batches: list[list[Line]], says: list[Verdict], options: dict[str, Any], shared: bool
) -> None:
    lines = [together(*batch).using(Usage(500 * n, 10)) for n, batch in enumerate(batches, 1)]

    def said(question: Question) -> Verdict:
        return says[sum(map(ord, question.id)) % len(says)]

    def within() -> dict[str, Any]:
        return {"within": Limits(turns=9, tool_calls=9, tokens=200_000).open()} if shared else {}

    async def asked(question: Question) -> Verdict:
        return said(question)

    async def at_once(world: World) -> tuple[Result, dict[str, Any]]:
        given = within()
        return await world.agent(approver=asked).arun("go", run_id="r", **given), given

    async def by_and_by(world: World) -> tuple[Result, dict[str, Any]]:
        agent, given = world.agent(), within()
        result = await agent.arun("go", run_id="r", **given)
        for _ in range(3 * len(lines) + 20):
            if result.stop == "paused":
                one = result.questions[-1]
                result = await agent.aresume(result, {one.id: said(one)})
        return result, given

    worlds = World(lines, options), World(lines, options)
    (one, left), (other, right) = anyio.run(at_once, worlds[0]), anyio.run(by_and_by, worlds[1])
    assert shown(one, worlds[0]) == shown(other, worlds[1])
    assert taken(left.get("within")) == taken(right.get("within"))
