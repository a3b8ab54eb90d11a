"""Agent: a model with tools and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Unpack, overload

from .._internal.text import pluralize
from .._internal.type_variables import Output
from .options import AgentOptions, ResumeOptions, RunOptions

if TYPE_CHECKING:
    from ..budget.limits import WorstCase
    from ..budget.registry import IterationBudgetRegistry
    from ..loop.child_task import ChildSpec, Mode
    from ..loop.plan import Plan
    from ..models import Model
    from ..result import Result
    from ..rules import RuleSet
    from .keywords import AgentKeywords
    from .run import Run
    from .run_factory import Answers, RunFactory
    from .validate import Task


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Agent(AgentOptions, Generic[Output]):
    """Model with tools and limits.

    `run` and `arun` return the result of a task. `start` and `open` return a handle of the run.
    """

    _runs: RunFactory = field(init=False)

    if TYPE_CHECKING:  # the signature of the dataclass, with the type of the answer

        @overload
        def __init__(self, *, model: Model | str, output: type[Output], **options: Unpack[AgentKeywords]) -> None: ...

        @overload
        def __init__(self, *, model: Model | str, output: Any = None, **options: Unpack[AgentKeywords]) -> None: ...

        def __init__(self, *, model: Model | str, output: Any = None, **options: Unpack[AgentKeywords]) -> None: ...

    def __post_init__(self) -> None:
        from .run_factory import RunFactory  # imported here, so that importing Agent loads neither pydantic nor anyio

        object.__setattr__(self, "_runs", RunFactory(self))

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result[Output]:
        """Run a task and wait for its result.

        For programs without an event loop; otherwise use `arun`.
        """
        self._runs.raise_if_inside_loop("`await agent.arun(...)`")  # before anything is started
        return self._runs.open(task, options).through()

    async def arun(self, task: Task, **options: Unpack[RunOptions]) -> Result[Output]:
        """Run a task in the current event loop (asyncio or trio).

        If the calling task is cancelled, the run closes first.
        """
        return await self._runs.create_driver(task, options, self.sinks).drive()

    def start(self, task: Task, **options: Unpack[RunOptions]) -> Run[Output]:
        """Start a task on Flyball's own event loop, and return its handle at once."""
        return self._runs.open(task, options).begin()

    def open(self, task: Task, **options: Unpack[RunOptions]) -> Run[Output]:
        """Return a handle that runs a task in the current event loop: `async with agent.open(task) as run`."""
        return self._runs.open(task, options)

    def resume(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Result[Output]:
        """Resume a run and wait for its result. No recorded effect is repeated.

        `run` is the paused result. With a store it is the run's id; then the run may also have reached a limit (pass
        `extend=`), or its process may have died. `answers` maps question ids to answers, as in
        `{"call-0": deny("Not now.")}`. Questions without an answer are asked again.
        """
        self._runs.raise_if_inside_loop("`await agent.aresume(...)`")
        return self._runs.reopen(run, answers, options).through()

    async def aresume(
        self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]
    ) -> Result[Output]:
        """Resume a run in the current event loop; see `resume`."""
        return await self._runs.aresume(run, answers, options)

    def reopen(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Run[Output]:
        """Return a handle of a resumed run, for `async with` or `begin()`; see `resume` and `open`."""
        return self._runs.reopen(run, answers, options)

    def worst_case(self) -> WorstCase:
        """Return upper bounds on the usage of one run, without child runs."""
        return self._runs.worst_case()

    def __repr__(self) -> str:
        spec = self._runs.spec
        sources = len(spec.tools.sources)
        more = f" and those of {pluralize(sources, 'source')}" if sources else ""
        return f"<Agent {self.name}: {spec.model.main.name}, {pluralize(len(spec.tools.names), 'tool')}{more}>"

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        """Return the spec of this agent as a child of another.

        `registry` is the parent's. It is used if this agent has neither a registry nor settings.
        """
        return self._runs.as_child(mode, registry)

    def plan(self, task: Task, **options: Unpack[RunOptions]) -> Plan:
        """Return the plan of one run, for a caller that drives the loop itself.

        The plan does not include tools of sources, because these are known only when `plan.spec.tools.sources` are
        open.
        """
        return self._runs.plan(task, options)

    @property
    def ruleset(self) -> RuleSet:
        """Core rules and the agent's own rules, with the problems found in their files."""
        return self._runs.ruleset
