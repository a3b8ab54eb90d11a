"""The store contract, as checks for a store of your own.

They run with or without pytest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from types import ModuleType
from typing import cast

from ...budget.deadline import Clock
from ...store import Store
from ..clock import ManualClock
from . import journal, lease, run, step, transcript
from .store_fixture import StoreFixture

Opener = Callable[[Clock], Store]
"""Function that opens an empty store. The store takes the time of its leases from the clock."""

Check = Callable[[Opener], None]
"""Function that opens a store, checks one promise and closes the store. AssertionError names the broken promise."""

_MODULES = (transcript, journal, lease, run, step)


def store_contract() -> Sequence[Check]:
    """Return a check for every promise of a store, named after it.

    >>> from flyball.store import MemoryStore
    >>> for check in store_contract():
    ...     check(MemoryStore)

    With pytest: `@pytest.mark.parametrize("check", store_contract(), ids=lambda check: check.__name__)`.
    """
    return [_wrap_check(check) for module in _MODULES for check in _iter_checks(module)]


def _iter_checks(module: ModuleType) -> Iterator[Callable[[StoreFixture], None]]:
    """Yield the public functions defined in a module."""
    for name, value in vars(module).items():
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == module.__name__:
            yield cast("Callable[[StoreFixture], None]", value)


def _wrap_check(contract_check: Callable[[StoreFixture], None]) -> Check:
    @wraps(contract_check)
    def check(opener: Opener) -> None:
        clock = ManualClock()
        with opener(clock) as store:
            contract_check(StoreFixture(store, clock))

    return check
