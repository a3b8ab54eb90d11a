"""The compare-and-set of a call's end, in every order that hypothesis finds, and with real threads."""

import itertools
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from threading import Barrier, Thread
from types import FrameType
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

import flyball.tools.context
from flyball.errors import CallClosed
from flyball.outcome import Cancelled, Denied, Failure, Outcome, Reason, Status, Success, Timeout
from flyball.tools import OutcomeSlot

Plan = list[Outcome | None]
"""What is done one after the other: an end closes the gate, None is a commit."""


def ends() -> st.SearchStrategy[Outcome]:
    ids = st.sampled_from(["1", "2"])
    words = st.sampled_from(["", "done"])
    name = st.just("x")
    return st.one_of(
        st.builds(Success, call_id=ids, tool=name, content=words),
        st.builds(Failure, call_id=ids, tool=name, kind=st.just("ValueError"), error=words),
        st.builds(Timeout, call_id=ids, tool=name, cap_s=st.sampled_from([0.0, 1.0])),
        st.builds(Denied, call_id=ids, tool=name, reason=st.sampled_from(Reason), message=words),
        st.builds(Cancelled, call_id=ids, tool=name),
    )


def refused(gate: OutcomeSlot) -> str | None:
    """How the call ended, if a commit is told that it has; else None."""
    try:
        gate.commit()
    except CallClosed as error:
        return error.end
    return None


@given(st.lists(st.one_of(st.none(), ends())))
def test_the_first_end_stands_and_commits_are_refused_from_then_on(schedule: Plan) -> None:
    gate, first = OutcomeSlot(), None
    for step in schedule:
        if step is None:
            assert refused(gate) == (None if first is None else first.status.value)
        else:
            assert gate.close(step) is (first is None)
            first = first or step
        assert gate.outcome is first


@given(st.permutations(list(Status)))
def test_no_kind_of_end_is_stronger_than_another(order: list[Status]) -> None:
    of_each: dict[Status, Outcome] = {
        Status.DONE: Success(call_id="1", tool="x", content=""),
        Status.FAILED: Failure(call_id="1", tool="x", kind="ValueError", error=""),
        Status.TIMED_OUT: Timeout(call_id="1", tool="x", cap_s=0.0),
        Status.DENIED: Denied(call_id="1", tool="x", reason=Reason.RULE, message=""),
        Status.CANCELLED: Cancelled(call_id="1", tool="x"),
    }
    gate = OutcomeSlot()
    assert [gate.close(of_each[status]) for status in order] == [True, False, False, False, False]
    assert gate.outcome is of_each[order[0]]
    assert refused(gate) == order[0].value


class Gates(RuleBasedStateMachine):
    """Many gates side by side, each beside the first end that it was given."""

    gates = Bundle[int]("gates")

    def __init__(self) -> None:
        super().__init__()
        self.made: list[OutcomeSlot] = []
        self.firsts: list[Outcome | None] = []

    @initialize(target=gates)
    def first(self) -> int:
        self.made.append(OutcomeSlot())
        self.firsts.append(None)
        return 0

    @rule(target=gates)
    def another(self) -> int:
        self.made.append(OutcomeSlot())
        self.firsts.append(None)
        return len(self.made) - 1

    @rule(n=gates, end=ends())
    def close(self, n: int, end: Outcome) -> None:
        assert self.made[n].close(end) is (self.firsts[n] is None)
        self.firsts[n] = self.firsts[n] or end

    @rule(n=gates)
    def close_with_what_stands(self, n: int) -> None:
        if (stands := self.made[n].outcome) is not None:
            assert self.made[n].close(stands) is False

    @rule(n=gates)
    def commit(self, n: int) -> None:
        first = self.firsts[n]
        if first is None:
            self.made[n].commit()
        else:
            with pytest.raises(CallClosed) as caught:
                self.made[n].commit()
            assert caught.value.end == first.status.value

    @invariant()
    def every_first_end_still_stands(self) -> None:
        assert all(gate.outcome is first for gate, first in zip(self.made, self.firsts, strict=True))


TestGates = Gates.TestCase
TestGates.settings = settings(max_examples=60, stateful_step_count=30)


class Step(NamedTuple):
    """One call of one thread, between two ticks of a count that all threads share."""

    began: int
    ended: int
    end: Outcome | None
    said: bool | str | None
    """What `close` returned, or how a commit was refused."""


@contextmanager
def giving_way(pattern: list[bool]) -> Generator[None]:
    """In each call of gate.py, new threads let others run before the instructions that the pattern, repeated, names."""

    def enter(frame: FrameType, _event: str, _arg: object) -> Any:
        if frame.f_code.co_filename != flyball.tools.context.__file__:
            return None
        frame.f_trace_opcodes = True
        gives_way = itertools.cycle(pattern)

        def trace(_frame: FrameType, event: str, _arg: object) -> Any:
            if event == "opcode" and next(gives_way):
                time.sleep(0)
            return trace

        return trace

    threading.settrace(enter)
    try:
        yield
    finally:
        threading.settrace(None)


def together(gate: OutcomeSlot, plans: list[Plan]) -> list[Step]:
    """Each plan in a thread of its own, all from one moment on; every call that was made."""
    barrier, tick, made = Barrier(len(plans)), itertools.count(), list[Step]()

    def follow(plan: Plan) -> None:
        barrier.wait(60)
        for end in plan:
            began = next(tick)
            said = refused(gate) if end is None else gate.close(end)
            made.append(Step(began, next(tick), end, said))

    threads = [Thread(target=follow, args=(plan,), daemon=True) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(made) == sum(map(len, plans))
    return made


LATE = Timeout(call_id="1", tool="x", cap_s=1.0)
DONE = Success(call_id="1", tool="x", content="done")
PLANS = st.lists(st.lists(st.one_of(st.none(), ends()), min_size=1, max_size=4), min_size=2, max_size=6)
PATTERNS = st.lists(st.booleans(), min_size=1, max_size=12)


@settings(max_examples=60)
@example(plans=[[DONE], [LATE]] * 3, pattern=[True])
@example(plans=[[None, DONE, None], [None, LATE, None]] * 3, pattern=[True])
@given(PLANS, PATTERNS)
def test_threads_in_any_order_agree_on_one_end(plans: list[Plan], pattern: list[bool]) -> None:
    gate = OutcomeSlot()
    with giving_way(pattern):
        made = together(gate, plans)
    closes = [step for step in made if step.end is not None]
    won = [step for step in closes if step.said is True]
    assert len(won) == min(len(closes), 1)
    assert gate.outcome is (won[0].end if won else None)
    for step in made:
        if step.said is None:
            assert all(step.began < winner.ended for winner in won), "a commit went through after the end"
        elif step not in won:
            assert any(step.ended > winner.began for winner in won), "an end was felt before it was there"
            assert step.said == (stands.status.value if step.end is None and (stands := gate.outcome) else False)


@pytest.mark.parametrize("repeat", range(20))
def test_exactly_one_of_many_threads_at_a_barrier_ends_a_call(repeat: int) -> None:
    plans: list[Plan] = [[DONE] if n % 2 == repeat % 2 else [LATE] for n in range(8)]
    gate = OutcomeSlot()
    with giving_way([True]):
        made = together(gate, plans)
    assert [step.end for step in made if step.said] == [gate.outcome]
    assert refused(gate) == (gate.outcome and gate.outcome.status.value)
    assert gate.close(Cancelled(call_id="1", tool="x")) is False
