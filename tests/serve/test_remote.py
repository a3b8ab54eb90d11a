"""Remote agents: children whose runs go on at another service."""

import json
import socket
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import anyio
import pytest

from flyball import Agent, Child, ConfigError, Limits, Result, TokenPrice, tool
from flyball.outcome import Denied, Failure, Reason, Success
from flyball.result import Stop
from flyball.serve import RemoteAgent, chat_app, remote_agent
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, say
from flyball.tools import ToolContext

Served = Callable[[Any], AbstractContextManager[str]]
Saying = Callable[[int, bytes], str]
PRICE = TokenPrice(input=1, output=2)
BOUND_S = 60.0


@tool(poll=True)
def look() -> str:
    """Look."""
    return "a ball"


def agent(*lines: Line, **options: Any) -> Agent:
    model = ScriptedModel.looping(*lines, grace=say("That is all."), price=PRICE)
    return Agent(model=model, tools=[look], max_output_tokens=50, **options)


def parent(*children: Child | RemoteAgent, tasks: int = 1, **options: Any) -> Agent:
    rows = [{"child": "far", "goal": f"Task {n}.", "context": "It is round."} for n in range(tasks)]
    model = ScriptedModel(call("delegate", tasks=rows), say("Done."), grace=say("The parent reports."), price=PRICE)
    return Agent(model=model, name="parent", children=children, max_output_tokens=50, **options)


def ran(agent: Agent) -> Result:
    result = agent.start("Go.").result(BOUND_S)
    for one in (result, *result.children):
        assert_honest(one)
    return result


