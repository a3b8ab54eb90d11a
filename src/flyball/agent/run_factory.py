"""Plans, drivers and handles of an agent's runs.

`Agent` imports this module when an agent is created. It needs everything that a run needs: the loop, the runtime,
pydantic and the event loops.
"""

from __future__ import annotations

import logging
import math
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from .._internal import validation
from .._internal.workers import PRIVATE_LOOP, copy_context_for_thread, run_in_worker
from ..budget.budget import IterationBudget
from ..budget.limits import RunKind, WorstCase
from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..budget.run_budget import TurnBudget
from ..errors import ConfigError, UsageError, format_with_code
from ..loop.calibration import CALIBRATION
from ..loop.child_task import ChildSpec, Mode, announce_limits
from ..loop.plan import Plan
from ..person import parse_answers
from ..recorder import Recorder, Sink
from ..result import Result
from ..rules import RuleSet
from ..rules.reload import RuleReloader
from ..runtime import Person, RunDriver, build_driver
from ..runtime.effect_journal import EffectJournal, PauseJournal
from ..runtime.store_calls import STORE_WORKERS
from .inherited import Inheritance
from .model import check_model_money_limits, check_money_limit
from .options import AgentOptions, ResumeOptions, RunOptions, check_run_options
from .run import Run
from .spec import build_rule_spec, build_spec, check_rule_paths, with_limits
from .store import CONTINUE_PROMPT, RunStore, parse_verdicts, read_wait_seconds
from .validate import Task, check_agent, get_pause, normalize_task

log = logging.getLogger("flyball.agent.agent")

Answers = Mapping[str, Any] | None
"""Answers to the questions of a paused run, by question id: a Verdict or a bool, or the result of a client tool."""


