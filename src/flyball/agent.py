"""The agent: a model, its tools and its limits. It makes a plan for each run and has it driven."""

from __future__ import annotations

import inspect
import json
import math
import os
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

from . import check
from .asserted import Asserted
from .assertion import Assertions
from .budget import IterationBudget
from .clock import SYSTEM, Clock
from .drive import Driver, Pause, Person
from .envelope import TurnBudget
from .errors import ConfigError
from .event import Header
from .limits import Kind, Limits, WorstCase
from .loop.plan import Plan, Terrain
from .loop.told import Told
from .message import Message, MessageType, Role
from .models import Model
from .output import Output
from .person import Approver, Verdict, answers_of
from .progress import Hook, Policy, Progress
from .recorder import Recorder, Sink
from .registry import IterationBudgetRegistry
from .request import tokens_of
from .result import Result, Stop
from .run import Run
from .settings import Settings
from .steadiness import Duplicates, Reflection, Thresholds
from .toolrule import ToolRule, ToolRules
from .tools import Admission, Tool, Toolset
from .tools.compaction import Compaction
from .tools.tool import Function
from .wire import normalize
from .worker import PRIVATE_LOOP

Task = str | Message | Mapping[str, Any] | Sequence[str | Message | Mapping[str, Any]]
"""What a run is about: a text, or a conversation whose last message is the task."""


