"""Checks of rules by running them.

`checks()` lists them. `run_in_agent` and `run_in_govern` produce a `RunObservation`, which the `_check_*` functions
compare with what the rule should have done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..agent.agent import Agent
from ..budget.limits import Limits
from ..budget.registry import IterationBudgetRegistry
from ..errors import FlyballError
from ..event import RuleEmitted, RuleFailed
from ..governor.governor import govern
from ..outcome import Denied, Failure, Success
from ..person import deny
from ..result import Result
from ..rules import RuleSet, Trigger
from ..rules.actions import ACTIONS
from ..rules.trial import failures
from ..testing import Line, ScriptedModel, call, say, together
from ..tools import tool

TURNS = 4
NOTICE_TEXT = "The doctor was here."
"""Message of the rules under test."""
VARIED_SCRIPT: Sequence[Line] = [
    together(call("look", n=1), call("look", n=-1)),
    *[call("look", n=n) for n in range(2, 20)],
]
REPEATED_SCRIPT: Sequence[Line] = [call("look", n=1)] * 20
WARNING = "Iteration 8 of 10. Consider completing current task or breaking it down."
CORE = (
    "iteration-budget-warning", "last-turn-warning", "token-budget-warning", "cost-budget-warning",
    "deadline-budget-warning", "repeated-failure-warning", "large-result-hint",
)  # fmt: skip


class Hint(str):
    """Optional part that is missing, with how to get it."""


@dataclass(frozen=True, slots=True)
class Check:
    """Named check of one thing."""

    name: str
    inspect: Callable[[], Iterable[str]]
    """Function that yields errors and hints. An exception counts as an error."""

    def find_errors(self) -> tuple[str, ...]:
        """Return the errors without hints. Never raises."""
        return tuple(finding for finding in self.run() if not isinstance(finding, Hint))

    def run(self) -> tuple[str, ...]:
        """Return errors and hints. Never raises."""
        try:
            return tuple(self.inspect())
        except FlyballError as error:
            return (str(error),)
        except Exception as error:
            return (f"{type(error).__name__}: {error}",)


def checks() -> list[Check]:
    """Return all checks of rules."""
    hooks = [(trigger, name) for trigger in Trigger for name in RULE_RUNNERS]
    hooks.remove((Trigger.STALLED, "govern"))  # govern sees outcomes only if the caller reports them
    return [
        Check("core rules load", _check_core_loads),
        Check("core rules pass their own tests", _check_core_tests),
        *[
            Check(f"hook {trigger.value} in {name}", partial(_check_hook, RULE_RUNNERS[name], trigger))
            for trigger, name in hooks
        ],
        *[
            Check(f"action {type_} in {name}", partial(_check_action, RULE_RUNNERS[name], type_))
            for type_ in ACTIONS
            for name in RULE_RUNNERS
        ],
        *[
            Check(f"notice {at} in {name}", partial(_check_notice, RULE_RUNNERS[name], at))
            for at in _DELIVERIES
            for name in RULE_RUNNERS
        ],
        *[
            Check(f"notice at turn 8 of 10 in {name}", partial(_check_core_warning, RULE_RUNNERS[name]))
            for name in RULE_RUNNERS
        ],
    ]


def _check_core_loads() -> Iterator[str]:
    core = RuleSet.core()
    yield from map(str, core.problems)
    enabled_ids = {rule.id for rule in core if rule.core and rule.enabled}
    yield from (f"{id_} is missing or disabled" for id_ in CORE if id_ not in enabled_ids)


def _check_core_tests() -> Iterator[str]:
    for rule in RuleSet.core():
        yield from failures(rule)


def _check_hook(runner: RuleRunner, trigger: Trigger) -> Iterator[str]:
    """Check that a rule with this trigger fires."""
    rule = _RuleFile("doctor", trigger, "log", 'message = "fired"')
    stalls = trigger is Trigger.STALLED
    observation = _run_with_rules(
        runner, rule, _EVENT_EMITTER, script=REPEATED_SCRIPT if stalls else VARIED_SCRIPT, turns=12 if stalls else TURNS
    )
    if not observation.list_emitted("doctor"):
        yield f"a rule with this trigger never fired in a run of {len(observation.notices)} requests"


def _check_action(runner: RuleRunner, type_: str) -> Iterator[str]:
    """Check that a rule with this action acts in the second turn."""
    check = _ACTION_CHECKS[type_]
    rule = _RuleFile("doctor", check.trigger, type_, check.action, "context.turn.iteration_count == 2")
    observation = _run_with_rules(runner, rule, _STATE_LOGGER)
    yield from _report_difference(check.observe(observation), check.expected, observation)


def _check_notice(runner: RuleRunner, deliver_at: str) -> Iterator[str]:
    """Check that a notice comes once, with the right request.

    It must not be in the history.
    """
    trigger, condition, expected = _DELIVERIES[deliver_at]
    keys = f'message = "{NOTICE_TEXT}"\ndeliver_at = "{deliver_at}"'
    observation = _run_with_rules(runner, _RuleFile("doctor", trigger, "notify_self", keys, condition, "crossing"))
    yield from _report_difference(observation.find_notice_requests(), expected, observation)


def _check_core_warning(runner: RuleRunner) -> Iterator[str]:
    """Check that a core rule warns with the documented sentence."""
    observation = runner(RuleSet(), VARIED_SCRIPT, 10)
    yield from _report_difference(observation.find_notice_requests(WARNING), [8], observation)


def _run_with_rules(
    runner: RuleRunner, *rules: _RuleFile, script: Sequence[Line] = VARIED_SCRIPT, turns: int = TURNS
) -> RunObservation:
    """Run with rules loaded from files, as those of users are."""
    with TemporaryDirectory(prefix="flyball-doctor-") as folder:
        for rule in rules:
            Path(folder, f"{rule.id}.toml").write_text(rule.text, encoding="utf-8")
        return runner(RuleSet.load(folder, strict=True), script, turns)


def _report_difference(found: object, expected: object, observation: RunObservation) -> Iterator[str]:
    if found != expected:
        ended = f"the run ended as {observation.result.stop.value}"
        rule_failures = [
            f"{event.rule}: {event.reason}" for event in observation.result.events if isinstance(event, RuleFailed)
        ]
        yield "; ".join([f"expected {expected}, found {found}", ended, *rule_failures])


@dataclass(slots=True)
class RunObservation:
    """Observable effects of one run."""

    result: Result
    notices: Sequence[tuple[str, ...]]
    """Notices of each request; the last request is that of the report."""
    models: Sequence[str]
    """Model of each request."""
    denials: Sequence[str]
    """Message of each denied call."""
    logged: Sequence[str] = ()

    def list_emitted(self, rule: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the events and log lines that a rule emitted."""
        emitted = [event for event in self.result.events if isinstance(event, RuleEmitted)]
        return [(event.name, dict(event.data)) for event in emitted if event.rule == rule]

    def find_notice_requests(self, text: str = NOTICE_TEXT) -> list[int]:
        """Return the numbers of the requests that carried a notice.

        A 0 stands for the notice in the history, where it must not be.
        """
        in_history = [0 for message in self.result.messages if text in message.content]
        return in_history + [n for n, notices in enumerate(self.notices, 1) for notice in notices if notice == text]

    def count_denied(self) -> int:
        """Return how many calls were denied with the rule's message."""
        return sum(denial.endswith(NOTICE_TEXT) for denial in self.denials)


