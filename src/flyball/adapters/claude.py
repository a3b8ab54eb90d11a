"""Adapter for the Claude Agent SDK, whose loop runs in a program of its own.

    with claude.govern(ClaudeAgentOptions(...), limits=Limits(turns=10)) as options:
        async for message in query(prompt="task", options=options):
            ...
    result_of(options).stop

The program, with all its sub-agents, asks a gateway on this machine. It needs the extra `gateway`.
"""

from __future__ import annotations

import asyncio
import math
import os
from contextlib import suppress
from contextvars import Token
from dataclasses import fields, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import finalize

from ..errors import UsageError, describe_error
from ..gateway import Gateway, GatewayOptions
from ..gateway.environment import check_ways_around
from ..gateway.programs import create_launch
from ..history.stored_run import StoredRun
from .framework_run import Place, enter_place, find_place, leave_place
from .frameworks import CLAUDE
from .results import attach

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # pyright: ignore[reportMissingModuleSource]

    from ..budget.limits import Limits
    from ..budget.run_budget import TurnBudget
    from ..event import Event
    from ..gateway.programs import Launch
    from ..result import Result
    from ..store import Store
    from .claude_options import GovernedOptions

_TOOL_TIMEOUTS = ("BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "MCP_TOOL_TIMEOUT")
"""Variables of Claude Code: milliseconds after which it ends a call."""
_DEFAULT_BASH_S = 120.0
_RETRIES = "CLAUDE_CODE_MAX_RETRIES"
"""Variable of Claude Code: retries of a request. It makes them itself."""


def govern(
    claude: ClaudeAgentOptions,
    *,
    limits: Limits | None = None,
    options: GatewayOptions | None = None,
    store: Store | str | None = None,
) -> GovernedOptions:
    """Return a copy of the SDK's options, with which its program keeps to limits. The clock starts now.

    Pass limits, or options of the gateway with more than limits. All queries with the copy are one run. It ends with
    the `with` block; without one, when `result_of(copy)` is called. A store gets a record of it.

    Raises Ungoverned if the program would go around the gateway.
    """
    CLAUDE.load()
    from .claude_options import GovernedOptions, GovernedVariables

    if limits is not None and options is not None:
        raise UsageError("pass limits= or options=GatewayOptions(limits, ...), not both")
    chosen = options or (GatewayOptions() if limits is None else GatewayOptions(limits))
    environment = {**chosen.environment, **claude.env}
    if not chosen.allow_ungoverned:
        check_ways_around(environment, "the environment of the program")
    launch = create_launch(["claude", *(["--settings", claude.settings] if claude.settings else [])], environment)
    launch.folder = Path(claude.cwd or launch.folder)
    launch.prepare()
    chosen = replace(chosen, environment=launch.environment, own_keys=launch.own_keys)
    run = ClaudeRun(chosen, launch, store)
    run.start()
    variables = GovernedVariables(claude.env | run.build_variables(), run)
    finalize(variables, run.end)
    changes: dict[str, Any] = {"env": variables, "settings": launch.get_option("--settings")}
    governed = GovernedOptions(**{field.name: getattr(claude, field.name) for field in fields(claude)} | changes)
    attach(governed, run)
    return governed


class ClaudeRun:
    """Run of the SDK's program under a gateway."""

    def __init__(self, options: GatewayOptions, launch: Launch, store: Store | str | None) -> None:
        self._options = options
        self._launch = launch
        self._gateway = Gateway(replace(options, sinks=(*options.sinks, self._watch_task), run_id=options.run_id))
        self._task: asyncio.Task[Any] | None = None
        """Task of the block, so that its cancel is known before the SDK has ended its program."""
        self._stored = StoredRun(store, options.run_id)
        self._lock = Lock()
        self._above = find_place()
        self._token: Token[Place | None] | None = None
        self.is_open = False

    def start(self) -> None:
        """Open the gateway, and point the program at it."""
        from ..store import Start

        options = self._options
        at, session = options.clock.wall(), options.session_id
        self._stored.start(Start(at=at, agent=CLAUDE.module, session=session, task="", metadata=options.metadata))
        self._gateway.__enter__()
        self.is_open = True
        try:
            self._launch.point(self._gateway.environment, self._gateway.addresses)
        except BaseException:
            self.end()
            raise

    @property
    def envelope(self) -> TurnBudget:
        """Budgets and deadlines of the run."""
        return self._gateway.desk.run.envelope

    @property
    def envelopes(self) -> tuple[TurnBudget, ...]:
        """Its budgets, and those of the runs around it, the innermost first."""
        return self._gateway.desk.run.envelopes

    def allow_level(self, level: int) -> bool:
        """Check whether the runs above allow an agent so many levels below the first one."""
        return self._above is None or self._above.run.allow_level(level)

    def count_own_level(self, level: int) -> int:
        """Return a level among all runs as one among the agents of this run."""
        return level - (0 if self._above is None else self._above.level)

    def enter(self) -> None:
        """Let the runs that are called from here, such as in tools of this process, draw on the same budgets."""
        self._token = enter_place(Place(self, 1 if self._above is None else self._above.level + 1))
        with suppress(RuntimeError):  # no event loop of asyncio
            self._task = asyncio.current_task()

    def leave(self, error: BaseException | None) -> None:
        """End the block that `enter` began, and the run."""
        if self._token is not None:
            leave_place(self._token)
            self._token = None
        self.end(error)
        if error is not None:
            attach(error, self)

    def _watch_task(self, _: Event) -> None:
        if self._task is not None and self._task.cancelling():
            self._gateway.desk.ending.cancel()

    def build_variables(self) -> dict[str, str]:
        """Return the variables with which the program asks the gateway, besides those of this process.

        Its own timeouts end calls of tools, and it makes no more retries than the limit.
        """
        own, seconds, bounds = self._launch.governed, self._gateway.desk.time.work_s, dict[str, float]()
        if math.isfinite(seconds):
            times = (min(seconds, _DEFAULT_BASH_S), seconds, seconds)
            bounds |= {name: max(1.0, 1000 * time) for name, time in zip(_TOOL_TIMEOUTS, times, strict=True)}
        retries = self.envelope.budgets["retries"].ceiling
        if retries is not None:
            bounds[_RETRIES] = retries
        changed = {name: value for name, value in own.items() if os.environ.get(name) != value}
        return changed | {name: str(int(bound)) for name, bound in bounds.items() if name not in own}

    @property
    def result(self) -> Result:
        """Result of the run, which ends now if it has not ended."""
        self.end()
        return self._gateway.result

    def end(self, error: BaseException | None = None) -> None:
        """End the run, with the exception that ended its block. A second call changes nothing."""
        with self._lock:
            if not self.is_open:
                return
            self.is_open = False
        self._gateway.__exit__(None if error is None else type(error), error, None)
        self._launch.close()
        result = self._gateway.result
        self._stored.finish(result)
        result.store_error = None if self._stored.error is None else describe_error(self._stored.error)