class TestARunElsewhere:
    def test_is_a_child_like_others(self, served: Served) -> None:
        far = agent(call("look"), say("It is a ball."))
        with served(chat_app(far)) as url:
            result = ran(parent(remote_agent(url, name="far", description="Looks.")))
        [outcome], [child] = result.tool_results, result.children
        assert isinstance(outcome, Success)
        assert outcome.content.startswith("far: completed. It completed. It used 2 of")
        assert outcome.content.endswith("Its calls: look 1.\nIt is a ball.")
        assert (child.stop, child.text, child.turns) == ("completed", "It is a ball.", 2)
        assert isinstance(far.model, ScriptedModel)
        assert far.model.requests[0].messages[0].content == "Task 0.\n\nIt is round."

    @pytest.mark.parametrize("door", ["asyncio", "trio"])
    def test_is_one_through_every_door(self, served: Served, door: str, through: Any) -> None:
        with served(chat_app(agent(say("It is a ball.")))) as url:
            result = through(door)(parent(remote_agent(url, name="far")))
        assert [child.text for child in result.children] == ["It is a ball."]

    def test_may_be_begun_by_a_tool(self, served: Served) -> None:
        with served(chat_app(agent(say("It is a ball.")))) as url:

            @tool
            async def find(ctx: ToolContext) -> str:
                """Find it."""
                return (await ctx.delegate(remote_agent(url, name="far"), "Find it.")).text

            result = ran(Agent(model=ScriptedModel(call("find"), say("Found.")), tools=[find]))
        assert result.tool_results[0].text == "It is a ball."
        assert [child.text for child in result.children] == ["It is a ball."]

    def test_counts_in_the_totals_of_its_parent(self, served: Served) -> None:
        with served(chat_app(agent(say("It is a ball.")))) as url:
            result = ran(parent(remote_agent(url, name="far")))
        [child] = result.children
        assert child.usage.total > 0
        assert result.usage_with_children == result.usage + child.usage
        assert result.cost_with_children == {"scripted": result.cost["scripted"] + child.cost["scripted"]}

    def test_brings_its_own_children_along(self, served: Served) -> None:
        below = agent(say("Below."), name="below")
        tasks = [{"child": "below", "goal": "Dig."}]
        middle = agent(call("delegate", tasks=tasks), say("Dug."), children=[below])
        with served(chat_app(middle)) as url:
            result = ran(parent(remote_agent(url, name="far")))
        [[grandchild]] = [child.children for child in result.children]
        assert grandchild.text == "Below."
        assert result.usage_with_children == result.usage + result.children[0].usage + grandchild.usage

    def test_has_no_more_than_its_limits_here_and_reports_there(self, served: Served) -> None:
        with served(chat_app(agent(call("look")))) as url:
            result = ran(parent(remote_agent(url, name="far", limits=Limits(turns=2))))
        [child] = result.children
        assert (child.stop, child.turns, child.text) == ("budget", 2, "That is all.")
        assert isinstance(result.tool_results[0], Failure)
        assert result.tool_results[0].kind == "budget"

    def test_may_be_narrowed_by_the_model_of_its_parent(self, served: Served) -> None:
        tasks = [{"child": "far", "goal": "Look.", "turns": 1}]
        with served(chat_app(agent(call("look")))) as url:
            model = ScriptedModel(call("delegate", tasks=tasks), say("Done."))
            result = ran(Agent(model=model, children=[remote_agent(url, name="far")]))
        assert result.children[0].turns == 1

    @pytest.mark.parametrize("tools", [[], ["look"]])
    def test_is_not_asked_at_all_where_its_tools_should_be_narrowed(self, tools: list[str]) -> None:
        tasks = [{"child": "far", "goal": "Go.", "tools": tools}]
        child = remote_agent("http://127.0.0.1:1", name="far")
        [outcome] = ran(
            Agent(model=ScriptedModel(call("delegate", tasks=tasks), say("Oh.")), children=[child])
        ).tool_results
        assert isinstance(outcome, Denied)
        assert outcome.reason is Reason.VALIDATION

    def test_is_told_to_those_who_watch_its_parent(self, served: Served) -> None:
        seen: list[Any] = []
        with served(chat_app(agent(call("look"), say("Seen.")))) as url:
            result = ran(parent(remote_agent(url, name="far"), sinks=[seen.append]))
        by_run = {event.header.run_id: event.header.parent_run_id for event in seen}
        [here] = [event.child_id for event in seen if event.kind == "child_started"]
        far = result.children[0].run_id
        assert by_run == {result.run_id: None, here: result.run_id, far: here}
        assert [event.kind for event in seen if event.header.run_id == here] == ["run_started", "run_ended"]
        assert [event.kind for event in seen if event.header.run_id == far][-1] == "run_ended"

    def test_a_remote_run_that_is_never_heard_of_is_cut_by_its_time(self, served: Served, silent: Any) -> None:
        with served(silent) as url:
            result = ran(parent(remote_agent(url, name="far", limits=Limits(seconds=1))))
        [child] = result.children
        assert (child.stop, child.flags) == ("deadline", ("max_seconds_reached",))

    def test_ends_before_its_parents_time_for_work_does(self, served: Served, silent: Any) -> None:
        with served(silent) as url:
            result = ran(parent(remote_agent(url, name="far"), limits=Limits(seconds=2)))
        assert result.children[0].stop == "deadline"
        assert result.stop in ("deadline", "completed")

    def test_a_remote_run_that_sends_nothing_is_cut(self, served: Served, silent: Any) -> None:
        with served(silent) as url:
            settings = {"delegation.stall_seconds": 0.3}
            result = ran(parent(remote_agent(url, name="far"), settings=settings))
        [child] = result.children
        assert (child.stop, "0.3" in str(child.warning)) == ("stalled", True)

    def test_a_remote_run_whose_tool_only_reports_is_cut(self, served: Served) -> None:
        @tool(effects="read")
        async def chat(ctx: ToolContext) -> None:
            for _ in range(100):
                ctx.report("still here")
                await anyio.sleep(0.05)

        far = Agent(model=ScriptedModel(call("chat"), say("never")), name="far", tools=[chat])
        with served(chat_app(far)) as url:
            result = ran(parent(remote_agent(url, name="far"), settings={"delegation.stall_seconds": 1}))
        assert [child.stop for child in result.children] == ["stalled"]


