"""Looking back: a request without tools between two turns, inside its budget and its time, that guides the next."""

from collections.abc import Callable
from typing import Any

import pytest

from flyball import Agent, Limits, tool
from flyball.budget.price import TokenPrice
from flyball.errors import ConfigError, ContextTooLong, ModelError
from flyball.event import ModelReplied, ModelRequested, Reflected
from flyball.loop.effects import Act, Ask, Cancel, TimeUp
from flyball.request import Finish, Purpose, Usage
from flyball.result import Result
from flyball.steadiness import Reflection
from flyball.testing import Line, ScriptDriver, ScriptedModel, assert_honest, call, fail, say, together


@tool(effects="read")
def look(n: int) -> int:
    """Look."""
    if n < 0:
        raise ValueError("not there")
    return n


def lines(turns: int) -> list[Line]:
    return [*[call("look", n=n) for n in range(turns)], say("done")]


def run(model: ScriptedModel, reflection: Reflection, **options: Any) -> Result:
    return assert_honest(ScriptDriver(Agent(model=model, tools=[look], reflection=reflection, **options)).run("Go."))


def script(turns: int, **options: Any) -> ScriptedModel:
    return ScriptedModel(*lines(turns), reflection=say("Look elsewhere."), **options)


def purposes(model: ScriptedModel) -> list[str]:
    return [request.purpose.value for request in model.requests]


def test_every_so_many_turns() -> None:
    model = script(4)
    result = run(model, Reflection(every=2))
    assert purposes(model) == ["turn", "turn", "reflection", "turn", "turn", "reflection", "turn"]
    assert (result.turns, result.requests, result.budgets["reflections"].used) == (5, 7, 2)
    assert result.reflections == ("Look elsewhere.",) * 2
    assert [event.text for event in result.events if isinstance(event, Reflected)] == ["Look elsewhere."] * 2


def test_a_failed_call_is_followed_by_a_reflection() -> None:
    model = ScriptedModel(
        call("look", n=1), call("look", n=-1), call("look", n=2), say("done"), reflection=say("Look elsewhere.")
    )
    run(model, Reflection(after_failure=True))
    assert purposes(model) == ["turn", "turn", "reflection", "turn", "turn"]


def test_a_reflection_offers_no_tools_and_asks_behind_all_that_was_said() -> None:
    model = script(1)
    run(model, Reflection(every=1, prompt="What now?"), instructions="Be brief.")
    [asked] = [request for request in model.requests if request.purpose is Purpose.REFLECTION]
    assert (asked.tools, asked.instructions, asked.messages[-1].content) == ((), "Be brief.", "What now?")
    assert [message.content for message in asked.messages[:-1]] == ["Go.", "", "0"]


def test_a_reflection_guides_the_next_turn_and_is_not_part_of_the_history(snapshot: Callable[..., None]) -> None:
    model = script(2)
    result = run(model, Reflection(every=1))
    seen = [request.notices for request in model.requests]
    [guidance] = seen[2]
    assert guidance.endswith(": Look elsewhere.")
    assert seen == [(), (), (guidance,), (), (guidance,)]
    assert all("elsewhere" not in message.content for message in result.messages)
    snapshot(guidance)


def test_tokens_and_money_of_a_reflection_are_charged() -> None:
    model = script(1, price=TokenPrice(input=1, output=10))
    model_alone = ScriptedModel(*lines(1), price=TokenPrice(input=1, output=10))
    result, alone = run(model, Reflection(every=1)), ScriptDriver(Agent(model=model_alone, tools=[look])).run("Go.")
    assert result.usage.total == alone.usage.total + 15
    assert sum(result.cost.values()) > sum(alone.cost.values())


def test_when_the_budget_says_no_that_is_noted_once_and_the_run_goes_on() -> None:
    model = script(5)
    result = run(model, Reflection(every=1), limits=Limits(reflections=2))
    assert (result.stop, result.flags) == ("completed", ("max_reflections_reached",))
    assert result.reflections == (
        "Look elsewhere.",
        "Look elsewhere.",
        "(No reflection: Maximum reflections (2) reached.)",
    )


def test_a_reflection_has_30_seconds_at_most(snapshot: Callable[..., None]) -> None:
    model = ScriptedModel(*lines(1), reflection=say("Too late.").after(31))
    driver = ScriptDriver(Agent(model=model, tools=[look], reflection=Reflection(every=1)))
    result = assert_honest(driver.run("Go."))
    assert (result.stop, driver.at) == ("completed", 30.0)
    [note] = result.reflections
    snapshot(note)


def test_a_reflection_has_no_more_than_is_left_of_the_time_for_work() -> None:
    model = ScriptedModel(call("look", n=1).after(60), say("done"), reflection=say("Too late.").after(31))
    driver = ScriptDriver(Agent(model=model, tools=[look], limits=Limits(seconds=90), reflection=Reflection(every=1)))
    driver.run("Go.")
    [deadline] = [
        effect.deadline
        for effect in driver.effects
        if isinstance(effect, Ask) and effect.request.purpose is Purpose.REFLECTION
    ]
    assert deadline == 90 - 90 * 0.15


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        (fail(ModelError("down")), ": down)"),
        (fail(ValueError("odd")), ": odd)"),
        (say(""), ""),
        (call("look", n=1), ""),
        (say("Half a").ending(Finish.CONTENT_FILTER), ""),
    ],
    ids=["model error", "other error", "empty", "only a call", "filtered"],
)
def test_without_a_reflection_the_run_goes_on(line: Line, fact: str, snapshot: Callable[..., None]) -> None:
    result = run(ScriptedModel(*lines(1), reflection=line), Reflection(every=1))
    [note] = result.reflections
    assert result.stop == "completed"
    assert fact in note
    snapshot(note)
    assert len(result.tool_results) == 1, "a call that it asks for is not made"


