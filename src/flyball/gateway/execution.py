"""Run of a program under a gateway, from its start to its exit code."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..errors import Ungoverned, UsageError
from ..result import Result
from .conversations import Chat
from .environment import check_ways_around
from .gateway import Gateway
from .gateway_options import GatewayOptions
from .program import Program, check_program
from .programs import Launch, create_launch
from .programs.launch import HOW_TO_RUN_ANYWAY

_POLL_S = 0.05
_KILL_AFTER_S = 2.0
"""Seconds between SIGTERM and SIGKILL."""
_SIGNAL_CODES = frozenset({128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGHUP})


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Program that ran under a gateway."""

    result: Result
    exit_code: int | None
    """Exit code of the program. None if the gateway ended it."""
    requests: int
    """Requests to models that came through the gateway."""
    conversations: Sequence[Chat] = ()
    hints: Sequence[str] = field(default_factory=list[str])
    remarks: Sequence[str] = field(default_factory=list[str])
    """Sentences about the subscription that the program uses."""

    @property
    def is_governed(self) -> bool:
        """Whether any request came through."""
        return self.requests > 0


def execute(command: Sequence[str], options: GatewayOptions, on_start: Callable[[Gateway], None]) -> Execution:
    """Run a command under a gateway until both have ended."""
    with create_launch(command, options.environment, options.upstreams) as launch:
        check_program(launch.command, launch.environment.get("PATH"))
        is_pointed = _prepare(launch, options)
        _check_plan(launch, options)
        gateway = Gateway(
            replace(options, environment=launch.environment, own_keys=launch.own_keys, is_plan=launch.is_plan)
        )
        with gateway:
            if is_pointed:
                launch.point(gateway.environment, gateway.addresses)
            gateway.changes = launch.describe_changes()
            on_start(gateway)
            governed = launch.governed or gateway.environment
            with Program(launch.command, governed) as program, program.forward_signals():
                code = _supervise(program, gateway)
            gateway.exit_code = code
            gateway.ended_by = "gateway" if code is None else "signal" if code in _SIGNAL_CODES else None
    desk, result = gateway.desk, gateway.result
    if not desk.requests:
        result.budgets = {name: replace(budget, ceiling=None) for name, budget in result.budgets.items()}  # none held
    return Execution(
        result=result,
        exit_code=code,
        requests=desk.requests,
        conversations=gateway.chats,
        hints=desk.content.hints if desk.observer is None else desk.observer.notes,
        remarks=desk.plan.list_remarks(),
    )


def _prepare(launch: Launch, options: GatewayOptions) -> bool:
    """Prepare a program; return whether it can be pointed at a gateway. Raises Ungoverned unless that is allowed."""
    try:
        check_ways_around(launch.environment)
        launch.prepare()
    except Ungoverned as error:
        if not options.allow_ungoverned:
            raise
        launch.reset(str(error).removesuffix(HOW_TO_RUN_ANYWAY))
        return False
    return True


def _check_plan(launch: Launch, options: GatewayOptions) -> None:
    """Raise UsageError for a share of a subscription that a known program does not use."""
    if options.plan_share is not None and launch.program is not None and not launch.is_plan:
        raise UsageError(
            f"{launch.program.title} is not logged in to a subscription, so use --usd instead of --plan-share"
        )


def _supervise(program: Program, gateway: Gateway) -> int | None:
    """Wait for the end of the program; end it at the deadline, or when it continues after its report."""
    desk = gateway.desk
    while True:
        code = program.wait(min(_POLL_S, desk.time.program_s))
        if code is not None:
            return code
        if desk.time.program_s <= 0:
            desk.end_by_time()
            break
        if desk.reports.wants_end:
            break
    program.terminate()
    if program.wait(_KILL_AFTER_S) is None:
        program.kill()
    return None
