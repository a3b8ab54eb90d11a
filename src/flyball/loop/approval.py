"""Questions to a person: about calls before any of their batch is made, and about more than the limits allow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from .. import event
from .._internal import validation
from .._internal.jsonable import to_jsonable
from ..errors import ConfigError, truncate
from ..outcome import BaseOutcome, Denied, Outcome, Reason
from ..person import About, Question, Verdict
from ..progress import Halt, Point
from ..request import Call
from ..result import Stop
from ..unit import Unit
from . import duplicates, shared_budget
from .effects import Decide, Extend, Flow
from .ending import End
from .orders import call_hooks
from .plan import Prepared
from .state import RunState
from .stopping import check_end

_MAX_CHARACTERS = 300


def request_approvals(run: RunState, calls: Sequence[Call]) -> Flow[Sequence[Call]]:
    """Ask a person about the calls that need one, and return the calls with the arguments that the person wants."""
    run.approvals.start_batch()
    verdicts = run.approvals.verdicts
    wanted: list[Call] = []
    for call in calls:
        question = _build_question(run, call)
        if question is not None:
            yield from shared_budget.flush(run)
        if question is not None and check_end(run) is None:
            verdict = verdicts[call.id] = yield from _ask_person(run, question)
            if verdict.arguments is not None:
                call = Call(call.id, call.name, verdict.arguments)
        wanted.append(call)
    return wanted


def check_approval(run: RunState, call: Call) -> Denied | None:
    """Deny a call of a tool that needs approval, unless a person approved it."""
    verdict = run.approvals.verdicts.get(call.id)
    if verdict is not None and verdict.approved is True:
        return None
    why = "" if verdict is None else verdict.text
    message = why or f"{call.name} needs a person's approval, and has none"
    return Denied(call_id=call.id, tool=call.name, reason=Reason.APPROVAL, message=message)


def note_changed_arguments(run: RunState, call: Call, outcome: Outcome) -> None:
    """Tell the model if a person changed the arguments of its call."""
    verdict = run.approvals.verdicts.get(call.id)
    if verdict is not None and verdict.arguments is not None:
        hidden = run.spec.tools.sensitive.get(call.name, ())
        shown = {name: "***" if name in hidden else value for name, value in verdict.arguments.items()}
        outcome.add_note(f"a person changed the arguments to {format_arguments(shown)}")


def _build_question(run: RunState, call: Call) -> Question | None:
    """Build the question about a call. None if no person is needed, or if the call is not made anyway."""
    prepared = run.admission.read(call)
    if isinstance(prepared, BaseOutcome):
        return None
    is_skipped = duplicates.is_skipped(run, call, prepared)
    if is_skipped and not run.spec.rules.need_approval:
        return None
    needed = _ask_rules(run, call) or (not prepared.tool.is_client and prepared.tool.needs_approval(prepared.values))
    if needed is False and run.signals.failure is None:
        run.approvals.verdicts[call.id] = Verdict(True)
        return None
    if is_skipped:  # if an earlier call of the batch changes that, this one lacks its approval and is denied
        return None
    arguments = prepared.redacted_arguments
    text = needed if isinstance(needed, str) else f"May {call.name} be called with {format_arguments(arguments)}?"
    return Question(call.id, text, About.CALL, call.name, to_jsonable(arguments))


def ask_for_result(run: RunState, prepared: Prepared) -> Flow[Verdict]:
    """Ask the caller of the run for the result of a call of a client tool. The question stays open at first."""
    call = prepared.call
    text = f"What is the result of {call.name} with {format_arguments(prepared.redacted_arguments)}?"
    question = Question(call.id, text, About.CLIENT_TOOL, call.name, to_jsonable(prepared.values))
    return (yield from _ask_person(run, question))


def _ask_rules(run: RunState, call: Call) -> str | None:
    """Return the question that rules have about a call."""
    if not run.spec.rules.need_approval:
        return None
    earlier = run.hooks.take_questions()
    call_hooks(run, Point.CALL_PLANNED, call)
    questions = run.hooks.take_questions()
    run.hooks.restore_questions(earlier)
    return " ".join(question.text for question in questions) or None


def ask_to_continue(run: RunState) -> Flow[None]:
    """Ask a person the questions that rules have before the run continues. A no halts it."""
    questions = run.hooks.take_questions()
    yield from shared_budget.flush(run)
    for n, asked in enumerate(questions):
        if check_end(run) is not None:
            return
        question = Question(f"{asked.by}-{run.progress.turn}.{n}", asked.text, About.RUN)
        verdict = yield from _ask_person(run, question)
        if verdict.approved is False:
            run.signals.request_halt(Halt(asked.by, verdict.text or asked.text))


def format_arguments(arguments: Mapping[str, Any]) -> str:
    """Return arguments as one line of JSON."""
    text = json.dumps(to_jsonable(arguments), ensure_ascii=False)
    return truncate(text, _MAX_CHARACTERS)


def _ask_person(run: RunState, question: Question) -> Flow[Verdict]:
    run.recorder.emit(event.AskedPerson, question.id, question.text)
    verdict = yield from run.perform(Decide(question))
    run.recorder.emit(event.PersonAnswered, question.id, verdict.approved, verdict.text)
    if verdict.approved is None:
        run.approvals.add_open_question(question)
    return verdict


def ask_for_extension(run: RunState, end: End) -> Flow[End | None]:
    """Ask a person whether a run that met a limit may have more. Return None if it continues, otherwise its end."""
    budget = end.budget
    if budget is None or run.signals.time_up or budget == "context_tokens":
        return end
    if not run.approvals.ask_extension_once(budget, run.turns):
        return end  # more was given, and did not help
    yield from shared_budget.flush(run)
    if run.signals.is_cancelled:
        return end
    question = _build_extension_question(run, budget, end.warning or "")
    verdict = yield from _ask_person(run, question)
    if verdict.approved is None:
        return replace(end, stop=Stop.PAUSED)
    if verdict.approved is True and run.extend(_build_extension(run, budget, verdict.amount or question.amount)):
        return check_end(run)
    return end


def _build_extension_question(run: RunState, budget: str, warning: str) -> Question:
    limits = run.spec.limits
    unit = Unit.SECONDS if budget == "seconds" else limits.budgets[budget].unit
    inner = limits.seconds if budget == "seconds" else limits.budgets[budget].ceiling
    amount, shown = unit.outer(inner) or 1, unit.show(inner or 1)
    text = f"{warning} May the run have {shown} more?"
    return Question(f"{budget}-{run.turns}", text, About.LIMIT, budget=budget, amount=amount)


def _build_extension(run: RunState, budget: str, amount: float | None) -> Extend:
    """Build what a person grants. It is nothing if the amount does not fit the budget's unit."""
    if budget == "seconds":
        return Extend({}, float(amount or 0), "person")
    try:
        inner = int(validation.parse_amount(f"extend, {budget}", amount, run.budget.budgets[budget].unit))
    except ConfigError:
        inner = 0
    return Extend({budget: inner} if inner else {}, 0.0, "person")
