"""Calls that come again, in whole runs: what the model is told, what is made, and when the run ends."""

import json
from collections.abc import Callable
from threading import Event
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import Agent, Limits, run_conversation, tool
from flyball.errors import ConfigError
from flyball.event import NoticeDelivered, Repeated, ToolEnded
from flyball.loop.effects import Ask, Late, Steer
from flyball.outcome import Denied, Success
from flyball.progress import Progress
from flyball.request import Call, Finish, Purpose, Reply, Request, Usage
from flyball.result import Result
from flyball.steadiness import Thresholds
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, call_json, fail, say, together

Policy = Literal["allow", "reuse", "reject"]


class Disk:
    """Tools that count how often they are really called."""

    def __init__(self) -> None:
        self.content = "old"
        self.made: list[str] = []
        self.polled = 0

    def tools(self, **options: Any) -> list[Any]:
        def read(path: str = "a") -> str:
            """Read a file."""
            self.made.append(f"read {path}")
            return f"{path}: {self.content}"

        def write(content: str) -> str:
            """Write to it."""
            self.made.append(f"write {content}")
            if content == "bad":
                raise OSError("the disk is full")
            self.content = content
            return "written"

        def status() -> str:
            """Look how far it is."""
            self.made.append("status")
            self.polled += 1
            return f"{self.polled} of 20"

        return [tool(effects="read", **options)(read), tool(**options)(write), tool(effects="read")(status)]


def run(*lines: Line, disk: Disk | None = None, duplicates: Policy = "allow", **options: Any) -> Result:
    disk = disk or Disk()
    model = ScriptedModel(*lines, grace=say("I went round."))
    agent = Agent(model=model, tools=disk.tools(), duplicates=duplicates, **options)
    return assert_honest(ScriptDriver(agent).run("Go."))


READ = call("read", path="a")


