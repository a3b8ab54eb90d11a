"""The grace turn: one last request without tools, from the reserve, in which the model reports."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from .. import event
from .._internal.text import pluralize
from ..budget.spending import NO_HOLDS
from ..completion.report_check import RecordedWork
from ..outcome import Reason
from ..progress import Progress
from ..request import (
    FailureKind,
    Finish,
    ModelFailure,
    Purpose,
    Reply,
    Request,
    estimate_message_tokens,
    estimate_tokens,
)
from ..result import Stop
from . import shared_budget
from .compaction import estimate_request_tokens
from .effects import Flow
from .ending import End
from .fallback import change_for_report
from .model_request import prepare_request, send_request
from .request_view import fit_messages, format_outcome
from .state import RunState
from .tool_calls import deny_calls

_LAST_CALLS = 5
_UNUSABLE = (Finish.CONTENT_FILTER, Finish.REFUSAL)
"""Finishes of a reply that is no report."""


_NO_REPORT = "The model wrote no report; this one is made from the record of the run."
_OWN_REPORT = "The model wrote the report above; this one is made from the record of the run."


def build_report(progress: Progress, turns: int, warning: str | None, origin: str = _NO_REPORT) -> str:
    """Write a report without a model: what was done, what failed, and the last calls."""
    done = _format_counts(progress.successes)
    failed = _format_counts(progress.failures)
    parts = [warning or "The run was stopped before it was finished."]
    parts.append(f"It took {pluralize(turns, 'turn')} and {pluralize(progress.requests, 'request')} to the model.")
    parts.append(f"Calls that succeeded: {done or 'none'}.")
    parts.append(f"Calls that did not succeed: {failed or 'none'}.")
    text = " ".join(parts)
    if progress.results:
        newest = "\n".join(map(format_outcome, progress.results[-_LAST_CALLS:]))
        text += f"\nThe last calls:\n{newest}"
    if progress.text and origin is _NO_REPORT:
        text += f"\nThe model last said: {progress.text}"
    return f"{text}\n{origin}"


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


_STOPS_WITH_GRACE = frozenset({Stop.BUDGET, Stop.DEADLINE, Stop.STALLED})
_STATES = {Stop.STALLED: "This run makes no progress", Stop.HALTED: "This run is halted"}
_MIN_REPORT_TOKENS = 32
"""Tokens. A model cannot report in less."""
_MAX_REPORT_TOKENS = 1_000
"""Tokens kept free for the report. The rest is for the messages that it is about."""
_MAX_TOKENS = 10**12
_SCALE_MARGIN = 1.1


def take_grace_turn(run: RunState, end: End) -> Flow[End]:
    """Ask for a report if the run was stopped by its limits, and return the end with it. The reason stays."""
    if not (end.stop in _STOPS_WITH_GRACE or end.grace) or not run.spec.behaviour.grace:
        return end
    run.budget.open_reserve()
    deadline = min(run.budget.hard_at, run.clock.at + run.spec.limits.report.seconds)
    run.recorder.emit(event.GraceStarted, end.stop.value)
    report: Reply | None = None
    unsupported: tuple[str, ...] = ()
    try:
        message_count = len(run.messages.history)
        report = yield from _ask_for_report(run, end, deadline)
        unsupported = _find_unsupported(run, report, message_count)
    finally:
        run.recorder.emit(event.GraceEnded, report is not None, unsupported)
    return replace(end, text=_build_text(run, end, report, unsupported), unsupported=unsupported)


def _find_unsupported(run: RunState, report: Reply | None, message_count: int) -> tuple[str, ...]:
    """Return the claims of the model's report that no outcome in the messages before it supports."""
    if report is None or not run.spec.behaviour.check_report:
        return ()
    work = RecordedWork(run.messages.history[:message_count])
    return tuple(map(str, work.find_unsupported(report.text)))


def _build_text(run: RunState, end: End, report: Reply | None, unsupported: Sequence[str]) -> str:
    """Return the model's report. One that claims too much, was cut off or is missing gets the record beside it."""
    if report is None:
        return build_report(run.progress, run.turns, end.warning)
    parts = [report.text]
    if unsupported:
        parts.append(f"The record of the run does not support this: {'; '.join(unsupported)}.")
    if report.finish in (Finish.CUT, Finish.LENGTH):
        parts.append("The report was cut off.")
    if len(parts) == 1:
        return report.text
    parts.append(build_report(run.progress, run.turns, end.warning, _OWN_REPORT))
    return "\n\n".join(parts)


