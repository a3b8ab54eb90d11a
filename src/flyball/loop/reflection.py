"""Reflection: a request without tools, between two turns, in which the model looks back; it guides the next turn."""

from __future__ import annotations

from dataclasses import dataclass

from .. import event
from ..budget.spending import Holds
from ..message import Message, MessageType, Role
from ..outcome import Failure, Timeout
from ..progress import Notice
from ..request import FailureKind, Finish, ModelFailure, Purpose, Request, estimate_message_tokens, estimate_tokens
from ..steadiness import Reflection
from . import shared_budget
from .compaction import shorten
from .effects import Flow
from .model_request import release_request, send_request
from .state import RunState

_MAX_SECONDS = 30.0
_MAX_REPLY_TOKENS = 2_000
"""Tokens: nobody tells what a reply used that came too late, and then so much is booked at most."""
_MAX_GUIDANCE_CHARACTERS = 4_000
"""Characters that the next turn is shown."""
_RUN_ENDS = "the run ends."


@dataclass(frozen=True, slots=True)
class SkippedReflection:
    """Why there is no reflection."""

    reason: str


def reflect(run: RunState, reflection: Reflection) -> Flow[None]:
    """Look back, if it is time for that. What stands against it is noted, and the run goes on."""
    if run.turns == run.reflected_at_turn or not _is_due(run, reflection):
        return
    run.reflected_at_turn = run.turns
    found = yield from _request_reflection(run, reflection.prompt)
    if run.check_cancelled() is not None:
        return
    if isinstance(found, str):
        shown = found if len(found) <= _MAX_GUIDANCE_CHARACTERS else f"{found[:_MAX_GUIDANCE_CHARACTERS]}…"
        run.add_notice(Notice(f"Your review of the work so far: {shown}", by="reflection", category="reflection"))
    text = found if isinstance(found, str) else f"(No reflection: {found.reason})"
    run.reflections = [*run.reflections, text]
    run.recorder.emit(event.Reflected, text)


def _is_due(run: RunState, reflection: Reflection) -> bool:
    """Whether it is time, and another turn can follow; that no reflection is left is noted once."""
    if run.check_end() is not None or run.envelope.budgets["turns"].exceeded:
        return False
    if any(refusal.budget == "reflections" for refusal in run.envelope.refusals):
        return False
    failed = any(isinstance(outcome, Failure | Timeout) for outcome in run.progress.outcomes)
    on_time = reflection.every is not None and run.turns % reflection.every == 0
    return on_time or (reflection.after_failure and failed)


def _request_reflection(run: RunState, prompt: str) -> Flow[str | SkippedReflection]:
    """What the model says, or why it says nothing."""
    if not run.envelope.claim_reflection():
        run.emit_refusals()
        return SkippedReflection(run.envelope.budgets["reflections"].warning)
    n, at = run.next_n, run.clock.wall()
    asked = Message(run.plan.run_id, n, at, MessageType.TEXT, Role.USER, prompt)
    tokens = estimate_message_tokens(asked)
    notices = run.notices.select_due(Purpose.REFLECTION)
    tokens += sum(estimate_tokens(notice.text) for notice in notices)
    if run.input_tokens + tokens > run.max_input_tokens:
        yield from shorten(run, int(run.max_input_tokens) - tokens)
        if run.check_end() is not None:
            return SkippedReflection(_RUN_ENDS)
    if run.input_tokens + tokens > run.max_input_tokens:
        return SkippedReflection("the conversation is too long.")
    request = Request([*run.context.messages, asked], run.spec.instructions, (), Purpose.REFLECTION)
    return (yield from _send_reflection(run, run.prepare_request(request, notices), run.input_tokens + tokens))


def _send_reflection(run: RunState, request: Request, tokens: int) -> Flow[str | SkippedReflection]:
    most = run.card.output_room(tokens)
    longest = _MAX_REPLY_TOKENS if most is None else min(_MAX_REPLY_TOKENS, most)
    holds: Holds = {}
    if run.spending.is_limited or run.plan.has_shared_budget:
        held = run.spending.hold_up_to(tokens, longest)
        if held is None:
            return SkippedReflection("too few tokens or too little money is left.")
        holds, longest = held
    request.max_output_tokens = longest
    if run.plan.has_shared_budget:
        refusal = yield from shared_budget.claim(run, **{name: hold.amount for name, hold in holds.items()})
        if refusal is not None or run.check_end() is not None:
            release_request(run, holds, claimed=refusal is None)
            return SkippedReflection(_RUN_ENDS if refusal is None else refusal.warning)
    deadline = min(run.envelope.work_at, run.clock.at + _MAX_SECONDS)
    reply = yield from send_request(run, request, tokens, holds, deadline)
    if isinstance(reply, ModelFailure):
        again = reply.kind is FailureKind.INTERRUPTED and run.check_end() is None
        return (yield from _send_reflection(run, request, tokens)) if again else SkippedReflection(reply.message)
    if reply.finish is Finish.CUT:
        return SkippedReflection("it took too long.")
    if reply.finish is Finish.CONTENT_FILTER:
        return SkippedReflection("the provider's filter stopped it.")
    return reply.text.strip() or SkippedReflection("the model said nothing.")