class TestDuplicates:
    def test_an_agent_makes_an_equal_call_again(self) -> None:
        disk = Disk()
        run(READ, READ, say("done"), disk=disk)
        assert disk.made == ["read a"] * 2

    def test_reuse_gives_the_earlier_result_marked_and_counts_no_call(self, snapshot: Callable[..., None]) -> None:
        disk = Disk()
        result = run(READ, call_json("read", '{ "path":"a" }'), say("done"), disk=disk, duplicates="reuse")
        first, second = result.tool_results
        assert disk.made == ["read a"]
        assert isinstance(second, Success)
        assert (second.value, second.same_as) == ("a: old", first.call_id)
        assert second.text.endswith(")\na: old")
        assert first.call_id in second.text
        snapshot(second.text.replace(first.call_id, "CALL"))
        assert result.budgets["tool_calls"].used == 1
        ended = [event for event in result.events if isinstance(event, ToolEnded)]
        assert [(event.status, event.reason) for event in ended] == [("done", None), ("done", "duplicate")]

    def test_reject_denies_it_shows_the_earlier_result_and_does_not_say_that_all_is_done(self) -> None:
        disk = Disk()
        result = run(READ, READ, say("done"), disk=disk, duplicates="reject")
        second = result.tool_results[1]
        assert disk.made == ["read a"]
        assert isinstance(second, Denied)
        assert (second.reason, second.same_as) == ("duplicate", result.tool_results[0].call_id)
        assert "a: old" in second.text
        assert not any(word in second.text.lower() for word in ("done", "complete", "finish", "stop", "proceed"))
        assert result.stop == "completed"

    def test_reading_again_after_an_edit_gives_the_new_content(self) -> None:
        disk, edit = Disk(), call("write", content="new")
        result = run(READ, edit, READ, say("done"), disk=disk, duplicates="reuse")
        assert [outcome.text for outcome in result.tool_results] == ["a: old", "written", "a: new"]

    def test_after_an_edit_that_failed_what_was_read_is_read_again(self) -> None:
        disk = Disk()
        run(READ, call("write", content="bad"), READ, say("done"), disk=disk, duplicates="reuse")
        assert disk.made == ["read a", "write bad", "read a"]

    def test_after_an_edit_that_failed_nothing_is_written_twice(self) -> None:
        disk, one = Disk(), call("write", content="1")
        run(one, call("write", content="bad"), one, say("done"), disk=disk, duplicates="reject")
        assert disk.made == ["write 1", "write bad"]

    def test_a_write_that_timed_out_may_have_changed_something(self) -> None:
        disk = Disk()
        model = ScriptedModel(READ, call("write", content="new"), READ, say("done"))
        agent = Agent(model=model, tools=disk.tools(timeout=5), duplicates="reuse")
        assert_honest(ScriptDriver(agent, seconds={"write": 6.0}).run("Go."))
        assert disk.made == ["read a"] * 2

    def test_an_equal_write_is_a_duplicate_until_another_was_made(self) -> None:
        disk, one, two = Disk(), call("write", content="1"), call("write", content="2")
        result = run(one, one, two, one, say("done"), disk=disk, duplicates="reject")
        assert [outcome.ok for outcome in result.tool_results] == [True, False, True, True]

    def test_within_one_batch_an_equal_second_write_is_a_duplicate(self) -> None:
        disk, one = Disk(), call("write", content="1")
        run(together(one, one), say("done"), disk=disk, duplicates="reject")
        assert disk.made == ["write 1"]

    def test_a_failed_call_may_be_tried_again(self) -> None:
        disk, bad = Disk(), call("write", content="bad")
        run(bad, bad, say("done"), disk=disk, duplicates="reject")
        assert disk.made == ["write bad"] * 2

    def test_after_a_word_of_the_users_an_equal_call_is_no_duplicate(self) -> None:
        disk = Disk()
        agent = Agent(model=ScriptedModel(READ, READ, say("done")), tools=disk.tools(), duplicates="reject")
        assert_honest(ScriptDriver(agent, signals={1: [Steer("Look again.")]}).run("Go."))
        assert disk.made == ["read a"] * 2

    def test_other_arguments_are_another_call(self) -> None:
        disk = Disk()
        run(READ, call("read", path="b"), say("done"), disk=disk, duplicates="reject")
        assert disk.made == ["read a", "read b"]

    def test_a_tool_may_have_its_own_policy_for_duplicates(self) -> None:
        disk = Disk()
        model = ScriptedModel(READ, READ, say("done"))
        ScriptDriver(Agent(model=model, tools=disk.tools(duplicates="reject"))).run("Go.")
        assert disk.made == ["read a"]

    def test_a_conversation_rejects_them_and_a_poll_is_no_duplicate(self) -> None:
        disk, polls = Disk(), Disk()
        run_conversation("Go.", disk.tools(), ScriptedModel(READ, READ, say("done")))
        run_conversation("Go.", polls.tools(poll=True), ScriptedModel(READ, READ, say("done")))
        run_conversation("Go.", polls.tools(), ScriptedModel(READ, READ, say("done")), duplicates="allow")
        assert (disk.made, polls.made) == (["read a"], ["read a"] * 4)

    def test_what_a_reused_call_set_in_the_state_is_not_set_again(self) -> None:
        from flyball.tools import ToolContext

        @tool(effects="read", duplicates="reuse")
        def count(ctx: ToolContext) -> int:
            """Count."""
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            return ctx.state["n"]

        model = ScriptedModel(call("count"), call("count"), say("done"))
        assert ScriptDriver(Agent(model=model, tools=[count])).run("Go.").state == {"n": 1}

    def test_what_a_call_set_in_the_state_is_seen_by_those_behind_it(self) -> None:
        from flyball.tools import ToolContext

        @tool(effects="read")
        def choose(ctx: ToolContext, n: int) -> None:
            """Choose one."""
            ctx.state["n"] = n

        @tool(effects="read")
        def chosen(ctx: ToolContext) -> int:
            """Which one is chosen."""
            return ctx.state.get("n", 0)

        model = ScriptedModel(call("chosen"), call("choose", n=7), call("chosen"), say("done"))
        agent = Agent(model=model, tools=[choose, chosen], duplicates="reuse")
        assert assert_honest(ScriptDriver(agent).run("Go.")).tool_results[2].text == "7"

    def test_a_write_that_ends_late_may_have_changed_something(self) -> None:
        disk = Disk()
        agent = Agent(model=ScriptedModel(READ, READ, READ, say("done")), tools=disk.tools(), duplicates="reuse")
        ScriptDriver(agent, signals={4: [Late("call-9", "write")]}).run("Go.")
        assert disk.made == ["read a"] * 2

    def test_while_a_write_hangs_every_read_is_made(self) -> None:
        disk, freed = Disk(), Event()

        @tool(timeout=0.05)
        def hang() -> None:
            """Write for ever."""
            freed.wait(60)

        model = ScriptedModel(call("hang"), READ, READ, say("done"))
        agent = Agent(model=model, tools=[hang, *disk.tools()], duplicates="reject")
        try:
            assert assert_honest(agent.run("Go.")).hung == 1
        finally:
            freed.set()
        assert disk.made == ["read a"] * 2

    @pytest.mark.parametrize("policy", ["reuse", "reject"])
    def test_what_a_tool_rule_wants_again_is_made_again(self, policy: Policy) -> None:
        rule = {"limited_tools": ["read"], "max_calls": 1, "then_require_one_of": ["status"]}
        status, disk = call("status"), Disk()
        paths = [call("read", path=path) for path in "abc"]
        lines = [paths[0], status, paths[1], status, paths[2], status, paths[2], say("done")]
        run(*lines, disk=disk, duplicates=policy, tool_rules=[rule])
        assert disk.made == ["read a", "status", "read b", "status", "read c"]