class TestACancel:
    @pytest.mark.parametrize("whole", [True, False])
    def test_closes_the_request_and_ends_the_run_there(self, served: Served, whole: bool) -> None:
        began, ended, ends = threading.Event(), threading.Event(), list[Any]()

        def watch(event: Any) -> None:
            if event.kind == "model_requested":
                began.set()
            if event.kind == "run_ended":
                ends.append(event)
                ended.set()

        with served(chat_app(agent(say("Slow.").after(600.0), sinks=[watch]))) as url:
            run = parent(remote_agent(url, name="far")).start("Go.")
            assert began.wait(BOUND_S)
            assert not run.children[0].steer("Faster."), "nobody can say anything to a model elsewhere"
            assert run.cancel() if whole else run.children[0].cancel("me")
            result = run.result(BOUND_S)
            assert ended.wait(BOUND_S)
        assert (ends[0].stop, ends[0].stopped_by) == ("cancelled", "client")
        [child] = result.children
        assert (child.stop, child.stopped_by) == ("cancelled", "parent" if whole else "me")
        assert result.stop == ("cancelled" if whole else "completed")
        assert_honest(child)

    def test_ends_those_that_wait_for_their_turn_too(self, served: Served) -> None:
        began = threading.Event()

        def watch(event: Any) -> None:
            if event.kind == "model_requested":
                began.set()

        with served(chat_app(agent(say("Slow.").after(600.0), sinks=[watch]))) as url:
            run = parent(remote_agent(url, name="far"), tasks=5).start("Go.")
            assert began.wait(BOUND_S)
            run.cancel()
            result = run.result(BOUND_S)
        assert [child.stop for child in result.children] == ["cancelled"] * 5
        for child in result.children:
            assert_honest(child)


class TestARefusal:
    def test_is_a_denied_outcome_that_says_why(self, served: Served, snapshot: Callable[..., None]) -> None:
        with served(chat_app(agent(say("Hi.")), token=lambda token: token == "good")) as url:
            result = ran(parent(remote_agent(url, name="far", token="bad")))
        [outcome] = result.tool_results
        assert isinstance(outcome, Denied)
        assert outcome.reason is Reason.REFUSED
        assert "401 token_refused" in outcome.message
        snapshot(outcome.message)
        assert result.children[0].stop is Stop.FAILED
        assert result.completed

    def test_refusals_of_some_of_several_remote_runs_are_told_with_the_results_of_the_others(
        self, served: Served
    ) -> None:
        with served(chat_app(agent(say("Slow.").after(0.5)), runs=1)) as url:
            result = ran(parent(remote_agent(url, name="far"), tasks=2))
        [outcome] = result.tool_results
        assert isinstance(outcome, Failure)
        assert sorted(child.stop for child in result.children) == ["completed", "failed"]
        assert "503 too_many_runs" in outcome.error

    def test_with_a_good_token_there_is_none(self, served: Served, key: str) -> None:
        with served(chat_app(agent(say("Hi.")), token=lambda token: token == key)) as url:
            far = remote_agent(url, name="far", token=lambda: key)
            assert ran(parent(far)).children[0].completed
        assert key not in repr(far)

    @pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 415, 422, 429, 503])
    def test_takes_nothing_of_what_was_carved(self, saying: Saying, status: int) -> None:
        url = saying(status, b'{"code": "no_way", "message": "Not today."}')
        result = ran(parent(Child(remote_agent(url, name="far"), "carved"), limits=Limits(tokens=9_000)))
        [outcome] = result.tool_results
        assert isinstance(outcome, Denied)
        assert f"({status} no_way): Not today." in outcome.message
        assert result.budgets["tokens"].used == result.usage.total


