"""What the doctor checks, and how each is proved."""

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
WORDS = "The doctor was here."
"""What rules say."""
ANEW: Sequence[Line] = [together(call("look", n=1), call("look", n=-1)), *[call("look", n=n) for n in range(2, 20)]]
THE_SAME: Sequence[Line] = [call("look", n=1)] * 20


@dataclass(slots=True)
class Seen:
    """What there was to see of a run."""

    result: Result
    notices: Sequence[tuple[str, ...]]
    """Those of each request, the report's last."""
    models: Sequence[str]
    """Who was asked each time."""
    denials: Sequence[str]
    """What was said where a call was not made."""
    logged: Sequence[str] = ()

    def told(self, rule: str) -> list[tuple[str, dict[str, Any]]]:
        """The events and log lines that a rule told."""
        emitted = [event for event in self.result.events if isinstance(event, RuleEmitted)]
        return [(event.name, dict(event.data)) for event in emitted if event.rule == rule]

    def shown(self, words: str = WORDS) -> list[int]:
        """With which requests the model was shown a notice; 0 where it is in the history, where it must not be."""
        kept = [0 for message in self.result.messages if words in message.content]
        return kept + [n for n, notices in enumerate(self.notices, 1) for notice in notices if notice == words]

    def denied(self) -> int:
        """How many calls were denied with the rule's words."""
        return sum(denial.endswith(WORDS) for denial in self.denials)


@tool(effects="read")
def look(n: int) -> str:
    """Look at something; below 0 there is nothing."""
    if n < 0:
        raise ValueError("nothing there")
    return f"seen {n}"


def in_agent(rules: RuleSet, script: Sequence[Line] = ANEW, turns: int = TURNS) -> Seen:
    """A run of an agent, by its sync door."""
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
    with _log() as lines:
        result = agent.run("Look around.")
    denials = [outcome.text for outcome in result.tool_results if isinstance(outcome, Denied)]
    asked = [*own.requests, *other.requests]
    models = ["own"] * len(own.requests) + ["other"] * len(other.requests)
    return Seen(result, [request.notices for request in asked], models, denials, lines)


def in_govern(rules: RuleSet, script: Sequence[Line] = ANEW, turns: int = TURNS) -> Seen:
    """A governed loop that makes the calls of the script."""
    notices: list[tuple[str, ...]] = []
    models: list[str] = []
    denials: list[str] = []
    registry = IterationBudgetRegistry(settings={})
    with _log() as lines, govern(Limits(turns=turns), rules=rules.with_core(), registry=registry) as run:
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
    return Seen(run.result(), notices, models, denials, lines)


Door = Callable[[RuleSet, Sequence[Line], int], Seen]
DOORS: Mapping[str, Door] = {"an agent": in_agent, "govern": in_govern}


@contextmanager
def _log() -> Generator[list[str]]:
    """The lines that rules write to their log meanwhile, which nobody else gets."""
    lines: list[str] = []
    handler, log = _Lines(lines), logging.getLogger("flyball.rules")
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


class _Lines(logging.Handler):
    """Keeps the lines of a log."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self.lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


WARNING = "Iteration 8 of 10. Consider completing current task or breaking it down."
CORE = (
    "iteration-budget-warning", "last-turn-warning", "token-budget-warning", "cost-budget-warning",
    "deadline-budget-warning", "repeated-failure-warning", "large-result-hint",
)  # fmt: skip


class Hint(str):
    """Something that is not there, and need not be; with how to get it."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something to prove."""

    name: str
    look: Callable[[], Iterable[str]]
    """What is wrong, in words, and hints; nothing where all is well. What it raises is wrong too."""

    def wrong(self) -> tuple[str, ...]:
        """What is wrong; it never raises."""
        return tuple(one for one in self.found() if not isinstance(one, Hint))

    def found(self) -> tuple[str, ...]:
        """What is wrong, and hints; it never raises."""
        try:
            return tuple(self.look())
        except FlyballError as error:
            return (str(error),)
        except Exception as error:
            return (f"{type(error).__name__}: {error}",)


@dataclass(frozen=True, slots=True)
class _Written:
    """A rule as it is written to a file."""

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
class _Proof:
    """A rule's action, and what must be seen of it when it acts in the second turn."""

    action: str
    look: Callable[[Seen], object]
    expected: object
    trigger: Trigger = Trigger.TURN_START


