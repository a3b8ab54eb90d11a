import json

import pytest

from flyball.outcome import Artifact, Cancelled, Denied, Failure, Outcome, Reason, Status, Success, Timeout

OUTCOMES: list[tuple[Outcome, Status, str]] = [
    (Success(call_id="1", tool="add", content="3", value=3), Status.DONE, "3"),
    (
        Failure(call_id="1", tool="add", kind="ZeroDivisionError", error="by zero"),
        Status.FAILED,
        "ZeroDivisionError: by zero",
    ),
    (
        Timeout(call_id="1", tool="add", cap_s=45.0),
        Status.TIMED_OUT,
        "No result within 45 s. Whether it had an effect is not known.",
    ),
    (
        Denied(call_id="1", tool="add", reason=Reason.BUDGET, message="no call is left"),
        Status.DENIED,
        "Not run (budget): no call is left",
    ),
    (Cancelled(call_id="1", tool="add"), Status.CANCELLED, "Cancelled. Whether it had an effect is not known."),
]


@pytest.mark.parametrize(("outcome", "status", "text"), OUTCOMES)
def test_each_outcome_tells_the_model_the_truth(outcome: Outcome, status: Status, text: str) -> None:
    assert (outcome.status, outcome.text, outcome.ok) == (status, text, status is Status.DONE)


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
