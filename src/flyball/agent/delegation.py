"""Children of an agent: their specs, the tool `delegate`, and the budgets that its calls claim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, Literal, Protocol, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from .._internal import validation
from ..budget.registry import IterationBudgetRegistry
from ..budget.run_budget import TurnBudget
from ..errors import ConfigError
from ..loop.child_task import CARVED_BUDGETS, ChildSpec, ChildTask, Mode
from ..loop.children import distinct_tasks
from ..loop.plan import ChildrenSpec
from ..outcome import Denied, Reason
from ..request import Call
from ..runtime.child_call import BackgroundCallRun, ChildCallRun
from ..settings import Settings
from ..tools import Admission, Tool, Toolset
from ..tools.admission import build_denial
from ..tools.call import ToolCallRun
from ..unit import Unit

MAX_CONCURRENT_KEY, STALL_KEY, JOIN_KEY = (
    "delegation.max_concurrent_children", "delegation.stall_seconds", "delegation.join_duplicates",
)  # fmt: skip
SETTINGS = (MAX_CONCURRENT_KEY, STALL_KEY, JOIN_KEY)
"""Keys of the settings about delegation."""
_DESCRIPTION = (
    "Delegate tasks to other agents. Several can work at the same time, each within its own limits. They do not see "
    "this conversation: state each goal completely, and put everything that the agent needs to know into the context. "
    "Each agent ends with a report."
)


_BACKGROUND = "True to continue without waiting for the results. A message tells each result later."


class Delegable(Protocol):
    """Agent that can be a child, such as `Agent` and `remote_agent`."""

    @property
    def name(self) -> str:
        """Name by which the parent's model refers to it."""
        ...

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        """Return the spec of its runs. `registry` is the parent's, for an agent without its own."""
        ...


@dataclass(frozen=True, slots=True)
class Child:
    """Agent as a child, and how its budgets relate to those of its parent."""

    agent: Delegable
    budget: Mode | Literal["independent", "carved", "shared"] = Mode.INDEPENDENT

    def __post_init__(self) -> None:
        if not callable(getattr(self.agent, "as_child", None)):
            raise ConfigError("child", self.agent, "an Agent")
        validation.parse_enum("child, budget", self.budget, Mode)


def build_children_spec(
    children: Iterable[Child | Delegable], registry: IterationBudgetRegistry, in_background: bool = False
) -> ChildrenSpec:
    """Return the spec of an agent's children. The settings of the registry say how their runs are scheduled."""
    specs: dict[str, ChildSpec] = {}
    for given in children:
        spec = _build_child_spec(given, registry)
        if spec.name in specs:
            raise ConfigError("agent, children", spec.name, "a different name for each child")
        specs[spec.name] = spec
    settings = registry.settings
    return ChildrenSpec(
        specs=tuple(specs.values()),
        resolve=partial(_resolve_child, specs, registry),
        in_background=in_background,
        join_duplicates=_read_join_duplicates(settings),
        max_concurrent=int(_read_setting(settings, MAX_CONCURRENT_KEY, Unit.COUNT, 3)),
        stall_s=_read_setting(settings, STALL_KEY, Unit.SECONDS, 300.0),
    )


def _build_child_spec(given: Child | Delegable, registry: IterationBudgetRegistry) -> ChildSpec:
    child = given if isinstance(given, Child) else Child(given)
    return child.agent.as_child(Mode(child.budget), registry)


def _read_join_duplicates(settings: Settings) -> bool:
    setting = settings.find(JOIN_KEY)
    word = "false" if setting is None else str(setting.value).lower()
    if setting is not None and word not in ("true", "false"):
        raise setting.error("true or false")
    return word == "true"


def _resolve_child(known: Mapping[str, ChildSpec], registry: IterationBudgetRegistry, child: object) -> ChildSpec:
    """Return the spec of a child for a tool: one of the agent's children by name, or any agent."""
    if isinstance(child, str):
        if child not in known:
            raise ConfigError("ctx.delegate", child, f"an Agent, or the name of a child: {', '.join(known) or 'none'}")
        return replace(known[child], mode=Mode.INDEPENDENT)
    return _build_child_spec(Child(cast("Delegable", child)), registry)


def _read_setting(settings: Settings, key: str, unit: Unit, default: float) -> float:
    setting = settings.find(key)
    try:
        found = default if setting is None else unit.parse(setting.value)
    except ValueError:
        found = 0
    if setting is not None and found <= 0:
        raise setting.error(f"{unit.expected}, more than 0")
    return found


