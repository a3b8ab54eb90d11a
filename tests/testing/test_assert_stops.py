import re
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from flyball import Agent, ConfigError, Limits, TokenPrice, Usage, tool
from flyball.request import Reply, Request
from flyball.testing import ManualClock, ScriptedModel, assert_stops, call, say


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def stubborn(**limits: Any) -> Agent:
    model = ScriptedModel.looping(
        call("add", a=1, b=2), grace=say("I added 1 and 2."), price=TokenPrice(input=1, output=1)
    )
    return Agent(model=model, tools=[add], limits=Limits(**limits))


class TestInside:
    def test_assert_stops_returns_the_result_of_a_run_that_ended_inside_its_bounds(self) -> None:
        result = assert_stops(
            stubborn(turns=3),
            "Never stop.",
            within={"turns": 3, "requests": 4, "tool_calls": 3, "tokens": 60, "usd": 0.00006, "stop": "budget"},
        )
        assert (result.text, result.turns, result.messages[0].content) == ("I added 1 and 2.", 3, "Never stop.")

    def test_a_task_need_not_be_given(self) -> None:
        assert assert_stops(stubborn(turns=1), within={}).turns == 1

    def test_a_denied_call_was_not_made(self) -> None:
        assert len(assert_stops(stubborn(tool_calls=2), within={"tool_calls": 2}).tool_results) == 3

    def test_seconds_are_those_of_the_run(self) -> None:
        model = ScriptedModel(say("hello"))
        assert assert_stops(Agent(model=model, clock=ManualClock()), within={"seconds": 0}).completed

    def test_a_model_that_is_no_script_will_do(self) -> None:
        class Echo:
            name, provider, price = "echo", None, None

            def ready(self) -> str | None:
                return None

            def ask(self, request: Request, tell: object, /) -> Reply:
                return Reply(request.messages[-1].content, usage=Usage(1, 1))

        assert assert_stops(Agent(model=Echo()), "hello", within={"turns": 1, "stop": "completed"}).text == "hello"


class TestOutside:
    @pytest.mark.parametrize(
        ("within", "facts"),
        [
            ({"turns": 2}, [r"turns: 3\b.* 2\b"]),
            ({"requests": 3}, [r"requests: 4\b.* 3\b"]),
            ({"tool_calls": 0}, [r"tool calls: 3\b.* 0\b"]),
            ({"tokens": 59}, [r"tokens: 60\b.* 59\b"]),
            ({"usd": 0.00005}, [r"usd: \$0.00006.* \$0.00005"]),
            ({"stop": "completed"}, [r"stop: budget.* completed\b"]),
            ({"turns": 2, "stop": "failed", "tokens": 9}, [r"turns: 3\b", r"tokens: 60\b", r"stop: budget.* failed\b"]),
        ],
    )
    def test_a_run_outside_its_bounds_fails_and_says_what_was_exceeded(self, within: Any, facts: list[str]) -> None:
        with pytest.raises(AssertionError) as caught:
            assert_stops(stubborn(turns=3), within=within)
        assert all(re.search(fact, str(caught.value)) for fact in facts)

    def test_the_text_of_a_run_outside_its_bounds_is_as_stored(self, snapshot: Callable[..., None]) -> None:
        with pytest.raises(AssertionError) as caught:
            assert_stops(stubborn(turns=3), within={"turns": 2, "usd": 0.00005, "stop": "failed"})
        snapshot(str(caught.value).splitlines()[0])

    def test_time_is_a_bound_too(self) -> None:
        agent = Agent(model=ScriptedModel(say("hello").after(0.05)))
        with pytest.raises(AssertionError, match=r"seconds: [\d.]+ s.* 0.01 s"):
            assert_stops(agent, within={"seconds": 0.01})


class TestNeverEnding:
    def test_a_run_that_does_not_end_is_cancelled_and_that_is_told(self) -> None:
        model = ScriptedModel(call("add", a=1, b=2), say("never").after(86_400))
        agent = Agent(model=model, tools=[add], limits=Limits(seconds=86_400))
        with pytest.raises(AssertionError, match=r"0\.2"):
            assert_stops(agent, within={"turns": 3}, patience=0.2)

    def test_a_tool_that_hangs_does_not_hold_it(self) -> None:
        hangs = Event()

        def hang() -> None:
            """Hang."""
            hangs.wait(60)

        agent = Agent(model=ScriptedModel(call("hang")), tools=[hang])
        with pytest.raises(AssertionError, match=r"0\.2"):
            assert_stops(agent, within={"seconds": 0.1}, patience=0.1)
        hangs.set()


@pytest.mark.parametrize(
    ("options", "where", "found"),
    [
        ({"within": {"turn": 3}}, "within", "turn"),
        ({"within": {"turns": -1}}, "within turns", -1),
        ({"within": {"stop": "done"}}, "within stop", "done"),
        ({"within": 5}, "within", 5),
        ({"within": {}, "patience": -1}, "patience", -1),
    ],
)
def test_bounds_that_nobody_knows_are_refused_before_anything_runs(
    options: dict[str, Any], where: str, found: object
) -> None:
    model = ScriptedModel(say("x"))
    with pytest.raises(ConfigError) as caught:
        assert_stops(Agent(model=model), **options)
    assert caught.value.where.endswith(where)
    assert caught.value.found == found
    model.assert_asked(0)
