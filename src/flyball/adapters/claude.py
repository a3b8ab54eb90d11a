"""Adapter for the Claude Agent SDK, whose loop runs in a program of its own.

    with claude.govern(ClaudeAgentOptions(...), limits=Limits(turns=10)) as options:
        async for message in query(prompt="task", options=options):
            ...
    result_of(options).stop

The program, with all its sub-agents, asks a gateway on this machine. It needs the extra `gateway`.
"""

from __future__ import annotations

import math
import os
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
from .framework_run import find_place
from .frameworks import CLAUDE
from .results import attach

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeAgentOptions  # pyright: ignore[reportMissingModuleSource]

    from ..budget.limits import Limits
    from ..gateway.programs import Launch
    from ..result import Result
    from ..store import Store
    from .claude_options import GovernedOptions

_TOOL_TIMEOUTS = ("BASH_DEFAULT_TIMEOUT_MS", "BASH_MAX_TIMEOUT_MS", "MCP_TOOL_TIMEOUT")
"""Variables of Claude Code: milliseconds after which it ends a call."""
_DEFAULT_BASH_S = 120.0


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
    place = find_place()
    within = place.run.envelope if chosen.within is None and place is not None else chosen.within
    environment = {**chosen.environment, **claude.env}
    if not chosen.allow_ungoverned:
        check_ways_around(environment, "the environment of the program")
    launch = create_launch(["claude", *(["--settings", claude.settings] if claude.settings else [])], environment)
    launch.folder = Path(claude.cwd or launch.folder)
    launch.prepare()
    chosen = replace(chosen, environment=launch.environment, own_keys=launch.own_keys, within=within)
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
        self._gateway = Gateway(options)
        self._stored = StoredRun(store, options.run_id)
        self._lock = Lock()
        self._has_ended = False

    def start(self) -> None:
        """Open the gateway, and point the program at it."""
        from ..store import Start

        options = self._options
        at, session = options.clock.wall(), options.session_id
        self._stored.start(Start(at=at, agent=CLAUDE.module, session=session, task="", metadata=options.metadata))
        self._gateway.__enter__()
        try:
            self._launch.point(self._gateway.environment, self._gateway.addresses)
        except BaseException:
            self.end()
            raise

    def build_variables(self) -> dict[str, str]:
        """Return the variables with which the program asks the gateway, besides those of this process.

        Calls of its tools end in time for a report, as far as its own timeouts reach.
        """
        changed = {name: value for name, value in self._launch.governed.items() if os.environ.get(name) != value}
        seconds = self._gateway.desk.time.work_s
        if math.isfinite(seconds):
            bounds = dict(zip(_TOOL_TIMEOUTS, (min(seconds, _DEFAULT_BASH_S), seconds, seconds), strict=True))
            own = self._launch.governed
            changed |= {name: str(max(1, int(1000 * bound))) for name, bound in bounds.items() if name not in own}
        return changed

    @property
    def result(self) -> Result:
        """Result of the run, which ends now if it has not ended."""
        self.end()
        return self._gateway.result

    def end(self, error: BaseException | None = None) -> None:
        """End the run, with the exception that ended its block. A second call changes nothing."""
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        self._gateway.__exit__(None if error is None else type(error), error, None)
        self._launch.close()
        result = self._gateway.result
        self._stored.finish(result)
        result.store_error = None if self._stored.error is None else describe_error(self._stored.error)
