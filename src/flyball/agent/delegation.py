"""Delegation: the tool by which an agent hands tasks to its children, and what it may hand over."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Protocol, cast

from pydantic import BaseModel, ConfigDict, Field, create_model

from .._internal import validation
from ..budget.registry import IterationBudgetRegistry
from ..budget.run_budget import TurnBudget
from ..errors import ConfigError
from ..loop.child_task import CARVED_BUDGETS, ChildSpec, ChildTask, Mode
from ..loop.children import distinct_tasks
from ..outcome import Denied, Reason
from ..request import Call
from ..runtime.child_call import ChildCallRun
from ..settings import Settings
from ..tools import Admission, Tool, Toolset
from ..tools.admission import build_denial
from ..tools.call import ToolCallRun
from ..unit import Unit

MAX_CONCURRENT_KEY, STALL_KEY, JOIN_KEY = (
    "delegation.max_concurrent_children", "delegation.stall_seconds", "delegation.join_duplicates",
)  # fmt: skip
SETTINGS = (MAX_CONCURRENT_KEY, STALL_KEY, JOIN_KEY)
"""The keys that are read."""
_DESCRIPTION = (
    "Delegate tasks to other agents. Several can work at the same time, each within its own limits. They do not see "
    "this conversation: state each goal completely, and put everything that the agent needs to know into the context. "
    "Each agent ends with a report."
)


class Delegable(Protocol):
    """Who can be a child: every Agent."""

    @property
    def name(self) -> str:
        """What the parent's model calls it."""
        ...

    def as_child(self, mode: Mode, registry: IterationBudgetRegistry) -> ChildSpec:
        """All that its runs need; of the registry, where it has none of its own."""
        ...


@dataclass(frozen=True, slots=True)
class Child:
    """An agent as a child, and how its budgets hang together with its parent's."""

    agent: Delegable
    budget: Mode | Literal["independent", "carved", "shared"] = Mode.INDEPENDENT

    def __post_init__(self) -> None:
        if not callable(getattr(self.agent, "as_child", None)):
            raise ConfigError("child", self.agent, "an Agent")
        validation.parse_enum("child, budget", self.budget, Mode)


def build_child_specs(
    children: Iterable[Child | Delegable], registry: IterationBudgetRegistry
) -> tuple[ChildSpec, ...]:
    """The edges to an agent's children; each has a name of its own."""
    edges: dict[str, ChildSpec] = {}
    for given in children:
        child = given if isinstance(given, Child) else Child(given)
        edge = child.agent.as_child(Mode(child.budget), registry)
        if edge.name in edges:
            raise ConfigError("agent, children", edge.name, "a different name for each child")
        edges[edge.name] = edge
    return tuple(edges.values())


def read_max_concurrent(settings: Settings) -> int:
    """How many children of one run work at a time."""
    return int(_read_setting(settings, MAX_CONCURRENT_KEY, Unit.COUNT, 3))


def read_stall_seconds(settings: Settings) -> float:
    """How long a child may go on without anything coming of it."""
    return _read_setting(settings, STALL_KEY, Unit.SECONDS, 300.0)


def read_join_duplicates(settings: Settings) -> bool:
    """Whether equal tasks of one batch are one run, or each is told that there are others."""
    setting = settings.find(JOIN_KEY)
    word = "false" if setting is None else str(setting.value).lower()
    if setting is not None and word not in ("true", "false"):
        raise setting.error("true or false")
    return word == "true"


def resolve_child(child_specs: Sequence[ChildSpec], registry: IterationBudgetRegistry, child: object) -> ChildSpec:
    """The edge to a child that a tool wants: one of the agent's children by its name, or any agent."""
    if isinstance(child, str):
        known = {edge.name: edge for edge in child_specs}
        if child not in known:
            raise ConfigError("ctx.delegate", child, f"an Agent, or the name of a child: {', '.join(known) or 'none'}")
        return replace(known[child], mode=Mode.INDEPENDENT)
    [edge] = build_child_specs([Child(cast("Delegable", child))], registry)
    return edge


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
    """The tool `delegate`. It is never called itself: its calls become children."""

    def __init__(self, child_specs: Sequence[ChildSpec]) -> None:
        self.specs = {edge.name: edge for edge in child_specs}

        def delegate(tasks: Any) -> None:
            """Is not called: see `tasks`."""

        delegate.__annotations__ = {"tasks": Annotated[list[_build_task_model(self.specs)], Field(min_length=1)]}
        rows = [_describe_child(edge) for edge in child_specs]
        about = "\n".join([f"{_DESCRIPTION} The agents:", *rows])
        # They may stand side by side, as reads do; but what they have done counts as a change.
        super().__init__(delegate, name="delegate", description=about, effects="read", timeout=None)
        self.writes = True

    def tasks(self, tool_call: ToolCallRun) -> list[ChildTask]:
        """The call as what it is: tasks for children."""
        return [self._build_task(task) for task in tool_call.values["tasks"]]

    def _build_task(self, arguments: Any) -> ChildTask:
        """What the model passes can only narrow what the code declares."""
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
    """What the model reads of a child; its tools as far as they are known before it begins."""
    tools = f"Its tools: {', '.join(spec.agent_spec.tool_names)}." if spec.agent_spec.tool_names else ""
    about = " ".join(part for part in (spec.description, tools) if part)
    return f"- {spec.name}: {about}" if about else f"- {spec.name}"


