"""Reflection: a request without tools, between two turns, in which the model looks back; it guides the next turn."""

from __future__ import annotations

from dataclasses import dataclass

from .. import event
from ..budget.spending import Holds
from ..message import Message, MessageType, Role
from ..outcome import Failure, Timeout
from ..progress import Notice
from ..request import FailureKind, Finish, ModelFailure, Purpose, Request, tokens_of, tokens_of_message
from ..steadiness import Reflection
from . import shared_budget
from .compaction import shorten
from .effects import Flow
from .model_request import let_go, send
from .state import RunState

_LONGEST_S = 30.0
_LONGEST_REPLY = 2_000
"""Tokens: nobody tells what a reply used that came too late, and then so much is booked at most."""
_LONGEST_GUIDANCE = 4_000
"""Characters that the next turn is shown."""
_RUN_ENDS = "the run ends."


@dataclass(frozen=True, slots=True)
class Missed:
    """Why there is no reflection."""

    why: str


def reflect(course: RunState, reflection: Reflection) -> Flow[None]:
    """Look back, if it is time for that. What stands against it is noted, and the run goes on."""
    if course.turns == course.looked_back or not _due(course, reflection):
        return
    course.looked_back = course.turns
    found = yield from _looked_back(course, reflection.prompt)
    if course.called_off() is not None:
        return
    if isinstance(found, str):
        shown = found if len(found) <= _LONGEST_GUIDANCE else f"{found[:_LONGEST_GUIDANCE]}…"
        course.show(Notice(f"Looking back at the work so far: {shown}", by="reflection", category="reflection"))
    text = found if isinstance(found, str) else f"(No reflection: {found.why})"
    course.reflections = [*course.reflections, text]
    course.recorder.emit(event.Reflected, text)


def _due(course: RunState, reflection: Reflection) -> bool:
    """Whether it is time, and another turn can follow; that no reflection is left is noted once."""
    if course.must_end() is not None or course.envelope.budgets["turns"].exceeded:
        return False
    if any(refusal.budget == "reflections" for refusal in course.envelope.refusals):
        return False
    failed = any(isinstance(outcome, Failure | Timeout) for outcome in course.progress.outcomes)
    on_time = reflection.every is not None and course.turns % reflection.every == 0
    return on_time or (reflection.after_failure and failed)


def _looked_back(course: RunState, prompt: str) -> Flow[str | Missed]:
    """What the model says, or why it says nothing."""
    if not course.envelope.claim_reflection():
        course.tell_refusals()
        return Missed(course.envelope.budgets["reflections"].warning)
    n, at = course.next_n, course.clock.wall()
    asked = Message(course.plan.run_id, n, at, MessageType.TEXT, Role.USER, prompt)
    tokens = tokens_of_message(asked)
    notices = course.notices.due(Purpose.REFLECTION)
    tokens += sum(tokens_of(notice.text) for notice in notices)
    if course.input_tokens + tokens > course.context_most:
        yield from shorten(course, int(course.context_most) - tokens)
        if course.must_end() is not None:
            return Missed(_RUN_ENDS)
    if course.input_tokens + tokens > course.context_most:
        return Missed("the conversation is too long.")
    request = Request([*course.context.messages, asked], course.shared.instructions, (), Purpose.REFLECTION)
    return (yield from _asked(course, course.addressed(request, notices), course.input_tokens + tokens))


def _asked(course: RunState, request: Request, tokens: int) -> Flow[str | Missed]:
    most = course.card.output_room(tokens)
    longest = _LONGEST_REPLY if most is None else min(_LONGEST_REPLY, most)
    holds: Holds = {}
    if course.purse.limited or course.plan.within:
        held = course.purse.hold_most(tokens, longest)
        if held is None:
            return Missed("what is left of tokens or money does not allow it.")
        holds, longest = held
    request.max_output_tokens = longest
    if course.plan.within:
        refusal = yield from shared_budget.take(course, **{name: hold.amount for name, hold in holds.items()})
        if refusal is not None or course.must_end() is not None:
            let_go(course, holds, taken=refusal is None)
            return Missed(_RUN_ENDS if refusal is None else refusal.warning)
    deadline = min(course.envelope.work_at, course.clock.at + _LONGEST_S)
    reply = yield from send(course, request, tokens, holds, deadline)
    if isinstance(reply, ModelFailure):
        again = reply.kind is FailureKind.INTERRUPTED and course.must_end() is None
        return (yield from _asked(course, request, tokens)) if again else Missed(reply.message)
    if reply.finish is Finish.CUT:
        return Missed("it took too long.")
    if reply.finish is Finish.CONTENT_FILTER:
        return Missed("the provider's filter stopped it.")
    return reply.text.strip() or Missed("the model said nothing.")