class RunOptions(TypedDict, total=False):
    """What is one run's own. Everything may be left out."""

    within: TurnBudget
    """An envelope that this run shares with others: what it takes counts there too, and there it may be refused."""
    run_id: str
    session_id: str
    metadata: Mapping[str, Any]
    """Added to the agent's."""
    state: Mapping[str, Any]
    """What tools find in `ctx.state` at the start."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Agent:
    """A model with tools, inside limits. `run` and `arun` give a result; `start` and `open` a handle."""

    model: Model
    tools: Iterable[Tool | Function] = ()
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
    approver: Approver | None = None
    """Is asked where a person must agree: a function of the Question, sync or async. Without one the run pauses."""
    approver_seconds: float | None = 600.0
    """How long an answer may take; then it is no. None waits for ever. It takes nothing of the run's own time."""
    on_exhausted: Literal["grace", "ask"] = "grace"
    """What happens when a limit is met: the last report, or first the question whether the run may have more."""
    grace: bool = True
    """Whether a run that met a limit gets one more request, without tools, to report."""
    single_turn: bool = False
    max_output_tokens: int | None = None
    """The most that one reply may have, however much is left."""
    sinks: Sequence[Sink] = ()
    events_kept: int = 10_000
    registry: IterationBudgetRegistry | None = None
    settings: Settings | Mapping[str, object] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Comes back in results and on every event."""
    clock: Clock = SYSTEM
    kind: Kind = Kind.AGENT
    """Which registered budgets `turns` and `seconds` are."""
    _terrain: Terrain = field(init=False)

    def __post_init__(self) -> None:
        self._check()
        object.__setattr__(self, "_terrain", self._made_terrain())

    def run(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Do a task and wait for its end, in a program without an event loop; `arun` is the async door."""
        PRIVATE_LOOP.refuse_inside("`await agent.arun(...)`")  # before anything is started
        return self._handle(task, options).through()

    async def arun(self, task: Task, **options: Unpack[RunOptions]) -> Result:
        """Do a task in this event loop, asyncio's or trio's. If that is cancelled, the run closes first."""
        return await self._driver(task, options, self.sinks).drive()

    def start(self, task: Task, **options: Unpack[RunOptions]) -> Run:
        """Start a task on Flyball's own event loop, and give its handle at once."""
        return self._handle(task, options).begin()

    def open(self, task: Task, **options: Unpack[RunOptions]) -> Run:
        """The handle of a task that runs in this event loop: `async with agent.open(task) as run`."""
        return self._handle(task, options)

    def resume(self, result: Result, answers: Mapping[str, Verdict | bool] | None = None) -> Result:
        """Go on with a paused run where it waits, and wait for its end; nothing that was done is done again.

        `answers` are by the question's id, as in `{"call-0": deny("Not now.")}`; a question without one is asked again.
        """
        PRIVATE_LOOP.refuse_inside("`await agent.aresume(...)`")
        return Run(lambda stream: self._resumed(result, answers, (*self.sinks, stream))).through()

    async def aresume(self, result: Result, answers: Mapping[str, Verdict | bool] | None = None) -> Result:
        """The same in this event loop."""
        return await self._resumed(result, answers, self.sinks).drive()

    def worst_case(self) -> WorstCase:
        """The most that one run can come to."""
        return self.limits.worst_case(self.model.price, self._registry(), self.kind)

    def __repr__(self) -> str:
        return f"<Agent {self.name}: {self.model.name}, {len(self._terrain.tool_names)} tools>"

    def _handle(self, task: Task, options: RunOptions) -> Run:
        return Run(lambda stream: self._driver(task, options, (*self.sinks, stream)))

    def _driver(self, task: Task, options: RunOptions, sinks: Sequence[Sink]) -> Driver:
        plan = self.plan(task, **options)
        return self._driver_of(plan, options.get("within"), sinks, Person(self.approver, self._patience))

    def _resumed(self, result: Result, answers: Mapping[str, Any] | None, sinks: Sequence[Sink]) -> Driver:
        pause = pause_of(result)
        if pause.plan.shared is not self._terrain:
            raise ConfigError("resume", f"the result of another agent's run {result.run_id}", "one of this very agent")
        asked = {question.id: question for question in result.questions}
        verdicts = {**pause.said, **answers_of({} if answers is None else answers, asked)}
        pause.take()
        plan = replace(pause.plan, state=dict(pause.plan.state))
        person = Person(self.approver, self._patience, verdicts, pause)
        return self._driver_of(plan, pause.within, sinks, person)

    def _driver_of(self, plan: Plan, within: TurnBudget | None, sinks: Sequence[Sink], person: Person) -> Driver:
        header = Header(plan.run_id, plan.session_id, plan.started_at, plan.metadata)
        recorder = Recorder(header, sinks, self.events_kept)
        return Driver(plan, recorder, clock=self.clock, within=within, person=person)

    @property
    def _patience(self) -> float:
        return check.duration("agent, approver_seconds", self.approver_seconds)

    def plan(self, task: Task, **options: Unpack[RunOptions]) -> Plan:
        """All that one run needs, for whoever drives it himself."""
        if options:
            _check_options(options)
        run_id = options.get("run_id") or os.urandom(16).hex()
        at, within, until = self.clock.wall(), options.get("within"), self.limits.until
        if within is not None and self.model.price is None:
            _refuse_money("run, within", within.budgets.get("usd"), self.model.name)
        metadata = options.get("metadata")
        return Plan(
            shared=self._terrain,
            run_id=run_id,
            messages=_messages(task, run_id, at),
            session_id=options.get("session_id"),
            started_at=at,
            until=None if until is None else until.timestamp() - self._terrain.terms.reserve_s(until.timestamp() - at),
            state=dict(options.get("state") or {}),
            metadata=self.metadata if metadata is None else {**self.metadata, **metadata},
            most_s=math.inf if within is None else within.remaining_s(),
            most=None if within is None else _left_of(within),
            within=within is not None,
            seed=zlib.crc32(run_id.encode()),
        )

    def _registry(self) -> IterationBudgetRegistry:
        return IterationBudgetRegistry(settings=self.settings) if self.registry is None else self.registry

    def _check(self) -> None:
        self._check_model()
        check.kind("agent, limits", self.limits, Limits)
        check.text("agent, name", self.name)
        check.kind("agent, metadata", self.metadata, Mapping)
        check.whole_or_none("agent, max_output_tokens", self.max_output_tokens)
        check.whole("agent, events_kept", self.events_kept)
        check.member("agent, kind", self.kind, Kind)
        if self.compact is not None and not callable(self.compact):
            raise ConfigError("agent, compact", self.compact, "a function of messages that gives a text")
        check.timeout("agent, approver_seconds", self.approver_seconds)
        if self.approver is not None and not callable(self.approver):
            raise ConfigError("agent, approver", self.approver, "a function of the question, sync or async")
        if self.on_exhausted not in ("grace", "ask"):
            raise ConfigError("agent, on_exhausted", self.on_exhausted, "one of grace, ask")
        check.member("agent, duplicates", self.duplicates, Duplicates)
        for name, kind in (("repetition", Thresholds), ("reflection", Reflection)):
            if getattr(self, name) is not None:
                check.kind(f"agent, {name}", getattr(self, name), kind)
        if self.instructions is not None:
            check.kind("agent, instructions", self.instructions, str)
        for name in ("tools", "hooks", "sinks"):
            if isinstance(given := getattr(self, name), str) or not isinstance(given, Iterable):
                raise ConfigError(f"agent, {name}", given, "a list")
        for name in ("grace", "single_turn"):
            check.kind(f"agent, {name}", getattr(self, name), bool)
        for name, functions in {
            "should_continue": () if self.should_continue is None else (self.should_continue,),
            "completion": (self.completion,) if callable(self.completion) else (),
            "hooks": self.hooks,
            "sinks": self.sinks,
        }.items():
            for one in functions:
                _check_function(f"agent, {name}", one)
        if self.registry is not None:
            check.kind("agent, registry", self.registry, IterationBudgetRegistry)
            if self.settings is not None:
                raise ConfigError(
                    "agent, settings", self.settings, "none, where a registry is given, which has its own"
                )

    def _check_model(self) -> None:
        missing = [name for name in ("name", "provider", "price") if not hasattr(self.model, name)]
        missing += [name for name in ("ready", "ask") if not callable(getattr(self.model, name, None))]
        if missing or isinstance(self.model, type):
            expected = "a model: something with name, provider, price, ready and ask"
            raise ConfigError("agent, model", self.model, expected)
        if self.model.price is not None and not callable(getattr(self.model.price, "cost", None)):
            raise ConfigError("agent, model's price", self.model.price, "a price, such as a TokenPrice, or None")

    def _made_terrain(self) -> Terrain:
        """All that is the same for every run, looked up once."""
        toolset = Toolset(self.tools)
        registry = self._registry()
        terms = self.limits.terms(registry, kind=self.kind, grace=self.grace)
        if self.model.price is None:
            _refuse_money("agent, limits.usd", terms.budgets["usd"], self.model.name)
        assertions, policy = _completion(self.completion, tuple(toolset))
        output = None if self.output is None else Output(self.output, policy)
        rules = None if self.tool_rules is None else ToolRules.of(self.tool_rules)
        if rules is not None:
            rules.check_offered(toolset)
        definitions = [tool.definition() for tool in toolset.values()]
        spoken = tokens_of(self.instructions or "")
        with terms.open(Told(0.0)) as opened:
            shown = opened.snapshot()
        schema = None if output is None else output.schema
        described = json.dumps([*definitions, schema or {}], default=str)
        return Terrain(
            model=self.model,
            model_is_async=inspect.iscoroutinefunction(self.model.ask),
            terms=terms,
            admission=lambda envelope: Admission(toolset, envelope),
            tools=definitions,
            tool_names=tuple(toolset),
            sensitive={tool.name: tool.sensitive for tool in toolset.values() if tool.sensitive},
            asking=frozenset(tool.name for tool in toolset.values() if tool.asks),
            cheap=frozenset(tool.name for tool in toolset.values() if tool.cheap),
            limits_shown=shown,
            instructions=self.instructions,
            output_schema=schema,
            completion=output or policy,
            assertions=assertions,
            tool_rules=rules,
            duplicates=Duplicates(self.duplicates),
            thresholds=self.repetition or Thresholds.of(registry.settings),
            reflection=self.reflection,
            compact=None if self.compact is None else Compaction(self.compact),
            should_continue=self.should_continue,
            hooks=tuple(self.hooks),
            count=getattr(self.model, "count", None),
            instruction_tokens=spoken,
            base_tokens=spoken + tokens_of(described),
            max_output_tokens=self.max_output_tokens,
            grace=self.grace,
            single_turn=self.single_turn,
            asks_for_more=self.on_exhausted == "ask",
        )


