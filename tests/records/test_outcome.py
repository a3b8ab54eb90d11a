import json
from collections.abc import Callable

import pytest

from flyball.outcome import Artifact, Cancelled, Denied, Failure, Outcome, Reason, Status, Success, Timeout

OUTCOMES: list[tuple[Outcome, Status, str]] = [
    (Success(call_id="1", tool="add", content="3", value=3), Status.DONE, "3"),
    (
        Failure(call_id="1", tool="add", kind="ZeroDivisionError", error="by zero"),
        Status.FAILED,
        "ZeroDivisionError: by zero",
    ),
    (Timeout(call_id="1", tool="add", cap_s=45.0), Status.TIMED_OUT, "45 s"),
    (Denied(call_id="1", tool="add", reason=Reason.BUDGET, message="no call is left"), Status.DENIED, "(budget)"),
    (Cancelled(call_id="1", tool="add"), Status.CANCELLED, ""),
]


@pytest.mark.parametrize(("outcome", "status", "fact"), OUTCOMES, ids=[status for _, status, _ in OUTCOMES])
def test_each_outcome_tells_the_model_the_truth(
    outcome: Outcome, status: Status, fact: str, snapshot: Callable[..., None]
) -> None:
    assert (outcome.status, outcome.ok) == (status, status is Status.DONE)
    assert fact in outcome.text
    snapshot(outcome.text)


@pytest.mark.parametrize("outcome", [outcome for outcome, _, _ in OUTCOMES])
def test_each_outcome_is_json(outcome: Outcome) -> None:
    record = json.loads(json.dumps(outcome.to_dict()))
    assert (record["status"], record["text"], record["tool"], record["call_id"]) == (
        outcome.status,
        outcome.text,
        "add",
        "1",
    )


def test_the_union_is_closed() -> None:
    assert {status for _, status, _ in OUTCOMES} == set(Status)


def test_a_large_output_is_a_handle() -> None:
    outcome = Success(call_id="1", tool="read", content="…", artifact=Artifact("run:7", 50_000))
    assert outcome.to_dict()["artifact"] == {"id": "run:7", "size": 50_000}
