"""Asking a person: about calls, before any of their batch is made; and whether a run may have more than its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import event
from .._internal import validation
from .._internal.jsonable import to_jsonable
from ..errors import ConfigError
from ..outcome import BaseOutcome, Denied, Outcome, Reason
from ..person import About, Question, Verdict
from ..progress import Halt, Point
from ..request import Call
from ..result import Stop
from ..unit import Unit
from . import duplicates, shared_budget
from .effects import Decide, Extend, Flow
from .ending import End
from .signals import apply_extension
from .state import RunState

_MAX_CHARACTERS = 300


def request_approvals(run: RunState, calls: Sequence[Call]) -> Flow[Sequence[Call]]:
    """Ask about those calls of a batch that need a person; the calls, with the arguments that the person wants."""
    run.verdicts = {}
    wanted: list[Call] = []
    for call in calls:
        question = _build_question(run, call)
        if question is not None:
            yield from shared_budget.flush(run)
        if question is not None and run.check_end() is None:
            verdict = run.verdicts[call.id] = yield from _ask_person(run, question)
            if verdict.arguments is not None:
                call = Call(call.id, call.name, verdict.arguments)
        wanted.append(call)
    return wanted


def check_approval(run: RunState, call: Call) -> Denied | None:
    """Why a call of a tool that asks is not made: only a yes opens the gate."""
    verdict = run.verdicts.get(call.id)
    if verdict is not None and verdict.approved is True:
        return None
    why = "" if verdict is None else verdict.text
    message = why or f"{call.name} needs a person's approval, and has none"
    return Denied(call_id=call.id, tool=call.name, reason=Reason.APPROVAL, message=message)


def note_changed_arguments(run: RunState, call: Call, outcome: Outcome) -> None:
    """Tell the model where a call was made with other arguments than its own."""
    verdict = run.verdicts.get(call.id)
    if verdict is not None and verdict.arguments is not None:
        hidden = run.spec.tools.sensitive.get(call.name, ())
        shown = {name: "***" if name in hidden else value for name, value in verdict.arguments.items()}
        outcome.note = f"a person changed the arguments to {format_arguments(shown)}"


def _build_question(run: RunState, call: Call) -> Question | None:
    """What is to be asked about a call; None where nobody need be, or where it is not made anyway."""
    ready = run.admission.read(call)
    if isinstance(ready, BaseOutcome):
        return None
    settled = duplicates.is_skipped(run, call, ready)
    if settled and not run.spec.rules.need_approval:
        return None
    needed = _ask_rules(run, call) or ready.tool.needs_approval(ready.values)
    if needed is False and run.failure is None:
        run.verdicts[call.id] = Verdict(True)
        return None
    if settled:  # unless an earlier call of the batch changes that; then it needs an approval that it has not
        return None
    text = (
        needed
        if isinstance(needed, str)
        else f"May {call.name} be called with {format_arguments(ready.redacted_arguments)}?"
    )
    return Question(call.id, text, About.CALL, call.name, to_jsonable(ready.redacted_arguments))


def _ask_rules(run: RunState, call: Call) -> str | None:
    """What a rule wants a person to be asked about a call."""
    if not run.spec.rules.need_approval:
        return None
    before, run.rule_questions = run.rule_questions, ()
    run.call_hooks(Point.CALL_PLANNED, call)
    asks, run.rule_questions = run.rule_questions, before
    return " ".join(ask.text for ask in asks) or None


def ask_to_continue(run: RunState) -> Flow[None]:
    """Ask a person what rules want to know before the run goes on; a no halts it."""
    asks, run.rule_questions = run.rule_questions, ()
    yield from shared_budget.flush(run)
    for n, ask in enumerate(asks):
        if run.check_end() is not None:
            return
        question = Question(f"{ask.by}-{run.progress.turn}.{n}", ask.text, About.RUN)
        verdict = yield from _ask_person(run, question)
        if verdict.approved is False:
            run.request_halt(Halt(ask.by, verdict.text or ask.text))


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as one line."""
    text = json.dumps(to_jsonable(arguments), ensure_ascii=False)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


def _ask_person(run: RunState, question: Question) -> Flow[Verdict]:
    run.recorder.emit(event.AskedPerson, question.id, question.text)
    verdict = yield from run.perform(Decide(question))
    run.recorder.emit(event.PersonAnswered, question.id, verdict.approved, verdict.text)
    if verdict.approved is None:
        run.questions = [*run.questions, question]
    return verdict


def ask_for_extension(run: RunState, end: End) -> Flow[End | None]:
    """Ask whether a run that met a limit may have more of it; None where it goes on, else its end."""
    budget = end.budget
    if budget is None or run.time_up or budget == "context_tokens" or run.extension_asked == (budget, run.turns):
        return end  # there is nothing to give, or it was given and did not help
    yield from shared_budget.flush(run)
    if run.check_cancelled() is not None:
        return end
    run.extension_asked = (budget, run.turns)
    question = _build_extension_question(run, budget, end.warning or "")
    verdict = yield from _ask_person(run, question)
    if verdict.approved is None:
        return replace(end, stop=Stop.PAUSED)
    if verdict.approved is True and apply_extension(
        run, _build_extension(run, budget, verdict.amount or question.amount)
    ):
        return run.check_end()
    return end


def _build_extension_question(run: RunState, budget: str, warning: str) -> Question:
    terms = run.spec.limits
    unit = Unit.SECONDS if budget == "seconds" else terms.budgets[budget].unit
    inner = terms.seconds if budget == "seconds" else terms.budgets[budget].ceiling
    amount, shown = unit.outer(inner) or 1, unit.show(inner or 1)
    text = f"{warning} May the run have {shown} more?"
    return Question(f"{budget}-{run.turns}", text, About.LIMIT, budget=budget, amount=amount)


def _build_extension(run: RunState, budget: str, amount: float | None) -> Extend:
    """What a person gives; nothing where the amount is none of this budget's unit."""
    if budget == "seconds":
        return Extend({}, float(amount or 0), "person")
    try:
        inner = int(validation.parse_amount(f"extend, {budget}", amount, run.envelope.budgets[budget].unit))
    except ConfigError:
        inner = 0
    return Extend({budget: inner} if inner else {}, 0.0, "person")
