"""Every store of ours keeps the contract that we ship; and the contract notices one that does not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flyball.budget.deadline import Clock
from flyball.errors import FlyballError
from flyball.store import Guard, Holder, MemoryStore, Pruned, SqliteStore, Step, Store
from flyball.store.encoded_step import EncodedStep
from flyball.testing import store_contract

CHECKS = {check.__name__: check for check in store_contract()}


def open_memory(_folder: Path, clock: Clock) -> Store:
    return MemoryStore(clock)


def open_sqlite(folder: Path, clock: Clock) -> Store:
    return SqliteStore(folder / "runs.db", clock=clock)


OPENERS: dict[str, Callable[[Path, Clock], Store]] = {"memory": open_memory, "sqlite": open_sqlite}


@pytest.mark.parametrize("name", CHECKS)
@pytest.mark.parametrize("kind", OPENERS)
def test_a_store_keeps_the_contract(kind: str, name: str, tmp_path: Path) -> None:
    CHECKS[name](lambda clock: OPENERS[kind](tmp_path, clock))


class Loose(MemoryStore):
    """Looks at no fence, and at no answer that is there."""

    def keep(self, step: Step) -> None:
        self.tables.write_step(EncodedStep.of(step))


class Half(MemoryStore):
    """Writes the messages of a step before it refuses the rest."""

    def keep(self, step: Step) -> None:
        if step.guard and step.messages and self.tables.is_held(step.guard):
            super().keep(Step(guard=step.guard, messages=step.messages))
            step = replace(step, messages=())
        super().keep(step)


class Forgetful(MemoryStore):
    """Does not keep the last event of a step."""

    def keep(self, step: Step) -> None:
        super().keep(replace(step, events=step.events[:-1]))


class Repeating(MemoryStore):
    """Gives the same fence again and again."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        acquire = self.lease.acquire

        def acquire_again(session: str, owner: str, seconds: float) -> Guard | Holder:
            self.tables.fence = 0
            return acquire(session, owner, seconds)

        self.lease.acquire = acquire_again  # pyright: ignore[reportAttributeAccessIssue]


class Sharing(MemoryStore):
    """Prunes whatever is old, held or not."""

    def prune(self, before: float) -> Pruned:
        self.tables.leases.clear()
        return super().prune(before)


@pytest.mark.parametrize("kind", [Loose, Half, Forgetful, Repeating, Sharing])
def test_the_contract_notices_a_store_that_does_not_keep_it(kind: type[MemoryStore]) -> None:
    broken: list[str] = []
    for name, check in CHECKS.items():
        try:
            check(kind)
        except (AssertionError, FlyballError, KeyError):
            broken.append(name)
    assert broken
    assert len(broken) < len(CHECKS) / 2


def test_every_promise_says_what_it_is() -> None:
    assert len(CHECKS) >= 45
    assert [name for name, check in CHECKS.items() if not check.__doc__] == []
