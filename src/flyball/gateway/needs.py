"""Needs of requests: what each could take of tokens and money at most."""

from __future__ import annotations

import math
from dataclasses import replace

from ..budget.price import Unpriced
from ..budget.registry import UNSET
from ..budget.run_budget import TurnBudget
from ..budget.usage import Usage
from ..governor.govern_options import GovernOptions
from ..governor.model_card import GovernedModel, find_named_model
from ..governor.reservation import TOKENS_PER_BYTE, Need
from .body import Refused
from .conversations import Chat
from .gateway_options import EngineOptions
from .inbound import MIN_THINKING_TOKENS, Inbound
from .observer import Observer
from .reply_reader import ReplyReader
from .server_tools import add_fee, compute_max_fee, find_unpriced_kinds

MIN_REPLY_TOKENS = 16
_REPORT_TOKENS = 500
"""Output tokens to reserve for each report."""
_REPORT_REQUEST_TOKENS = 250
"""Estimate for the text that asks for a report, which is in the last request besides the program's body."""
_DEFAULT_REPLY_TOKENS = 16_384
"""Longest reply of a request that names none, if tokens or money are limited."""
_ENOUGH_REPLY_TOKENS = 4_096
"""Longest reply with which a request goes out at once, although it could have a longer one later."""


class Needs:
    """Estimates what requests need, and refuses those whose price cannot be known."""

    def __init__(
        self,
        options: EngineOptions,
        govern_options: GovernOptions,
        envelope: TurnBudget,
        observer: Observer | None,
    ) -> None:
        self._options = options
        self._govern_options = govern_options
        self._budgets = envelope.budgets
        self._observer = observer
        self._models: dict[str, GovernedModel] = {}
        self.is_limited = self._budgets["tokens"].ceiling is not None or self._budgets.find_ceiling("usd") is not None
        """Whether tokens or money are limited, so that a reply needs a cap."""

    @property
    def prices_tools(self) -> bool:
        """Whether tools at the provider need a known fee, because money is limited."""
        return self._budgets["usd"].ceiling is not None and self._options.unpriced == Unpriced.REFUSE

    def find_unpriced_tools(self, inbound: Inbound) -> set[str]:
        """Return the kinds of offered tools that must not be offered, because their fee is not known."""
        if not self.prices_tools:
            return set()
        return find_unpriced_kinds(inbound.body, inbound.wire, self.find_model(inbound).fees)

    def find_fee(self, inbound: Inbound) -> int:
        """Return the highest fee of a request for tools at the provider, in billionths of a dollar."""
        return compute_max_fee(inbound.body, inbound.wire, self.find_model(inbound).fees) if self.prices_tools else 0

    def compute_fee(self, inbound: Inbound, reader: ReplyReader, usage: Usage | None) -> int:
        """Return what a request cost besides the usual price of its tokens, in billionths of a dollar."""
        model = self.find_model(inbound)
        counts = {"web_search": 1} if inbound.body.get("web_search_options") is not None else reader.server_calls.counts
        fee = sum(model.fees.get(kind, 0) * count for kind, count in counts.items())
        if usage is None or not inbound.caches_long or model.long_cache_price is None or model.price is None:
            return fee
        told = usage.written if reader.long_written is None else reader.long_written
        written = replace(usage, output=0, reasoning=0, cached=0, written=min(told, usage.written))
        return fee + model.long_cache_price.cost(written) - model.price.cost(written)

    def build(self, inbound: Inbound, chat: Chat, *, is_last: bool = False) -> Need:
        """Return the need of a request. Raises `Refused` if its price is not known and money is limited.

        The output is that of all alternative replies together. The last request asks for one.
        """
        replies = 1 if is_last else inbound.choice_count
        model = add_fee(self.find_model(inbound), self.find_fee(inbound))
        caps = [cap for cap in (inbound.request.max_output_tokens, model.max_output_tokens) if cap is not None]
        if inbound.request.max_output_tokens is None and self.is_limited:
            caps.append(_DEFAULT_REPLY_TOKENS)
        cap = min(caps, default=None)
        shortest = MIN_THINKING_TOKENS + 1 if "budget_tokens" in str(inbound.body.get("thinking")) else MIN_REPLY_TOKENS
        return Need(
            self._estimate_input(inbound, chat) + (_REPORT_REQUEST_TOKENS if is_last else 0),
            None if cap is None else replies * cap,
            turns=1,
            model=model,
            min_output_tokens=replies * (shortest if cap is None else min(shortest, cap)),
            enough_output_tokens=replies * _ENOUGH_REPLY_TOKENS,
            report_tokens=_REPORT_TOKENS,
            is_pending=True,
        )

    def find_model(self, inbound: Inbound) -> GovernedModel:
        """Return the model of a request. Raises `Refused` if its price is not known and money is limited."""
        name = inbound.model
        if name not in self._models:
            self._models[name] = find_named_model(name, self._govern_options)
        model = self._models[name]
        remedy = f'add it to [prices."{name}"] in flyball.toml'
        if inbound.body.get("speed") == "fast":  # it costs several times as much, and no table says how much
            name, remedy = f"{name} at fast speed", "leave out speed"
            model = replace(model, price=None, reserve_price=None)
        if inbound.caches_long and model.long_cache_price is not None:
            model = replace(model, reserve_price=model.long_cache_price.highest())
        money = self._budgets["usd"]
        if model.price is None and self._observer is not None and self._options.limits.usd not in (UNSET, None):
            self._observer.note(f"the price of {name} is not known, so its requests would have been refused")
        if model.price is None and money.ceiling is not None and self._options.unpriced == Unpriced.REFUSE:
            raise Refused(
                400,
                "price_unknown",
                f"the price of {name} is not known, so the limit of {money.unit.show(money.ceiling)} cannot be kept: "
                f'{remedy}, or use --unpriced tokens_only (unpriced="tokens_only")',
            )
        return model

    def _estimate_input(self, inbound: Inbound, chat: Chat) -> int:
        """Return the likely input tokens: what the provider reported for the last request, and what is new."""
        size, file_tokens = inbound.count_bytes()
        if inbound.request.previous_id is not None:  # the provider has the history
            return chat.known_input + chat.known_output + math.ceil(size * TOKENS_PER_BYTE) + file_tokens
        new_bytes, new_file_tokens = max(0, size - chat.known_bytes), max(0, file_tokens - chat.known_file_tokens)
        estimate = chat.known_input + math.ceil(new_bytes * TOKENS_PER_BYTE) + new_file_tokens
        return min(estimate, size + file_tokens)
