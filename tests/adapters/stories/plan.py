"""Agents, providers and runs that the stories are made of, for the drivers of all frameworks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, cast

from flyball import Limits
from flyball.adapters import AdapterOptions
from flyball.event import Event, RunEnded
from flyball.models.scripted import Line
from flyball.testing.server import LoopingProvider, Sent, StatusReply
from flyball.wire.bodies import Json, get_dict, get_dicts

MAX_REQUESTS = 15
"""Requests after which a provider lets a program end that nothing has stopped."""
MODEL = "gpt-4o"
SECONDS, TOKENS = 0.6, 3_000
"""Limits in stories. A driver whose framework needs more for a few turns has `seconds` and `tokens`."""

ToolFunction = Callable[..., Awaitable[str]] | Callable[..., str]


@dataclass(frozen=True)
class AgentPlan:
    """Agent that a driver builds with its framework."""

    name: str = "counter"
    tools: Sequence[ToolFunction] = ()
    """Functions with annotations and a docstring, `async def` or `def`."""
    children: Sequence[AgentPlan] = ()
    """Agents that it calls as tools of the name `ask_NAME`, with one text `input`."""
    handoffs: Sequence[AgentPlan] = ()
    """Agents that it hands the conversation to."""
    model: str = MODEL


class Session(Protocol):
    """Framework whose models are at one provider."""

    def build(self, plan: AgentPlan) -> Any:
        """Return the agent of the framework."""
        ...

    async def run(self, agent: Any, options: AdapterOptions, *, streamed: bool = False) -> str:
        """Run an agent with the task `Count.`; return its final text. Errors of the framework are raised."""
        ...


class Driver(Protocol):
    """Framework with its adapter, as the stories see it. `tests/adapters/drivers/` has one for each."""

    title: str
    """Name of the framework in the table."""
    not_applicable: dict[str, str]
    """Reasons why stories do not apply, by their names."""

    def open(self, url: str) -> AbstractAsyncContextManager[Session]:
        """Open the framework for a provider at this URL, which ends with neither `/v1` nor a slash."""
        ...


class Verdict(StrEnum):
    """Outcome of a story."""

    ENFORCED = "enforced before it happens"
    NOTICED = "noticed after one"
    SEEN = "only seen"
    UNSEEN = "not seen"


class StoryProvider(LoopingProvider):
    """Provider whose model is a function of the tools that it is offered. None means to call the first one."""

    def __init__(
        self,
        answer: Callable[[list[str]], Line | Sent | StatusReply | None] = lambda _: None,
        *,
        tells_usage: bool = True,
        report: str = "The report.",
    ) -> None:
        super().__init__(self._choose_line, tells_usage=tells_usage, report=report)
        self._choose = answer

    @property
    def work_requests(self) -> int:
        """Requests that are not for a report."""
        return len(self.requests) - self.last_requests

    def _choose_line(self, body: Json) -> Line | Sent | StatusReply | None:
        if len(self.requests) > MAX_REQUESTS:
            return Line("I was not stopped.")
        names = [str(get_dict(tool, "function").get("name") or tool.get("name")) for tool in get_dicts(body, "tools")]
        plain = {name.rpartition("__")[2]: name for name in names}  # some frameworks put `mcp__SERVER__` before a name
        return _rename_calls(self._choose(list(plain)), plain)


def _rename_calls(
    answer: Line | Sent | StatusReply | None, names: Mapping[str, str]
) -> Line | Sent | StatusReply | None:
    """Return an answer whose calls have the names that the request offers."""
    if isinstance(answer, Sent):
        return replace(answer, line=cast("Line", _rename_calls(answer.line, names)))
    if isinstance(answer, Line):
        return replace(answer, calls=tuple((names.get(name, name), arguments) for name, arguments in answer.calls))
    return answer


@dataclass
class Ran:
    """Run of a framework's agent, as it was seen from outside."""

    text: str | None = None
    error: BaseException | None = None
    events: list[Event] = field(default_factory=list[Event])

    @property
    def end(self) -> RunEnded | None:
        """Last event. None if the run has not ended."""
        found = [event for event in self.events if isinstance(event, RunEnded)]
        return found[-1] if found else None

    @property
    def stop(self) -> str | None:
        """Stop reason."""
        return None if self.end is None else self.end.stop

    @property
    def flags(self) -> tuple[str, ...]:
        """Budgets that refused."""
        return () if self.end is None else tuple(self.end.flags)


class Bench:
    """What a story works with: a driver, and what its tools did."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.seconds: float = getattr(driver, "seconds", SECONDS)
        """Limit of time in stories about something that hangs."""
        self.tokens: int = getattr(driver, "tokens", TOKENS)
        """Limit of tokens, for several turns."""
        self.calls: list[str] = []
        """Names of the tools that ran, once for each call."""

    def require(self, tool: str) -> None:
        """Raise TooEarly if a tool did not run."""
        if tool not in self.calls:
            raise TooEarly

    def create_counter(self, name: str = "add") -> ToolFunction:
        """Return a tool that returns at once."""

        async def add(a: int) -> str:
            """Add one."""
            self.calls.append(name)
            return str(a + 1)

        add.__name__ = name
        return add

    def serve(self, provider: LoopingProvider) -> AbstractAsyncContextManager[Session]:
        """Open the framework for a provider, which must be open."""
        return self.driver.open(provider.url)

    async def run(
        self, session: Session, plan: AgentPlan | Any, limits: Limits, *, streamed: bool = False, ran: Ran | None = None
    ) -> Ran:
        """Run an agent, or a plan of one, within limits. `ran` has its events even if the run is cancelled."""
        agent = session.build(plan) if isinstance(plan, AgentPlan) else plan
        ran = ran or Ran()
        try:
            given = AdapterOptions(limits, sinks=(ran.events.append,))
            ran.text = await session.run(agent, given, streamed=streamed)
        except Exception as error:
            ran.error = error
        return ran

    async def run_with_watchdog(
        self, session: Session, plan: AgentPlan, limits: Limits, release: Callable[[], object]
    ) -> tuple[Ran, bool]:
        """Run an agent with something that hangs until `release`, and tell whether the run ended before that."""
        seconds = cast("float", limits.seconds)
        task = asyncio.ensure_future(self.run(session, plan, limits))
        done, _ = await asyncio.wait({task}, timeout=seconds * WATCHDOG_FACTOR + WATCHDOG_S)
        release()
        return await task, bool(done)


WATCHDOG_FACTOR, WATCHDOG_S = 2.0, 1.0
"""Time after which what hangs is released: a run that ends later was not held by its limit."""


class TooEarly(Exception):
    """End of a run before what its story is about, because the machine is slow."""


def judge(done: int, limit: int, batch: int, told: bool) -> Verdict:
    """Return the verdict about a limit: how often something happened, and how often at once at most.

    `told` is whether the run says that it reached the limit. A run that ends before it otherwise shows nothing.
    """
    if done == limit or (done < limit and told):
        return Verdict.ENFORCED
    if done < limit:
        return Verdict.UNSEEN
    if done <= limit + batch:
        return Verdict.NOTICED
    return Verdict.SEEN if told else Verdict.UNSEEN


def judge_time(ran: Ran, is_held: bool) -> Verdict:
    """Return the verdict about a run in which something hung: whether it ended in time, or told that it did not."""
    if is_held:
        return Verdict.ENFORCED
    return Verdict.NOTICED if ran.stop == "deadline" else Verdict.UNSEEN
