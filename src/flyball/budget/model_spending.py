"""Reservations in the budgets of single models, in addition to those of the run."""

from __future__ import annotations

import math

from .budget import IterationBudget
from .model_limits import matches_model, split_key
from .price import Price, compute_max_request_cost
from .run_budget import TurnBudget
from .spending import Holds, ModelPrice, Spending, compute_affordable_input, compute_affordable_output


class ModelSpending(Spending):
    """Spending of a run that has limits per model. Each request also counts in the budgets of its model."""

    __slots__ = ("_model_budgets",)

    def __init__(self, envelope: TurnBudget, price: Price | None, model: str, provider: str | None) -> None:
        self._model_budgets: dict[str, IterationBudget] = {}
        """Budgets of the present model, by key."""
        super().__init__(envelope, price, model, provider=provider)
        self.is_limited = True

    def set_model(
        self, model: str, price: Price | None, reserve_price: Price | None = None, provider: str | None = None
    ) -> None:
        """Count following requests for this model, in the budgets whose pattern matches it."""
        super().set_model(model, price, reserve_price)
        splits = {key: split_key(key) for key in self.envelope.budgets}
        self._model_budgets = {
            key: self.envelope.budgets[key]
            for key, split in splits.items()
            if split is not None and matches_model(split[1], provider, model)
        }

    def compute_max_output(self, input_tokens: int) -> int | None:
        """Return the longest affordable reply in tokens; None means no limit."""
        run_room = super().compute_max_output(input_tokens)
        room = math.inf if run_room is None else run_room
        for key, budget in self._model_budgets.items():
            if key.startswith("tokens."):
                room = min(room, budget.available - input_tokens)
            elif self._reserve_price is not None:
                room = min(room, compute_affordable_output(self._reserve_price, input_tokens, int(budget.available)))
        return None if room == math.inf else max(0, int(room))

    def compute_max_input(self, output_tokens: int) -> float:
        """Return the longest affordable input in tokens; `math.inf` means no limit."""
        room = super().compute_max_input(output_tokens)
        for key, budget in self._model_budgets.items():
            if key.startswith("tokens."):
                room = min(room, budget.available - output_tokens)
            elif self._reserve_price is not None:
                room = min(room, compute_affordable_input(self._reserve_price, output_tokens, int(budget.available)))
        return max(0, room)

    def find_short_budgets(self, input_tokens: int, output_tokens: int = 1) -> tuple[str, ...]:
        """Return the budgets too low for this input and this output."""
        cost = self._compute_cost(input_tokens, output_tokens)
        least = {key: self._select(key, input_tokens + output_tokens, cost) for key in self._model_budgets}
        short = [key for key, amount in least.items() if amount > self._model_budgets[key].available]
        return (*super().find_short_budgets(input_tokens, output_tokens), *short)

    def hold(self, input_tokens: int, output_tokens: int) -> Holds | None:
        """Reserve the worst case of a request, all or nothing; None if a budget refuses."""
        with self.envelope.lock:
            holds = super().hold(input_tokens, output_tokens)
            if holds is None:
                return None
            wanted = {key: self._select(key, *holds) for key in self._model_budgets}
            refused = [key for key, amount in wanted.items() if amount > self._model_budgets[key].available]
            for key in refused:
                self.envelope.refuse(key)
            if refused:
                super().release(holds)
                return None
            for key, amount in wanted.items():
                if amount:
                    self._model_budgets[key].reserve(amount, amount)
        return holds

    def hold_up_to(self, input_tokens: int, max_output_tokens: int | None) -> tuple[Holds, int | None] | None:
        """Reserve the input and the longest affordable reply."""
        return self._hold_longest(input_tokens, max_output_tokens)

    def release(self, holds: Holds) -> None:
        """Release the reservations of a request that was not made, or used nothing."""
        with self.envelope.lock:
            super().release(holds)
            for key, budget in self._model_budgets.items():
                budget.settle(self._select(key, *holds), 0)

    def _settle_amounts(self, holds: Holds, tokens: int, money: int, model: ModelPrice | None = None) -> None:
        with self.envelope.lock:
            super()._settle_amounts(holds, tokens, money, model)
            for key, budget in self._model_budgets.items():
                budget.settle(self._select(key, *holds), self._select(key, tokens, money))

    def _compute_cost(self, input_tokens: int, output_tokens: int) -> int:
        price = self._reserve_price
        return 0 if price is None else compute_max_request_cost(price, input_tokens, output_tokens)

    @staticmethod
    def _select(key: str, tokens: int, money: int) -> int:
        """Return the amount in the unit of a budget."""
        return tokens if key.startswith("tokens.") else money