@tool(effects="read")
def look(n: int) -> str:
    """Look at something; below 0 there is nothing."""
    if n < 0:
        raise ValueError("nothing there")
    return f"seen {n}"


def run_in_agent(rules: RuleSet, script: Sequence[Line] = VARIED_SCRIPT, turns: int = TURNS) -> RunObservation:
    """Run a script in an agent, through the sync API."""
    own, other = (ScriptedModel(*script, grace=say("A report."), name=name) for name in ("own", "other"))
    agent = Agent(
        model=own,
        models={"other": other},
        tools=[look],
        rules=rules,
        limits=Limits(turns=turns),
        approver=lambda question: deny(question.text),
        settings={},
    )
    with _capture_log() as lines:
        result = agent.run("Look around.")
    denials = [outcome.text for outcome in result.tool_results if isinstance(outcome, Denied)]
    requests = [*own.requests, *other.requests]
    models = ["own"] * len(own.requests) + ["other"] * len(other.requests)
    return RunObservation(result, [request.notices for request in requests], models, denials, lines)


def run_in_govern(rules: RuleSet, script: Sequence[Line] = VARIED_SCRIPT, turns: int = TURNS) -> RunObservation:
    """Run a script in a governed loop."""
    notices: list[tuple[str, ...]] = []
    models: list[str] = []
    denials: list[str] = []
    registry = IterationBudgetRegistry(settings={})
    with _capture_log() as lines, govern(Limits(turns=turns), rules=rules.with_core(), registry=registry) as run:
        for turn, line in zip(run, script, strict=False):
            notices.append(turn.messages_to_add)
            models.append(turn.model or "own")
            for name, arguments in () if turn.grace else line.calls:
                assert isinstance(arguments, dict)
                if not turn.claim_tool(name, arguments):
                    denials.append(turn.denied or "")
                elif arguments["n"] < 0:
                    turn.tool_ended(Failure(call_id="", tool=name, kind="ValueError", error="nothing there"))
                else:
                    turn.tool_ended(Success(call_id="", tool=name, content="seen", value="seen"))
    return RunObservation(run.result(), notices, models, denials, lines)