def _ask_for_report(run: RunState, end: End, deadline: float) -> Flow[Reply | None]:
    """Return the reply with the model's report; None if it cannot be asked, or says nothing."""
    if run.budget.budgets["turns"].ceiling == 0:  # the run may not ask a model at all
        return None
    reply = yield from _send_grace_request(run, end, deadline)
    while isinstance(reply, ModelFailure) and (reply.kind is FailureKind.INTERRUPTED or change_for_report(run, reply)):
        run.messages.remove_grace_request()
        reply = yield from _send_grace_request(run, end, deadline)
    if not isinstance(reply, Reply):
        return None
    calls = run.add_reply(reply)
    deny_calls(run, calls, Reason.BUDGET, "only a report was asked for; nothing is done any more")
    return reply if reply.text.strip() and reply.finish not in _UNUSABLE else None


def _send_grace_request(run: RunState, end: End, deadline: float) -> Flow[Reply | ModelFailure | None]:
    """Return the answer to the request for a report; None if it cannot be made."""
    if run.clock.at >= deadline:
        return None
    request = _build_request(run, _build_instruction(end))
    if request is None:
        return None
    tokens, spending = run.messages.input_tokens, run.spending
    is_limited = spending.is_limited or run.shared is not None
    holds = spending.hold(tokens, request.max_output_tokens or 0) if is_limited else NO_HOLDS
    if holds is None:
        return None
    if run.shared is not None:
        granted, _ = yield from shared_budget.claim_request(
            run, run.shared, holds, lambda run: run.signals.is_cancelled or run.clock.at >= deadline
        )
        if not granted:
            return None
    run.messages.add_grace_request(request.messages[-1])
    return (yield from send_request(run, request, tokens, holds, deadline))


def _build_instruction(end: End) -> str:
    why = end.warning or f"This run was stopped ({end.stop.value})."
    state = _STATES.get(end.stop, "The budget of this run is spent")
    return (
        f"{why} {state}: this is the last message, and no tool can be called any more. "
        "Report now, in plain words: what was done, what failed, where it stalled, and what should come next. "
        "Claim nothing that did not happen."
    )


def _build_request(run: RunState, instruction: str) -> Request | None:
    """Build the last request, as large as the reserve allows; None if not even the task fits.

    If the task does not fit by the upper estimate, what the provider counted so far decides.
    """
    request, scale = _fit_request(run, instruction), _find_scale(run)
    return request if request is not None or scale == 1.0 else _fit_request(run, instruction, scale)


def _fit_request(run: RunState, instruction: str, scale: float = 1.0) -> Request | None:
    """Build the last request with the messages that fit, if the provider counts this part of the upper estimate."""
    spending, spec, log = run.spending, run.spec, run.messages
    last = log.build_user_message(instruction)
    notices = run.hooks.notices.select_due(Purpose.GRACE)
    notice_tokens = sum(estimate_tokens(notice.text) for notice in notices)
    fixed = spec.instruction_tokens + estimate_message_tokens(last) + notice_tokens
    room = int(min(_MAX_TOKENS, run.model.max_input_tokens / scale))
    if spending.is_limited:
        report = min(max(_MIN_REPORT_TOKENS, (spending.compute_max_output(0) or 0) // 4), _MAX_REPORT_TOKENS)
        room = int(min(room, spending.compute_max_input(report)))
    room -= fixed
    if room < 0:
        return None
    messages = fit_messages(
        log.history,
        run.progress.results,
        room,
        lambda text: log.build_user_message(text, 1),
        len(run.plan.messages),
    )
    if messages is None:
        return None
    tokens = math.ceil(scale * (fixed + sum(map(estimate_message_tokens, messages))))
    log.set_estimate(tokens)
    affordable = spending.compute_max_output(tokens) if spending.is_limited else None
    if affordable is not None and affordable < _MIN_REPORT_TOKENS:
        return None
    longest = spec.model.max_output_tokens if affordable is None else run.model.card.output_room(tokens)
    caps = (affordable, longest, spec.limits.report.tokens)
    max_output = min((limit for limit in caps if limit is not None), default=None)
    request = Request([*messages, last], spec.instructions, (), Purpose.GRACE, max_output)
    return prepare_request(run, request, notices)


def _find_scale(run: RunState) -> float:
    """Return about what part of the upper estimate the provider counts; 1 if it has not counted the last request."""
    log, upper = run.messages, estimate_request_tokens(run)
    return min(1.0, _SCALE_MARGIN * log.input_tokens / upper) if log.is_counted and upper else 1.0
