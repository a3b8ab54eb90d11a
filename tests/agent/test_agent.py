import gc
import weakref
from typing import Any, cast

import pytest

from flyball import Agent, ConfigError, IterationBudgetRegistry, Limits
from flyball.budget.price import TokenPrice
from flyball.errors import UsageError
from flyball.message import Message, MessageType, Role
from flyball.testing import ManualClock, ScriptDriver, ScriptedModel, call, say


def add(a: int, b: int) -> int:
    return a + b


async def wait(*_: object) -> bool:
    return False


class WithoutCounter(ScriptedModel):
    count = 3


class Waiting:
    async def __call__(self, event: object) -> None: ...


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"model": object()}, "agent, model"),
        ({"model": ScriptedModel}, "agent, model"),
        ({"model": ScriptedModel(price=cast("Any", 5))}, "agent, model's price"),
        ({"model": WithoutCounter()}, "agent, model's count"),
        ({"instructions": ["Be brief."]}, "agent, instructions"),
        ({"kind": "agnt"}, "agent, kind"),
        ({"grace": "no"}, "agent, grace"),
        ({"single_turn": 1}, "agent, single_turn"),
        ({"registry": {}}, "agent, registry"),
        ({"limits": 5}, "agent, limits"),
        ({"name": ""}, "agent, name"),
        ({"metadata": 5}, "agent, metadata"),
        ({"max_output_tokens": -1}, "agent, max_output_tokens"),
        ({"events_kept": -1}, "agent, events_kept"),
        ({"completion": 5}, "agent, completion"),
        ({"should_continue": 5}, "agent, should_continue"),
        ({"should_continue": wait}, "agent, should_continue"),
        ({"completion": wait}, "agent, completion"),
        ({"hooks": [wait]}, "agent, hooks"),
        ({"sinks": [Waiting()]}, "agent, sinks"),
        ({"hooks": wait}, "agent, hooks"),
        ({"sinks": None}, "agent, sinks"),
        ({"tools": None}, "agent, tools"),
        ({"tools": "add"}, "agent, tools"),
        ({"hooks": [5]}, "agent, hooks"),
        ({"sinks": [5]}, "agent, sinks"),
        ({"tools": [add, add]}, "tools"),
        ({"tools": [5]}, "tool"),
    ],
)
def test_what_cannot_work_is_refused_when_the_agent_is_made(options: dict[str, Any], where: str) -> None:
    given: dict[str, Any] = {"model": ScriptedModel(say("x")), **options}
    with pytest.raises(ConfigError) as caught:
        Agent(**given)
    assert (caught.value.code, caught.value.where) == ("config_invalid", where)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"limits": Limits(usd=1)}, "the price of scripted is not known"),
        ({"registry": IterationBudgetRegistry(settings={}), "settings": {}}, "not both"),
    ],
)
def test_options_that_do_not_work_together_are_refused_when_the_agent_is_made(
    options: dict[str, Any], text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        Agent(model=ScriptedModel(say("x")), **options)


@pytest.mark.parametrize(
    ("options", "where"),
    [
        ({"within": Limits(turns=3)}, "run, within"),
        ({"run_id": 5}, "run, run_id"),
        ({"session": ""}, "run, session"),
        ({"metadata": [1]}, "run, metadata"),
        ({"state": 5}, "run, state"),
        ({"wihtin": None}, "run, options"),
    ],
)
def test_what_a_run_cannot_use_is_refused_by_every_door(options: dict[str, Any], where: str) -> None:
    agent = Agent(model=ScriptedModel(say("x")))
    for door in (agent.run, agent.start, agent.open, agent.plan, ScriptDriver(agent).run):
        with pytest.raises(ConfigError) as caught:
            door("go", **options)
        assert (caught.value.code, caught.value.where) == ("config_invalid", where)


def test_a_misspelt_option_of_a_run_is_answered_with_the_right_one() -> None:
    options: dict[str, Any] = {"wihtin": None}
    with pytest.raises(ConfigError) as caught:
        Agent(model=ScriptedModel(say("x"))).run("go", **options)
    assert "within" in caught.value.expected


def test_an_option_that_is_none_is_left_out() -> None:
    options: dict[str, Any] = dict.fromkeys(("within", "run_id", "session", "metadata", "state"))
    assert Agent(model=ScriptedModel(say("x"))).run("go", **options).completed


@pytest.mark.parametrize("task", ["", " \n", []])
def test_a_task_must_say_something(task: Any) -> None:
    with pytest.raises(ConfigError):
        Agent(model=ScriptedModel(say("x"))).run(task)


@pytest.mark.parametrize(
    "task",
    [
        "What is it?",
        Message("r", 0, 0.0, MessageType.TEXT, Role.USER, "What is it?"),
        {"role": "user", "content": "What is it?"},
        ["What is it?"],
        [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}, "What is it?"],
    ],
)
def test_a_task_is_a_text_or_a_conversation(task: Any) -> None:
    model = ScriptedModel(say("It is 3."))
    result = Agent(model=model).run(task)
    asked = model.requests[0].messages[-1]
    assert (asked.role, asked.content) == (Role.USER, "What is it?")
    assert (result.text, result.messages[-1].content) == ("It is 3.", "It is 3.")


