import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball import BudgetSnapshot, Message, Result, RunStopped, Stop, Unit, Usage
from flyball.outcome import Cancelled, Success
from flyball.request import Call

STATUS = {
    "contended": "transcript_lock_contention",
    "cancelled": "interrupted",
    "failed": "error",
    "deadline": "budget_exceeded",
    "budget": "budget_exceeded",
    "halted": "incomplete",
    "stalled": "stalled",
    "paused": "approval_required",
    "unfinished": "incomplete",
    "completed": "completed",
}


def test_the_reasons_are_closed_and_in_their_order() -> None:
    assert [stop.value for stop in Stop] == list(STATUS)


@pytest.mark.parametrize("stop", Stop)
def test_each_reason_has_its_status_in_the_record(stop: Stop) -> None:
    record = Result(stop=stop).to_dict()
    assert (record["status"], record["stop"], record["completed"]) == (STATUS[stop], stop.value, stop == "completed")


def test_the_record_has_the_fields_of_seed_002_and_ours() -> None:
    message = Message("r1", 0, 0.0, "text", "assistant", "done")  # pyright: ignore[reportArgumentType]
    result = Result(
        stop=Stop.BUDGET,
        text="report",
        flags=("max_conversation_turns_reached",),
        warning="Maximum conversation turns (3) reached.",
        turns=3,
        requests=4,
        messages=[message],
        tool_results=[Success(call_id="c1", tool="add", content="3")],
        last_calls=[Call("c1", "add", {"a": 1})],
        usage=Usage(40, 10),
        cost={"gpt": 1_500_000_000},
        budgets={"turns": BudgetSnapshot("conversation_turns", 3, used=3)},
    )
    record = json.loads(json.dumps(result.to_dict()))
    assert record["messages"][0]["content"] == "done"
    assert (record["final_content"], record["turn_count"], record["max_turns_reached"]) == ("report", 3, True)
    assert record["last_tool_calls"] == [{"id": "c1", "name": "add", "arguments": {"a": 1}}]
    assert record["tool_execution_results"][0]["status"] == "done"
    assert record["usage"]["input"] == 40
    assert (record["request_metadata"], record["requests"]) == ([], 4)
    assert (record["warning"], record["error"]) == ("Maximum conversation turns (3) reached.", None)
    assert (record["text"], record["flags"], record["cost_usd"]) == (
        "report",
        ["max_conversation_turns_reached"],
        {"gpt": 1.5},
    )
    assert record["budgets"]["turns"]["used"] == 3


def test_another_budgets_flag_is_not_that_of_the_turns() -> None:
    budgets = {"turns": BudgetSnapshot("agent_iterations", 3, used=1)}
    result = Result(stop=Stop.BUDGET, flags=("max_tokens_reached",), budgets=budgets)
    assert result.to_dict()["max_turns_reached"] is False


def test_a_run_that_completed_on_its_last_turn_did_not_reach_its_limit() -> None:
    result = Result(stop=Stop.COMPLETED, budgets={"turns": BudgetSnapshot("agent_iterations", 3, used=3)})
    assert result.to_dict()["max_turns_reached"] is False


def test_a_record_with_odd_numbers_is_json() -> None:
    record = Result(stop=Stop.COMPLETED, seconds=float("inf"), metadata={"x": 10**5_000}, flags=("\ud800",)).to_dict()
    assert json.loads(json.dumps(record).encode("utf-8")) == record


class TestExplain:
    def test_an_explanation_says_why_what_was_used_and_what_would_help(self, snapshot: Callable[..., None]) -> None:
        result = Result(
            stop=Stop.BUDGET,
            flags=("max_agent_iterations_reached",),
            warning="Maximum agent iterations (3) reached.",
            budgets={
                "turns": BudgetSnapshot("agent_iterations", 3, used=3),
                "tool_calls": BudgetSnapshot("tool_calls", None, used=7),
                "tokens": BudgetSnapshot("tokens", 5_000, used=0),
                "usd": BudgetSnapshot("cost_usd", 2 * 10**9, used=10**9, unit=Unit.USD),
            },
            seconds=1.25,
        )
        snapshot(result.explain())

    def test_an_explanation_names_who_halted_it_and_what_failed(self) -> None:
        assert "rule-7" in Result(stop=Stop.HALTED, stopped_by="rule-7").explain()
        failed = Result(stop=Stop.FAILED, error={"code": "x", "message": "no disk"})
        assert "no disk" in failed.explain()

    @pytest.mark.parametrize("stop", Stop)
    def test_every_stop_reason_is_explained_in_sentences(self, stop: Stop, snapshot: Callable[..., None]) -> None:
        snapshot(Result(stop=stop).explain())


class TestRaiseForStop:
    def test_a_completed_run_raises_nothing(self) -> None:
        result = Result(stop=Stop.COMPLETED, flags=("max_tool_calls_reached",))
        result.raise_for_stop()
        assert result.completed

    @pytest.mark.parametrize("stop", [stop for stop in Stop if stop is not Stop.COMPLETED])
    def test_every_other_end_raises_with_the_result_on_it(self, stop: Stop) -> None:
        result = Result(stop=stop, text="partial")
        with pytest.raises(RunStopped) as caught:
            result.raise_for_stop()
        assert (caught.value.stop, caught.value.result) == (stop.value, result)
        assert str(pickle.loads(pickle.dumps(caught.value))) == result.explain()


class Odd:
    """What is no JSON at all."""


anything: Any = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(st.characters()) | st.binary() | st.builds(Odd) | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
mappings: Any = st.dictionaries(st.text(), anything, max_size=3)


@given(
    stop=st.sampled_from(Stop),
    text=st.text(st.characters()),
    output=anything,
    stopped_by=st.none() | st.text(),
    error=st.none() | mappings,
    metadata=mappings,
    completion=mappings,
    questions=st.lists(mappings, max_size=2),
    value=anything,
)
def test_the_record_of_any_result_is_json(value: object, **parts: Any) -> None:
    odd_message = Message("r1", 0, 0.0, "text", "user", "x", payload={"odd": value})  # pyright: ignore[reportArgumentType]
    inner = Result(stop=Stop.CANCELLED, metadata=parts["metadata"], tool_results=[Cancelled(call_id="1", tool="x")])
    outcome = Success(call_id="1", tool="x", content="y", value=value)
    result = Result(**parts, children=[inner], messages=[odd_message], tool_results=[outcome])
    record = result.to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
