import asyncio
import contextvars
from collections.abc import Callable
from threading import Event
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits
from flyball._internal.workers import WorkerPool
from flyball.errors import CallClosed
from flyball.event import ToolStarted
from flyball.outcome import Outcome, Success, Timeout
from flyball.request import Call
from flyball.testing import ManualClock, Notebook, ScriptedModel, call, say, until
from flyball.tools import BoundedToolExecutor, Tool, ToolContext, tool
from flyball.tools.call import ToolCallRun

SHORT = 0.02
LONG = 60.0


def one(function: Callable[..., Any] | Tool, arguments: Any = "", **options: Any) -> Outcome:
    made = Tool.of(function)
    [outcome] = BoundedToolExecutor([made], **options).execute(Call("c1", made.name, arguments))
    return outcome


@pytest.mark.parametrize("sensitive", [(), ("key",)])
def test_the_event_of_a_call_keeps_the_arguments_that_the_tool_changes_later(sensitive: tuple[str, ...]) -> None:
    @tool(sensitive=sensitive)
    async def sort(rows: list[int], options: dict[str, list[str]], key: str) -> int:
        rows.clear()
        options["by"].append("changed")
        return 0

    asked = call("sort", rows=[2, 1], options={"by": ["name"]}, key="k")
    result = Agent(model=ScriptedModel(asked, say("done")), tools=[sort]).run("go")
    [started] = [event for event in result.events if isinstance(event, ToolStarted)]
    shown = "***" if sensitive else "k"
    assert started.arguments == {"rows": [2, 1], "options": {"by": ["name"]}, "key": shown}


class TestContext:
    def test_a_tool_is_told_what_it_asks_for(self) -> None:
        seen: list[ToolContext] = []

        def look(ctx: ToolContext, a: int) -> int:
            seen.append(ctx)
            ctx.report("half way")
            return a

        heard = Notebook()
        with Limits(seconds=100, tool_calls=5).open(clock=ManualClock()) as envelope:
            one(Tool(look, timeout=30), '{"a": 1}', envelope=envelope, run_id="r7", teller=heard)
        context = seen[0]
        assert (context.run_id, context.call_id, context.idempotency_key) == ("r7", "c1", "r7:c1")
        assert context.budgets["tool_calls"].used == 1
        assert ("tool_reported", ("c1", "look", "half way")) in heard.events

    def test_what_it_sets_is_applied_in_the_order_asked(self) -> None:
        def put(ctx: ToolContext, value: int, fail: bool = False) -> Any:
            ctx.state["last"] = value
            ctx.state[f"saw_{value}"] = ctx.state.get("count", 0)
            ctx.state["count"] = ctx.state.get("count", 0) + 1
            if fail:
                raise ValueError
            return value

        state: dict[str, Any] = {}
        calls = [
            Call("1", "put", {"value": 1}),
            Call("2", "put", {"value": 2, "fail": True}),
            Call("3", "put", {"value": 3}),
        ]
        BoundedToolExecutor([put], state=state).execute(*calls)
        assert state == {"last": 3, "saw_1": 0, "saw_3": 1, "count": 2}

    def test_what_it_deletes_or_changes_inside_is_applied_too(self) -> None:
        def change(ctx: ToolContext) -> None:
            del ctx.state["old"]
            ctx.state["rows"].append(2)

        state: dict[str, Any] = {"old": 1, "rows": [1], "same": [0]}
        outcome = one(change, state=state)
        assert state == {"rows": [1, 2], "same": [0]}
        assert isinstance(outcome, Success)
        assert outcome.changes == {"old": None, "rows": [1, 2]}

    def test_what_it_does_later_to_what_it_read_does_not_reach_the_run(self) -> None:
        kept: list[list[int]] = []

        def keep(ctx: ToolContext) -> None:
            kept.append(ctx.state["rows"])

        state: dict[str, Any] = {"rows": [1]}
        one(keep, state=state)
        kept[0].append(99)
        assert state == {"rows": [1]}

    def test_nothing_is_reported_after_the_end(self) -> None:
        contexts: list[ToolContext] = []
        notebook = Notebook()

        def keep(ctx: ToolContext) -> None:
            contexts.append(ctx)

        one(keep, teller=notebook)
        contexts[0].report("too late")
        assert notebook.kinds() == ["tool_started", "tool_ended"]

    def test_a_late_tool_changes_nothing_and_may_not_commit(self) -> None:
        release, ended, refused = Event(), Event(), list[str]()

        @tool(timeout=SHORT)
        def late(ctx: ToolContext) -> str:
            release.wait(LONG)
            ctx.state["late"] = True
            try:
                ctx.commit()
            except CallClosed as error:
                refused.append(error.end)
            ended.set()
            return "done"

        state: dict[str, Any] = {}
        heard = Notebook()
        executor = BoundedToolExecutor([late], state=state, teller=heard)
        [outcome] = executor.execute(Call("1", "late", ""))
        release.set()
        assert ended.wait(LONG)
        until(lambda: "late_result_dropped" in heard.kinds())
        assert (outcome.status, state, refused) == ("timed_out", {}, ["timed_out"])
        assert heard.kinds() == ["tool_started", "tool_ended", "late_result_dropped"]
        until(lambda: not (executor.hung))

    def test_a_cooperative_tool_sees_its_deadline(self) -> None:
        @tool(timeout=SHORT)
        def patient(ctx: ToolContext) -> None:
            ctx.token.wait(LONG)

        pool = WorkerPool()
        one(patient, workers=pool)
        until(lambda: not (pool.hung))
        assert pool.hung == 0

    def test_context_variables_reach_the_tool(self) -> None:
        who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
        who.set("Al")

        async def aask() -> str:
            return who.get()

        def ask() -> str:
            return who.get()

        assert [one(ask).text, one(aask).text] == ["Al", "Al"]


class InOrder(ToolCallRun):
    """A call for which one kind of end comes first, whatever the threads do; the other waits for it."""

    def __init__(self, call: ToolCallRun, first: Any, release: Event) -> None:
        super().__init__(call.call, call.tool, call.values, call.cap_s, call.envelope)
        self.first = first
        self.release = release
        self.decided = Event()

    def close(self, outcome: Outcome) -> bool:
        if isinstance(outcome, self.first):
            done = super().close(outcome)
            self.decided.set()
            return done
        self.release.set()
        assert self.decided.wait(LONG)
        return super().close(outcome)


@pytest.mark.parametrize("first", [Success, Timeout])
def test_when_the_end_and_the_deadline_meet_exactly_one_of_them_is_the_outcome(first: Any) -> None:
    release, notebook, pool = Event(), Notebook(), WorkerPool()

    @tool(timeout=SHORT)
    def work(ctx: ToolContext) -> str:
        if first is Success:
            release.wait(LONG)  # until the deadline has come, and is about to be declared
        return "done"

    executor = BoundedToolExecutor([work], teller=notebook, workers=pool)

    async def main() -> Outcome | None:
        prepared = executor.prepare(Call("1", "work", ""))
        assert isinstance(prepared, ToolCallRun)
        act = InOrder(prepared, first, release)
        await executor.perform([act])
        until(lambda: pool.hung == 0)
        await anyio.sleep(0.001)  # so that the loop hears what the worker had to tell
        return act.outcome

    assert isinstance(asyncio.run(main()), first)
    until(lambda: pool.hung == 0)
    ends = {Success: ["tool_started", "tool_ended"], Timeout: ["tool_started", "tool_ended", "late_result_dropped"]}
    assert notebook.kinds() == ends[first]