class TestLoops:
    def test_the_same_call_is_told_then_denied_then_ends_the_run_with_a_report(self) -> None:
        disk = Disk()
        result = run(*[READ] * 9, disk=disk)
        assert (result.stop, result.turns, disk.made) == ("stalled", 5, ["read a"] * 3)
        assert result.text == "I went round."
        assert result.to_dict()["status"] == "stalled"
        actions = [event.action for event in result.events if isinstance(event, Repeated)]
        assert actions == ["noticed", "denied", "denied", "stalled"]
        assert [outcome.status for outcome in result.tool_results] == ["done"] * 3 + ["denied"] * 2

    def test_a_circle_of_two_ends_it_after_six_calls(self) -> None:
        result = run(*[READ, call("read", path="b")] * 9)
        assert (result.stop, result.turns) == ("stalled", 6)

    def test_a_notice_of_a_loop_is_shown_once_and_is_not_in_the_history(self, snapshot: Callable[..., None]) -> None:
        model = ScriptedModel(*[READ] * 3, call("status"), say("done"))
        result = ScriptDriver(Agent(model=model, tools=Disk().tools())).run("Go.")
        [notice] = [event for event in result.events if isinstance(event, NoticeDelivered)]
        assert (notice.rule, notice.priority) == ("repetition", "high")
        snapshot(notice.text)
        assert [request.notices for request in model.requests] == [(), (), (), (notice.text,), ()]
        assert all(notice.text not in message.content for message in result.messages)

    def test_a_poll_with_a_changing_result_goes_on_twenty_times(self) -> None:
        disk = Disk()
        result = run(*[call("status")] * 20, say("done"), disk=disk)
        assert (result.stop, disk.polled) == ("completed", 20)
        assert not [event for event in result.events if isinstance(event, Repeated)]

    def test_read_edit_read_is_no_loop(self) -> None:
        lines = [line for n in range(6) for line in (READ, call("write", content=str(n)), READ)]
        assert run(*lines, say("done")).stop == "completed"

    @pytest.mark.parametrize("line", [call("reed"), call("read", page=1), call_json("read", "{")], ids=str)
    def test_a_mistake_made_again_and_again_is_a_loop_too(self, line: Line) -> None:
        result = run(*[line] * 9)
        assert (result.stop, result.turns) == ("stalled", 5)

    def test_a_call_that_is_rejected_as_a_duplicate_again_and_again_is_a_loop_too(self) -> None:
        result = run(*[READ] * 9, duplicates="reject")
        assert (result.stop, result.turns) == ("stalled", 5)

    def test_calls_of_one_reply_are_not_denied_for_what_the_model_could_not_know(self) -> None:
        disk, write = Disk(), call("write", content="1")
        result = run(together(*[write] * 6), say("done"), disk=disk)
        assert (result.stop, len(disk.made)) == ("completed", 6)

    def test_other_work_beside_a_denied_call_is_progress(self) -> None:
        lines = [*[READ] * 4, together(READ, call("status")), say("done")]
        assert run(*lines).stop == "completed"

    def test_a_word_of_the_users_begins_anew(self) -> None:
        disk = Disk()
        agent = Agent(model=ScriptedModel(*[READ] * 6, say("done")), tools=disk.tools())
        result = assert_honest(ScriptDriver(agent, signals={8: [Steer("Try it again.")]}).run("Go."))
        assert (result.stop, disk.made) == ("completed", ["read a"] * 5)

    def test_a_word_of_the_users_that_comes_with_the_last_call_goes_before_the_end(self) -> None:
        disk = Disk()
        agent = Agent(model=ScriptedModel(*[READ] * 6, say("done")), tools=disk.tools())
        driver = ScriptDriver(agent)
        driver.run("Go.")
        place = [n for n, effect in enumerate(driver.effects) if isinstance(effect, Ask)][4]
        result = assert_honest(ScriptDriver(agent, signals={place: [Steer("Try it again.")]}).run("Go."))
        assert (result.stop, result.turns) == ("completed", 7)

    def test_a_large_result_is_the_same_although_each_has_its_own_artifact(self) -> None:
        @tool(effects="read")
        def log(lines: int) -> str:
            """Read the log."""
            return 'A "line".\n' * lines

        lines = [call("log", lines=n) for n in (3_000, 4_000)]
        model = ScriptedModel(*lines * 9, grace=say("I went round."))
        assert assert_honest(ScriptDriver(Agent(model=model, tools=[log])).run("Go.")).stop == "stalled"

    def test_a_limit_that_is_met_with_a_loop_goes_before_it(self) -> None:
        assert run(*[READ] * 9, limits=Limits(turns=4)).stop == "budget"
        assert run(*[READ] * 9, limits=Limits(turns=5)).stop == "stalled"

    def test_a_stalled_run_is_asked_for_a_report_in_true_words(self, snapshot: Callable[..., None]) -> None:
        model = ScriptedModel(*[READ] * 5, grace=say("I went round."))
        ScriptDriver(Agent(model=model, tools=Disk().tools())).run("Go.")
        assert model.requests[-1].purpose is Purpose.GRACE
        snapshot(model.requests[-1].messages[-1].content)

    def test_a_stalled_run_without_a_report_is_told_from_the_record(self, snapshot: Callable[..., None]) -> None:
        model = ScriptedModel(*[READ] * 5, grace=fail(ValueError("down")))
        result = assert_honest(ScriptDriver(Agent(model=model, tools=Disk().tools())).run("Go."))
        assert result.stop == "stalled"
        snapshot(result.text, "report")
        snapshot(result.explain(), "explanation")

    def test_the_same_failure_gets_a_hint_once(self, snapshot: Callable[..., None]) -> None:
        bad = call("write", content="bad")
        model = ScriptedModel(bad, bad, bad, say("I cannot."))
        ScriptDriver(Agent(model=model, tools=Disk().tools())).run("Go.")
        hinted = [[text for text in request.notices if "(OSError)" in text] for request in model.requests]
        assert [len(hints) for hints in hinted] == [0, 0, 1, 0]
        snapshot(hinted[2][0])

    def test_thresholds_come_from_settings_and_from_code(self) -> None:
        assert run(*[READ] * 9, settings={"repetition.same": 5}).turns == 7
        assert run(*[READ] * 9, repetition=Thresholds(same=2)).turns == 4
        off = Thresholds(same=None, rounds=None)
        assert run(*[READ] * 9, say("done"), repetition=off).stop == "completed"

    def test_a_run_is_played_again_to_the_same_end(self) -> None:
        script = ScriptDriver(Agent(model=ScriptedModel(*[READ] * 5, grace=say("x")), tools=Disk().tools()))
        first = script.run("Go.")
        again = script.replay()
        assert (again.stop, again.turns, again.tool_results) == (first.stop, first.turns, first.tool_results)


