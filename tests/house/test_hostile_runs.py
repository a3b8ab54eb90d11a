"""Runs whose model, tools or price misbehave close every pair, keep texts short, and can be written.

To add a reply that no model should return, add a line to REPLIES.
"""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest

from flyball import Agent, Limits, Result, tool
from flyball.budget.price import Price, TokenPrice
from flyball.budget.usage import MAX_TOKENS, Usage
from flyball.event import Event
from flyball.models.model import OnText
from flyball.request import Call, Reply, Request
from flyball.store import MemoryStore
from flyball.testing import ScriptedModel, call, say
from flyball.tools.excerpt import MAX_CHARACTERS

LARGE_INT = 10**5_000
PAIRS = {"run_started": "run_ended", "turn_started": "turn_ended", "model_requested": "model_replied"}


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def contains_itself() -> dict[str, Any]:
    table: dict[str, Any] = {}
    table["a"] = table
    return table


def nested() -> dict[str, Any]:
    table: dict[str, Any] = {}
    for _ in range(3_000):
        table = {"a": table}
    return table


def reply(**fields: Any) -> Reply:
    return Reply("x", **fields)


def calling(arguments: Any) -> Reply:
    return Reply("", (Call("1", "double", arguments),))


REPLIES: dict[str, Reply] = {
    "parts: None": reply(parts=None),
    "parts: None, with usage": reply(parts=None, usage=Usage(1, 1)),
    "parts: a number": reply(parts=7),
    "parts: no mapping": reply(parts=(1,)),
    "parts: unshowable": reply(parts=({"a": Unshowable()},)),
    "parts: contain themselves": reply(parts=(contains_itself(),)),
    "parts: a long number": reply(parts=({"a": LARGE_INT},)),
    "parts: keys that are no text": reply(parts=({(1, 2): 1},)),
    "model and provider: unshowable": reply(model=Unshowable(), provider=Unshowable()),
    "arguments: None": calling(None),
    "arguments: a list": calling([1]),
    "arguments: unshowable": calling(Unshowable()),
    "arguments: an unshowable value": calling({"a": Unshowable()}),
    "arguments: contain themselves": calling(contains_itself()),
    "arguments: nested": calling(nested()),
    "arguments: nested text": calling("[" * 100_000),
    "arguments: a long number": calling({"a": LARGE_INT}),
    "arguments: a long number as text": calling('{"a": 1' + "0" * 5_000 + "}"),
    "arguments: keys that are no text": calling({(1, 2): 3}),
    "names: half a character": Reply("", (Call("\ud800", "\ud800", "{}"),)),
}


@tool(sensitive=["a"])
def double(a: int = 1) -> int:
    """Double a number."""
    return 2 * a


@dataclass
class Answering:
    """Model whose first reply is given."""

    first: Reply | None
    price: Price | None = None
    name: str = "answering"
    provider: str | None = None

    def ready(self) -> str | None:
        return None

    async def ask(self, request: Request, on_text: OnText) -> Reply:
        given, self.first = self.first, None
        return given or Reply("done")


def run_to_end(model: Any, **options: Any) -> tuple[Result, Counter[str]]:
    """Run an agent with a store, and check that its events, its record and the stored run are complete."""
    events: list[Event] = []
    store = MemoryStore()
    limits = Limits(turns=3, seconds=60)
    result = Agent(model=model, store=store, sinks=[events.append], limits=limits, **options).run("go", session="s")
    counts = Counter(event.kind for event in events)
    assert [first for first, last in PAIRS.items() if counts[first] != counts[last]] == []
    assert json.loads(json.dumps(result.to_dict()))["stop"] == result.stop
    stored = store.runs.get(result.run_id)
    assert stored is not None
    assert stored.finish is not None
    assert (stored.finish.stop, (stored.finish.record or {})["stop"]) == (result.stop, result.stop)
    return result, counts


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_that_no_model_should_return_closes_every_pair_and_is_stored(name: str) -> None:
    result, _ = run_to_end(Answering(REPLIES[name]), tools=[double])
    assert result.stop in ("completed", "failed")


def test_arguments_that_are_no_json_are_denied_and_the_run_continues() -> None:
    result, _ = run_to_end(Answering(calling(contains_itself())), tools=[double])
    assert (result.stop, result.text) == ("completed", "done")
    assert [outcome.status for outcome in result.tool_results] == ["denied"]


def test_parts_that_are_no_tuple_fail_the_request() -> None:
    result, _ = run_to_end(Answering(reply(parts=None)))
    assert (result.stop, (result.error or {})["kind"]) == ("failed", "ModelError")


class RaisingPrice:
    def cost(self, usage: Usage) -> int:
        raise RuntimeError("no price today")


