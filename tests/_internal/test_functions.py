from functools import partial
from typing import Any

import pytest

from flyball._internal.functions import is_async


async def awaited(n: int = 0) -> int:
    return n


def called(n: int = 0) -> Any:
    return awaited(n)


class Awaited:
    async def __call__(self, n: int = 0) -> int:
        return n

    async def method(self) -> None: ...


class Called:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (awaited, True),
        (partial(partial(awaited), 1), True),
        (Awaited(), True),
        (partial(Awaited(), 1), True),
        (Awaited().method, True),
        (called, False),
        (partial(called, 1), False),
        (Called(), False),
        (Awaited, False),
        (None, False),
    ],
)
def test_a_function_is_async_if_its_calls_are_awaited(function: object, expected: bool) -> None:
    assert is_async(function) is expected