def _build_task_model(child_names: Iterable[str]) -> type[BaseModel]:
    """One task, as the model writes it."""
    names: Any = Literal[tuple(child_names)]
    fields: dict[str, Any] = {
        "child": (names, Field(description="Name of the agent.")),
        "goal": (str, Field(min_length=1, description="Goal of the task, in full sentences.")),
        "context": (str, Field("", description="Everything that the agent needs to know.")),
        "turns": (int | None, Field(None, ge=1, description="Maximum number of turns, if lower than its own limit.")),
        "seconds": (float | None, Field(None, gt=0, description="Maximum number of seconds.")),
        "tools": (
            list[str] | None,
            Field(None, description="Names of the tools that it may use."),
        ),
    }
    return create_model("Task", __config__=ConfigDict(extra="forbid", strict=True), **fields)


class DelegationAdmission(Admission):
    """Admits the calls of a run that has children, counts those, and carves slices for them."""

    __slots__ = ("_batch", "_join_duplicates", "_reserved_tasks")

    def __init__(self, tools: Toolset, join_duplicates: bool, envelope: TurnBudget) -> None:
        super().__init__(tools, envelope)
        self._join_duplicates = join_duplicates
        self._batch: dict[object, ChildTask] = {}
        """The tasks of the batch that were counted, by what equal ones have in common."""
        self._reserved_tasks: list[ChildTask] = []
        """Those for whom something is, or was, set aside."""

    def group_calls(self, calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
        """Neighbours that only read, together; everything else alone, in the order asked."""
        for group in super().group_calls(calls):
            self._batch = {}
            yield group

    def read(self, call: Call) -> ToolCallRun | Denied:
        """The call with its arguments checked, or why it is not made; nothing is counted yet."""
        ready = super().read(call)
        if not isinstance(ready, ToolCallRun) or not isinstance(ready.tool, Delegation):
            return ready
        tasks = ready.tool.tasks(ready)
        unknown = next((why for task in tasks if (why := _unknown_tools(task))), None)
        if unknown is not None:
            return build_denial(call, Reason.VALIDATION, unknown)
        if self._join_duplicates:
            seen = dict(self._batch)
            for task in tasks:
                task.duplicate_of = seen.get(task.duplicate_key)
                seen.setdefault(task.duplicate_key, task)
        return ChildCallRun(ready.call, ready.tool, ready.values, tasks, ready.envelope)

    def check_budget(self, tool_call: ToolCallRun) -> Denied | None:
        """Why the call, or one of its children, could not be counted now; None where all could."""
        if not isinstance(tool_call, ChildCallRun) or self.envelope is None:
            return super().check_budget(tool_call)
        with self.envelope.lock:
            refusal = self._check_children(tool_call) or self._carve(tool_call, self.envelope)
            _release_holds(tool_call.tasks)
        return refusal or super().check_budget(tool_call)

    def claim(self, tool_call: ToolCallRun) -> Denied | None:
        """Count the call and its children, and carve their slices, all in one step or nothing of it."""
        envelope = self.envelope
        if not isinstance(tool_call, ChildCallRun) or envelope is None:
            return super().claim(tool_call)
        with envelope.lock:
            few = self._check_children(tool_call)
            if few is not None:
                return few
            self._reserved_tasks += tool_call.tasks  # the first of those that share keeps what is set aside for all
            refusal = self._carve(tool_call, envelope) or super().claim(tool_call)
            if refusal is not None:
                _release_holds(tool_call.tasks)
                return refusal
            if tool_call.child_count:  # which cannot be refused: it was looked at, and the lock is held
                envelope.budgets["children"].spend(tool_call.child_count)
            self._batch |= {task.duplicate_key: task for task in distinct_tasks(tool_call.tasks)}
        return None

    def _check_children(self, tool_call: ChildCallRun) -> Denied | None:
        """Why there can be no such children, or not so many."""
        envelope = self.envelope
        if envelope is None:
            return None
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
        """Set slices aside; or why there is none."""
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
        """Give back what was claimed for a call that is not made after all; the budgets that got it back."""
        given = super().refund(tool_call, reason)
        if isinstance(tool_call, ChildCallRun) and self.envelope is not None:
            _release_holds(tool_call.tasks)
            if tool_call.child_count:
                given += ["children"] * self.envelope.budgets["children"].refund(tool_call.child_count, reason=reason)
        return given

    def close(self) -> None:
        """Book what nobody settled: what guards assumes the worst."""
        for task in self._reserved_tasks:
            for hold in task.reserved.values():
                hold.settle(hold.amount)


def _unknown_tools(task: ChildTask) -> str | None:
    """Why a child cannot be narrowed to these tools: it has not got them, as far as that is known."""
    terrain = task.spec.agent_spec
    if task.allowed_tools is not None and task.spec.make_runner is not None:
        return f"{task.spec.name} is a remote agent, so its tools cannot be restricted; leave out tools"
    unknown = sorted((task.allowed_tools or frozenset()).difference(terrain.tool_names))
    if not unknown or terrain.sources:
        return None
    has = ", ".join(terrain.tool_names) or "none"
    return f"{task.spec.name} has no tool {', '.join(unknown)}; its tools are: {has}"


def _compute_slice(task: ChildTask, envelope: TurnBudget, name: str, parts: int) -> int | None:
    """What a child gets: its own ceiling, or its part of what is left; without a ceiling its part of half of that."""
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