class Delegation(Tool):
    """The tool `delegate`. Its function is never called: each call starts child runs."""

    def __init__(self, child_specs: Sequence[ChildSpec], in_background: bool = False) -> None:
        self.specs = {spec.name: spec for spec in child_specs}

        def delegate_now(tasks: Any) -> None:
            """Never called; see `tasks`."""

        def delegate_or_start(tasks: Any, background: Any = False) -> None:
            """Never called; see `tasks`."""

        delegate: Any = delegate_or_start if in_background else delegate_now
        delegate.__annotations__ = {"tasks": Annotated[list[_build_task_model(self.specs)], Field(min_length=1)]}
        if in_background:
            delegate.__annotations__["background"] = Annotated[bool, Field(description=_BACKGROUND)]
        rows = [_describe_child(spec) for spec in child_specs]
        about = "\n".join([f"{_DESCRIPTION} The agents:", *rows])
        # Calls may run at the same time, as reads do. But child runs may change something.
        super().__init__(delegate, name="delegate", description=about, effects="read", timeout=None)
        self.writes = True

    def tasks(self, tool_call: ToolCallRun) -> list[ChildTask]:
        """Return the tasks of a call."""
        return [self._build_task(task) for task in tool_call.values["tasks"]]

    def _build_task(self, arguments: Any) -> ChildTask:
        """Return the task. Arguments of the model can only narrow what the code declares."""
        task = ChildTask(spec=self.specs[arguments.child], goal=arguments.goal, context=arguments.context)
        if arguments.turns is not None:
            task.max_amounts["turns"] = arguments.turns
        if arguments.seconds is not None:
            task.max_seconds = arguments.seconds
        if arguments.tools is not None:
            task.allowed_tools = frozenset(arguments.tools)
        task.duplicate_key = (
            arguments.child,
            arguments.goal,
            arguments.context,
            arguments.turns,
            arguments.seconds,
            task.allowed_tools,
        )
        return task


def _describe_child(spec: ChildSpec) -> str:
    """Return the line about a child for the model, with the tools that are known before it starts."""
    names = spec.agent_spec.tools.names
    tools = f"Its tools: {', '.join(names)}." if names else ""
    about = " ".join(part for part in (spec.description, tools) if part)
    return f"- {spec.name}: {about}" if about else f"- {spec.name}"


def _build_task_model(child_names: Iterable[str]) -> type[BaseModel]:
    """Return the schema of one task, as the model writes it."""
    names: Any = Literal[tuple(child_names)]
    fields: dict[str, Any] = {
        "child": (names, Field(description="Name of the agent.")),
        "goal": (
            Annotated[str, AfterValidator(_check_goal)],
            Field(min_length=1, description="Goal of the task, in full sentences."),
        ),
        "context": (str, Field("", description="Everything that the agent needs to know.")),
        "turns": (int | None, Field(None, ge=1, description="Maximum number of turns, if lower than its own limit.")),
        "seconds": (float | None, Field(None, gt=0, description="Maximum number of seconds.")),
        "tools": (
            list[str] | None,
            Field(None, description="Names of the tools that it may use."),
        ),
    }
    return create_model("Task", __config__=ConfigDict(extra="forbid", strict=True), **fields)


def _check_goal(goal: str) -> str:
    if not goal.strip():
        raise ValueError("a goal that is not blank")
    return goal


