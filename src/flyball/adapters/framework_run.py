"""Governed run of a framework's agents: one `govern` whose turns are the framework's requests to its models."""

from __future__ import annotations

import math
from contextvars import ContextVar, Token
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..errors import UsageError, describe_error
from ..governor.ending import RunEnding
from ..governor.governed_run import GovernedRun
from ..governor.model_card import find_known_model
from ..governor.run_in_progress import PLACE, choose_shared
from ..history.stored_run import StoredRun
from ..result import Result, Stop
from ..store import Start
from .adapter_options import AdapterOptions
from .agent_conversation import AgentConversation, AgentConversations
from .model_requests import ModelRequests
from .request_steps import Steps

if TYPE_CHECKING:
    from ..budget.run_budget import TurnBudget
    from .frameworks import Framework
    from .model_port import AskedModel, ModelPort

R = TypeVar("R")
_MAX_TASK_CHARS = 200
_MIN_TOOL_S = 0.001
"""Seconds of a call that has no time left. Frameworks refuse 0."""


class RunInProgress(Protocol):
    """Run on whose budgets the runs inside it draw too."""

    @property
    def envelope(self) -> TurnBudget:
        """Budgets and deadlines of the run."""
        ...

    @property
    def envelopes(self) -> tuple[TurnBudget, ...]:
        """Its budgets, and those of the runs around it, the innermost first."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether the run has begun and not ended."""
        ...

    def allow_level(self, level: int) -> bool:
        """Check whether an agent may be this many levels below the first one."""
        ...

    def count_own_level(self, level: int) -> int:
        """Return a level among all runs as one among the agents of this run."""
        ...


class Place(NamedTuple):
    """Run in progress here, and the number of agents above what is called from here."""

    run: RunInProgress
    level: int

    @property
    def own_level(self) -> int:
        """The same number, counted from the first agent of the run."""
        return self.run.count_own_level(self.level)


_place: ContextVar[Place | None] = PLACE


def find_place() -> Place | None:
    """Return the run in progress here. None if there is none, or if it has ended."""
    place = _place.get()
    return place if place is not None and place.run.is_open else None


def enter_place(place: Place) -> Token[Place | None]:
    """Make a run the one in progress for what is called from here. `leave_place` takes the token."""
    return _place.set(place)


def leave_place(token: Token[Place | None]) -> None:
    """End what `enter_place` began."""
    _place.reset(token)