def test_a_price_that_raises_closes_every_pair() -> None:
    result, counts = run_to_end(Answering(reply(usage=Usage(1, 1)), RaisingPrice()))
    assert (result.stop, counts["model_requested"]) == ("failed", 1)


class TestUsage:
    @pytest.mark.parametrize("count", [MAX_TOKENS + 1, 10**400, LARGE_INT], ids=["above", "400 digits", "5,000 digits"])
    def test_a_count_above_the_maximum_is_refused(self, count: int) -> None:
        with pytest.raises(ValueError, match="usage"):
            Usage(count)
        with pytest.raises(ValueError, match="usage"):
            Usage.of({"prompt_tokens": 1, "completion_tokens": count})

    def test_a_sum_stays_at_the_maximum(self) -> None:
        most = Usage(MAX_TOKENS, MAX_TOKENS)
        assert most + most == most
        assert Usage.of({"input_tokens": MAX_TOKENS, "cache_read_input_tokens": MAX_TOKENS}).input == MAX_TOKENS

    def test_the_largest_usage_of_the_dearest_model_can_be_stored(self) -> None:
        used = reply(usage=Usage(MAX_TOKENS, MAX_TOKENS))
        result, _ = run_to_end(Answering(used, TokenPrice(input=10**30, output=10**30)))
        assert result.usage == Usage(MAX_TOKENS, MAX_TOKENS)

    def test_a_cost_of_hundreds_of_digits_can_be_stored(self) -> None:
        class Dear:
            def cost(self, usage: Usage) -> int:
                return 10**400

        result, _ = run_to_end(Answering(reply(usage=Usage(1, 1)), Dear()))
        assert result.cost == {"answering": 10**400}


class TestErrorsOfTools:
    def fail(self, error: BaseException) -> tuple[Any, str]:
        """Return the outcome of a tool that raises, and the text that the model sees."""

        def work() -> None:
            """Work."""
            raise error

        model = ScriptedModel(call("work"), say("It failed."))
        result, _ = run_to_end(model, tools=[work])
        assert result.stop == "completed"
        shown = model.requests[1].messages[-1].content
        return result.tool_results[0], shown

    def test_a_long_error_is_shown_as_an_excerpt_and_kept_as_a_whole(self) -> None:
        outcome, shown = self.fail(RuntimeError("y" * 1_000_000))
        assert len(shown) <= MAX_CHARACTERS + 100
        assert (outcome.kind, outcome.artifact.size, len(outcome.whole_error)) == ("RuntimeError", 1_000_000, 1_000_000)

    def test_a_short_error_has_no_artifact(self) -> None:
        outcome, shown = self.fail(RuntimeError("y"))
        assert (outcome.error, outcome.artifact, outcome.whole_error, shown) == ("y", None, None, "RuntimeError: y")

    def test_a_long_name_of_an_error_is_cut(self) -> None:
        _, shown = self.fail(type("E" * 100_000, (Exception,), {})("x"))
        assert len(shown) < 1_000


class TestDeniedCalls:
    @pytest.mark.parametrize(
        "arguments",
        [
            {f"key{n}": n for n in range(60_000)},
            {"k" * 100_000: 1},
            {"a": {"k" * 100_000: 1}},
            {"a": "v" * 100_000},
            {"a": list(range(60_000))},
        ],
        ids=["60,000 names", "a long name", "a long key", "a long value", "60,000 items"],
    )
    def test_a_denial_lists_at_most_20_problems_in_few_characters(self, arguments: dict[str, Any]) -> None:
        result, _ = run_to_end(ScriptedModel(call("double", **arguments), say("ok")), tools=[double])
        [outcome] = result.tool_results
        assert (outcome.status, len(outcome.text) < MAX_CHARACTERS) == ("denied", True)
        assert outcome.text.count("no such parameter") <= 20

    def test_an_unknown_tool_with_a_long_name_is_denied_in_few_characters(self) -> None:
        result, _ = run_to_end(ScriptedModel(call("t" * 100_000), say("ok")), tools=[double])
        assert len(result.tool_results[0].text) < 1_000


def test_an_error_of_a_model_is_cut_in_results_and_events() -> None:
    class Failing(Answering):
        async def ask(self, request: Request, on_text: OnText) -> Reply:
            raise RuntimeError("y" * 1_000_000)

    result, _ = run_to_end(Failing(None))
    assert len(json.dumps(result.to_dict())) < 100_000


def test_a_typed_answer_with_long_keys_gets_a_short_nudge() -> None:
    model = ScriptedModel(say(json.dumps({f"{n}" * 20_000: "x" for n in range(50)})), say('{"a": 1}'))
    result, _ = run_to_end(model, output=dict[str, int])
    assert (result.stop, len(model.requests[1].messages[-1].content) < MAX_CHARACTERS) == ("completed", True)
