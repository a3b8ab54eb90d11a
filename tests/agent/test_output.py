import json
import re
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from flyball import Agent, ConfigError, Limits
from flyball.agent.output import Form, Output, build_completion_spec
from flyball.budget.budget import IterationBudget
from flyball.budget.deadline import Deadline
from flyball.budget.run_budget import TurnBudget
from flyball.models import AnthropicModel, OpenAIModel
from flyball.progress import Complete, Continue, Decision, Progress, Unfinished
from flyball.request import Request
from flyball.testing import ScriptDriver, ScriptedModel, say
from flyball.wire import normalize


class City(BaseModel):
    name: str
    people: int


@dataclass
class Point:
    x: int
    y: int


def answering(kind: Any, *texts: str, **more: Any) -> Agent:
    return Agent(model=ScriptedModel(*map(say, texts)), output=kind, **more)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (City, '{"name": "Ulm", "people": 126000}', City(name="Ulm", people=126_000)),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (list[int], "[1, 2]", [1, 2]),
        (int, "```json\n7\n```", 7),
        (int, " \n```\n7\n```\n ", 7),
    ],
)
def test_an_answer_that_fits_is_a_value(kind: Any, text: str, value: object) -> None:
    result = answering(kind, text).run("go")
    assert (result.output, result.text, result.stop) == (value, text, "completed")


class Node(BaseModel):
    children: list["Node"]


NO_OBJECTS: list[tuple[Any, object, object]] = [
    (list[str], ["a"], ["a"]),
    (int, 7, 7),
    (bool, True, True),
    (City | Point, {"x": 1, "y": 2}, Point(1, 2)),
    (City | None, None, None),
    (Literal["yes", "no"], "no", "no"),
    (date, "2026-11-18", date(2026, 11, 18)),
    (Node, {"children": [{"children": []}]}, Node(children=[Node(children=[])])),
]


@pytest.mark.parametrize(("kind", "value", "expected"), NO_OBJECTS)
@pytest.mark.parametrize("is_wrapped", [True, False], ids=["wrapped", "bare"])
def test_a_type_that_is_no_object_is_asked_for_in_one_and_unwrapped(
    kind: Any, value: object, expected: object, is_wrapped: bool
) -> None:
    model = ScriptedModel(say(json.dumps({"result": value} if is_wrapped else value)))
    result = Agent(model=model, output=kind).run("go")
    assert (result.output, result.stop) == (expected, "completed")
    schema = model.requests[0].output_schema
    assert schema is not None
    assert (schema["type"], list(schema["properties"]), schema["required"]) == ("object", ["result"], ["result"])


@pytest.mark.parametrize("kind", [list[str], int, City | Point, Literal["yes", "no"], Node])
def test_providers_enforce_a_wrapped_type(kind: Any) -> None:
    schema = build_completion_spec(None, kind, ()).output_schema or {}
    asked = Request(normalize(["Hello"], run="r"), output_schema=schema)
    openai = OpenAIModel("gpt", stream=False).build_body(asked)["response_format"]["json_schema"]
    anthropic = AnthropicModel("claude", stream=False).build_body(asked)["output_config"]["format"]
    assert openai["strict"]
    assert openai["schema"] == anthropic["schema"]
    assert openai["schema"]["additionalProperties"] is False


def test_an_object_is_asked_for_as_it_is() -> None:
    model = ScriptedModel(say('{"result": 3}'))
    assert Agent(model=model, output=dict[str, int]).run("go").output == {"result": 3}
    assert (model.requests[0].output_schema or {})["type"] == "object"


def test_mistakes_in_a_wrapped_answer_are_told_where_they_are() -> None:
    model = ScriptedModel(say('{"result": [1, "x"]}'), say('{"wrong": 1}'), say('{"result": [1]}'))
    result = Agent(model=model, output=list[int]).run("go")
    assert (result.output, result.requests) == ([1], 3)
    model.assert_saw("result.1: Input should be a valid integer")
    model.assert_saw("the answer: Input should be a valid array")


