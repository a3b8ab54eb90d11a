"""Children whose driver breaks, and what comes when a child has ended."""

from collections.abc import Callable
from dataclasses import replace
from threading import Event as ThreadEvent
from typing import Any

import anyio
import pytest

from flyball import Agent, Child, Limits, Result, tool
from flyball.budget.registry import IterationBudgetRegistry
from flyball.loop.child_task import ChildSpec, Mode
from flyball.testing import Line, ScriptedModel, call, say

LONG = 60.0
Running = Callable[..., Result]


def delegate(*names: str) -> Line:
    return call("delegate", tasks=[{"child": name, "goal": "Do it."} for name in names])


class Broken:
    """A child of one's own, whose runs break when they begin."""

    name = "broken"

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        edge = Agent(model=ScriptedModel(say("x")), name=self.name).as_child(mode, registry)

        def admission(envelope: object) -> Any:
            raise RuntimeError("no admission")

        spec = edge.agent_spec
        return replace(edge, agent_spec=replace(spec, tools=replace(spec.tools, admission=admission)))


@pytest.mark.one_door
@pytest.mark.parametrize(
    ("mode", "used"),
    [("independent", 2), ("carved", 2 + 29), ("shared", 2 + 59)],
)
def test_a_crashed_child_is_charged_the_worst_case_and_its_parent_goes_on(run: Running, mode: Any, used: int) -> None:
    fine = Agent(model=ScriptedModel(say("fine")), name="fine")
    children = [Child(Broken(), budget=mode), Child(fine, budget=mode)]
    model = ScriptedModel(delegate("broken", "fine"), say("done"), grace=say("reported"))
    result = run(Agent(model=model, children=children, limits=Limits(turns=60), settings={}))
    broken, other = result.children
    assert (broken.stop, (broken.error or {}).get("kind")) == ("failed", "RuntimeError")
    assert other.text == "fine"
    spent = used + (other.turns if mode == "carved" else 0)
    assert (result.budgets["turns"].used, result.budgets["turns"].held) == (min(spent, 60), 0)
    assert result.stop == ("budget" if mode == "shared" else "completed")


@pytest.mark.one_door
def test_a_late_result_of_an_ended_child_is_dropped_and_reported_by_its_parent(run: Running) -> None:
    go, came = ThreadEvent(), ThreadEvent()

    @tool(timeout=None)
    def hang() -> None:
        """Hang in a thread."""
        go.wait(LONG)
        came.set()

    @tool(poll=True)
    async def nap() -> bool:
        """Let the thread go on, and wait for it."""
        go.set()
        await anyio.sleep(0.05)
        return came.is_set()

    stuck = Agent(model=ScriptedModel(call("hang"), grace=say("stuck")), name="stuck", tools=[hang])
    model = ScriptedModel(delegate("stuck"), *[call("nap")] * 20, say("done"))
    agent = Agent(model=model, tools=[nap], children=[stuck], settings={"delegation.stall_seconds": 0.3})
    result = run(agent)
    [below] = result.children
    assert (below.stop, below.hung, below.text) == ("stalled", 1, "stuck")
    dropped = [event.to_dict() for event in result.events if event.kind == "late_result_dropped"]
    assert [(event["call_id"], event["tool"]) for event in dropped] == [(f"{below.run_id}:call-0", "hang")]
    assert (result.completed, result.hung) == (True, 0)
