"""The model that a run asks now."""

from __future__ import annotations

from math import inf

from ..budget.run_budget import TurnBudget
from ..budget.spending import Spending
from .plan import AgentSpec, ModelCard, ModelFacts


class ActiveModel:
    """The model that a run asks now: the agent's own, or one that a rule switched to."""

    __slots__ = ("_budget", "_spec", "_spending", "card", "facts", "max_input_tokens", "name")

    def __init__(self, spec: AgentSpec, spending: Spending, budget: TurnBudget) -> None:
        self._spec = spec
        self._spending = spending
        self._budget = budget
        self.name = ""
        """Name among the agent's other models. Empty for the agent's own."""
        self.facts: ModelFacts = spec.model.main
        self.card: ModelCard = spec.model.cards[""]
        self.max_input_tokens: float = inf
        """Maximum tokens of a request, by the limits and by the model."""
        self._fit()

    def switch(self, name: str) -> None:
        """Ask another model of the agent from now on."""
        self.name, self.facts, self.card = name, self._spec.model.others[name], self._spec.model.cards[name]
        self._spending.set_model(self.facts.name, self.card.price)
        self._fit()

    def use_spec(self, spec: AgentSpec) -> None:
        """Take the facts of the model from a spec with other tools."""
        self._spec, self.card = spec, spec.model.cards[self.name]

    def lower_max_input(self, tokens: int) -> None:
        """Lower the maximum of a request: the provider takes less than was known."""
        self.max_input_tokens = min(self.max_input_tokens, tokens)

    def _fit(self) -> None:
        self.max_input_tokens = self.card.input_room(self._spec.limits.context_tokens)
        self._budget.context_tokens = None if self.max_input_tokens == inf else int(self.max_input_tokens)
