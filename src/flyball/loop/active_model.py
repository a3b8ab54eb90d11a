"""The model that a run asks now."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from ..budget.run_budget import TurnBudget
from ..budget.spending import Spending
from .plan import AgentSpec, ModelCard, ModelFacts


class ActiveModel:
    """The model that a run asks now: the agent's own, or one that a rule switched to."""

    __slots__ = ("_budget", "_spec", "_spending", "candidates", "card", "changes", "facts", "max_input_tokens", "name")

    def __init__(self, spec: AgentSpec, spending: Spending, budget: TurnBudget) -> None:
        self._spec = spec
        self._spending = spending
        self._budget = budget
        self.name = ""
        """Name among the agent's other models. Empty for the agent's own."""
        self.facts: ModelFacts = spec.model.main
        self.card: ModelCard = spec.model.cards[""]
        self.candidates: tuple[str, ...] = spec.model.candidates
        """Names of the models that can be asked after a failure, in order. One that failed for good is removed."""
        self.changes: tuple[dict[str, str], ...] = ()
        """Changes to a fallback model, as in `Result.fallbacks`."""
        self.max_input_tokens: float = inf
        """Maximum tokens of a request, by the limits and by the model."""
        self._fit()

    def switch(self, name: str) -> None:
        """Ask another model of the agent from now on. After a failure, its fallback models follow it."""
        self._use(name)
        self.candidates = (name, *(other for other in self._spec.model.fallbacks if other != name))

    def find_fallback(self, *, is_final: bool) -> tuple[str, bool] | None:
        """Return the model to ask after the present one failed, and True if it is not the next in the list.

        The list starts again after its last model. A model that failed for good is not asked again.
        """
        names = self.candidates
        place = names.index(self.name) if self.name in names else -1
        if place < 0:  # the run ended when it failed for good, and asked it for the report
            place = 0
        elif is_final:
            names = self.candidates = (*names[:place], *names[place + 1 :])
        else:
            place += 1
        return (names[place % len(names)], place >= len(names)) if names else None

    def fall_back(self, name: str, error: Mapping[str, Any]) -> None:
        """Ask another of the candidates from now on, because of an error of the present one."""
        failed = self.facts.name
        self._use(name)
        change = {"model": failed, "to": self.facts.name, "code": error["code"], "error": error["message"]}
        self.changes = (*self.changes, change)

    def _use(self, name: str) -> None:
        self.name, self.facts, self.card = name, self._spec.model.find(name), self._spec.model.cards[name]
        self._spending.set_model(self.facts.name, self.card.price, provider=self.facts.provider)
        self._fit()

    def use_spec(self, spec: AgentSpec) -> None:
        """Take the facts of the model from a spec with other tools."""
        self._spec, self.card = spec, spec.model.cards[self.name]

    def lower_max_input(self, tokens: int) -> None:
        """Lower the maximum of a request: the provider takes less than was known."""
        self.max_input_tokens = min(self.max_input_tokens, tokens)

    def _fit(self) -> None:
        limits = self._spec.limits
        context = limits.context_tokens
        if limits.model_context_tokens:
            context = limits.find_context_tokens(self.facts.provider, self.facts.name)
        self.max_input_tokens = self.card.input_room(context)
        self._budget.context_tokens = None if self.max_input_tokens == inf else int(self.max_input_tokens)
