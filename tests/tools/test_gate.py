import itertools
from threading import Barrier, Thread

import pytest

from flyball.errors import CallClosed
from flyball.tools import End, Gate


@pytest.mark.parametrize("order", list(itertools.permutations(End)))
def test_in_every_order_the_first_end_stands(order: tuple[End, ...]) -> None:
    gate = Gate()
    assert gate.end is None
    assert [gate.close(end) for end in order] == [True, False, False]
    assert gate.end is order[0]


def test_of_many_threads_exactly_one_ends_it() -> None:
    for _ in range(50):
        gate, barrier, won = Gate(), Barrier(6), list[End]()

        def try_it(end: End, gate: Gate = gate, barrier: Barrier = barrier, won: list[End] = won) -> None:
            barrier.wait(60)
            if gate.close(end):
                won.append(end)

        threads = [Thread(target=try_it, args=(end,)) for end in [*End, *End]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert won == [gate.end]


def test_a_tool_may_commit_until_the_end() -> None:
    gate = Gate()
    gate.commit()
    gate.close(End.TIMED_OUT)
    with pytest.raises(CallClosed, match="timed_out"):
        gate.commit()
