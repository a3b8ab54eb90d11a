"""Agent: a model with tools and limits. It plans each run and passes the plan to a driver."""

from __future__ import annotations

import inspect
import logging
import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

from .._internal import validation
from .._internal.workers import PRIVATE_LOOP, copy_context_for_thread, run_in_worker
from ..budget.budget import IterationBudget
from ..budget.deadline import SYSTEM, Clock
from ..budget.limits import Limits, RunKind, WorstCase
from ..budget.price import Unpriced
from ..budget.registry import IterationBudgetRegistry
from ..budget.run_budget import TurnBudget
from ..completion.assertions import Assertions
from ..errors import UsageError, format_with_code
from ..loop.child_task import ChildSpec, Mode
from ..loop.plan import AgentSpec, ModelCard, Plan
from ..message import Message
from ..models import Model
from ..person import Approver, Verdict, parse_answers
from ..progress import Hook, Policy, Progress
from ..recorder import Recorder, Sink
from ..request import estimate_tokens
from ..result import Result
from ..rules import RuleSet
from ..runtime import Person, RunDriver, build_driver
from ..runtime.effect_journal import EffectJournal, PauseJournal
from ..runtime.journal import STORE_WORKERS
from ..settings import Settings
from ..steadiness import Duplicates, Reflection, Thresholds
from ..store import Store
from ..tool_rules import ToolRule, ToolRules
from ..tools import Admission
from ..tools.builtin import Compaction
from ..tools.source import ToolLike
from .delegation import (
    Child,
    Delegable,
    build_child_specs,
    read_join_duplicates,
    read_max_concurrent,
    read_stall_seconds,
    resolve_child,
)
from .inherited import Inheritance
from .options import ResumeOptions, RunOptions, check_run_options
from .output import Output
from .run import Run
from .store import CONTINUE_PROMPT, RunStore, parse_verdicts, read_wait_seconds
from .tools import AgentTools
from .validate import (
    Task,
    build_completion,
    build_model_card,
    check_agent,
    check_money_limit,
    get_pause,
    load_rules,
    normalize_task,
    resolve_model,
    snapshot_ceilings,
)