def test_an_agent_can_run_again_and_each_run_is_its_own() -> None:
    agent = Agent(model=ScriptedModel(call("add", a=1, b=2), say("3")), tools=[add], metadata={"job": 1})
    first, second = agent.run("go", state={"n": 1}), agent.run("go", metadata={"step": 2})
    assert first.run_id != second.run_id
    assert (first.state, second.state) == ({"n": 1}, {})
    assert (first.metadata, second.metadata) == ({"job": 1}, {"job": 1, "step": 2})
    assert [event.kind for event in first.events] == [event.kind for event in second.events]


def test_what_a_run_is_given_as_state_is_not_changed_for_its_caller() -> None:
    given = {"n": 1}
    Agent(model=ScriptedModel(say("x"))).run("go", state=given)
    assert given == {"n": 1}


def test_the_worst_case_of_one_run_can_be_known_before() -> None:
    price = TokenPrice(input=1.0, output=2.0)
    agent = Agent(model=ScriptedModel(say("x"), price=price), limits=Limits(turns=5, tokens=10_000))
    worst = agent.worst_case()
    assert (worst.turns, worst.tokens) == (5, 10_000)
    assert worst.cost is not None


def test_settings_count_where_a_limit_is_left_out() -> None:
    agent = Agent(
        model=ScriptedModel.looping(call("add", a=1, b=2), grace=say("x")), tools=[add], settings={"max_iterations": 2}
    )
    assert agent.run("go").turns == 2


def test_a_run_goes_by_the_agents_clock() -> None:
    clock = ManualClock(wall=1_000.0)

    def tick() -> None:
        clock.move(50)

    agent = Agent(
        model=ScriptedModel.looping(call("tick"), grace=say("x")), tools=[tick], limits=Limits(seconds=100), clock=clock
    )
    result = agent.run("go")
    assert (result.stop, result.seconds) == ("deadline", 100.0)
    assert result.events[0].header.started_at == 1_000.0


def test_an_agent_that_is_no_longer_used_is_freed_without_the_garbage_collector() -> None:
    agent = Agent(model=ScriptedModel(say("Done.")))
    assert agent.run("task").text == "Done."
    freed = weakref.ref(agent)
    gc.collect()  # the run's own cycles
    gc.disable()
    try:
        del agent
        assert freed() is None
    finally:
        gc.enable()


def test_the_repr_of_an_agent_says_what_it_is() -> None:
    assert repr(Agent(model=ScriptedModel(name="m"), tools=[add], name="adder")) == "<Agent adder: m, 1 tool>"
