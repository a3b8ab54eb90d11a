"""Random choices of the chaos tests, drawn from bytes so that Hypothesis can shrink them."""

import os
from typing import Any

import hypothesis.strategies as st

IS_SOAK = "CHAOS_EXAMPLES" in os.environ
"""True if the tests run at length, with other examples each time."""


def count_examples(default: int) -> int:
    """Return the number of examples: `CHAOS_EXAMPLES` of the environment, or the default."""
    return int(os.environ.get("CHAOS_EXAMPLES", default))


def sized(size: int) -> st.SearchStrategy[bytes]:
    """Return a strategy for exactly this many bytes."""
    return st.binary(min_size=size, max_size=size)


class Dice:
    """Draws from bytes. A byte of 0, and every draw after the last byte, picks the first and simplest option."""

    def __init__(self, data: bytes) -> None:
        self._left = iter(data)

    def pick(self, *options: Any) -> Any:
        return options[next(self._left, 0) % len(options)]

    def once_in(self, times: int) -> bool:
        return next(self._left, 0) % times == times - 1