class RunFactory:
    """Creates the runs of one agent."""

    def __init__(self, agent: AgentOptions) -> None:
        check_agent(agent)
        # A copy of its options. A reference to the agent would be a cycle, which only the garbage collector frees.
        options = AgentOptions(**{option.name: getattr(agent, option.name) for option in fields(AgentOptions)})
        self._options = options
        registry = self._registry()
        self._rule_reloader = (
            RuleReloader(check_rule_paths(options.rules), registry.settings) if options.reload_rules else None
        )
        self.spec = build_spec(options, registry)
        self._check_money_limit(self.spec.limits.budgets["usd"])
        if self.spec.limits.has_model_budgets and options.unpriced == Unpriced.REFUSE:
            check_model_money_limits(self.spec.limits.budgets, self.spec.model)
        patience = validation.parse_duration("agent, approver_seconds", options.approver_seconds)
        self._person = Person(options.approver, patience)
        self._run_store = (
            None
            if options.store is None
            else RunStore(options.store, options.lease_seconds, options.clock, options.start_metadata)
        )

    @staticmethod
    def raise_if_inside_loop(instead: str) -> None:
        """Raise UsageError inside an event loop, where waiting for a run would block it."""
        PRIVATE_LOOP.raise_if_inside(instead)

    def open(self, task: Task, options: RunOptions) -> Run:
        """Return the handle of a new run."""
        return Run(lambda stream: self.create_driver(task, options, (*self._options.sinks, stream)))

    def reopen(self, run: Result | str, answers: Answers, options: ResumeOptions) -> Run:
        """Return the handle of a resumed run."""
        return Run(lambda stream: self._build_resumed_driver(run, answers, options, (*self._options.sinks, stream)))

    async def aresume(self, run: Result | str, answers: Answers, options: ResumeOptions) -> Result:
        """Resume a run in the current event loop."""
        if self._run_store is None:
            return await self._build_resumed_driver(run, answers, options, self._options.sinks).drive()
        context = copy_context_for_thread()  # a store may block, and only this context knows the caller
        driver = await run_in_worker(
            STORE_WORKERS, lambda: context.run(self._build_resumed_driver, run, answers, options, self._options.sinks)
        )
        return await driver.drive()

    def plan(self, task: Task, options: RunOptions) -> Plan:
        """Return the plan of a new run."""
        return self._build_plan(task, options, self._read_inheritance(options))

    def create_driver(self, task: Task, options: RunOptions, sinks: Sequence[Sink]) -> RunDriver:
        """Return the driver of a new run."""
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
            return self.create_driver(CONTINUE_PROMPT, {"session": entry.start.session or entry.run_id}, sinks)
        person = replace(self._person, verdicts=parse_verdicts(entry, answers))
        plan, journal = self._run_store.reopen_journal(entry, self.spec, options)
        return self._make_driver(plan, options.get("within"), sinks, person, journal)

    def _build_unpaused_driver(self, result: Result, answers: Answers, sinks: Sequence[Sink]) -> RunDriver:
        """Return the driver that resumes a run paused in this process."""
        pause = get_pause(result)
        if pause.plan.spec.origin is not self.spec.origin:
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
        recorder = Recorder(plan.header, sinks, self._options.events_kept)
        return build_driver(
            plan, recorder, clock=self._options.clock, shared_budget=shared_budget, person=person, journal=journal
        )

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        """Return the spec of the agent as a child; see `Agent.as_child`."""
        options = self._options
        own = options.registry is not None or options.settings is not None
        limits = options.limits.resolve(
            self._registry() if own else registry, kind=RunKind.CHILD, grace=options.grace, with_models=True
        )
        return ChildSpec(
            name=options.name,
            description=options.description,
            agent_spec=with_limits(self.spec, limits),
            mode=mode,
            metadata=options.metadata,
            sinks=tuple(options.sinks),
            events_kept=options.events_kept,
            approver=options.approver,
            approver_seconds=self._person.seconds,
            check_money_limit=self._check_money_limit,
        )

    def worst_case(self) -> WorstCase:
        """Return upper bounds on the usage of one run."""
        registry, cards = self._registry(), self.spec.model.cards.values()
        cases = [self._options.limits.worst_case(card.price, registry, self._options.kind) for card in cards]
        if any(card.price is None for card in cards):  # no money limit holds for it
            cases = [replace(case, cost=None) for case in cases]
        return max(cases, key=lambda case: math.inf if case.cost is None else case.cost)

    def _check_money_limit(self, money: IterationBudget | None) -> None:
        if self._options.unpriced == Unpriced.REFUSE:
            check_money_limit(money, self.spec.model)

    def _read_inheritance(self, options: RunOptions) -> Inheritance:
        if options:
            check_run_options(options)
        inherited = Inheritance.from_shared(options.get("within"))
        if inherited.money is not None:
            self._check_money_limit(inherited.money)
        return inherited

    def _build_plan(self, task: Task, options: RunOptions, inherited: Inheritance) -> Plan:
        run_id, metadata = options.get("run_id") or os.urandom(16).hex(), options.get("metadata")
        at, until = self._options.clock.wall(), self._options.limits.until
        if self._rule_reloader is not None:
            self._reload_rules(self._rule_reloader)
        extra = inherited.instructions
        if self._options.announce_limits:
            limits = announce_limits(self.spec.limits, inherited.max_amounts or {}, inherited.max_seconds)
            extra = f"{extra}\n\n{limits}" if extra else limits
        return Plan(
            spec=self.spec.add_instructions(extra) if extra else self.spec,
            extra_instructions=extra,
            run_id=run_id,
            messages=normalize_task(task, run_id, at),
            session_id=options.get("session"),
            started_at=at,
            until=None
            if until is None
            else until.timestamp() - self.spec.limits.compute_reserve_s(until.timestamp() - at),
            state=dict(options.get("state") or {}),
            metadata=self._options.metadata if metadata is None else {**self._options.metadata, **metadata},
            max_seconds=inherited.max_seconds,
            max_amounts=inherited.max_amounts,
            has_shared_budget=inherited.shared_budget is not None,
            jitter_seed=zlib.crc32(run_id.encode()),
            token_scale=CALIBRATION.find_scale(self.spec.model.main.provider, self.spec.model.main.name),
        )

    def _reload_rules(self, reloader: RuleReloader) -> None:
        """Use the rules of changed files from now on, or keep the old ones if they do not fit the agent."""
        changed = reloader.reload()
        if changed is None:
            return
        options = self._options
        try:
            rules = build_rule_spec(changed, options.hooks, options.models, self._registry().settings)
        except ConfigError as error:
            log.warning("the changed rules are not used: %s", format_with_code(error))
        else:
            self.spec = replace(self.spec, rules=rules)

    def _registry(self) -> IterationBudgetRegistry:
        return (
            IterationBudgetRegistry(settings=self._options.settings)
            if self._options.registry is None
            else self._options.registry
        )

    @property
    def ruleset(self) -> RuleSet:
        """Core rules and the agent's own rules, with the problems found in their files."""
        ruleset = self.spec.rules.ruleset
        assert ruleset is not None, "an agent has the core rules"
        return ruleset