_PROOFS: Mapping[str, _Proof] = {
    "notify_self": _Proof(f'message = "{WORDS}"', lambda seen: seen.shown(), [2]),
    "log": _Proof(
        'message = "turn {{ context.turn.iteration_count }}"\nlevel = "warning"',
        lambda seen: (seen.logged, seen.told("doctor")),
        (["doctor: turn 2"], [("log.warning", {"message": "turn 2"})]),
    ),
    "set_state": _Proof(
        'key = "turn"\nvalue = "{{ context.turn.iteration_count }}"',
        lambda seen: seen.told("witness"),
        [("log.info", {"message": "2 at the end"})],
    ),
    "emit_event": _Proof(
        'name = "doctor"\ndata.turn = "{{ context.turn.iteration_count }}"',
        lambda seen: seen.told("doctor"),
        [("doctor", {"turn": 2})],
    ),
    "deny": _Proof(f'message = "{WORDS}"', Seen.denied, 1, Trigger.TOOL_CALL),
    "stop": _Proof(
        'message = "Enough."',
        lambda seen: (seen.result.stop.value, seen.result.stopped_by, len(seen.notices)),
        ("halted", "doctor", 2 + 1),
        Trigger.TURN_END,
    ),
    "extend": _Proof('budget = "turns"\namount = 3', lambda seen: len(seen.notices), TURNS + 3 + 1),
    "ask": _Proof(f'message = "{WORDS}"', Seen.denied, 1, Trigger.TOOL_CALL),
    "use_model": _Proof('model = "other"', lambda seen: seen.models, ["own", *["other"] * TURNS]),
}
_WITNESS = _Written(
    "witness", Trigger.SESSION_END, "log", 'message = "{{ context.state.turn }} at the end"', "'turn' in context.state"
)
_TELLER = _Written("teller", Trigger.QUERY_START, "emit_event", 'name = "doctor"')
_DELIVERIES: Mapping[str, tuple[Trigger, str, list[int]]] = {
    "turn_start": (Trigger.TURN_END, "context.turn.iteration_count == 1", [2]),
    "after_tool": (Trigger.TOOL_CALL, "context.turn.iteration_count == 1", [2]),
    "immediate": (Trigger.BUDGET_REFUSED, "true", [TURNS + 1]),
}
"""When a notice is ordered, and with which request it must come."""


def checks() -> list[Check]:
    """All there is to prove of rules."""
    hooks = [(trigger, name) for trigger in Trigger for name in DOORS]
    hooks.remove((Trigger.STALLED, "govern"))  # which does not see what calls come to unless it is told
    return [
        Check("core rules load", _core_loads),
        Check("core rules pass their own tests", _core_passes),
        *[Check(f"hook {trigger.value} in {name}", partial(_hook, DOORS[name], trigger)) for trigger, name in hooks],
        *[
            Check(f"action {type_} in {name}", partial(_action, DOORS[name], type_))
            for type_ in ACTIONS
            for name in DOORS
        ],
        *[Check(f"notice {at} in {name}", partial(_notice, DOORS[name], at)) for at in _DELIVERIES for name in DOORS],
        *[Check(f"notice at turn 8 of 10 in {name}", partial(_seed, DOORS[name])) for name in DOORS],
    ]


def _core_loads() -> Iterator[str]:
    core = RuleSet.core()
    yield from map(str, core.problems)
    there = {rule.id for rule in core if rule.core and rule.enabled}
    yield from (f"{id_} is not there" for id_ in CORE if id_ not in there)


def _core_passes() -> Iterator[str]:
    for rule in RuleSet.core():
        yield from failures(rule)


def _hook(door: Door, trigger: Trigger) -> Iterator[str]:
    """A rule that looks at this moment writes to the log."""
    rule = _Written("doctor", trigger, "log", 'message = "fired"')
    stalls = trigger is Trigger.STALLED
    seen = _run(door, rule, _TELLER, script=THE_SAME if stalls else ANEW, turns=12 if stalls else TURNS)
    if not seen.told("doctor"):
        yield f"a rule with this trigger never fired in a run of {len(seen.notices)} requests"


def _action(door: Door, type_: str) -> Iterator[str]:
    """A rule that does this in the second turn is seen to do it."""
    proof = _PROOFS[type_]
    rule = _Written("doctor", proof.trigger, type_, proof.action, "context.turn.iteration_count == 2")
    seen = _run(door, rule, _WITNESS)
    yield from _unless(proof.look(seen), proof.expected, seen)


def _notice(door: Door, deliver_at: str) -> Iterator[str]:
    """A notice comes with the right request, once, and is not kept in the history."""
    trigger, condition, expected = _DELIVERIES[deliver_at]
    keys = f'message = "{WORDS}"\ndeliver_at = "{deliver_at}"'
    seen = _run(door, _Written("doctor", trigger, "notify_self", keys, condition, "crossing"))
    yield from _unless(seen.shown(), expected, seen)


def _seed(door: Door) -> Iterator[str]:
    """The sentence of the seed, said by a core rule."""
    seen = door(RuleSet(), ANEW, 10)
    yield from _unless(seen.shown(WARNING), [8], seen)


def _run(door: Door, *rules: _Written, script: Sequence[Line] = ANEW, turns: int = TURNS) -> Seen:
    """A run with rules that are read from files, as anybody's are."""
    with TemporaryDirectory(prefix="flyball-doctor-") as folder:
        for rule in rules:
            Path(folder, f"{rule.id}.toml").write_text(rule.text, encoding="utf-8")
        return door(RuleSet.load(folder, strict=True), script, turns)


def _unless(found: object, expected: object, seen: Seen) -> Iterator[str]:
    if found != expected:
        ended = f"the run ended as {seen.result.stop.value}"
        faults = [f"{event.rule}: {event.reason}" for event in seen.result.events if isinstance(event, RuleFailed)]
        yield "; ".join([f"expected {expected}, saw {found}", ended, *faults])
