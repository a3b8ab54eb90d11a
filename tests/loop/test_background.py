"""Child runs in the background: what the model reads, what is waited for, and what becomes of those that are open."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from flyball import Agent, Child, Limits, Result, Usage, tool
from flyball.errors import Retryable, UsageError
from flyball.event import ChildEnded, ChildStarted
from flyball.history.replay import RecordedRun, replay_run
from flyball.loop.effects import ChildDone, Steer
from flyball.outcome import Denied, Reason
from flyball.progress import Complete, Continue, Decision, Progress
from flyball.record import from_record
from flyball.result import Stop
from flyball.store import MemoryStore
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, replay, say

BOUND_S = 20.0


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


SUM = call("add", a=1, b=2)


def task(name: str = "helper") -> dict[str, Any]:
    return {"child": name, "goal": "Help."}


def start(*names: str) -> Line:
    return call("delegate", tasks=[task(name) for name in names or ("helper",)], background=True)


def late(line: Line, seconds: float) -> Line:
    return line.after(seconds)


def helper(*lines: Line, name: str = "helper", **options: Any) -> Agent:
    return Agent(name=name, model=ScriptedModel(*(lines or [say("helped")])), tools=[add], **options)


def parent(*lines: Line, children: Any = (), **options: Any) -> Agent:
    model = ScriptedModel(*lines, grace=say("Reported."))
    return Agent(model=model, tools=[add], children=children or [helper()], background_children=True, **options)


def run(agent: Agent) -> Result:
    driver = ScriptDriver(agent)
    result = assert_honest(driver.run("Go.", run_id="run"))
    assert driver.replay() == result
    started = [event.child_id for event in result.events if isinstance(event, ChildStarted)]
    ended = [event.child_id for event in result.events if isinstance(event, ChildEnded)]
    assert sorted(started) == sorted(ended) == sorted(child.run_id for child in result.children)
    return result


def complete_at_once(progress: Progress, /) -> Decision:
    return Complete(text="enough")


def told(result: Result) -> list[str]:
    return [message.content for message in result.messages if message.content.startswith("Results of agents")]


class TestResults:
    def test_the_call_returns_handles_at_once_and_a_message_tells_the_result(self) -> None:
        slow = helper(late(say("helped"), 30.0))
        result = run(parent(start(), late(SUM, 10.0), late(SUM, 30.0), say("done"), children=[slow]))
        assert "- call-0: helper" in result.tool_results[0].text
        started: Any = result.tool_results[0]
        assert started.value == [{"child": "helper", "handle": "call-0", "run_id": "run.call-0"}]
        [text] = told(result)
        assert "(call-0)" in text
        assert "helped" in text
        assert (result.stop, result.text, result.turns, result.cancelled_children) == ("completed", "done", 4, ())

    def test_the_run_waits_for_open_runs_before_its_answer_counts(self) -> None:
        slow = helper(late(say("helped"), 60.0))
        result = run(parent(start(), say("Done already."), say("Now with the help."), children=[slow]))
        assert (result.text, result.turns, len(told(result))) == ("Now with the help.", 3, 1)
        assert result.seconds == 60.0

    def test_an_answer_is_judged_only_after_the_results_are_read(self) -> None:
        asked: list[int] = []

        def policy(progress: Progress, /) -> Decision:
            asked.append(progress.turn)
            return Complete() if progress.turn > 2 else Continue("What is the result?")

        slow = helper(late(say("helped"), 60.0))
        result = run(parent(start(), say("I wait."), say("It is 5."), children=[slow], completion=policy))
        assert (result.text, result.budgets["nudges"].used, result.cancelled_children) == ("It is 5.", 0, ())
        assert set(asked) == {1, 3}, "after the call, and about the answer that counts"

    def test_a_typed_answer_is_not_asked_for_while_child_runs_are_open(self) -> None:
        slow = helper(late(say("helped"), 60.0))
        result = run(parent(start(), say("I wait."), say('{"result": 5}'), children=[slow], output=int))
        assert (result.output, result.budgets["nudges"].used) == (5, 0)

    def test_a_message_that_is_steered_in_during_the_wait_is_in_the_next_request(self) -> None:
        agent = parent(start(), say("I wait."), say("b"), children=[helper(late(say("helped"), 60.0))])
        result = assert_honest(ScriptDriver(agent, signals={4: [Steer("Hurry.")]}).run("Go."))
        assert [message.content for message in result.messages][-2:] == ["Hurry.", "b"]
        assert len(told(result)) == 1

    def test_collect_waits_and_its_result_is_not_told_again(self) -> None:
        slow, fast = helper(late(say("slow"), 60.0), name="slow"), helper(late(say("fast"), 5.0), name="fast")
        result = run(parent(start("slow", "fast"), call("collect"), say("done"), children=[slow, fast]))
        collected = result.tool_results[1]
        assert collected.ok
        assert "slow" in collected.text
        assert "fast" in collected.text
        assert (told(result), result.turns, result.budgets["tool_calls"].used) == ([], 3, 2)

    def test_collect_waits_for_the_given_runs_and_seconds_only(self) -> None:
        slow, fast = helper(late(say("slow"), 60.0), name="slow"), helper(late(say("fast"), 5.0), name="fast")
        lines = [
            start("slow", "fast"),
            call("collect", runs=["call-0.1"]),
            call("collect", seconds=10),
            say("a"),
            say("b"),
        ]
        result = run(parent(*lines, children=[slow, fast]))
        assert "fast" in result.tool_results[1].text
        assert "slow" not in result.tool_results[1].text
        assert result.tool_results[2].text == "Still in progress:\n- call-0.0: slow"
        assert (result.tool_results[2].seconds, result.text) == (10.0, "b")

    def test_collect_names_the_known_runs_if_asked_for_another(self) -> None:
        result = run(parent(call("collect"), start(), call("collect", runs=["x"]), say("a"), say("b")))
        assert result.tool_results[0].text == "No child run works in the background."
        assert "known are call-1" in result.tool_results[2].text

    def test_failures_and_limits_of_child_runs_are_told(self) -> None:
        broken = helper(fail(ValueError("broken")))
        result = run(parent(start(), say("a"), say("b"), children=[broken]))
        assert "broken" in told(result)[0]
        assert [child.stop for child in result.children] == ["failed"]


class TestEnds:
    @staticmethod
    def slow(name: str = "helper") -> Agent:
        return helper(late(SUM, 50.0), late(say("helped"), 1_000.0), name=name)

    def test_open_runs_are_cancelled_at_a_limit_and_the_report_reads_it(self) -> None:
        result = run(parent(start(), SUM, limits=Limits(turns=2), children=[self.slow()]))
        assert (result.stop, result.text.split("\n")[0]) == ("budget", "Reported.")
        assert result.cancelled_children == ("run.call-0",)
        assert "cancelled" in told(result)[0]
        assert "1 child run in the background had to be cancelled" in result.explain()
        assert [(child.stop, child.stopped_by) for child in result.children] == [("cancelled", "parent")]
        assert from_record(result.to_dict()).cancelled_children == result.cancelled_children

    def test_a_child_run_ends_before_the_time_of_its_parent(self) -> None:
        result = run(parent(start(), say("a"), say("b"), limits=Limits(seconds=60), children=[self.slow()]))
        assert (result.stop, result.text, result.cancelled_children) == ("completed", "b", ())
        assert [child.stop for child in result.children] == ["deadline"]

    def test_a_policy_that_completes_the_run_does_not_wait(self) -> None:
        agent = parent(start(), SUM, say("never"), completion=complete_at_once, children=[self.slow()])
        result = run(agent)
        assert (result.stop, result.text, result.cancelled_children) == ("completed", "enough", ("run.call-0",))

    def test_a_single_turn_does_not_wait(self) -> None:
        result = run(parent(start(), single_turn=True, children=[self.slow()]))
        assert (result.stop, result.cancelled_children) == ("halted", ("run.call-0",))

    def test_a_child_run_that_completes_at_the_end_was_not_cancelled(self) -> None:
        agent = parent(
            start("slow", "fast"), SUM, limits=Limits(turns=2), children=[self.slow("slow"), self.slow("fast")]
        )
        fast = Result(stop=Stop.COMPLETED, text="helped", run_id="run.call-0.1")
        driver = ScriptDriver(agent, signals={6: [ChildDone(fast.run_id, fast)]})
        result = driver.run("Go.", run_id="run")
        assert [(child.run_id, child.stop) for child in result.children] == [
            ("run.call-0.1", "completed"),
            ("run.call-0.0", "cancelled"),
        ]
        assert result.cancelled_children == ("run.call-0.0",)


class TestDuplicates:
    """A child run in the background may change something at any time until it ends."""

    def read_thrice(self, *lines: Line, effects: Any = "read") -> list[object]:
        seen = list[int]()

        @tool(effects=effects)
        def read() -> int:
            """Read."""
            seen.append(1)
            return len(seen)

        again = call("read")
        model = ScriptedModel(again, start(), again, *lines, again, say("a"), say("b"))
        options: Any = {"duplicates": "reject", "background_children": True}
        agent = Agent(model=model, tools=[read], children=[helper(late(say("helped"), 60.0))], **options)
        result = assert_honest(ScriptDriver(agent).run("Go."))
        return [getattr(outcome, "value", "duplicate") for outcome in result.tool_results if outcome.tool == "read"]

    def test_a_read_is_made_again_while_a_child_run_is_open_and_after_it_has_ended(self) -> None:
        assert self.read_thrice() == [1, 2, 3]
        assert self.read_thrice(call("collect")) == [1, 2, 3]

    def test_a_write_is_not(self) -> None:
        assert self.read_thrice(effects="write") == [1, 2, "duplicate"]
        assert self.read_thrice(call("collect"), effects="write") == [1, 2, "duplicate"]


class TestBudgets:
    def test_child_runs_count_within_the_limits_of_children_and_depth(self) -> None:
        agent = parent(start("helper", "helper"), start(), say("a"), say("b"), limits=Limits(children=2))
        result = run(agent)
        denied = result.tool_results[1]
        assert isinstance(denied, Denied)
        assert denied.reason is Reason.BUDGET
        assert (result.budgets["children"].used, len(result.children)) == (2, 2)

    def test_a_slice_is_held_until_the_child_run_ends_and_the_rest_is_released(self) -> None:
        child = Child(helper(late(say("helped").using(Usage(100, 10)), 50.0), max_output_tokens=50), "carved")
        agent = parent(start(), SUM.using(Usage(90, 10)), say("a").using(Usage(90, 10)), say("b").using(Usage(90, 10)),
                       limits=Limits(tokens=40_000), max_output_tokens=50, children=[child])  # fmt: skip
        result = run(agent)
        tokens = result.budgets["tokens"]
        assert (tokens.used, tokens.held) == (result.usage_with_children.total, 0)
        assert result.children[0].budgets["tokens"].ceiling is not None

    def test_a_shared_child_cannot_work_in_the_background(self) -> None:
        result = run(parent(start(), say("a"), children=[Child(helper(), "shared")]))
        denied = result.tool_results[0]
        assert "shares the budget of this run" in denied.text
        assert (denied.ok, result.children) == (False, ())

    def test_claims_count_in_the_budget_of_the_tree(self) -> None:
        with Limits(turns=5).open(grace=False) as tree:
            stubborn = helper(*[SUM] * 50, name="helper")
            driver = ScriptDriver(parent(start(), say("a"), say("b"), children=[stubborn]))
            result = driver.run("Go.", within=tree)
            assert tree.budgets["turns"].used == 5
            assert result.turns + result.children[0].turns == 5

    def test_the_parent_may_still_delegate_and_wait(self) -> None:
        slow = helper(late(say("slow"), 60.0), name="slow")
        agent = parent(start("slow"), call("delegate", tasks=[task()]), say("a"), say("b"), children=[slow, helper()])
        result = run(agent)
        assert [child.text for child in result.children] == ["helped", "slow"]


class TestOptions:
    def test_without_the_option_nothing_is_offered(self) -> None:
        model = ScriptedModel(start(), say("done"))
        result = Agent(model=model, children=[helper()]).run("Go.")
        assert not result.tool_results[0].ok
        names = [definition["name"] for definition in model.requests[0].tools]
        assert names == ["delegate"]

    def test_it_needs_children(self) -> None:
        with pytest.raises(UsageError, match="needs children"):
            Agent(model=ScriptedModel(), background_children=True)


class Blocker:
    """A tool that waits until it is let go, or cancelled."""

    def __init__(self) -> None:
        self.reached, self.gate = anyio.Event(), anyio.Event()

    def tool(self) -> Any:
        @tool
        async def block() -> str:
            """Wait."""
            self.reached.set()
            await self.gate.wait()
            return "free"

        return block


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
class TestDriver:
    def test_the_parent_works_while_its_child_runs(self, backend: str) -> None:
        async def go() -> Result:
            blocker = Blocker()

            @tool
            async def let_go() -> str:
                """Let the child continue."""
                await blocker.reached.wait()
                blocker.gate.set()
                return "ok"

            child = Agent(name="helper", model=ScriptedModel(call("block"), say("helped")), tools=[blocker.tool()])
            model = ScriptedModel(start(), call("let_go"), say("a"), say("b"))
            agent = Agent(model=model, tools=[let_go], children=[child], background_children=True)
            with anyio.fail_after(BOUND_S):
                return await agent.arun("Go.")

        result = anyio.run(go, backend=backend)
        assert (result.stop, [child.text for child in result.children]) == ("completed", ["helped"])
        assert len(told(result)) == 1

    def test_a_cancel_ends_the_whole_tree(self, backend: str) -> None:
        async def go() -> Result:
            blocker = Blocker()
            child = Agent(name="helper", model=ScriptedModel(call("block")), tools=[blocker.tool()])
            agent = parent(start(), say("a"), children=[child])
            with anyio.fail_after(BOUND_S):
                async with agent.open("Go.") as handle:
                    await blocker.reached.wait()
                    assert [one.agent for one in handle.children] == ["helper"]
                    handle.cancel()
                    return await handle.aresult()

        result = assert_honest(anyio.run(go, backend=backend))
        assert (result.stop, [child.stop for child in result.children]) == ("cancelled", ["cancelled"])
        assert result.cancelled_children == (result.children[0].run_id,)

    def test_a_cancelled_task_ends_the_whole_tree(self, backend: str) -> None:
        async def go() -> tuple[Any, ...]:
            blocker, events = Blocker(), list[Any]()
            child = Agent(name="helper", model=ScriptedModel(call("block")), tools=[blocker.tool()])
            agent = parent(start(), say("a"), children=[child], sinks=[events.append])
            with anyio.fail_after(BOUND_S):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(agent.arun, "Go.")
                    await blocker.reached.wait()
                    tasks.cancel_scope.cancel()
            return tuple(event.kind for event in events)

        kinds = anyio.run(go, backend=backend)
        assert kinds.count("run_started") == kinds.count("run_ended") == 2
        assert kinds[-1] == "run_ended"

    def test_a_limit_cancels_what_is_open(self, backend: str) -> None:
        async def go() -> Result:
            blocker = Blocker()
            child = Agent(name="helper", model=ScriptedModel(call("block")), tools=[blocker.tool()])
            with anyio.fail_after(BOUND_S):
                return await parent(start(), children=[child], limits=Limits(turns=1)).arun("Go.")

        result = assert_honest(anyio.run(go, backend=backend))
        assert (result.stop, len(result.cancelled_children), len(result.children)) == ("budget", 1, 1)


class TestResume:
    def test_a_paused_run_cancels_them_and_tells_it_when_it_continues(self) -> None:
        @tool(approve=True)
        def risky() -> str:
            """Do it."""
            return "did it"

        for store in (MemoryStore(), None):
            model = ScriptedModel(start(), call("risky"), say("a"), say("b"))
            child = Agent(name="helper", model=ScriptedModel(late(say("helped"), 60.0)))
            agent = Agent(model=model, tools=[risky], children=[child], background_children=True, store=store)
            paused = agent.run("Go.")
            assert (paused.stop, len(paused.cancelled_children)) == ("paused", 1)
            result = agent.resume(paused, answers={question.id: True for question in paused.questions})
            assert (result.stop, result.text) == ("completed", "a")
            assert [child.stop for child in result.children] == ["cancelled"]
            assert "cancelled" in told(result)[0]

    def test_a_stored_run_that_is_extended_keeps_the_results(self, tmp_path: Path) -> None:
        model = ScriptedModel(start(), SUM, SUM, say("done"), grace=say("Reported."))
        agent = Agent(
            model=model, tools=[add], children=[helper()], background_children=True, limits=Limits(turns=3),
            store=f"sqlite:///{tmp_path}/runs.db",
        )  # fmt: skip
        result = agent.run("Go.", run_id="r1")
        assert result.stop == "budget"
        resumed = agent.resume("r1", extend={"turns": 3})
        assert (resumed.stop, resumed.text, [child.text for child in resumed.children]) == (
            "completed",
            "done",
            ["helped"],
        )


def test_a_stored_run_with_fallback_recall_client_tool_and_child_run_is_replayed_the_same() -> None:
    @tool(effects="read")
    def read() -> str:
        """Read everything."""
        return "page " * 4_000

    def build(store: MemoryStore | None) -> Agent:
        recall = call("read_artifact", id="r1:call-0", offset=90, length=9)
        lines = [call("read"), recall, start(), call("collect"), call("locate"), say("done")]
        tools: Any = {"read": read, "locate": {"description": "Locate the user.", "parameters": {}}}
        rules = [{"tool": "locate", "prior_tools": ["read"], "blocks_completion": True}]
        return Agent(
            model=ScriptedModel(fail(Retryable("busy"))), fallback_models=[ScriptedModel(*lines)],
            tools=tools, tool_rules=rules, children=[helper()], background_children=True, announce_limits=True,
            store=store,
        )  # fmt: skip

    store = MemoryStore()
    agent = build(store)
    paused = agent.run("Go.", run_id="r1")
    result = agent.resume("r1", {paused.questions[0].id: {"city": "Oslo"}})
    assert [outcome.status for outcome in result.tool_results] == ["done"] * 5
    assert (result.stop, len(result.fallbacks), [child.text for child in result.children]) == (
        "completed",
        1,
        ["helped"],
    )
    recorded = RecordedRun(store.journal.read("r1"), store.runs.events("r1"), "completed", store.transcript)
    report = replay_run(build(None), recorded)
    assert (report.is_same, report.matched_effects) == (True, report.total_effects)


def test_a_replay_of_each_run_gives_the_same() -> None:
    driver = ScriptDriver(parent(start("helper", "helper"), SUM, call("collect"), say("done")))
    result = driver.run("Go.")
    assert driver.replay() == result
    for plan, answers in driver.children:
        assert replay(helper(), plan, answers).text == "helped"
