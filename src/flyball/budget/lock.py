"""Locks of budgets, which refuse claims in a forked child.

A child process has a copy of every budget that existed before the fork. Claims on it would not count in the parent, and
its lock may be held for ever by a thread that the child does not have.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Any

from ..errors import UsageError

_REENTRANT: Any = type(RLock())  # `threading.RLock` is a function


def _define_lock() -> Any:
    class BudgetLock(_REENTRANT):
        __slots__ = ()

    return BudgetLock


_locks: Any = _define_lock()
"""Class of the locks that this process creates. To ask for the process in each claim would cost a quarter more."""


def create_lock() -> RLock:
    """Return a re-entrant lock. In a forked child it refuses `acquire`, and a `with` block no longer waits."""
    return _locks()


def _replace_locks() -> None:
    global _locks
    _locks.acquire = _refuse_claim
    _locks.__enter__ = _locks.__exit__ = _locks.release = _do_nothing
    _locks = _define_lock()


def _refuse_claim(*_: object, **__: object) -> bool:
    raise UsageError(
        "this budget was created before the fork, and what the child process claims would not count in its parent: "
        "create the budget in the child, or restore it there from `budget.snapshot()`"
    )


def _do_nothing(*_: object) -> None:
    pass


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_locks)