class DelegationAdmission(Admission):
    """Gate for the tool calls of a run that has children. It also claims and carves the budgets of child runs."""

    __slots__ = ("_batch", "_join_duplicates", "_paused_by", "_reserved_tasks")

    def __init__(self, tools: Toolset, join_duplicates: bool, envelope: TurnBudget) -> None:
        super().__init__(tools, envelope)
        self._join_duplicates = join_duplicates
        self._paused_by: str | None = None
        self._batch: dict[object, ChildTask] = {}
        """Claimed tasks of the current batch, by duplicate key."""
        self._reserved_tasks: list[ChildTask] = []
        """Tasks whose budgets are, or were, reserved."""

    def group_calls(self, calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
        """Yield groups of calls that may run at the same time: neighbours that only read, and others alone."""
        for group in super().group_calls(calls):
            self._batch = {}
            yield group

    def read(self, call: Call) -> ToolCallRun | Denied:
        """Return the call with checked arguments, or why it is denied. It claims nothing yet."""
        ready = super().read(call)
        if not isinstance(ready, ToolCallRun) or not isinstance(ready.tool, Delegation):
            return ready
        tasks = ready.tool.tasks(ready)
        unknown = next((why for task in tasks if (why := _unknown_tools(task))), None)
        if unknown is not None:
            return build_denial(call, Reason.VALIDATION, unknown)
        if ready.values.get("background"):
            sharing = next((task.spec.name for task in tasks if task.spec.mode is Mode.SHARED), None)
            if sharing is not None:
                why = f"{sharing} shares the budget of this run, so it cannot work in the background"
                return build_denial(call, Reason.VALIDATION, why)
            return BackgroundCallRun(ready.call, ready.tool, ready.values, tasks, ready.envelope)
        if self._join_duplicates:
            seen = dict(self._batch)
            for task in tasks:
                task.duplicate_of = seen.get(task.duplicate_key)
                seen.setdefault(task.duplicate_key, task)
        return ChildCallRun(ready.call, ready.tool, ready.values, tasks, ready.envelope)

    def check_budget(self, tool_call: ToolCallRun) -> Denied | None:
        """Return why the call or one of its child runs could not be claimed now, or None."""
        if not isinstance(tool_call, ChildCallRun) or self.envelope is None:
            return super().check_budget(tool_call)
        with self.envelope.lock:
            refusal = self._check_children(tool_call) or self._carve(tool_call, self.envelope)
            _release_holds(tool_call.tasks)
        return refusal or super().check_budget(tool_call)

    def claim(self, tool_call: ToolCallRun) -> Denied | None:
        """Claim the call and its child runs, and carve their budgets: all or nothing."""
        envelope = self.envelope
        if not isinstance(tool_call, ChildCallRun) or envelope is None:
            return super().claim(tool_call)
        with envelope.lock:
            few = self._check_children(tool_call)
            if few is not None:
                return few
            self._reserved_tasks += tool_call.tasks  # shared runs: the first task holds the reservation of all
            refusal = self._carve(tool_call, envelope) or super().claim(tool_call)
            if refusal is not None:
                _release_holds(tool_call.tasks)
                return refusal
            if tool_call.child_count:  # cannot be refused: it was checked, and the lock is held
                envelope.budgets["children"].spend(tool_call.child_count)
            if not tool_call.in_background:
                self._batch |= {task.duplicate_key: task for task in distinct_tasks(tool_call.tasks)}
        return None

    def _check_children(self, tool_call: ChildCallRun) -> Denied | None:
        """Return why the run cannot have these child runs, or None."""
        envelope = self.envelope
        if envelope is None:
            return None
        if self._paused_by is not None:
            why = f"No child run may start now: {self._paused_by} has paused them. Do the task yourself, or end"
            return build_denial(tool_call.call, Reason.PAUSED, why)
        depth, children = envelope.budgets["depth"], envelope.budgets["children"]
        if depth.available < 1:
            why = f"{envelope.refuse('depth').warning} Do the task yourself"
        elif children.available < tool_call.child_count:
            asked, left = tool_call.child_count, children.available
            why = f"{envelope.refuse('children').warning} {asked} child runs were requested, and {left:g} are left"
        else:
            return None
        return build_denial(tool_call.call, Reason.BUDGET, why)

    def _carve(self, tool_call: ChildCallRun, envelope: TurnBudget) -> Denied | None:
        """Reserve the budgets of carved child runs. Return why that is not possible, or None."""
        carved = [task for task in distinct_tasks(tool_call.tasks) if task.spec.mode is Mode.CARVED]
        for n, task in enumerate(carved):
            for name in CARVED_BUDGETS:
                budget, amount = envelope.budgets[name], _compute_slice(task, envelope, name, len(carved) - n)
                if amount == 0:
                    return build_denial(
                        tool_call.call,
                        Reason.BUDGET,
                        f"{envelope.refuse(name).warning} Nothing is left for a child run",
                    )
                if amount is not None:
                    task.reserved[name], task.max_amounts[name] = budget.hold(amount), amount
        return None

    def refund(self, tool_call: ToolCallRun, reason: str) -> list[str]:
        """Refund a claimed call that is not made, and return the names of the budgets."""
        given = super().refund(tool_call, reason)
        if isinstance(tool_call, ChildCallRun) and self.envelope is not None:
            _release_holds(tool_call.tasks)
            if tool_call.child_count:
                given += ["children"] * self.envelope.budgets["children"].refund(tool_call.child_count, reason=reason)
        return given

    def pause_children(self, by: str | None) -> None:
        """Deny calls that start child runs, because of `by`. None means that they may start."""
        self._paused_by = by

    def close(self) -> None:
        """Settle open reservations at their full amount, the worst case."""
        for task in self._reserved_tasks:
            for hold in task.reserved.values():
                hold.settle(hold.amount)


def _unknown_tools(task: ChildTask) -> str | None:
    """Return why a child cannot be narrowed to the task's tools, or None. Tools of sources are not known yet."""
    tools = task.spec.agent_spec.tools
    if task.allowed_tools is not None and task.spec.make_runner is not None:
        return f"{task.spec.name} is a remote agent, so its tools cannot be restricted; leave out tools"
    unknown = sorted((task.allowed_tools or frozenset()).difference(tools.names))
    if not unknown or tools.sources:
        return None
    has = ", ".join(tools.names) or "none"
    return f"{task.spec.name} has no tool {', '.join(unknown)}; its tools are: {has}"


def _compute_slice(task: ChildTask, envelope: TurnBudget, name: str, parts: int) -> int | None:
    """Return the amount for a carved child: its own ceiling, or its part of what is left, whichever is lower.

    Without a ceiling, it gets its part of half of what is left. None means no limit.
    """
    own = task.spec.agent_spec.limits.budgets[name].ceiling
    known = [most for most in (own, task.max_amounts.get(name)) if most is not None]
    left = envelope.budgets[name].available
    if known:
        return int(min(*known, left // parts))
    return None if left == math.inf else int(left) // 2 // parts


def _release_holds(tasks: Sequence[ChildTask]) -> None:
    for task in tasks:
        for hold in task.reserved.values():
            hold.release()
