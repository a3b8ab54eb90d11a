"""The two doors that rules must work behind: a run of an agent, and a governed loop; and what was seen of each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..agent.agent import Agent
from ..budget.limits import Limits
from ..budget.registry import IterationBudgetRegistry
from ..event import RuleEmitted
from ..governor.governor import govern
from ..outcome import Denied, Failure, Success
from ..person import deny
from ..result import Result
from ..rules import RuleSet
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
