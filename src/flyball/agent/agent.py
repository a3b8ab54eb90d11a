"""The agent: a model, its tools and its limits. It makes a plan for each run and has it driven."""

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
from ..errors import ConfigError, format_with_code
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
from ..runtime import Driver, Person, build_driver
from ..runtime.journal import STORE_WORKERS, RunJournal
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
"""What is answered to the questions of a paused run, by their ids."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Agent:
    """A model with tools, inside limits. `run` and `arun` give a result; `start` and `open` a handle."""

    model: Model | str
    """What answers; also by name: `openai:NAME`, `anthropic:NAME`, `http://HOST:PORT/v1#NAME`, `local:smollm2`,
    `local:PATH.gguf`, `script:PATH.toml`."""
    tools: Iterable[ToolLike] = ()
    """Functions, tools, and sources of tools such as `mcp(...)`, which are opened with each run and closed with it."""
    children: Sequence[Child | Delegable] = ()
    """Agents to which it may delegate tasks, also remote ones; a `Child` says how their budgets hang together."""
    description: str = ""
    """What it is for, in a sentence: agents that may delegate to it read that."""
    instructions: str | None = None
    limits: Limits = field(default_factory=Limits)
    name: str = "agent"
    output: Any = None
    """The type of the answer: a pydantic model, a dataclass, or another type that JSON can carry."""
    completion: Policy | Assertions | Mapping[str, Any] | str | Path | None = None
    """Says whether the task is done when the model has ended: a policy, or assertions (also as a mapping, or as the
    path of a TOML file). Without one, it is."""
    tool_rules: ToolRules | Sequence[ToolRule | Mapping[str, Any]] | str | Path | None = None
    """Which tools may be called when; also as mappings, or as the path of a TOML file."""
    duplicates: Duplicates | Literal["allow", "reuse", "reject"] = Duplicates.ALLOW
    """What becomes of a call that an equal one has answered, if nothing was changed since; a tool may say otherwise."""
    repetition: Thresholds | None = None
    """From when on calls that come again are a loop; else as the settings say."""
    reflection: Reflection | None = None
    """When it looks back at its work, in a request without tools; within the `reflections` budget."""
    compact: Callable[[Sequence[Message]], Any] | None = None
    """Sums up old messages in a text when the conversation gets too long; may be async, and may take 60 seconds. If it
    fails, or its text is too long, they are elided as they would be without it."""
    should_continue: Callable[[Progress], bool] | None = None
    """Is asked between turns; False halts the run. It must not block; if it raises, the run ends as failed."""
    hooks: Sequence[Hook] = ()
    rules: RuleSet | str | Path | Sequence[str | Path] = ()
    """Rule files, or folders of them; the core rules are always there. `ruleset.problems` is what is wrong in them."""
    models: Mapping[str, Model | str] = field(default_factory=dict[str, Model | str])
    """Other models, by the name under which a rule may have one of them asked."""
    approver: Approver | None = None
    """Is asked where a person must agree: a function of the Question, sync or async. Without one the run pauses."""
    approver_seconds: float | None = 600.0
    """How long an answer may take; then it is no. None waits for ever. It takes nothing of the run's own time."""
    on_exhausted: Literal["grace", "ask"] = "grace"
    """What happens when a limit is met: the last report, or first the question whether the run may have more."""
    grace: bool = True
    """Whether a run that met a limit gets one more request, without tools, to report."""
    single_turn: bool = False
    store: Store | str | None = None
    """Where its runs and sessions are kept, also by address: `sqlite:///runs.db`, `memory:`. Without, nowhere."""
    lease_seconds: float = 300.0
    """How long a session stays a run's own when its process stands still."""
    unpriced: Unpriced | Literal["refuse", "tokens_only"] = Unpriced.REFUSE
    """What becomes of a money limit with a model whose price nobody knows: it is refused before anything is asked, or
    it does not hold for that model, and `result.unpriced` names it."""
    max_output_tokens: int | None = None
    """The most that one reply may have, however much is left."""
    sinks: Sequence[Sink] = ()
    events_kept: int = 10_000
    registry: IterationBudgetRegistry | None = None
    settings: Settings | Mapping[str, object] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Comes back in results and on every event."""
    clock: Clock = SYSTEM
    kind: RunKind = RunKind.AGENT
    """Which registered budgets `turns` and `seconds` are."""
    _spec: AgentSpec = field(init=False)
    _model: Model = field(init=False)
    _other_models: Mapping[str, Model] = field(init=False)
    _person: Person = field(init=False)
    _run_store: RunStore | None = field(init=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "_spec", self._build_spec())
        if self.unpriced == Unpriced.REFUSE:
            check_money_limit("agent, limits.usd", self._spec.limits.budgets["usd"], self._cards())
        patience = validation.parse_duration("agent, approver_seconds", self.approver_seconds)
        object.__setattr__(self, "_person", Person(self.approver, patience))
        keeping = None if self.store is None else RunStore(self.store, self.lease_seconds, self.clock)
        object.__setattr__(self, "_run_store", keeping)

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Do a task and wait for its end, in a program without an event loop; `arun` is the async door."""
        PRIVATE_LOOP.raise_if_inside("`await agent.arun(...)`")  # before anything is started
        return self._handle(task, options).through()

    async def arun(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Do a task in this event loop, asyncio's or trio's. If that is cancelled, the run closes first."""
        return await self._build_driver(task, options, self.sinks).drive()

    def start(self, task: Task, **options: Unpack[RunOptions]) -> Run:
        """Start a task on Flyball's own event loop, and give its handle at once."""
        return self._handle(task, options).begin()

    def open(self, task: Task, **options: Unpack[RunOptions]) -> Run:
        """The handle of a task that runs in this event loop: `async with agent.open(task) as run`."""
        return self._handle(task, options)

    def resume(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Result:
        """Go on with a run where it was left, and wait for its end; nothing that was done is done again.

        `run` is its paused result, or, with a store, its id: then it may also have met a limit, with `extend=` to go
        on, or its process may have died. `answers` are by the question's id, as in `{"call-0": deny("Not now.")}`; a
        question without one is asked again.
        """
        PRIVATE_LOOP.raise_if_inside("`await agent.aresume(...)`")
        return self.reopen(run, answers, **options).through()

    async def aresume(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Result:
        """The same in this event loop."""
        context = copy_context_for_thread()  # a store may block, and who called is known here only
        driver = await run_in_worker(
            STORE_WORKERS, lambda: context.run(self._build_resumed_driver, run, answers, options, self.sinks)
        )
        return await driver.drive()

    def reopen(self, run: Result | str, answers: Answers = None, **options: Unpack[ResumeOptions]) -> Run:
        """The handle of a run that goes on, as `open` gives one of a run that begins; `begin()` starts it by itself."""
        return Run(lambda stream: self._build_resumed_driver(run, answers, options, (*self.sinks, stream)))

    def worst_case(self) -> WorstCase:
        """The most that one run can come to, without its children."""
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

    def _build_driver(self, task: Task, options: RunOptions, sinks: Sequence[Sink]) -> Driver:
        inherited = self._read_inheritance(options)
        plan, keeper = self._build_plan(task, options, inherited), None
        if self._run_store is not None:
            keeper = self._run_store.open_journal(plan, read_wait_seconds("run", options))
        return self._make_driver(plan, inherited.shared_budget, sinks, self._person, keeper)

    def _build_resumed_driver(
        self, run: Result | str, answers: Answers, options: ResumeOptions, sinks: Sequence[Sink]
    ) -> Driver:
        if self._run_store is None:
            if isinstance(run, str) or options:
                raise ConfigError("resume", run, "a result of a paused run; to go on by its id, an agent needs a store")
            return self._build_unpaused_driver(run, answers, sinks)
        entry = self._run_store.read_entry(run if isinstance(run, str) else run.run_id)
        if options.get("from_messages"):
            return self._build_driver(CONTINUE_PROMPT, {"session": entry.start.session or entry.run_id}, sinks)
        person = replace(self._person, verdicts=parse_verdicts(entry, answers))
        plan, keeper = self._run_store.reopen_journal(entry, self._spec, options)
        return self._make_driver(plan, options.get("within"), sinks, person, keeper)

    def _build_unpaused_driver(self, result: Result, answers: Answers, sinks: Sequence[Sink]) -> Driver:
        """A run that was paused in this process goes on."""
        pause = get_pause(result)
        if pause.plan.spec.origin is not self._spec.origin:
            raise ConfigError("resume", f"the result of another agent's run {result.run_id}", "one of this very agent")
        asked = {question.id: question for question in result.questions}
        verdicts = {**pause.later_verdicts, **parse_answers({} if answers is None else answers, asked)}
        pause.claim()
        plan = replace(pause.plan, state=dict(pause.plan.state))
        person = replace(self._person, verdicts=verdicts, paused=pause)
        return self._make_driver(plan, pause.shared_budget, sinks, person)

    def _make_driver(
        self,
        plan: Plan,
        shared_budget: TurnBudget | None,
        sinks: Sequence[Sink],
        person: Person,
        journal: RunJournal | None = None,
    ) -> Driver:
        recorder = Recorder(plan.header, sinks, self.events_kept)
        return build_driver(
            plan, recorder, clock=self.clock, shared_budget=shared_budget, person=person, journal=journal
        )

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        """All that its runs need as children of another agent; of that one's registry where it has none of its own."""
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
            check_money_limit("run, within", money, self._cards())

    def plan(self, task: Task, **options: Unpack[RunOptions]) -> Plan:
        """All that one run needs, for whoever drives it himself.

        The tools of sources are not in it: they are known when `plan.shared.sources` are open.
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
        """The rules of its runs: the core rules and its own; with what was wrong in their files."""
        assert self._spec.rules is not None, "an agent has the core rules"
        return self._spec.rules

    def _load_rules(self, settings: Settings) -> RuleSet:
        rules = load_rules(self.rules, settings)
        for problem in rules.problems:
            log.warning("%s", format_with_code(problem))
        for name in rules.models:
            if name not in self.models:
                raise ConfigError("agent, models", sorted(self.models), f"also {name}, which a rule wants asked")
        return rules

    def _build_cards(self, settings: Settings) -> dict[str, ModelCard]:
        cards: dict[str, ModelCard] = {}
        for name, model in {"": self._model, **self._other_models}.items():
            where = f"agent, models, {name}" if name else "agent, model"
            cards[name] = build_model_card(where, model, settings, self.max_output_tokens)
        return cards

    def _cards(self) -> list[tuple[Model, ModelCard]]:
        """Its models, and what is known of them."""
        models = {"": self._model, **self._other_models}
        return [(models[name], card) for name, card in self._spec.cards.items()]

    def _check(self) -> None:
        validation.check_type("agent, models", self.models, Mapping)
        others = {name: resolve_model(f"agent, models, {name}", one) for name, one in self.models.items()}
        object.__setattr__(self, "_model", resolve_model("agent, model", self.model))
        object.__setattr__(self, "_other_models", others)
        check_agent({one.name: getattr(self, one.name, None) for one in fields(self)})

    def _build_spec(self) -> AgentSpec:
        """All that is the same for every run, looked up once."""
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