RuleRunner = Callable[[RuleSet, Sequence[Line], int], RunObservation]
RULE_RUNNERS: Mapping[str, RuleRunner] = {"an agent": run_in_agent, "govern": run_in_govern}


@contextmanager
def _capture_log() -> Generator[list[str]]:
    """Capture the log lines of rules and keep them from other handlers."""
    lines: list[str] = []
    handler, log = _LineHandler(lines), logging.getLogger("flyball.rules")
    before = log.propagate, log.level
    log.addHandler(handler)
    log.propagate = False
    log.setLevel(logging.INFO)
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.propagate = before[0]
        log.setLevel(before[1])


class _LineHandler(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@dataclass(frozen=True, slots=True)
class _RuleFile:
    """Rule as the text of a file."""

    id: str
    trigger: Trigger
    action: str
    keys: str
    condition: str = "true"
    fire: str = "always"

    @property
    def text(self) -> str:
        return (
            f'[rule]\nid = "{self.id}"\ntrigger = "{self.trigger.value}"\nfire = "{self.fire}"\n'
            f'[condition]\nexpression = "{self.condition}"\n[action]\ntype = "{self.action}"\n{self.keys}\n'
        )


@dataclass(frozen=True, slots=True)
class _ActionCheck:
    """Action of a rule, and its expected effect in turn two."""

    action: str
    observe: Callable[[RunObservation], object]
    expected: object
    trigger: Trigger = Trigger.TURN_START


_ACTION_CHECKS: Mapping[str, _ActionCheck] = {
    "notify_self": _ActionCheck(f'message = "{NOTICE_TEXT}"', lambda seen: seen.find_notice_requests(), [2]),
    "log": _ActionCheck(
        'message = "turn {{ context.turn.iteration_count }}"\nlevel = "warning"',
        lambda seen: (seen.logged, seen.list_emitted("doctor")),
        (["doctor: turn 2"], [("log.warning", {"message": "turn 2"})]),
    ),
    "set_state": _ActionCheck(
        'key = "turn"\nvalue = "{{ context.turn.iteration_count }}"',
        lambda seen: seen.list_emitted("witness"),
        [("log.info", {"message": "2 at the end"})],
    ),
    "emit_event": _ActionCheck(
        'name = "doctor"\ndata.turn = "{{ context.turn.iteration_count }}"',
        lambda seen: seen.list_emitted("doctor"),
        [("doctor", {"turn": 2})],
    ),
    "deny": _ActionCheck(f'message = "{NOTICE_TEXT}"', RunObservation.count_denied, 1, Trigger.TOOL_CALL),
    "stop": _ActionCheck(
        'message = "Enough."',
        lambda seen: (seen.result.stop.value, seen.result.stopped_by, len(seen.notices)),
        ("halted", "doctor", 2 + 1),
        Trigger.TURN_END,
    ),
    "extend": _ActionCheck('budget = "turns"\namount = 3', lambda seen: len(seen.notices), TURNS + 3 + 1),
    "ask": _ActionCheck(f'message = "{NOTICE_TEXT}"', RunObservation.count_denied, 1, Trigger.TOOL_CALL),
    "use_model": _ActionCheck('model = "other"', lambda seen: seen.models, ["own", *["other"] * TURNS]),
}
_STATE_LOGGER = _RuleFile(
    "witness", Trigger.SESSION_END, "log", 'message = "{{ context.state.turn }} at the end"', "'turn' in context.state"
)
_EVENT_EMITTER = _RuleFile("teller", Trigger.QUERY_START, "emit_event", 'name = "doctor"')
_DELIVERIES: Mapping[str, tuple[Trigger, str, list[int]]] = {
    "turn_start": (Trigger.TURN_END, "context.turn.iteration_count == 1", [2]),
    "after_tool": (Trigger.TOOL_CALL, "context.turn.iteration_count == 1", [2]),
    "immediate": (Trigger.BUDGET_REFUSED, "true", [TURNS + 1]),
}
"""Per delivery point: trigger, condition, and the requests that must carry the notice."""
