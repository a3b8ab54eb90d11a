"""A family of budgets against a model of it that is too simple to be wrong."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from flyball import Hold, IterationBudget

amounts = st.integers(1, 12)
members = st.integers(0, 3)


@dataclass
class Model:
    """One budget, as its documentation describes it."""

    ceiling: int | None
    maximum: int | None
    limit: int | None
    line: list[int]
    used: int = 0
    held: int = 0
    refunds: dict[str, int] = field(default_factory=dict[str, int])

    def allows(self, amount: int) -> bool:
        return self.ceiling is None or self.used + self.held + amount <= self.ceiling

    def refundable(self) -> int:
        limit = self.ceiling if self.limit is None else self.limit
        return self.used if limit is None else max(0, min(self.used, limit - sum(self.refunds.values())))


class Family(RuleBasedStateMachine):
    """Two leaves under a parent under a tree ceiling; any of the four may be claimed from."""

    holds = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Hold] = []
        tree = IterationBudget("tree", 40, maximum=45)
        parent = IterationBudget("parent", 30, parent=tree, refund_limit=6)
        left = IterationBudget("left", 20, parent=parent)
        right = IterationBudget("right", None, parent=parent)
        self.budgets = [tree, parent, left, right]
        self.models = [
            Model(40, 45, None, [0]),
            Model(30, None, 6, [1, 0]),
            Model(20, None, None, [2, 1, 0]),
            Model(None, None, None, [3, 1, 0]),
        ]

    def line(self, n: int) -> list[Model]:
        return [self.models[m] for m in self.models[n].line]

    @rule(n=members, amount=amounts)
    def consume(self, n: int, amount: int) -> None:
        allowed = all(model.allows(amount) for model in self.line(n))
        assert self.budgets[n].consume(amount) == allowed
        if allowed:
            for model in self.line(n):
                model.used += amount

    @rule(n=members, amount=amounts)
    def increment(self, n: int, amount: int) -> None:
        for model in self.line(n):
            model.used += amount
        assert self.budgets[n].increment(amount) == self.models[n].used

    @rule(target=holds, n=members, amount=amounts)
    def hold(self, n: int, amount: int) -> tuple[int, Hold | None]:
        allowed = all(model.allows(amount) for model in self.line(n))
        hold = self.budgets[n].try_hold(amount)
        assert (hold is not None) == allowed
        if hold is not None:
            self.made.append(hold)
            for model in self.line(n):
                model.held += amount
        return n, hold

    @rule(pair=holds, fact=st.integers(0, 15))
    def settle(self, pair: tuple[int, Hold | None], fact: int) -> None:
        n, hold = pair
        if hold is None:
            return
        was_open = hold.open
        assert hold.settle(fact) == was_open
        if was_open:
            for model in self.line(n):
                model.held -= hold.amount
                model.used += fact

    @rule(n=members, amount=amounts, reason=st.sampled_from(["cheap", "never_started"]))
    def refund(self, n: int, amount: int, reason: str) -> None:
        given = min(amount, *(model.refundable() for model in self.line(n)))
        assert self.budgets[n].refund(amount, reason=reason) == given
        for model in self.line(n) if given else []:
            model.used -= given
            model.refunds[reason] = model.refunds.get(reason, 0) + given

    @rule(n=members, amount=amounts)
    def extend(self, n: int, amount: int) -> None:
        model = self.models[n]
        raised = 0
        if model.ceiling is not None:
            raised = amount if model.maximum is None else min(amount, model.maximum - model.ceiling)
            model.ceiling += raised
        assert self.budgets[n].extend(amount, by="a rule") == raised

    @invariant()
    def agrees_with_the_model(self) -> None:
        for budget, model in zip(self.budgets, self.models, strict=True):
            now = budget.snapshot()
            assert (now.used, now.held, now.ceiling, now.refunds) == (
                model.used,
                model.held,
                model.ceiling,
                model.refunds,
            )
            assert now.claimed == budget.claimed == now.used + sum(model.refunds.values())
            if now.ceiling is not None and now.used + now.held <= now.ceiling:
                assert now.used + now.held + now.remaining == now.ceiling
            assert budget.remaining == now.remaining >= 0
            assert budget.available == min(self.budgets[m].remaining for m in model.line)

    @invariant()
    def continues_exactly_from_its_snapshot(self) -> None:
        for budget in self.budgets:
            now = budget.snapshot()
            again = IterationBudget.restore(now.to_dict()).snapshot()
            assert (again.used, again.held, again.unsettled) == (now.used + now.held, 0, now.held)
            assert (again.remaining, again.refunds, again.extensions) == (now.remaining, now.refunds, now.extensions)

    def teardown(self) -> None:
        for hold in self.made:
            hold.release()


TestFamily = Family.TestCase
TestFamily.settings = settings(max_examples=80, stateful_step_count=30)
