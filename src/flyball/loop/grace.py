"""The grace turn: one last request without tools, from what was set aside, in which the model reports."""

from __future__ import annotations

from dataclasses import replace

from .. import event
from ..message import Message, MessageType, Role
from ..outcome import Reason
from ..progress import Progress
from ..request import (
    FailureKind,
    Finish,
    ModelFailure,
    Purpose,
    Reply,
    Request,
    estimate_bytes,
    estimate_message_tokens,
    estimate_tokens,
)
from ..result import Stop
from . import shared_budget
from .effects import Flow
from .ending import End
from .messages import fit_messages, format_outcome
from .model_request import release_request, send_request
from .state import RunState
from .tool_calls import deny_calls

_LAST_CALLS = 5


def build_report(progress: Progress, turns: int, warning: str | None) -> str:
    """What was done, what failed, what came last; the same for the same record."""
    done = _format_counts(progress.successes)
    failed = _format_counts(progress.failures)
    parts = [warning or "The run was stopped before it was finished."]
    parts.append(f"It took {_pluralize(turns, 'turn')} and {_pluralize(progress.requests, 'request')} to the model.")
    parts.append(f"Calls that succeeded: {done or 'none'}.")
    parts.append(f"Calls that did not succeed: {failed or 'none'}.")
    text = " ".join(parts)
    if progress.results:
        newest = "\n".join(map(format_outcome, progress.results[-_LAST_CALLS:]))
        text += f"\nThe last calls:\n{newest}"
    if progress.text:
        text += f"\nThe model last said: {progress.text}"
    return text + "\nThe model wrote no report; this one is made from the record of the run."


def _pluralize(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


_STOPS_WITH_GRACE = frozenset({Stop.BUDGET, Stop.DEADLINE, Stop.STALLED})
_STATES = {Stop.STALLED: "This run makes no progress", Stop.HALTED: "This run is halted"}
_MIN_REPORT_TOKENS = 32
"""Tokens: with less room than this a model cannot report."""
_MAX_REPORT_TOKENS = 1_000
"""Tokens that are kept free for it, where there are so many; the rest is for what it reports about."""
_MAX_TOKENS = 10**12


def take_grace_turn(run: RunState, end: End) -> Flow[End]:
    """The end, with a report where the run was stopped by its limits; the reason stays what it is."""
    if not (end.stop in _STOPS_WITH_GRACE or end.grace) or not run.spec.behaviour.grace:
        return end
    run.envelope.open_reserve()
    run.recorder.emit(event.GraceStarted, end.stop.value)
    text: str | None = None
    try:
        text = yield from _ask_for_report(run, end)
    finally:
        run.recorder.emit(event.GraceEnded, text is not None)
    return replace(end, text=text or build_report(run.progress, run.turns, end.warning))


def _ask_for_report(run: RunState, end: End) -> Flow[str | None]:
    """What the model reports, if it can be asked and says something."""
    reply = yield from _send_grace_request(run, end)
    while isinstance(reply, ModelFailure) and reply.kind is FailureKind.INTERRUPTED:
        run.history.pop()  # what it was asked then
        reply = yield from _send_grace_request(run, end)
    if not isinstance(reply, Reply):
        return None
    calls = run.add_reply(reply)
    deny_calls(run, calls, Reason.BUDGET, "only a report was asked for; nothing is done any more")
    return reply.text if reply.text.strip() and reply.finish is not Finish.CONTENT_FILTER else None


def _send_grace_request(run: RunState, end: End) -> Flow[Reply | ModelFailure | None]:
    """The model's answer to the request for a report; None where it cannot be asked."""
    if run.clock.at >= run.envelope.hard_at:
        return None
    request = _build_request(run, _build_instruction(end))
    if request is None:
        return None
    tokens = run.input_tokens
    holds = (
        run.spending.hold(tokens, request.max_output_tokens or 0)
        if run.spending.is_limited or run.plan.has_shared_budget
        else {}
    )
    if holds is None:
        return None
    if run.plan.has_shared_budget:
        refusal = yield from shared_budget.claim(run, **{name: hold.amount for name, hold in holds.items()})
        too_late = run.check_cancelled() is not None or run.clock.at >= run.envelope.hard_at
        if refusal is not None or too_late:
            release_request(run, holds, claimed=refusal is None)
            return None
    run.history.append(request.messages[-1])
    return (yield from send_request(run, request, tokens, holds, run.envelope.hard_at))


def _build_instruction(end: End) -> str:
    why = end.warning or f"This run was stopped ({end.stop.value})."
    state = _STATES.get(end.stop, "The budget of this run is spent")
    return (
        f"{why} {state}: this is the last message, and no tool can be called any more. "
        "Report now, in plain words: what was done, what failed, where it stalled, and what should come next. "
        "Claim nothing that did not happen."
    )


def _build_request(run: RunState, instruction: str) -> Request | None:
    """The last request, as large as what was set aside allows; None where not even the task fits."""
    purse, shared = run.spending, run.spec
    last = _build_user_message(run, instruction, 0)
    notices = run.notices.select_due(Purpose.GRACE)
    fixed = (
        shared.instruction_tokens
        + estimate_message_tokens(last)
        + sum(estimate_tokens(notice.text) for notice in notices)
    )
    room = int(min(_MAX_TOKENS, run.max_input_tokens))
    if purse.is_limited:
        spoken = min(max(_MIN_REPORT_TOKENS, (purse.compute_max_output(0) or 0) // 4), _MAX_REPORT_TOKENS)
        room = int(min(room, purse.compute_max_input(spoken)))
    room -= fixed
    if room < 0:
        return None
    given = len(run.plan.messages)
    messages = fit_messages(
        run.history, run.progress.results, room, lambda text: _build_user_message(run, text, 1), given
    )
    if messages is None:
        return None
    run.input_tokens = fixed + sum(map(estimate_message_tokens, messages))
    run.request_bytes = estimate_bytes(run.input_tokens)
    output = purse.compute_max_output(run.input_tokens) if purse.is_limited else None
    if output is not None and output < _MIN_REPORT_TOKENS:
        return None
    longest = shared.model.max_output_tokens if output is None else run.card.output_room(run.input_tokens)
    most_output = min((most for most in (output, longest) if most is not None), default=None)
    request = Request([*messages, last], shared.instructions, (), Purpose.GRACE, most_output)
    return run.prepare_request(request, notices)


def _build_user_message(run: RunState, text: str, offset: int) -> Message:
    """A message of the user's: the last of the history, or, at another place, one for this request only."""
    n, at = run.next_n + offset, run.clock.wall()
    return Message(run.plan.run_id, n, at, MessageType.TEXT, Role.USER, text)
