import pytest

from flyball import Deadline, DeadlineToken
from flyball.errors import CallClosed
from flyball.outcome import Cancelled
from flyball.tools import ToolContext, ToolState


def context(state: ToolState | None = None) -> ToolContext:
    token = DeadlineToken(Deadline.after(60))
    return ToolContext(token=token, run_id="r", call_id="c", idempotency_key="r:c", state=state or ToolState())


def test_state_reads_the_run_and_keeps_what_is_set_as_changes() -> None:
    run = {"a": 1, "b": 2}
    state = ToolState(run)
    state["a"] = 10
    state["c"] = 3
    del state["b"]
    assert (dict(state), len(state), "b" in state) == ({"a": 10, "c": 3}, 2, False)
    assert state.changes == {"a": 10, "c": 3, "b": None}
    assert run == {"a": 1, "b": 2}


def test_what_is_not_there_cannot_be_deleted_or_read() -> None:
    state = ToolState({"gone": None})
    for key in ("gone", "never"):
        with pytest.raises(KeyError):
            del state[key]
        with pytest.raises(KeyError):
            _ = state[key]
    assert state.changes == {}


def test_a_call_that_is_dead_may_not_commit() -> None:
    call = context()
    call.commit()
    call.report("half way")
    call.gate.close(Cancelled(call_id="c", tool="x"))
    with pytest.raises(CallClosed):
        call.commit()
