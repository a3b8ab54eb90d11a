"""Agent: a model with tools and limits. It plans each run and passes the plan to a driver."""

from __future__ import annotations

import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Unpack

from .._internal import validation
from .._internal.workers import PRIVATE_LOOP, copy_context_for_thread, run_in_worker
from ..budget.budget import IterationBudget
from ..budget.limits import RunKind, WorstCase
from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..budget.run_budget import TurnBudget
from ..errors import UsageError
from ..loop.child_task import ChildSpec, Mode
from ..loop.plan import AgentSpec, Plan
from ..person import Verdict, parse_answers
from ..recorder import Recorder, Sink
from ..result import Result
from ..rules import RuleSet
from ..runtime import Person, RunDriver, build_driver
from ..runtime.effect_journal import EffectJournal, PauseJournal
from ..runtime.store_calls import STORE_WORKERS
from .inherited import Inheritance
from .model import check_money_limit
from .options import AgentOptions, ResumeOptions, RunOptions, check_run_options
from .run import Run
from .spec import build_spec, with_limits
from .store import CONTINUE_PROMPT, RunStore, parse_verdicts, read_wait_seconds
from .validate import Task, check_agent, get_pause, normalize_task

Answers = Mapping[str, Verdict | bool] | None
"""Answers to the questions of a paused run, by question id."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Agent(AgentOptions):
    """Model with tools and limits.

    `run` and `arun` return the result of a task. `start` and `open` return a handle of the run.
    """

    _spec: AgentSpec = field(init=False)
    _person: Person = field(init=False)
    _run_store: RunStore | None = field(init=False)

    def __post_init__(self) -> None:
        check_agent(self)
        object.__setattr__(self, "_spec", build_spec(self, self._registry()))
        self._check_money_limit(self._spec.limits.budgets["usd"])
        patience = validation.parse_duration("agent, approver_seconds", self.approver_seconds)
        object.__setattr__(self, "_person", Person(self.approver, patience))
        run_store = (
            None if self.store is None else RunStore(self.store, self.lease_seconds, self.clock, self.start_metadata)
        )
        object.__setattr__(self, "_run_store", run_store)

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Run a task and wait for its result.

        For programs without an event loop; otherwise use `arun`.
        """
        PRIVATE_LOOP.raise_if_inside("`await agent.arun(...)`")  # before anything is started
        return self._handle(task, options).through()

    async def arun(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Run a task in the current event loop (asyncio or trio).

        If the calling task is cancelled, the run closes first.
        """
        return await self._build_driver(task, options, self.sinks).drive()

    def start(self, task: Task, **options: Unpack[RunOptions]) -> Run:
        """Start a task on Flyball's own event loop, and return its handle at once."""
        return self._handle(task, options).begin()

    def open(self, task: Task, **options: Unpack[RunOptions]) -> Run:
        """Return a handle that runs a task in the current event loop: `async with agent.open(task) as run`."""
        return self._handle(task, options)

    def resume(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Result:
        """Resume a run and wait for its result. No recorded effect is repeated.

        `run` is the paused result. With a store it is the run's id; then the run may also have reached a limit (pass
        `extend=`), or its process may have died. `answers` maps question ids to answers, as in
        `{"call-0": deny("Not now.")}`. Questions without an answer are asked again.
        """
        PRIVATE_LOOP.raise_if_inside("`await agent.aresume(...)`")
        return self.reopen(run, answers, **options).through()

    async def aresume(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Result:
        """Resume a run in the current event loop; see `resume`."""
        if self._run_store is None:
            return await self._build_resumed_driver(run, answers, options, self.sinks).drive()
        context = copy_context_for_thread()  # a store may block, and only this context knows the caller
        driver = await run_in_worker(
            STORE_WORKERS, lambda: context.run(self._build_resumed_driver, run, answers, options, self.sinks)
        )
        return await driver.drive()

    def reopen(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Run:
        """Return a handle of a resumed run, for `async with` or `begin()`; see `resume` and `open`."""
        return Run(lambda stream: self._build_resumed_driver(run, answers, options, (*self.sinks, stream)))

    def worst_case(self) -> WorstCase:
        """Return upper bounds on the usage of one run, without child runs."""
        registry, cards = self._registry(), self._spec.model.cards.values()
        cases = [self.limits.worst_case(card.price, registry, self.kind) for card in cards]
        if any(card.price is None for card in cards):  # no money limit holds for it
            cases = [replace(case, cost=None) for case in cases]
        return max(cases, key=lambda case: math.inf if case.cost is None else case.cost)

    def __repr__(self) -> str:
        tools = self._spec.tools
        more = f" and those of {len(tools.sources)} sources" if tools.sources else ""
        return f"<Agent {self.name}: {self._spec.model.main.name}, {len(tools.names)} tools{more}>"

    def _handle(self, task: Task, options: RunOptions) -> Run:
        return Run(lambda stream: self._build_driver(task, options, (*self.sinks, stream)))

    def _build_driver(self, task: Task, options: RunOptions, sinks: Sequence[Sink]) -> RunDriver:
        inherited = self._read_inheritance(options)
        plan, journal = self._build_plan(task, options, inherited), None
        if self._run_store is not None:
            journal = self._run_store.open_journal(plan, read_wait_seconds("run", options))
        return self._make_driver(plan, inherited.shared_budget, sinks, self._person, journal)

    def _build_resumed_driver(
        self, run: Result | str, answers: Answers, options: ResumeOptions, sinks: Sequence[Sink]
    ) -> RunDriver:
        if self._run_store is None:
            if isinstance(run, str):
                raise UsageError("this agent has no store, so it cannot resume a run by its id: pass store= to Agent")
            if options:
                raise UsageError(f"resume: {', '.join(options)} needs a store: pass store= to Agent")
            return self._build_unpaused_driver(run, answers, sinks)
        entry = self._run_store.read_entry(run if isinstance(run, str) else run.run_id)
        if options.get("from_messages"):
            return self._build_driver(CONTINUE_PROMPT, {"session": entry.start.session or entry.run_id}, sinks)
        person = replace(self._person, verdicts=parse_verdicts(entry, answers))
        plan, journal = self._run_store.reopen_journal(entry, self._spec, options)
        return self._make_driver(plan, options.get("within"), sinks, person, journal)

    def _build_unpaused_driver(self, result: Result, answers: Answers, sinks: Sequence[Sink]) -> RunDriver:
        """Return the driver that resumes a run paused in this process."""
        pause = get_pause(result)
        if pause.plan.spec.origin is not self._spec.origin:
            raise UsageError(f"run {result.run_id} was started by another agent: resume it with that agent")
        asked = {question.id: question for question in result.questions}
        person = replace(self._person, verdicts=parse_answers({} if answers is None else answers, asked))
        pause.claim()
        plan = replace(pause.plan, state=dict(pause.plan.state))
        return self._make_driver(plan, pause.shared_budget, sinks, person, PauseJournal(pause))

    def _make_driver(
        self,
        plan: Plan,
        shared_budget: TurnBudget | None,
        sinks: Sequence[Sink],
        person: Person,
        journal: EffectJournal | None = None,
    ) -> RunDriver:
        recorder = Recorder(plan.header, sinks, self.events_kept)
        return build_driver(
            plan, recorder, clock=self.clock, shared_budget=shared_budget, person=person, journal=journal
        )

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        """Return the spec of this agent as a child of another.

        `registry` is the parent's. It is used if this agent has neither a registry nor settings.
        """
        own = self.registry is not None or self.settings is not None
        limits = self.limits.resolve(self._registry() if own else registry, kind=RunKind.CHILD, grace=self.grace)
        return ChildSpec(
            name=self.name,
            description=self.description,
            agent_spec=with_limits(self._spec, limits),
            mode=mode,
            metadata=self.metadata,
            sinks=tuple(self.sinks),
            events_kept=self.events_kept,
            approver=self.approver,
            approver_seconds=self._person.seconds,
            check_money_limit=self._check_money_limit,
        )

    def _check_money_limit(self, money: IterationBudget | None) -> None:
        if self.unpriced == Unpriced.REFUSE:
            check_money_limit(money, self._spec.model)

    def plan(self, task: Task, **options: Unpack[RunOptions]) -> Plan:
        """Return the plan of one run, for a caller that drives the loop itself.

        The plan does not include tools of sources, because these are known only when `plan.spec.tools.sources` are
        open.
        """
        return self._build_plan(task, options, self._read_inheritance(options))

    def _read_inheritance(self, options: RunOptions) -> Inheritance:
        if options:
            check_run_options(options)
        inherited = Inheritance.from_shared(options.get("within"))
        if inherited.money is not None:
            self._check_money_limit(inherited.money)
        return inherited

    def _build_plan(self, task: Task, options: RunOptions, inherited: Inheritance) -> Plan:
        run_id, metadata = options.get("run_id") or os.urandom(16).hex(), options.get("metadata")
        at, until = self.clock.wall(), self.limits.until
        return Plan(
            spec=inherited.apply_to(self._spec),
            extra_instructions=inherited.instructions,
            run_id=run_id,
            messages=normalize_task(task, run_id, at),
            session_id=options.get("session"),
            started_at=at,
            until=None
            if until is None
            else until.timestamp() - self._spec.limits.compute_reserve_s(until.timestamp() - at),
            state=dict(options.get("state") or {}),
            metadata=self.metadata if metadata is None else {**self.metadata, **metadata},
            max_seconds=inherited.max_seconds,
            max_amounts=inherited.max_amounts,
            has_shared_budget=inherited.shared_budget is not None,
            jitter_seed=zlib.crc32(run_id.encode()),
        )

    def _registry(self) -> IterationBudgetRegistry:
        return IterationBudgetRegistry(settings=self.settings) if self.registry is None else self.registry

    @property
    def ruleset(self) -> RuleSet:
        """Core rules and the agent's own rules, with the problems found in their files."""
        ruleset = self._spec.rules.ruleset
        assert ruleset is not None, "an agent has the core rules"
        return ruleset