def _check_function(where: str, given: object) -> None:
    """What is called and not awaited: of an `async def` every answer would be a coroutine, and so true."""
    call = getattr(given, "__call__", None)  # noqa: B004
    if not callable(given) or inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(call):
        raise ConfigError(where, given, "a function that is not async")


def _refuse_money(where: str, money: IterationBudget | None, model: str) -> None:
    """A limit that nobody can hold is refused, not forgotten."""
    if money is not None and money.ceiling is not None:
        limit = money.unit.show(money.ceiling)
        raise ConfigError(where, limit, f"a model with a price; nobody knows that of {model}")


def pause_of(result: Result) -> Pause:
    """What a paused run goes on from."""
    if not isinstance(result, Result):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError("resume", result, "a result of a paused run")
    if isinstance(result.pause, Pause):
        return result.pause
    if result.stop is Stop.PAUSED:
        found = "a copy of a paused result, which has not kept what the run goes on from"
        raise ConfigError("resume", found, "the result itself, as the run gave it in this process")
    raise ConfigError("resume", f"a result that is {result.stop.value}", "a paused one")


def _check_options(options: RunOptions) -> None:
    check.options("run", options, RunOptions.__annotations__)
    for name, kind in (("within", TurnBudget), ("metadata", Mapping), ("state", Mapping)):
        if options.get(name) is not None:
            check.kind(f"run, {name}", options.get(name), kind)
    for name in ("run_id", "session_id"):
        if options.get(name) is not None:
            check.text(f"run, {name}", options.get(name))


def _completion(source: object, offered: Sequence[str]) -> tuple[Assertions | None, Policy | None]:
    """The assertions, where that is what was given, and the policy that is asked."""
    if isinstance(source, Assertions | Mapping | str | Path):
        assertions = Assertions.of(cast("Assertions", source))
        return assertions, Asserted(assertions, offered=offered)
    if isinstance(source, Asserted):
        return source.assertions, source
    if inspect.iscoroutinefunction(source) or (source is not None and not callable(source)):
        raise ConfigError("agent, completion", source, "a policy (a function), assertions, or the path of a TOML file")
    return None, cast("Policy | None", source)


def _left_of(shared: TurnBudget) -> dict[str, int]:
    """What others leave of tokens and money now: a run must not hold less than the worst that its requests can do."""
    left = {name: shared.budgets[name].available for name in ("tokens", "usd") if name in shared.budgets}
    return {name: int(amount) for name, amount in left.items() if amount != math.inf}


def _messages(task: Task, run_id: str, at: float) -> list[Message]:
    if isinstance(task, str) and task.strip():
        return [Message(run_id, 0, at, MessageType.TEXT, Role.USER, task)]
    messages = (
        []
        if isinstance(task, str)
        else normalize([task] if isinstance(task, Message | Mapping) else task, run=run_id, at=at)
    )
    if not messages:
        raise ConfigError("run, task", task, "a text, or messages of which the last is the task")
    return messages