class Stuck:
    """A model that does what it likes for a while, and then only repeats itself, in batches of any size."""

    name, provider, price = "stuck", None, None

    def __init__(self, before: list[int], circle: list[int]) -> None:
        self.before = before
        self.circle = circle
        self.asked = 0

    def ready(self) -> str | None:
        return None

    async def ask(self, request: Request, tell: object, /) -> Reply:
        if request.purpose is Purpose.GRACE:
            return Reply("I went round.", usage=Usage(1, 1))
        place, self.asked = self.asked - len(self.before), self.asked + 1
        n = self.before[place] if place < 0 else self.circle[place % len(self.circle)]
        arguments = json.dumps({"path": str(n)})
        return Reply("", (Call(f"c{self.asked}", "read", arguments),), Usage(1, 1), Finish.CALLS)


@given(st.lists(st.integers(0, 4), max_size=12), st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_a_model_that_only_repeats_itself_is_stopped_within_the_stated_calls(
    before: list[int], circle: list[int]
) -> None:
    disk = Disk()
    agent = Agent(model=Stuck(before, circle), tools=disk.tools(), limits=Limits(turns=90))
    result = assert_honest(ScriptDriver(agent).run("Go."))
    assert result.stop == "stalled"
    most = len(before) + max(3, 2 * len(circle)) + 2 + len(circle)
    assert result.turns <= most


def test_a_reused_result_is_among_the_results_that_callbacks_see() -> None:
    seen: list[int] = []

    def count(progress: Progress) -> bool:
        seen.append(len(progress.results))
        return True

    run(READ, READ, say("done"), duplicates="reuse", should_continue=count)
    assert seen == [1, 2]


@pytest.mark.parametrize("option", [{"duplicates": "never"}, {"repetition": 3}], ids=str)
def test_a_wrong_option_for_repetition_is_named(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"agent, {next(iter(option))}"):
        Agent(model=ScriptedModel(say("x")), **option)
