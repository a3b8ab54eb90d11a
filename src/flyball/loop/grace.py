"""The grace turn: one last request without tools, from what was set aside, in which the model reports."""

from __future__ import annotations

from dataclasses import replace

from .. import event
from ..message import Message, MessageType, Role
from ..outcome import Reason
from ..progress import Progress
from ..request import FailureKind, Finish, ModelFailure, Purpose, Reply, Request, bytes_of, tokens_of, tokens_of_message
from ..result import Stop
from . import shared_budget
from .effects import Flow
from .ending import End
from .messages import fit, line_of
from .model_request import let_go, send
from .state import RunState
from .tool_calls import deny

_LAST_CALLS = 5


def report(progress: Progress, turns: int, warning: str | None) -> str:
    """What was done, what failed, what came last; the same for the same record."""
    done = _counted(progress.successes)
    failed = _counted(progress.failures)
    parts = [warning or "The run was stopped before it was finished."]
    parts.append(f"It took {_many(turns, 'turn')} and {_many(progress.requests, 'request')} to the model.")
    parts.append(f"Calls that succeeded: {done or 'none'}.")
    parts.append(f"Calls that did not: {failed or 'none'}.")
    text = " ".join(parts)
    if progress.results:
        newest = "\n".join(map(line_of, progress.results[-_LAST_CALLS:]))
        text += f"\nThe last calls:\n{newest}"
    if progress.text:
        text += f"\nThe model last said: {progress.text}"
    return text + "\nThe model gave no report; this one is made from the record."


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in counts.items())


_STOPS_WITH_GRACE = frozenset({Stop.BUDGET, Stop.DEADLINE, Stop.STALLED})
_STATES = {Stop.STALLED: "This run makes no progress", Stop.HALTED: "This run is halted"}
_SHORTEST_REPORT = 32
"""Tokens: with less room than this a model cannot report."""
_LONGEST_REPORT = 1_000
"""Tokens that are kept free for it, where there are so many; the rest is for what it reports about."""
_MOST_TOKENS = 10**12


def grace(course: RunState, end: End) -> Flow[End]:
    """The end, with a report where the run was stopped by its limits; the reason stays what it is."""
    if not (end.stop in _STOPS_WITH_GRACE or end.grace) or not course.shared.grace:
        return end
    course.envelope.open_reserve()
    course.recorder.emit(event.GraceStarted, end.stop.value)
    text: str | None = None
    try:
        text = yield from _asked(course, end)
    finally:
        course.recorder.emit(event.GraceEnded, text is not None)
    return replace(end, text=text or report(course.progress, course.turns, end.warning))


def _asked(course: RunState, end: End) -> Flow[str | None]:
    """What the model reports, if it can be asked and says something."""
    reply = yield from _requested(course, end)
    while isinstance(reply, ModelFailure) and reply.kind is FailureKind.INTERRUPTED:
        course.history.pop()  # what it was asked then
        reply = yield from _requested(course, end)
    if not isinstance(reply, Reply):
        return None
    calls = course.say_reply(reply)
    deny(course, calls, Reason.BUDGET, "only a report was asked for; nothing is done any more")
    return reply.text if reply.text.strip() and reply.finish is not Finish.CONTENT_FILTER else None


def _requested(course: RunState, end: End) -> Flow[Reply | ModelFailure | None]:
    """The model's answer to the request for a report; None where it cannot be asked."""
    if course.clock.at >= course.envelope.hard_at:
        return None
    request = _fitted(course, _instruction(end))
    if request is None:
        return None
    tokens = course.input_tokens
    holds = (
        course.purse.hold(tokens, request.max_output_tokens or 0) if course.purse.limited or course.plan.within else {}
    )
    if holds is None:
        return None
    if course.plan.within:
        refusal = yield from shared_budget.take(course, **{name: hold.amount for name, hold in holds.items()})
        too_late = course.called_off() is not None or course.clock.at >= course.envelope.hard_at
        if refusal is not None or too_late:
            let_go(course, holds, taken=refusal is None)
            return None
    course.history.append(request.messages[-1])
    return (yield from send(course, request, tokens, holds, course.envelope.hard_at))


def _instruction(end: End) -> str:
    why = end.warning or f"This run was stopped ({end.stop.value})."
    state = _STATES.get(end.stop, "The budget of this run is spent")
    return (
        f"{why} {state}: this is the last message, and no tool can be called any more. "
        "Report now, in plain words: what was done, what failed, where it stalled, and what should come next. "
        "Claim nothing that did not happen."
    )


def _fitted(course: RunState, instruction: str) -> Request | None:
    """The last request, as large as what was set aside allows; None where not even the task fits."""
    purse, shared = course.purse, course.shared
    last = _said(course, instruction, 0)
    notices = course.notices.due(Purpose.GRACE)
    fixed = shared.instruction_tokens + tokens_of_message(last) + sum(tokens_of(notice.text) for notice in notices)
    room = int(min(_MOST_TOKENS, course.context_most))
    if purse.limited:
        spoken = min(max(_SHORTEST_REPORT, (purse.output_room(0) or 0) // 4), _LONGEST_REPORT)
        room = int(min(room, purse.input_room(spoken)))
    room -= fixed
    if room < 0:
        return None
    given = len(course.plan.messages)
    messages = fit(course.history, course.progress.results, room, lambda text: _said(course, text, 1), given)
    if messages is None:
        return None
    course.input_tokens = fixed + sum(map(tokens_of_message, messages))
    course.size = bytes_of(course.input_tokens)
    output = purse.output_room(course.input_tokens) if purse.limited else None
    if output is not None and output < _SHORTEST_REPORT:
        return None
    longest = shared.max_output_tokens if output is None else course.card.output_room(course.input_tokens)
    most_output = min((most for most in (output, longest) if most is not None), default=None)
    request = Request([*messages, last], shared.instructions, (), Purpose.GRACE, most_output)
    return course.addressed(request, notices)


def _said(course: RunState, text: str, place: int) -> Message:
    """A message of the user's: the last of the history, or, at another place, one for this request only."""
    n, at = course.next_n + place, course.clock.wall()
    return Message(course.plan.run_id, n, at, MessageType.TEXT, Role.USER, text)