log = logging.getLogger(__name__)
Answers = Mapping[str, Verdict | bool] | None
"""Answers to the questions of a paused run, by question id."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Agent:
    """Model with tools and limits.

    `run` and `arun` return the result of a task. `start` and `open` return a handle of the run.
    """

    model: Model | str
    """Model, or its name: `openai:NAME`, `anthropic:NAME`, `http://HOST:PORT/v1#NAME`, `local:smollm2`,
    `local:PATH.gguf`, `script:PATH.toml`."""
    tools: Iterable[ToolLike] = ()
    """Functions, tools, and sources of tools such as `mcp(...)`. Each run opens its sources and closes them."""
    children: Sequence[Child | Delegable] = ()
    """Agents to delegate tasks to, including remote ones. A `Child` selects how its budget relates to the parent's."""
    description: str = ""
    """Purpose of the agent in one sentence, shown to agents that can delegate to it."""
    instructions: str | None = None
    limits: Limits = field(default_factory=Limits)
    name: str = "agent"
    output: Any = None
    """Type of the answer: a pydantic model, a dataclass, or another type that JSON can represent. None means text."""
    completion: Policy | Assertions | Mapping[str, Any] | str | Path | None = None
    """Check of whether the task is done when the model stops: a policy, assertions, a mapping of assertions, or the
    path of a TOML file. None means that the task is done when the model stops."""
    tool_rules: ToolRules | Sequence[ToolRule | Mapping[str, Any]] | str | Path | None = None
    """Rules about when each tool may be called, as objects, mappings, or the path of a TOML file."""
    duplicates: Duplicates | Literal["allow", "reuse", "reject"] = Duplicates.ALLOW
    """Handling of a call that equals an earlier one, if nothing has changed since. A tool can override it."""
    repetition: Thresholds | None = None
    """Thresholds from which repeated calls count as a loop. None means the settings."""
    reflection: Reflection | None = None
    """Points at which the model reviews its work in a request without tools. None means never."""
    compact: Callable[[Sequence[Message]], Any] | None = None
    """Function that summarizes old messages when the conversation gets too long. It may be async, and has 60 seconds.
    If it fails, or its summary is too long, or it is None, old messages are elided."""
    should_continue: Callable[[Progress], bool] | None = None
    """Function called between turns; False halts the run. It must not block. If it raises, the run ends as failed."""
    hooks: Sequence[Hook] = ()
    rules: RuleSet | str | Path | Sequence[str | Path] = ()
    """Rule files, or folders of them, in addition to the core rules. `ruleset.problems` lists invalid files."""
    models: Mapping[str, Model | str] = field(default_factory=dict[str, Model | str])
    """Other models that a rule can switch to, by name."""
    approver: Approver | None = None
    """Function that answers a Question for a person, sync or async. None means that the run pauses."""
    approver_seconds: float | None = 600.0
    """Seconds to wait for an answer; then it is no. None means no limit. The wait does not use the run's time."""
    on_exhausted: Literal["grace", "ask"] = "grace"
    """Action when a limit is reached: `grace` asks for the report, `ask` first asks a person to raise the limit."""
    grace: bool = True
    """True if a run that reached a limit gets one more request, without tools, for a report."""
    single_turn: bool = False
    store: Store | str | None = None
    """Store of runs and sessions, or its address: `sqlite:///runs.db`, `memory:`. None means that nothing is stored."""
    lease_seconds: float = 300.0
    """Seconds that a run keeps its session locked after its process stops responding."""
    unpriced: Unpriced | Literal["refuse", "tokens_only"] = Unpriced.REFUSE
    """Handling of a money limit when the price of a model is unknown: `refuse` raises an error, `tokens_only` ignores
    the limit for that model and lists it in `result.unpriced`."""
    max_output_tokens: int | None = None
    """Maximum output tokens of one reply. None means that only the budgets limit it."""
    sinks: Sequence[Sink] = ()
    events_kept: int = 10_000
    registry: IterationBudgetRegistry | None = None
    settings: Settings | Mapping[str, object] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Data that is copied to results and to every event."""
    clock: Clock = SYSTEM
    kind: RunKind = RunKind.AGENT
    """Selects the registered budgets for `turns` and `seconds`."""
    _spec: AgentSpec = field(init=False)
    _model: Model = field(init=False)
    _other_models: Mapping[str, Model] = field(init=False)
    _person: Person = field(init=False)
    _run_store: RunStore | None = field(init=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "_spec", self._build_spec())
        if self.unpriced == Unpriced.REFUSE:
            check_money_limit(self._spec.limits.budgets["usd"], self._cards())
        patience = validation.parse_duration("agent, approver_seconds", self.approver_seconds)
        object.__setattr__(self, "_person", Person(self.approver, patience))
        keeping = None if self.store is None else RunStore(self.store, self.lease_seconds, self.clock)
        object.__setattr__(self, "_run_store", keeping)

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
        context = copy_context_for_thread()  # a store may block, and who called is known here only
        driver = await run_in_worker(
            STORE_WORKERS, lambda: context.run(self._build_resumed_driver, run, answers, options, self.sinks)
        )
        return await driver.drive()

    def reopen(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Run:
        """Return a handle of a resumed run, for `async with` or `begin()`; see `resume` and `open`."""
        return Run(lambda stream: self._build_resumed_driver(run, answers, options, (*self.sinks, stream)))

    def worst_case(self) -> WorstCase:
        """Return upper bounds on the usage of one run, without child runs."""
        registry = self._registry()
        cases = [self.limits.worst_case(card.price, registry, self.kind) for card in self._spec.cards.values()]
        if any(card.price is None for card in self._spec.cards.values()):  # no limit holds for it
            cases = [replace(case, cost=None) for case in cases]
        return max(cases, key=lambda case: math.inf if case.cost is None else case.cost)

    def __repr__(self) -> str:
        sources = len(self._spec.sources)
        more = f" and those of {sources} sources" if sources else ""
        return f"<Agent {self.name}: {self._model.name}, {len(self._spec.tool_names)} tools{more}>"

    def _handle(self, task: Task, options: RunOptions) -> Run:
        return Run(lambda stream: self._build_driver(task, options, (*self.sinks, stream)))

    def _build_driver(self, task: Task, options: RunOptions, sinks: Sequence[Sink]) -> RunDriver:
        inherited = self._read_inheritance(options)
        plan, keeper = self._build_plan(task, options, inherited), None
        if self._run_store is not None:
            keeper = self._run_store.open_journal(plan, read_wait_seconds("run", options))
        return self._make_driver(plan, inherited.shared_budget, sinks, self._person, keeper)

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
        plan, keeper = self._run_store.reopen_journal(entry, self._spec, options)
        return self._make_driver(plan, options.get("within"), sinks, person, keeper)

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
        terms = self.limits.resolve(self._registry() if own else registry, kind=RunKind.CHILD, grace=self.grace)
        return ChildSpec(
            name=self.name,
            description=self.description,
            agent_spec=replace(self._spec, limits=terms, limits_snapshot=snapshot_ceilings(terms)),
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
            check_money_limit(money, self._cards())

    def plan(self, task: Task, **options: Unpack[RunOptions]) -> Plan:
        """Return the plan of one run, for a caller that drives the loop itself.

        The plan does not include tools of sources, because these are known only after `plan.spec.sources` are open.
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
            seed=zlib.crc32(run_id.encode()),
        )

    def _registry(self) -> IterationBudgetRegistry:
        return IterationBudgetRegistry(settings=self.settings) if self.registry is None else self.registry

    @property
    def ruleset(self) -> RuleSet:
        """Core rules and the agent's own rules, with the problems found in their files."""
        assert self._spec.rules is not None, "an agent has the core rules"
        return self._spec.rules

    def _load_rules(self, settings: Settings) -> RuleSet:
        rules = load_rules(self.rules, settings)
        for problem in rules.problems:
            log.warning("%s", format_with_code(problem))
        for name in rules.models:
            if name not in self.models:
                raise UsageError(
                    f"a rule switches to the model {name!r}, which Agent(models=...) does not have: add it"
                )
        return rules

    def _build_cards(self, settings: Settings) -> dict[str, ModelCard]:
        cards: dict[str, ModelCard] = {}
        for name, model in {"": self._model, **self._other_models}.items():
            where = f"agent, models, {name}" if name else "agent, model"
            cards[name] = build_model_card(where, model, settings, self.max_output_tokens)
        return cards

    def _cards(self) -> list[tuple[Model, ModelCard]]:
        """Return the models with their cards."""
        models = {"": self._model, **self._other_models}
        return [(models[name], card) for name, card in self._spec.cards.items()]

    def _check(self) -> None:
        validation.check_type("agent, models", self.models, Mapping)
        others = {name: resolve_model(f"agent, models, {name}", one) for name, one in self.models.items()}
        object.__setattr__(self, "_model", resolve_model("agent, model", self.model))
        object.__setattr__(self, "_other_models", others)
        check_agent({one.name: getattr(self, one.name, None) for one in fields(self)})

    def _build_spec(self) -> AgentSpec:
        """Return everything that is the same for all runs."""
        registry = self._registry()
        edges = build_child_specs(self.children, registry)
        offer = AgentTools.of(self.tools, edges)
        terms = self.limits.resolve(registry, kind=self.kind, grace=self.grace)
        ruleset = self._load_rules(registry.settings)
        assertions, policy = build_completion(self.completion, None if offer.sources else tuple(offer.toolset))
        output = None if self.output is None else Output(self.output, policy)
        terrain = AgentSpec(
            model=self._model,
            model_is_async=inspect.iscoroutinefunction(self._model.ask),
            limits=terms,
            admission=partial(Admission, offer.toolset),
            children=edges,
            resolve_child=partial(resolve_child, edges, registry),
            join_duplicate_children=read_join_duplicates(registry.settings),
            max_concurrent_children=read_max_concurrent(registry.settings),
            children_stall_s=read_stall_seconds(registry.settings),
            limits_snapshot=snapshot_ceilings(terms),
            instructions=self.instructions,
            output_schema=None if output is None else output.schema,
            completion=output or policy,
            assertions=assertions,
            tool_rules=None if self.tool_rules is None else ToolRules.of(self.tool_rules),
            duplicates=Duplicates(self.duplicates),
            thresholds=self.repetition or Thresholds.of(registry.settings),
            reflection=self.reflection,
            compact=None if self.compact is None else Compaction(self.compact),
            should_continue=self.should_continue,
            hooks=tuple(self.hooks),
            rules=ruleset,
            rule_points=ruleset.points,
            rules_need_approval=ruleset.asks_person,
            models=dict(self._other_models),
            agent=self.name,
            cards=self._build_cards(registry.settings),
            instruction_tokens=estimate_tokens(self.instructions or ""),
            max_output_tokens=self.max_output_tokens,
            grace=self.grace,
            single_turn=self.single_turn,
            asks_for_extension=self.on_exhausted == "ask",
        )
        return offer.apply_to(terrain)
