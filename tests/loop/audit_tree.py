"""The audit of a tree of runs: each run for itself, and the shared budgets between them.

Every run has its own story, which audit.py walks through. The ledger here recounts the shared budgets: it reads all
Grants of the tree and all claims of other runs in their order, and decides about each claim in plain dictionaries. A
claim must be granted if it fits, and refused otherwise, in its own account and in all accounts above. At the end the
real budgets must have the same numbers, with nothing held.

The accounts follow from how a child run was declared. An independent one claims from the account of the tree, a carved
one from that of its parent, and shared ones from a pool with the ceilings that their parent had left. The account above
a pool is that of the parent.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from flyball import Result, TurnBudget
from flyball.event import Event, Extended
from flyball.loop import Grant
from flyball.loop.child_task import Mode
from flyball.result import Stop

from .audit import need
from .audit_result import audit_run
from .random_world import DrivenRun, Posting, RandomDriver

CLAIMED = ("turns", "tool_calls", "tokens", "usd", "children")
HELD = ("tokens", "usd")


@dataclass
class Account:
    """What was claimed from one shared budget, by the recount."""

    budget: TurnBudget
    """The real budget, read only when the tree has ended."""
    ceilings: Mapping[str, float]
    above: "Account | None"
    used: Counter[str] = field(default_factory=Counter[str])
    held: Counter[str] = field(default_factory=Counter[str])
    refunded: Counter[str] = field(default_factory=Counter[str])

    def chain(self) -> "list[Account]":
        return [self, *(self.above.chain() if self.above else ())]

    def has_room(self, name: str, amount: int) -> bool:
        return self.used[name] + self.held[name] + amount <= self.ceilings.get(name, inf)

    def refundable(self, name: str) -> float:
        return min(self.used[name], self.ceilings.get(name, inf) - self.refunded[name])


class Ledger:
    """Recounts the shared budgets of a tree."""

    def __init__(self, driver: RandomDriver, top: Account | None) -> None:
        self._top, self._runs = top, driver.runs
        self._by_run: dict[str, Account | None] = {}
        self._pools: dict[int, Account] = {}
        self._holds: dict[str, Counter[str]] = {}
        for run_id, run in driver.runs.items():
            self._by_run[run_id] = account = self._find_account(run)
            need("the shared budget of its mode", run.shared_budget is (account and account.budget))

    def _find_account(self, run: DrivenRun) -> Account | None:
        if run.parent is None or run.task is None or run.task.spec.mode is Mode.INDEPENDENT:
            return self._top
        above, pool = self._by_run[run.parent.plan.run_id], run.task.pool
        if pool is None:
            return above
        if id(pool) not in self._pools:
            assert run.shared_budget is not None, "a shared child run has a shared budget"
            ceilings = {name: inf if amount is None else amount for name, amount in pool.items()}
            self._pools[id(pool)] = Account(run.shared_budget, ceilings, above)
        return self._pools[id(pool)]

    def check(self, postings: list[Posting]) -> None:
        for posting in postings:
            account = self._by_run[posting.run_id] if posting.run_id else self._top
            assert account is not None, "a claim needs a shared budget"
            self._apply(posting, account.chain())
        need("nothing is left held", not any(+holds for holds in self._holds.values()))
        accounts = [*self._pools.values(), *([self._top] if self._top else [])]
        for account in accounts:
            for name in CLAIMED:
                budget = account.budget.budgets[name]
                need(f"shared {name} as recounted", (budget.used, budget.held) == (account.used[name], 0))
                need(f"shared {name} in its ceiling", name in HELD or account.has_room(name, 0))

    def _apply(self, posting: Posting, chain: list[Account]) -> None:
        grant = posting.grant
        for amounts in grant.refund.values():
            for name, amount in amounts.items():
                self._refund(name, amount, chain)
        holds = self._holds.setdefault(posting.run_id, Counter())
        if grant.settle is not None:
            for name in {*holds, *grant.settle}:
                for account in chain:
                    account.held[name] -= holds[name]
                    account.used[name] += grant.settle.get(name, holds[name])
            holds.clear()
        self._claim(posting, grant, chain, holds)

    def _claim(self, posting: Posting, grant: Grant, chain: list[Account], holds: Counter[str]) -> None:
        fits = all(account.has_room(name, amount) for name, amount in grant.claim.items() for account in chain)
        need("a claim is granted if it fits", posting.is_late or posting.is_granted == fits)
        for name, amount in grant.claim.items() if posting.is_granted else ():
            is_held = name in HELD and bool(posting.run_id)
            holds[name] += amount * is_held
            for account in chain:
                (account.held if is_held else account.used)[name] += amount

    def _refund(self, name: str, amount: int, chain: list[Account]) -> None:
        refunded = max(0, min(amount, *(account.refundable(name) for account in chain)))
        for account in chain:
            account.used[name] -= int(refunded)
            account.refunded[name] += int(refunded)


def audit_tree(driver: RandomDriver, top: Result, ceilings: Mapping[str, float], shared: TurnBudget | None) -> None:
    """Audit every run of a tree, and the budgets that they share. `ceilings` are those of `shared`."""
    for run_id, run in driver.runs.items():
        assert run.result is not None, "every run that started has a result"
        audit_run(run.agent, run.plan, driver.book.stories[run_id], run.result)
        if run.parent is not None:
            _check_child(run, run.parent)
    for task, result in driver.unstarted:
        need("a child run that did not start has done nothing", result.requests == result.turns == 0)
        need("it ends as cancelled or failed", result.stop in (Stop.CANCELLED, Stop.FAILED))
        events = [event for event in driver.book.stories[task.run_id] if isinstance(event, Event)]
        need("it has all events", list(result.events) == events, events[-1].kind == "run_ended")
    listed = _list_runs(top)
    need("every run once in the tree of results", sorted(listed) == sorted(set(listed)))
    need("no run besides", set(listed) == {*driver.runs, *(task.run_id for task, _ in driver.unstarted)})
    Ledger(driver, None if shared is None else Account(shared, ceilings, None)).check(driver.postings)


def _list_runs(result: Result) -> list[str]:
    return [result.run_id, *(run_id for child in result.children for run_id in _list_runs(child))]


def _check_child(run: DrivenRun, parent: DrivenRun) -> None:
    """A child run is one level below its parent, and within the amounts and the time that it was given."""
    plan, result, task = run.plan, run.result, run.task
    assert result is not None, "it has a result"
    assert task is not None, "it has a task"
    need("one level below", plan.level == parent.plan.level + 1, plan.parent_run_id == parent.plan.run_id)
    given = task.max_amounts.get("turns", inf)
    raised = sum(event.amount for event in result.events if isinstance(event, Extended) and event.budget == "turns")
    need("its turns", result.budgets["turns"].used <= given + raised)
    need("no slice is raised", task.spec.mode is not Mode.CARVED or result.budgets["turns"].used <= given)
