import itertools
import threading
import time
from collections.abc import Iterator
from threading import Barrier, Thread
from types import FrameType
from typing import Any

import pytest

import flyball.tools.context
from flyball.errors import CallClosed
from flyball.outcome import Cancelled, Outcome, Success, Timeout
from flyball.tools import OutcomeSlot

ENDS: list[Outcome] = [
    Success(call_id="1", tool="x", content="done"),
    Timeout(call_id="1", tool="x", cap_s=1.0),
    Cancelled(call_id="1", tool="x"),
]


@pytest.mark.parametrize("order", list(itertools.permutations(ENDS)))
def test_in_every_order_the_first_end_stands(order: tuple[Outcome, ...]) -> None:
    gate = OutcomeSlot()
    assert gate.outcome is None
    assert [gate.close(end) for end in order] == [True, False, False]
    assert gate.outcome is order[0]


@pytest.fixture
def giving_way_between_instructions() -> Iterator[None]:
    """Threads let others run between any two instructions of gate.py: without its lock, the test below fails."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != flyball.tools.context.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            time.sleep(0)
        return trace

    threading.settrace(trace)
    yield
    threading.settrace(None)


@pytest.mark.usefixtures("giving_way_between_instructions")
def test_exactly_one_of_many_threads_ends_a_call() -> None:
    for _ in range(30):
        gate, barrier, won = OutcomeSlot(), Barrier(6), list[Outcome]()

        def try_it(
            end: Outcome, gate: OutcomeSlot = gate, barrier: Barrier = barrier, won: list[Outcome] = won
        ) -> None:
            barrier.wait(60)
            if gate.close(end):
                won.append(end)

        threads = [Thread(target=try_it, args=(end,)) for end in [*ENDS, *ENDS]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert won == [gate.outcome]


def test_a_tool_may_commit_until_the_end() -> None:
    gate = OutcomeSlot()
    gate.commit()
    gate.close(ENDS[1])
    with pytest.raises(CallClosed, match="timed_out"):
        gate.commit()
