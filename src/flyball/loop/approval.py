"""Asking a person: about calls, before any of their batch is made; and whether a run may have more than its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import event
from .._internal import validation
from .._internal.jsonable import jsonable
from ..errors import ConfigError
from ..outcome import Denied, Ended, Outcome, Reason
from ..person import About, Question, Verdict
from ..progress import Halt, Point
from ..request import Call
from ..result import Stop
from ..unit import Unit
from . import duplicates, shared_budget
from .effects import Decide, Extend, Flow
from .ending import End
from .signals import extend
from .state import RunState

_LONGEST = 300


def ask_about(course: RunState, calls: Sequence[Call]) -> Flow[Sequence[Call]]:
    """Ask about those calls of a batch that need a person; the calls, with the arguments that the person wants."""
    course.verdicts = {}
    wanted: list[Call] = []
    for call in calls:
        question = _question(course, call)
        if question is not None:
            yield from shared_budget.pay(course)
        if question is not None and course.must_end() is None:
            verdict = course.verdicts[call.id] = yield from _asked(course, question)
            if verdict.arguments is not None:
                call = Call(call.id, call.name, verdict.arguments)
        wanted.append(call)
    return wanted


def unapproved(course: RunState, call: Call) -> Denied | None:
    """Why a call of a tool that asks is not made: only a yes opens the gate."""
    verdict = course.verdicts.get(call.id)
    if verdict is not None and verdict.approved is True:
        return None
    why = "" if verdict is None else verdict.text
    message = why or f"{call.name} needs a person's approval, and has none"
    return Denied(call_id=call.id, tool=call.name, reason=Reason.APPROVAL, message=message)


def mark(course: RunState, call: Call, outcome: Outcome) -> None:
    """Tell the model where a call was made with other arguments than its own."""
    verdict = course.verdicts.get(call.id)
    if verdict is not None and verdict.arguments is not None:
        hidden = course.shared.sensitive.get(call.name, ())
        shown = {name: "***" if name in hidden else value for name, value in verdict.arguments.items()}
        outcome.note = f"a person changed the arguments to {short(shown)}"


def _question(course: RunState, call: Call) -> Question | None:
    """What is to be asked about a call; None where nobody need be, or where it is not made anyway."""
    ready = course.admission.read(call)
    if isinstance(ready, Ended):
        return None
    settled = duplicates.settled(course, call, ready)
    if settled and not course.shared.rules_ask:
        return None
    needed = _by_rule(course, call) or ready.tool.needs_approval(ready.values)
    if needed is False and course.failure is None:
        course.verdicts[call.id] = Verdict(True)
        return None
    if settled:  # unless an earlier call of the batch changes that; then it needs an approval that it has not
        return None
    text = needed if isinstance(needed, str) else f"May {call.name} be called with {short(ready.shown)}?"
    return Question(call.id, text, About.CALL, call.name, jsonable(ready.shown))


def _by_rule(course: RunState, call: Call) -> str | None:
    """What a rule wants a person to be asked about a call."""
    if not course.shared.rules_ask:
        return None
    before, course.asks = course.asks, ()
    course.consult(Point.CALL_PLANNED, call)
    asks, course.asks = course.asks, before
    return " ".join(ask.text for ask in asks) or None


def ask_to_go_on(course: RunState) -> Flow[None]:
    """Ask a person what rules want to know before the run goes on; a no halts it."""
    asks, course.asks = course.asks, ()
    yield from shared_budget.pay(course)
    for n, ask in enumerate(asks):
        if course.must_end() is not None:
            return
        question = Question(f"{ask.by}-{course.progress.turn}.{n}", ask.text, About.RUN)
        verdict = yield from _asked(course, question)
        if verdict.approved is False:
            course.halt_by(Halt(ask.by, verdict.text or ask.text))


def short(arguments: Mapping[str, Any]) -> str:
    """Arguments as one line."""
    text = json.dumps(jsonable(arguments), ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _asked(course: RunState, question: Question) -> Flow[Verdict]:
    course.recorder.emit(event.AskedPerson, question.id, question.text)
    verdict = yield from course.do(Decide(question))
    course.recorder.emit(event.PersonAnswered, question.id, verdict.approved, verdict.text)
    if verdict.approved is None:
        course.questions = [*course.questions, question]
    return verdict


def ask_for_more(course: RunState, end: End) -> Flow[End | None]:
    """Ask whether a run that met a limit may have more of it; None where it goes on, else its end."""
    budget = end.budget
    if budget is None or course.time_up or budget == "context_tokens" or course.asked_more == (budget, course.turns):
        return end  # there is nothing to give, or it was given and did not help
    yield from shared_budget.pay(course)
    if course.called_off() is not None:
        return end
    course.asked_more = (budget, course.turns)
    question = _more(course, budget, end.warning or "")
    verdict = yield from _asked(course, question)
    if verdict.approved is None:
        return replace(end, stop=Stop.PAUSED)
    if verdict.approved is True and extend(course, _granted(course, budget, verdict.amount or question.amount)):
        return course.must_end()
    return end


def _more(course: RunState, budget: str, warning: str) -> Question:
    terms = course.shared.terms
    unit = Unit.SECONDS if budget == "seconds" else terms.budgets[budget].unit
    inner = terms.seconds if budget == "seconds" else terms.budgets[budget].ceiling
    amount, shown = unit.outer(inner) or 1, unit.show(inner or 1)
    text = f"{warning} May the run have {shown} more?"
    return Question(f"{budget}-{course.turns}", text, About.LIMIT, budget=budget, amount=amount)


def _granted(course: RunState, budget: str, amount: float | None) -> Extend:
    """What a person gives; nothing where the amount is none of this budget's unit."""
    if budget == "seconds":
        return Extend({}, float(amount or 0), "person")
    try:
        inner = int(validation.amount_of(f"extend, {budget}", amount, course.envelope.budgets[budget].unit))
    except ConfigError:
        inner = 0
    return Extend({budget: inner} if inner else {}, 0.0, "person")
