"""LangChain 1.x and LangGraph: a middleware that governs the agents of `create_agent`.

    agent = create_agent(model, tools, middleware=[flyball.adapters.langchain.govern(Limits(turns=10))])

Each call of the agent is a run. Its state has the id of the run as `flyball_run_id`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..budget.limits import Limits
from .adapter_options import AdapterOptions, choose_options
from .frameworks import LANGCHAIN

if TYPE_CHECKING:
    from .langchain_middleware import GovernMiddleware


def govern(limits: Limits | None = None, *, options: AdapterOptions | None = None) -> GovernMiddleware:
    """Return a middleware that keeps each run of an agent inside limits. Several agents may share it.

    An agent that a governed agent calls in a tool needs it too: with the same middleware object it belongs to the same
    run, otherwise it has a run of its own that also draws on the budgets of the run above. Nodes of a LangGraph that
    call a model themselves are not governed.
    """
    LANGCHAIN.load()
    from .langchain_middleware import GovernMiddleware

    return GovernMiddleware(choose_options(limits, options))