class FrameworkRun:
    """Run of a framework's agents, in its `with` block. `result` is available afterwards.

    A framework without such a block calls `open`, `enter`, `leave` and `close`. The clock starts when the run is
    created. A run that is created inside others draws on its own budgets and on those of all of them.
    """

    def __init__(self, options: AdapterOptions, framework: Framework, task: str = "") -> None:
        self._above = find_place()
        self._framework = framework
        self._has_warned = False
        registry = options.registry or IterationBudgetRegistry()  # reads the settings, once
        limits = options.limits.without_default_context(registry)
        self.options = replace(options, limits=limits, unpriced=Unpriced.TOKENS_ONLY, registry=registry)
        self._ending = RunEnding()
        own = replace(self.options, price=None)  # each request has the price of its model
        shared = choose_shared(options.within)
        model = find_known_model(own.model, own)
        self._run = GovernedRun(own, self._ending, reserves_each_report=True, shared=shared, model=model)
        self._requests = ModelRequests(self._run, self._ending, self.options, refuses_unpriced=options.unpriced)
        self._start = Start(
            at=self.options.clock.wall(),
            agent=framework.module,
            session=options.session_id,
            task=task[:_MAX_TASK_CHARS],
            metadata=options.metadata,
        )
        self._record = StoredRun(options.store, options.run_id)
        self._token: Token[Place | None] | None = None
        self.is_open = False

    @property
    def envelope(self) -> TurnBudget:
        """Budgets and deadlines of the run."""
        return self._run.envelope

    @property
    def envelopes(self) -> tuple[TurnBudget, ...]:
        """Its budgets, and those of the runs around it, the innermost first."""
        return self._run.envelopes

    @property
    def conversations(self) -> AgentConversations:
        """Conversations of its agents."""
        return self._requests.conversations

    @property
    def result(self) -> Result:
        """Result of the run, after its end."""
        if self._run.result is None:
            raise UsageError("this run has not ended: wait for it, and read a stream to its end")
        return self._run.result

    def open(self) -> None:
        """Begin the run."""
        self._record.start(self._start)
        self._run.start(self.options.rules, self.options.metadata)
        self._run.require_parallel()
        self.is_open = True
        if self._above is not None and not self._above.run.allow_level(self._above.level):
            self._requests.refuse_all("depth")

    def enter(self, conversation: AgentConversation | None = None) -> Token[Place | None]:
        """Make this the run in progress for what an agent calls from here. `leave` takes the token."""
        above = 0 if self._above is None else self._above.level
        return _place.set(Place(self, above + 1 + (0 if conversation is None else conversation.level)))

    @staticmethod
    def leave(token: Token[Place | None]) -> None:
        """End what `enter` began."""
        _place.reset(token)

    def allow_level(self, level: int) -> bool:
        """Check whether an agent may be this many levels below the first one, here and in the runs above."""
        return self._requests.allow_level(self.count_own_level(level)) and (
            self._above is None or self._above.run.allow_level(level)
        )

    def count_own_level(self, level: int) -> int:
        """Return a level among all runs as one among the agents of this run."""
        return level - (0 if self._above is None else self._above.level)

    def __enter__(self) -> FrameworkRun:
        self.open()
        self._token = self.enter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if self._token is not None:
            self.leave(self._token)
        self.close(error)

    def complete(self, text: str) -> None:
        """Set the answer of the run, or its report if a limit was reached."""
        self._ending.text = text
        if not self._ending.stops:
            self._ending.stops.add(Stop.COMPLETED)

    def pause(self) -> None:
        """End the run because it waits for a person. The framework can continue it, as another run."""
        if not self._ending.stops:
            self._ending.stops.add(Stop.PAUSED)

    @property
    def may_deny_calls(self) -> bool:
        """Whether a call of a reply may be denied, so that a stream must be read before it is handed on."""
        limits, budgets = self.options.limits, self.envelope.budgets
        return budgets["tool_calls"].ceiling is not None or bool(limits.calls or self.options.rules)

    def find_tool_seconds(self, tool: str) -> float:
        """Return the seconds that a call of a tool may take from now on."""
        own = self.options.limits.tool_seconds.get(tool, math.inf)
        return max(_MIN_TOOL_S, min(own, self.envelope.remaining_s()))

    def postpone(self, seconds: float, reason: str) -> None:
        """Move the deadline by time that was spent waiting for a person."""
        self._run.postpone(seconds, reason)

    def now(self) -> float:
        """Return the time on the clock of the run."""
        return self._run.now()

    def cancel(self) -> bool:
        """Cancel the run at its next request; return False if it has already ended."""
        return self._ending.cancel()

    def close(self, error: BaseException | None = None) -> None:
        """End the run. A second call changes nothing."""
        if self.is_open:
            self.is_open = False
            self._requests.close()
            self._run.close(self._requests.describe_failure(error))
            self.result.state = {"conversations": self._requests.describe()}
            self._record.finish(self.result)
            if self._record.error is not None:
                self.result.store_error = describe_error(self._record.error)

    async def aask(self, conversation: AgentConversation, asked: AskedModel, port: ModelPort[R]) -> R:
        """Make a request of an agent: as a turn, as the last request with the report, or with a synthetic reply."""
        self._warn(asked)
        steps: Steps[R] = Steps(self._requests.ask(conversation, asked, port))
        while (step := steps.step) is not None:
            try:
                answer = await step.aperform(self._run)
            except BaseException as error:
                steps.throw(error)
            else:
                steps.send(answer)
        return steps.value

    def ask(self, conversation: AgentConversation, asked: AskedModel, port: ModelPort[R]) -> R:
        """Make a request in the same way as `aask`, with a model that blocks."""
        self._warn(asked)
        steps: Steps[R] = Steps(self._requests.ask(conversation, asked, port))
        while (step := steps.step) is not None:
            try:
                answer = step.perform(self._run)
            except BaseException as error:
                steps.throw(error)
            else:
                steps.send(answer)
        return steps.value

    def _warn(self, asked: AskedModel) -> None:
        """Warn once of what the adapter cannot hold, at the first request that shows it."""
        if self._has_warned or not (asked.unheld or asked.server_tools):
            return
        reasons = list(asked.unheld)
        if asked.server_tools and (self.may_deny_calls or self.envelope.budgets.find_ceiling("usd") is not None):
            names = ", ".join(asked.server_tools)
            reasons.append(
                f"calls of {names} run at the provider: they are counted after each reply, without their fees"
            )
        if reasons:
            self._has_warned = True
            self._framework.warn("; ".join(reasons))