class TestWhatIsNoResult:
    @pytest.mark.parametrize(
        ("status", "body", "words"),
        [
            (200, b"hello", ": hello"),
            (200, b"[1]", ": [1]"),
            (200, b'{"stop": "bored"}', "'bored'"),
            (200, b'{"stop": "completed", "turns": -3}', "-3"),
            (204, b"", "(204)"),
            (302, b"", "(302)"),
            (500, b"Traceback", "(500)"),
            (502, b'{"code": 7, "detail": "bad\\n gateway"}', "(502): bad gateway"),
            (
                200,
                b'data: {"event": "x"}\n\ndata: {"code": "internal_error", "detail": "Oh."}\n\n',
                ": Oh.",
            ),
            (200, b'data: {"event": "delta"}\n\n', "ended"),
        ],
    )
    def test_is_a_failed_child(self, saying: Saying, status: int, body: bytes, words: str) -> None:
        url = saying(status, body)
        result = ran(parent(remote_agent(url, name="far")))
        [outcome], [child] = result.tool_results, result.children
        assert isinstance(outcome, Failure)
        assert child.stop is Stop.FAILED
        assert words in outcome.error
        assert (child.error or {})["code"] == "remote_failed"

    @pytest.mark.parametrize("stop", ["completed", "failed", "budget"])
    def test_an_endless_answer_of_a_remote_is_told_in_part(self, saying: Saying, stop: str) -> None:
        long = "so it is " * 100_000
        record = {"stop": stop, "flags": [long], "warning": long, "error": {"message": long}, "text": long}
        url = saying(200, json.dumps(record).encode())
        result = parent(remote_agent(url, name="far")).start("Go.").result(BOUND_S)
        [outcome] = result.tool_results
        told = outcome.content if isinstance(outcome, Success) else getattr(outcome, "error", "")
        assert len(told) < 13_000
        assert told.startswith(f"far: {stop} (so it is")
        assert result.completed

    def test_a_service_that_is_not_there_is_a_failed_child(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = ran(parent(remote_agent(url, name="far")))
        assert (result.children[0].error or {})["code"] == "remote_failed"
        assert result.completed

    def test_does_not_show_the_token_that_it_says_back(self, saying: Saying, key: str) -> None:
        url = saying(500, b'{"detail": "bad token %s"}' % key.encode())
        result = ran(parent(remote_agent(url, name="far", token=key)))
        assert key not in str(result.to_dict())
        assert "bad token ***" in str(result.to_dict())

    def test_a_token_that_cannot_be_had_is_a_failed_child(self, key: str) -> None:
        def lost() -> str:
            raise ValueError(key)

        result = ran(parent(remote_agent("http://127.0.0.1:1", name="far", token=lost)))
        assert "ValueError" in (result.children[0].error or {})["message"]


def test_a_script_says_that_it_cannot_drive_a_remote_agent() -> None:
    result = ScriptDriver(parent(remote_agent("http://127.0.0.1:1", name="far"))).run("Go.")
    assert result.children[0].stop is Stop.FAILED
    assert "driver" in (result.children[0].error or {})["message"]


@pytest.mark.parametrize(
    "url",
    [None, "", "far", "ftp://x/chat", "http://", "http://u:p@x/chat", "http://x/?a=b", "http://x/#a", "http://x:0/"],
)
def test_a_url_of_a_remote_agent_that_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        remote_agent(url, name="far")
    assert caught.value.where == "remote_agent, url"
    assert "u:p" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("limits", 3),
        ("connect_seconds", 0),
        ("chain", 1),
        ("metadata", 1),
        ("name", ""),
    ],
)
def test_an_option_of_a_remote_agent_that_cannot_be_is_refused(option: str, value: Any) -> None:
    given: Any = {"name": "far", option: value}
    with pytest.raises(ConfigError) as caught:
        remote_agent("http://x", **given)
    assert caught.value.where.startswith(f"remote_agent, {option}")


@pytest.mark.parametrize("token", ["a b", ""])
def test_a_token_that_no_header_can_carry_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token") as caught:
        remote_agent("http://x", name="far", token=token)
    assert caught.value.code == "usage_error"


def test_the_address_is_that_of_the_chat_unless_it_says_otherwise() -> None:
    assert remote_agent("http://x:1", name="far").url == "http://x:1/chat"
    assert remote_agent("http://x/", name="far").url == "http://x/chat"
    assert remote_agent("https://x/a/b", name="far").url == "https://x/a/b"
