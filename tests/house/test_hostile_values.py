"""Messages, arguments, results and schemas from elsewhere take time that grows with their size, whatever is in them.

As test_hostile_text.py, for input that is a structure. To add a case, add a line.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from flyball._internal.jsonable import parse_json_value, to_jsonable
from flyball.agent.output import Output
from flyball.budget.budget import IterationBudget
from flyball.budget.deadline import Deadline
from flyball.budget.run_budget import TurnBudget
from flyball.loop.repetition import build_call_key
from flyball.message import Message, repair_pairs
from flyball.models import AnthropicModel, OpenAIModel, local_prompt
from flyball.models.structured import close_schema, is_strict_schema
from flyball.progress import Progress
from flyball.request import Call, Request
from flyball.rules.view import View
from flyball.store.codec import to_text
from flyball.tools.definition import Tool
from flyball.tools.json_schema import JsonSchemaArguments
from flyball.tools.mcp_client.session import extract_value
from flyball.wire import normalize

Read = Callable[[Any], object]
Make = Callable[[int], Any]
Compare = Callable[[Read, Make, Make], None]
Json = dict[str, Any]

ANTHROPIC, OPENAI = AnthropicModel("m", key="k"), OpenAIModel("m", key="k")
SAME_HASH = 2**61 - 1
"""All multiples of this have the same hash."""


def hear(model: AnthropicModel | OpenAIModel, events: list[Json]) -> object:
    ear = model.create_parser()
    for event in events:
        ear.parse_event(event)
    return ear.build_reply()


def thoughts(pieces: int) -> Make:
    """Make reasoning in small pieces, so many to a block."""
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "x" * 16}}
    start = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking"}}
    block = [start, *[delta] * pieces, {"type": "content_block_stop", "index": 0}]
    return lambda size: (block * (size // len(block) // 16 + 1))[: size // 16]


def blocks(step: int) -> Make:
    start = {"type": "content_block_start", "content_block": {"type": "thinking"}}
    return lambda size: [{**start, "index": n * step} for n in range(size // 64)]


def pieces_of_calls(step: int) -> Make:
    def piece(index: int) -> Json:
        call = {"index": index, "id": "", "function": {"name": "f", "arguments": "{}"}}
        return {"choices": [{"delta": {"tool_calls": [call]}}]}

    return lambda size: [piece(n * step) for n in range(size // 64)]


def batch(*, answered: bool) -> Make:
    """Make calls of one batch, with their results or without."""

    def make(size: int) -> list[Message]:
        ids = [f"c{n}" for n in range(size // 128)]
        asked = [{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in ids]
        results = [{"role": "tool", "tool_call_id": id, "content": "x"} for id in ids]
        said: list[Json] = [{"role": "assistant", "content": None, "tool_calls": asked}]
        return normalize([*said, *results] if answered else said, run="r")

    return make


def results(length: int) -> Make:
    """Make results of one tool in a row."""

    def make(size: int) -> Request:
        said = {"role": "tool", "tool_call_id": "c", "content": "x" * length}
        return Request(normalize([said] * (size // length), run="r"))

    return make


def below(key: Callable[[int], str]) -> Make:
    """Make a value with one key, which may be as long as the size, and rows below it."""
    return lambda size: {key(size): [[[[[[n]]]]] for n in range(size // 128)]}


LONG_KEY, SHORT_KEY = below(lambda length: "k" * length), below(lambda _: "k")


def same_keys(size: int) -> Json:
    """Make keys of halves of surrogate pairs, all of which become question marks."""
    ends = [chr(0xD800 + n) for n in range(2048)]
    return {"a": float("inf"), **{one + other: 1 for one in ends[: size // 32_768] for other in ends}}


def other_keys(size: int) -> Json:
    return {"a": float("inf"), **{f"k{n:06}": 1 for n in range(size // 16)}}


def nested(levels: int) -> Make:
    return lambda size: Call("1", "f", "[" * levels + json.dumps("x" * size) + "]" * levels)


def wide(part: Json) -> Make:
    return lambda size: {"type": "object", "properties": {f"p{n}": part for n in range(size // 64)}}


def arguments(given: tuple[Json, Json]) -> object:
    schema, value = given
    return JsonSchemaArguments("tool", schema).read(json.dumps(value))


def checked(schema: Json, value: Make) -> Make:
    """Make arguments for a schema of one parameter."""
    return lambda size: ({"properties": {"a": schema}}, {"a": value(size)})


def doubling(keyword: str, levels: int) -> Make:
    """Make a schema that doubles per level. Without bounds 18 levels take ten seconds, so the size does not matter."""
    parts = {f"l{n}": {keyword: [{"$ref": f"#/$defs/l{n + 1}"}] * 2} for n in range(levels)}
    return lambda _: ({"$defs": {**parts, f"l{levels}": {}}, "$ref": "#/$defs/l0"}, {})


def branches(count: int) -> Json:
    return {"anyOf": [{"type": "null"}] * count}


def unknown_names(schema: Json) -> Make:
    return lambda size: (schema, {f"parameter_{n}": 1 for n in range(size // 32)})


def rows(size: int) -> list[Json]:
    return [{"a": n} for n in range(size // 32)]


def numbers(size: int) -> list[int]:
    return [n * SAME_HASH for n in range(size // 32)]


def letters(size: int) -> str:
    return "x" * size


def words(size: int) -> list[str]:
    return ["x"] * (size // 8)


def result(items: Make) -> Make:
    """Make a result of a server whose texts repeat its structured content."""
    from mcp_types import CallToolResult

    def make(size: int) -> CallToolResult:
        found = items(size)
        texts = [{"type": "text", "text": json.dumps(one)} for one in found]
        return CallToolResult.model_validate({"content": texts, "structured_content": {"result": found}})

    return make


def look(value: Json) -> object:
    view = View({"state": value})
    return [view.get(f"state.{key}") for key in value]


def message(value: Json) -> object:
    return normalize([{"role": "user", "content": "x", **value}], run="r")


def add_up(a: list[int]) -> int:
    return sum(a)


def typed_answer(value: list[Any]) -> object:
    budget = TurnBudget({"turns": IterationBudget("turns", 1)}, Deadline.after(60))
    return Output(list[int])(Progress("run", budget, (), {}, text=json.dumps(value)))


ENUM: Json = {"items": {"enum": [str(n) for n in range(10_000)]}}
MANY: Json = {"additionalProperties": False, "properties": {f"parameter{n}": {} for n in range(300)}}
HALF_OPEN: Json = {"anyOf": [{"properties": {"a": {}}}] * 4}

CASES: dict[str, tuple[Read, Make, Make]] = {
    "reasoning in small pieces": (partial(hear, ANTHROPIC), thoughts(2**16), thoughts(4)),
    "blocks of one hash": (partial(hear, ANTHROPIC), blocks(SAME_HASH), blocks(1)),
    "calls of one hash": (partial(hear, OPENAI), pieces_of_calls(SAME_HASH), pieces_of_calls(1)),
    "many results in a row": (local_prompt.build_messages, results(40), results(4_000)),
    "calls without results": (repair_pairs, batch(answered=False), batch(answered=True)),
    "a message with rows below a long key": (message, LONG_KEY, SHORT_KEY),
    "a table with rows below a long key": (partial(parse_json_value, "here"), LONG_KEY, SHORT_KEY),
    "a view of rows below a long key": (look, LONG_KEY, SHORT_KEY),
    "keys that become the same": (to_jsonable, same_keys, other_keys),
    "keys that become the same, kept": (to_text, same_keys, other_keys),
    "arguments that are nested": (build_call_key, nested(900), nested(1)),
    "a wide schema": (
        lambda schema: (is_strict_schema(schema), close_schema(schema)),
        wide(HALF_OPEN),
        wide({"type": "string"}),
    ),
    "a schema that doubles, allOf": (arguments, doubling("allOf", 18), doubling("allOf", 12)),
    "a schema that doubles, oneOf": (arguments, doubling("oneOf", 18), doubling("oneOf", 12)),
    "unique rows": (arguments, checked({"uniqueItems": True}, rows), checked({"type": "array"}, rows)),
    "unique numbers": (arguments, checked({"uniqueItems": True}, numbers), checked({"type": "array"}, numbers)),
    "a long enum": (arguments, checked(ENUM, words), checked({"items": {"type": "string"}}, words)),
    "no branch fits": (arguments, checked(branches(5_000), letters), checked(branches(5_000), lambda _: "x")),
    "unknown names": (arguments, unknown_names(MANY), unknown_names({})),
    "texts that repeat a result": (extract_value, result(lambda size: words(size // 8)), result(lambda _: ["x"] * 99)),
}  # fmt: skip

DEAR: dict[str, tuple[Read, Make, Make]] = {
    "an answer of mistakes": (typed_answer, lambda size: [""] * (size // 16), lambda size: [10] * (size // 16)),
    "arguments of mistakes": (
        Tool(add_up).read, lambda size: {"a": [""] * (size // 16)}, lambda size: {"a": [10] * (size // 16)},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("read", "hostile", "benign"), CASES.values(), ids=CASES)
def test_a_hostile_value_is_read_about_as_fast_as_a_benign_one(
    assert_as_fast: Compare, read: Read, hostile: Make, benign: Make
) -> None:
    assert_as_fast(read, hostile, benign)


@pytest.mark.parametrize(("read", "hostile", "benign"), DEAR.values(), ids=DEAR)
def test_a_value_of_mistakes_takes_time_that_grows_with_its_size(
    assert_linear: Compare, read: Read, hostile: Make, benign: Make
) -> None:
    assert_linear(read, hostile, benign)