def test_words_around_one_fenced_block_do_no_harm() -> None:
    model = ScriptedModel(say('Here it is:\n```json\n{"a": 1}\n```\nDone.'))
    assert ScriptDriver(Agent(model=model, output=dict[str, int])).run("x").output == {"a": 1}


def test_a_text_is_an_answer_as_it_is() -> None:
    assert ScriptDriver(Agent(model=ScriptedModel(say("hi")), output=str)).run("x").output == "hi"


def test_an_output_that_does_not_fit_is_told_every_mistake_and_asked_again() -> None:
    agent = answering(City, '{"name": 5, "people": "many"}', '{"name": "Ulm", "people": 126000}')
    result = agent.run("go")
    assert (result.output, result.requests) == (City(name="Ulm", people=126_000), 2)
    nudge = result.messages[2].content
    assert "name: " in nudge
    assert "people: " in nudge
    assert "'many'" in nudge


def test_an_output_that_never_fits_ends_unfinished_within_the_nudges() -> None:
    agent = answering(int, *["seven"] * 3, limits=Limits(nudges=2))
    result = agent.run("go")
    assert (result.stop, result.output, result.text, result.requests) == ("unfinished", None, "seven", 3)
    assert result.flags == ("max_nudges_reached",)


def test_another_policy_must_agree_too() -> None:
    def never(_: Progress) -> Decision:
        return Unfinished(("proof",))

    def always(_: Progress) -> Decision:
        return Complete("something else")

    assert answering(int, "7", completion=never).run("go").stop == "unfinished"
    assert answering(int, "7", completion=always).run("go").output == 7


def test_the_model_is_told_what_form_is_wanted() -> None:
    model = ScriptedModel(say('{"x": 1, "y": 2}'))
    Agent(model=model, output=Point).run("go")
    schema = model.requests[0].output_schema
    assert schema is not None
    assert set(schema["properties"]) == {"x", "y"}


def test_a_type_that_json_cannot_carry_is_refused_at_once() -> None:
    class Opaque:
        pass

    with pytest.raises(ConfigError, match="agent, output"):
        Agent(model=ScriptedModel(), output=Opaque)


def test_a_form_that_is_no_type_is_shown_to_the_model_and_decides_what_fits() -> None:
    def mistakes(value: object) -> list[str]:
        return [] if value == 7 else [f"$: {value} is not 7"]

    schema = {"$ref": "#/$defs/seven", "$defs": {"seven": {"const": 7}}}
    model = ScriptedModel(say("6"), say("7"))
    result = Agent(model=model, output=Form(schema, mistakes)).run("Say seven.")
    assert (result.stop, result.output) == ("completed", 7)
    assert model.requests[0].output_schema == schema
    assert "- $: 6 is not 7" in model.requests[1].messages[-1].content


FENCED = re.compile(r"^```(?:json)?[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
"""What a fenced block is. It needs the square of the time, so the code goes over the lines instead."""


@given(st.lists(st.sampled_from(["```", "```json", " ```", "``` ", "", '"a"', "x", "```x"]), max_size=9))
def test_the_one_fenced_block_is_the_answer(lines: list[str]) -> None:
    text = "\n".join(lines)
    found = FENCED.findall(text)
    progress = Progress(
        "run", TurnBudget({"turns": IterationBudget("turns", 1)}, Deadline.after(60)), (), {}, text=text
    )
    decision = Output(str | None)(progress)
    assert isinstance(decision, Complete) is ((len(found) == 1 and found[0].strip() == '"a"') or text.strip() == '"a"')


def test_at_most_twenty_mistakes_are_told() -> None:
    progress = Progress(
        "run", TurnBudget({"turns": IterationBudget("turns", 1)}, Deadline.after(60)), (), {}, text="[1]"
    )
    decision = Output(list[int])(replace(progress, text=str(["x"] * 1_000).replace("'", '"')))
    assert isinstance(decision, Continue)
    assert decision.message.splitlines()[20:] == [
        "- 19: Input should be a valid integer, unable to parse string as an integer; found 'x'",
        "- and 980 more",
        "Answer again, with nothing but the JSON.",
    ]
