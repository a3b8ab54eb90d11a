"""The contract of a store, as checks that anybody can run on a store of their own. They need no pytest."""

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
"""Opens a store that is empty, and takes the time of its leases from the clock."""

Check = Callable[[Opener], None]
"""Opens a store, tries one promise, and closes the store. An AssertionError tells what was broken."""

_MODULES = (transcript, journal, lease, run, step)


def store_contract() -> Sequence[Check]:
    """Every promise of a store as a check that is named after it.

    >>> from flyball.store import MemoryStore
    >>> for check in store_contract():
    ...     check(MemoryStore)

    With pytest: `@pytest.mark.parametrize("check", store_contract(), ids=lambda check: check.__name__)`.
    """
    return [_wrap_check(promise) for part in _MODULES for promise in _iter_checks(part)]


def _iter_checks(module: ModuleType) -> Iterator[Callable[[StoreFixture], None]]:
    """The public functions that are written in a module."""
    for name, found in vars(module).items():
        if not name.startswith("_") and callable(found) and getattr(found, "__module__", "") == module.__name__:
            yield cast("Callable[[StoreFixture], None]", found)


def _wrap_check(contract_check: Callable[[StoreFixture], None]) -> Check:
    @wraps(contract_check)
    def check(opener: Opener) -> None:
        clock = ManualClock()
        with opener(clock) as store:
            contract_check(StoreFixture(store, clock))

    return check
