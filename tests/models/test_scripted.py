from collections.abc import Callable
from typing import Any

import anyio
import pytest

from flyball import Agent, ConfigError, Limits, ModelError, TokenPrice, tool
from flyball.errors import Retryable
from flyball.message import Message, MessageType, Role
from flyball.request import Purpose, Request
from flyball.store import MemoryStore
from flyball.testing import ScriptDriver, ScriptedModel, call, fail, say, together


@tool(poll=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def request(run_id: str = "r", purpose: Purpose = Purpose.TURN, run: str = "r") -> Request:
    message = Message(run, 0, 0.0, MessageType.TEXT, Role.USER, "hello")
    return Request([message], purpose=purpose, run_id=run_id)


def adder(model: ScriptedModel, **limits: Any) -> Agent:
    return Agent(model=model, tools=[add], limits=Limits(**limits), instructions="Add.")


class TestLines:
    def test_a_script_says_one_line_for_each_request(self) -> None:
        model = ScriptedModel(call("add", a=1, b=2), say("3"))
        result = ScriptDriver(adder(model)).run("1 + 2?")
        assert (result.text, result.turns) == ("3", 2)
        model.assert_asked(2)

    def test_a_script_begins_anew_with_each_run(self) -> None:
        agent = adder(ScriptedModel(call("add", a=1, b=2), say("3")))
        assert [ScriptDriver(agent).run("1 + 2?").text for _ in range(3)] == ["3", "3", "3"]

    def test_a_request_past_the_last_line_fails_and_says_so(self, snapshot: Callable[..., None]) -> None:
        result = ScriptDriver(adder(ScriptedModel(call("add", a=1, b=2)))).run("1 + 2?", run_id="r7")
        assert result.stop == "failed"
        assert result.error is not None
        snapshot(result.error["message"])

    def test_looping_begins_again_behind_the_last_line(self) -> None:
        model = ScriptedModel.looping(call("add", a=1, b=2), say("", call("add", a=3, b=4)), grace=say("I added."))
        result = ScriptDriver(adder(model, turns=5)).run("Go on.")
        assert (result.stop, result.turns, result.text) == ("budget", 5, "I added.")
        assert [one.text for one in result.tool_results] == ["3", "7", "3", "7", "3"]

    def test_without_a_line_for_grace_the_next_line_is_said(self) -> None:
        result = ScriptDriver(adder(ScriptedModel(call("add", a=1, b=2), say("I added.")), turns=1)).run("Go on.")
        assert (result.stop, result.text) == ("budget", "I added.")

    def test_a_scripted_model_replies_with_its_name_and_provider(self) -> None:
        model = ScriptedModel(say("x"), name="opus", provider="acme")
        reply = anyio.run(model.ask, request())
        assert (reply.model, reply.provider) == ("opus", "acme")

    def test_a_looping_model_takes_the_same_options(self) -> None:
        price = TokenPrice(input=1, output=2)
        model = ScriptedModel.looping(say("x"), name="opus", provider=None, price=price, not_ready="no key")
        assert (model.name, model.provider, model.price, model.ready()) == ("opus", None, price, "no key")

    def test_a_model_that_is_not_ready_is_not_asked(self) -> None:
        model = ScriptedModel(say("x"), not_ready="the key is missing")
        result = adder(model).run("hello")
        assert (result.stop, result.requests, result.error and result.error["message"]) == (
            "failed",
            0,
            "the key is missing",
        )

    @pytest.mark.parametrize(
        ("wrong", "found"),
        [
            (lambda: ScriptedModel("hello"), "hello"),  # pyright: ignore[reportArgumentType]
            (lambda: ScriptedModel(grace="bye"), "bye"),  # pyright: ignore[reportArgumentType]
            (lambda: ScriptedModel(say("x"), graze=say("y")), "graze"),  # pyright: ignore[reportCallIssue]
        ],
    )
    def test_a_wrong_script_is_refused_at_once(self, wrong: Callable[[], Any], found: str) -> None:
        with pytest.raises(ConfigError) as caught:
            wrong()
        assert (caught.value.code, caught.value.found) == ("config_invalid", found)

    def test_a_looping_script_needs_a_line(self) -> None:
        with pytest.raises(ConfigError) as caught:
            ScriptedModel.looping()
        assert caught.value.code == "usage_error"


class TestRuns:
    def test_one_model_serves_several_agents(self) -> None:
        model = ScriptedModel(call("add", a=1, b=2), say("3"))
        first, second = adder(model), Agent(model=model, tools=[add], name="other")
        assert [first.run("1 + 2?").text, second.run("1 + 2?").text] == ["3", "3"]
        model.assert_said_all()

    def test_runs_side_by_side_each_hear_the_whole_script(self) -> None:
        model = ScriptedModel(call("add", a=1, b=2).after(0.001), together(call("add", a=2, b=3)), say("done"))
        agent, texts = adder(model), list[str]()

        async def one() -> None:
            texts.append((await agent.arun("1 + 2?")).text)

        async def all_of_them() -> None:
            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    for _ in range(20):
                        tasks.start_soon(one)

        anyio.run(all_of_them)
        assert texts == ["done"] * 20
        model.assert_asked(60)
        model.assert_said_all()

    def test_runs_that_were_started_each_hear_the_whole_script(self) -> None:
        agent = adder(ScriptedModel(call("add", a=1, b=2), say("3").after(0.001)))
        runs = [agent.start("1 + 2?") for _ in range(10)]
        assert {run.result(60).text for run in runs} == {"3"}

    @pytest.mark.parametrize("scripted", [False, True])
    def test_a_run_that_goes_on_from_another_begins_the_script_anew(self, scripted: bool) -> None:
        agent = adder(ScriptedModel(call("add", a=1, b=2), say("3")))
        run = ScriptDriver(agent).run if scripted else agent.run
        before = run("1 + 2?")
        assert run([*before.messages, "And again?"]).text == "3"
        assert run(before.messages).text == "3"
        assert run(before.messages[0]).text == "3"

    def test_what_somebody_else_has_said_before_is_no_line_of_it(self) -> None:
        said = [{"role": role, "content": "x"} for role in ("user", "assistant", "user")]
        assert adder(ScriptedModel(say("first"))).run(said).text == "first"

    def test_a_request_that_is_tried_again_gets_the_next_line(self) -> None:
        model = ScriptedModel(fail(Retryable("busy")), say("at last"))
        result = ScriptDriver(adder(model)).run("hello")
        assert (result.text, result.requests, result.turns) == ("at last", 2, 1)

    def test_every_request_names_its_run(self) -> None:
        model = ScriptedModel.looping(call("add", a=1, b=2), grace=say("I added."))
        before = ScriptDriver(adder(model, turns=1)).run("Go on.", run_id="first")
        ScriptDriver(adder(model, turns=1)).run(before.messages, run_id="second")
        assert [one.run_id for one in model.requests] == ["first", "first", "second", "second"]

    def test_a_request_made_by_hand_belongs_to_the_run_of_its_newest_message(self) -> None:
        model = ScriptedModel(say("a"), say("b"))
        taken = [model.take_line(request("", run=run))[0].text for run in ("x", "y", "x")]
        assert taken == ["a", "a", "b"]
        assert model.take_line(Request([]))[0].text == "a"


class TestStreaming:
    def test_the_text_is_told_piece_by_piece(self) -> None:
        told: list[str] = []
        reply = anyio.run(ScriptedModel(say("").streaming("he", "llo").after(0.001)).ask, request(), told.append)
        assert (told, reply.text) == (["he", "llo"], "hello")

    def test_nobody_has_to_listen(self) -> None:
        assert anyio.run(ScriptedModel(say("").streaming("he", "llo")).ask, request()).text == "hello"


class TestAsserts:
    def test_assertions_pass_where_they_are_right(self) -> None:
        model = ScriptedModel(call("add", a=1, b=2), say("3"))
        ScriptDriver(adder(model)).run("What is 1 + 2?")
        model.assert_asked(2)
        model.assert_saw("What is 1 + 2?")
        model.assert_saw("Add.")
        model.assert_offered("add")
        model.assert_said_all()

    @pytest.mark.parametrize(
        ("check", "given", "facts"),
        [
            ("asked", [2], ["1", "2"]),
            ("saw", ["4"], ["'4'"]),
            ("offered", ["subtract"], ["'add'", "'subtract'"]),
            ("said_all", [], ["r", "1", "2", "Line(text='never'"]),
        ],
    )
    def test_an_assertion_that_fails_says_what_is_wrong(
        self, snapshot: Callable[..., None], check: str, given: list[Any], facts: list[str]
    ) -> None:
        model = ScriptedModel(say("3"), say("never"))
        ScriptDriver(adder(model)).run("What is 1 + 2?", run_id="r")
        with pytest.raises(AssertionError) as caught:
            getattr(model, f"assert_{check}")(*given)
        assert all(fact in str(caught.value) for fact in facts)
        snapshot(str(caught.value).splitlines()[0], check)

    @pytest.mark.parametrize("name", ["assert_saw", "assert_offered", "assert_said_all"])
    def test_a_model_that_was_never_asked_saw_nothing(self, name: str) -> None:
        with pytest.raises(AssertionError):
            getattr(ScriptedModel(say("x")), name)(*["x"] if name == "assert_saw" else [])

    def test_a_script_of_no_lines_fails_at_the_first_request(self) -> None:
        with pytest.raises(ModelError) as caught:
            ScriptedModel().take_line(request())
        assert caught.value.code == "model_failed"


def test_a_run_that_goes_on_in_another_process_goes_on_in_the_script() -> None:
    store, done = MemoryStore(), list[str]()

    @tool
    def step(name: str) -> str:
        done.append(name)
        return name

    def agent() -> Agent:
        script = (say("First.", call("step", name="a"), call("step", name="b")), call("step", name="c"), say("Done."))
        model = ScriptedModel(*script, grace=say("So far."))
        return Agent(model=model, tools=[step], limits=Limits(turns=1), store=store)

    assert agent().run("go", run_id="run").text == "So far."
    assert agent().resume("run", extend={"turns": 5}).text == "Done."
    assert done == ["a", "b", "c"]