def test_without_tokens_for_it_there_is_no_reflection(snapshot: Callable[..., None]) -> None:
    usage = Usage(400, 50)
    model = ScriptedModel(call("look", n=1).using(usage), say("done").using(Usage(1, 1)), reflection=say("x"))
    result = run(model, Reflection(every=1), limits=Limits(tokens=1_000), max_output_tokens=2_000)
    assert "x" not in result.reflections
    snapshot(result.reflections[0])


def test_a_reflection_that_comes_too_late_does_not_take_all_that_is_left() -> None:
    model = ScriptedModel(*lines(3), reflection=say("Too late.").after(31))
    result = run(model, Reflection(every=2), limits=Limits(tokens=20_000))
    assert (result.stop, result.flags) == ("completed", ())


@pytest.mark.parametrize(("most", "asked"), [(None, 2_000), (77, 77), (9_000, 2_000)])
def test_the_reply_of_a_reflection_is_bounded_as_every_other_is(most: int | None, asked: int) -> None:
    for limits in (Limits(), Limits(tokens=100_000)):
        model = script(1)
        run(model, Reflection(every=1), limits=limits, max_output_tokens=most)
        assert model.requests[1].max_output_tokens == asked


def test_the_beginning_of_a_long_reflection_is_shown_to_the_next_turn() -> None:
    model = ScriptedModel(*lines(1), reflection=say("word " * 5_000))
    result = run(model, Reflection(every=1), limits=Limits(context_tokens=4_000))
    assert (result.stop, len(result.reflections[0])) == ("completed", 24_999)
    assert len(model.requests[2].notices[0]) < 4_100


def test_a_request_that_was_too_long_is_no_turn_to_look_back_at() -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b " * 2_000}] * 3
    too_long = fail(ContextTooLong("too long"))
    model = ScriptedModel(too_long, call("look", n=-1), too_long, say("done"), reflection=say("Look elsewhere."))
    agent = Agent(model=model, tools=[look], reflection=Reflection(every=1, after_failure=True))
    assert_honest(ScriptDriver(agent).run([*history, {"role": "user", "content": "c"}]))
    assert purposes(model) == ["turn", "turn", "reflection", "turn", "turn"]


def test_nothing_is_asked_when_the_run_was_ended_while_the_conversation_was_summed_up() -> None:
    def agent() -> Agent:
        turns = [together(*[call("look", n=n) for n in range(30)]).using(None)] * 3
        model = ScriptedModel(*turns, say("done"), grace=say("I looked."), reflection=say("x"))
        limits = Limits(context_tokens=3_020)
        return Agent(
            model=model, tools=[look], limits=limits, compact=lambda _: "Looked.", reflection=Reflection(every=1)
        )

    whole = ScriptDriver(agent())
    whole.run("Go.")
    acts = [(n, effect.acts) for n, effect in enumerate(whole.effects) if isinstance(effect, Act)]
    place = next(n for n, calls in acts if calls[0].call.name == "compact")
    for letter, stop in ((Cancel(), "cancelled"), (TimeUp(), "deadline")):
        driver = ScriptDriver(agent(), signals={place: [letter]})
        assert assert_honest(driver.run("Go.")).stop == stop
        asked = [effect.request.purpose for effect in driver.effects[place:] if isinstance(effect, Ask)]
        assert asked == ([] if stop == "cancelled" else [Purpose.GRACE])


def test_where_no_turn_can_follow_there_is_no_reflection() -> None:
    model = ScriptedModel(*lines(3), grace=say("I looked."), reflection=say("x"))
    result = run(model, Reflection(every=1), limits=Limits(turns=2))
    assert purposes(model) == ["turn", "reflection", "turn", "grace"]
    assert result.stop == "budget"


def test_a_long_conversation_is_shortened_for_it() -> None:
    model = ScriptedModel(
        *[together(*[call("look", n=n) for n in range(30)]).using(None)] * 3, say("done"), reflection=say("x")
    )
    result = run(model, Reflection(every=1), limits=Limits(context_tokens=3_000))
    assert any(event.kind == "elided" for event in result.events)
    assert "x" in result.reflections


def test_a_cancel_meanwhile_ends_the_run() -> None:
    agent = Agent(model=script(2), tools=[look], reflection=Reflection(every=1))
    result = assert_honest(ScriptDriver(agent, signals={3: [Cancel()]}).run("Go."))
    assert (result.stop, result.reflections, result.turns) == ("cancelled", (), 1)


def test_events_tell_the_purpose_of_each_request() -> None:
    result = run(script(1), Reflection(every=1))
    asked = [event for event in result.events if isinstance(event, ModelRequested)]
    replied = [event for event in result.events if isinstance(event, ModelReplied)]
    assert [event.purpose for event in asked] == [event.purpose for event in replied] == ["turn", "reflection", "turn"]
    assert [event.tools for event in asked] == [("look",), (), ("look",)]


def test_a_run_is_played_again_with_its_reflections() -> None:
    driver = ScriptDriver(Agent(model=script(3), tools=[look], reflection=Reflection(every=1)))
    assert driver.run("Go.").reflections == driver.replay().reflections


@pytest.mark.parametrize(
    "wrong", [{}, {"every": 0}, {"every": "3"}, {"every": 1, "prompt": " "}, {"after_failure": 1}], ids=str
)
def test_a_wrong_reflection_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"[Rr]eflection"):
        Reflection(**wrong)
