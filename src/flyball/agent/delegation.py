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
from ..loop.child_task import SLICED, ChildSpec, ChildTask, Mode
from ..loop.children import own_tasks
from ..outcome import Denied, Reason
from ..request import Call
from ..runtime.child_call import ChildAct
from ..settings import Settings
from ..tools import Admission, Tool, Toolset
from ..tools.admission import denied
from ..tools.call import ToolCallRun
from ..unit import Unit

AT_ONCE, STALL, JOIN = (
    "delegation.max_concurrent_children", "delegation.stall_seconds", "delegation.join_duplicates",
)  # fmt: skip
SETTINGS = (AT_ONCE, STALL, JOIN)
"""The keys that are read."""
_ABOUT = (
    "Hand tasks to other agents, which work on them with limits of their own, several at the same time. None of them "
    "sees this conversation: a goal must be whole, and everything they need to know in its context. Each ends with a "
    "report."
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
        validation.member("child, budget", self.budget, Mode)


def edges_of(children: Iterable[Child | Delegable], registry: IterationBudgetRegistry) -> tuple[ChildSpec, ...]:
    """The edges to an agent's children; each has a name of its own."""
    edges: dict[str, ChildSpec] = {}
    for given in children:
        child = given if isinstance(given, Child) else Child(given)
        edge = child.agent.as_child(Mode(child.budget), registry)
        if edge.name in edges:
            raise ConfigError("agent, children", edge.name, "a name of its own for each child")
        edges[edge.name] = edge
    return tuple(edges.values())


def at_once(settings: Settings) -> int:
    """How many children of one run work at a time."""
    return int(_setting(settings, AT_ONCE, Unit.COUNT, 3))


def stall_s(settings: Settings) -> float:
    """How long a child may go on without anything coming of it."""
    return _setting(settings, STALL, Unit.SECONDS, 300.0)


def joined(settings: Settings) -> bool:
    """Whether equal tasks of one batch are one run, or each is told that there are others."""
    setting = settings.find(JOIN)
    word = "false" if setting is None else str(setting.value).lower()
    if setting is not None and word not in ("true", "false"):
        raise setting.error("true or false")
    return word == "true"


def edge_to(edges: Sequence[ChildSpec], registry: IterationBudgetRegistry, child: object) -> ChildSpec:
    """The edge to a child that a tool wants: one of the agent's children by its name, or any agent."""
    if isinstance(child, str):
        known = {edge.name: edge for edge in edges}
        if child not in known:
            raise ConfigError("ctx.delegate", child, f"an Agent, or the name of a child: {', '.join(known) or 'none'}")
        return replace(known[child], mode=Mode.INDEPENDENT)
    [edge] = edges_of([Child(cast("Delegable", child))], registry)
    return edge


def _setting(settings: Settings, key: str, unit: Unit, default: float) -> float:
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

    def __init__(self, edges: Sequence[ChildSpec]) -> None:
        self.edges = {edge.name: edge for edge in edges}

        def delegate(tasks: Any) -> None:
            """Is not called: see `tasks`."""

        delegate.__annotations__ = {"tasks": Annotated[list[_task_of(self.edges)], Field(min_length=1)]}
        rows = [_introduced(edge) for edge in edges]
        about = "\n".join([f"{_ABOUT} The agents:", *rows])
        # They may stand side by side, as reads do; but what they have done counts as a change.
        super().__init__(delegate, name="delegate", description=about, effects="read", timeout=None)
        self.writes = True

    def tasks(self, ready: ToolCallRun) -> list[ChildTask]:
        """The call as what it is: tasks for children."""
        return [self._task(task) for task in ready.values["tasks"]]

    def _task(self, given: Any) -> ChildTask:
        """What the model passes can only narrow what the code declares."""
        task = ChildTask(edge=self.edges[given.child], goal=given.goal, context=given.context)
        if given.turns is not None:
            task.most["turns"] = given.turns
        if given.seconds is not None:
            task.most_s = given.seconds
        if given.tools is not None:
            task.only = frozenset(given.tools)
        task.sameness = (given.child, given.goal, given.context, given.turns, given.seconds, task.only)
        return task


def _introduced(edge: ChildSpec) -> str:
    """What the model reads of a child; its tools as far as they are known before it begins."""
    tools = f"Its tools: {', '.join(edge.terrain.tool_names)}." if edge.terrain.tool_names else ""
    about = " ".join(part for part in (edge.description, tools) if part)
    return f"- {edge.name}: {about}" if about else f"- {edge.name}"


def _task_of(edges: Iterable[str]) -> type[BaseModel]:
    """One task, as the model writes it."""
    names: Any = Literal[tuple(edges)]
    fields: dict[str, Any] = {
        "child": (names, Field(description="Which agent.")),
        "goal": (str, Field(min_length=1, description="What it is to achieve, in whole sentences.")),
        "context": (str, Field("", description="What it needs to know.")),
        "turns": (int | None, Field(None, ge=1, description="At most so many turns, where that is less than it has.")),
        "seconds": (float | None, Field(None, gt=0, description="At most so many seconds.")),
        "tools": (list[str] | None, Field(None, description="Only these of its tools.")),
    }
    return create_model("Task", __config__=ConfigDict(extra="forbid", strict=True), **fields)


class FamilyAdmission(Admission):
    """Admits the calls of a run that has children, counts those, and carves slices for them."""

    __slots__ = ("_batch", "_joins", "_lent")

    def __init__(self, tools: Toolset, joins: bool, envelope: TurnBudget) -> None:
        super().__init__(tools, envelope)
        self._joins = joins
        self._batch: dict[object, ChildTask] = {}
        """The tasks of the batch that were counted, by what equal ones have in common."""
        self._lent: list[ChildTask] = []
        """Those for whom something is, or was, set aside."""

    def groups(self, calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
        """Neighbours that only read, together; everything else alone, in the order asked."""
        for group in super().groups(calls):
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
            return denied(call, Reason.VALIDATION, unknown)
        if self._joins:
            seen = dict(self._batch)
            for task in tasks:
                task.twin = seen.get(task.sameness)
                seen.setdefault(task.sameness, task)
        return ChildAct(ready.call, ready.tool, ready.values, tasks, ready.envelope)

    def short(self, act: ToolCallRun) -> Denied | None:
        """Why the call, or one of its children, could not be counted now; None where all could."""
        if not isinstance(act, ChildAct) or self.envelope is None:
            return super().short(act)
        with self.envelope.lock:
            refusal = self._too_few(act) or self._carved(act, self.envelope)
            _let_go(act.tasks)
        return refusal or super().short(act)

    def claim(self, act: ToolCallRun) -> Denied | None:
        """Count the call and its children, and carve their slices, all in one step or nothing of it."""
        envelope = self.envelope
        if not isinstance(act, ChildAct) or envelope is None:
            return super().claim(act)
        with envelope.lock:
            few = self._too_few(act)
            if few is not None:
                return few
            self._lent += act.tasks  # the first of those that share keeps what is set aside for all
            refusal = self._carved(act, envelope) or super().claim(act)
            if refusal is not None:
                _let_go(act.tasks)
                return refusal
            if act.size:  # which cannot be refused: it was looked at, and the lock is held
                envelope.budgets["children"].spend(act.size)
            self._batch |= {task.sameness: task for task in own_tasks(act.tasks)}
        return None

    def _too_few(self, act: ChildAct) -> Denied | None:
        """Why there can be no such children, or not so many."""
        envelope = self.envelope
        if envelope is None:
            return None
        depth, children = envelope.budgets["depth"], envelope.budgets["children"]
        if depth.available < 1:
            why = f"{envelope.refuse('depth').warning} Do the task yourself"
        elif children.available < act.size:
            why = (
                f"{envelope.refuse('children').warning} {act.size} were asked for, and {children.available:g} are left"
            )
        else:
            return None
        return denied(act.call, Reason.BUDGET, why)

    def _carved(self, act: ChildAct, envelope: TurnBudget) -> Denied | None:
        """Set slices aside; or why there is none."""
        carved = [task for task in own_tasks(act.tasks) if task.edge.mode is Mode.CARVED]
        for n, task in enumerate(carved):
            for name in SLICED:
                budget, amount = envelope.budgets[name], _slice(task, envelope, name, len(carved) - n)
                if amount == 0:
                    return denied(act.call, Reason.BUDGET, f"{envelope.refuse(name).warning} Nothing is left to carve")
                if amount is not None:
                    task.slice[name], task.most[name] = budget.hold(amount), amount
        return None

    def unclaim(self, act: ToolCallRun, reason: str) -> list[str]:
        """Give back what was claimed for a call that is not made after all; the budgets that got it back."""
        given = super().unclaim(act, reason)
        if isinstance(act, ChildAct) and self.envelope is not None:
            _let_go(act.tasks)
            if act.size:
                given += ["children"] * self.envelope.budgets["children"].refund(act.size, reason=reason)
        return given

    def close(self) -> None:
        """Book what nobody settled: what guards assumes the worst."""
        for task in self._lent:
            for hold in task.slice.values():
                hold.settle(hold.amount)


def _unknown_tools(task: ChildTask) -> str | None:
    """Why a child cannot be narrowed to these tools: it has not got them, as far as that is known."""
    terrain = task.edge.terrain
    if task.only is not None and task.edge.runner is not None:
        return f"{task.edge.name} works elsewhere, with tools that nobody here can take from it; leave out `tools`"
    unknown = sorted((task.only or frozenset()).difference(terrain.tool_names))
    if not unknown or terrain.sources:
        return None
    has = ", ".join(terrain.tool_names) or "none"
    return f"{task.edge.name} has no tool {', '.join(unknown)}; its tools are: {has}"


def _slice(task: ChildTask, envelope: TurnBudget, name: str, parts: int) -> int | None:
    """What a child gets: its own ceiling, or its part of what is left; without a ceiling its part of half of that."""
    own = task.edge.terrain.terms.budgets[name].ceiling
    known = [most for most in (own, task.most.get(name)) if most is not None]
    left = envelope.budgets[name].available
    if known:
        return int(min(*known, left // parts))
    return None if left == math.inf else int(left) // 2 // parts


def _let_go(tasks: Sequence[ChildTask]) -> None:
    for task in tasks:
        for hold in task.slice.values():
            hold.release()
