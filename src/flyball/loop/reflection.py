"""Reflection: a request without tools between two turns, in which the model reviews its work."""

from __future__ import annotations

from dataclasses import dataclass

from .. import event
from ..budget.spending import NO_HOLDS
from ..errors import truncate
from ..outcome import Failure, Timeout
from ..progress import Notice
from ..request import FailureKind, Finish, ModelFailure, Purpose, Request, estimate_message_tokens, estimate_tokens
from ..steadiness import Reflection
from . import shared_budget
from .compaction import shorten
from .effects import Flow
from .model_request import hold_reply, prepare_request, send_request
from .orders import emit_refusals
from .state import Reflections, RunState
from .stopping import check_end

_MAX_SECONDS = 30.0
_MAX_REPLY_TOKENS = 2_000
"""Tokens. A reply that came too late has no usage, and this much is charged at most."""
_MAX_GUIDANCE_CHARACTERS = 4_000
"""Characters that the next turn shows."""
_RUN_ENDS = "the run ends."


@dataclass(frozen=True, slots=True)
class SkippedReflection:
    """Why there is no reflection."""

    reason: str


def reflect(run: RunState, reflections: Reflections) -> Flow[None]:
    """Let the model review its work, if that is due. If it cannot, the reason is recorded and the run continues."""
    if run.turns == reflections.last_turn or not _is_due(run, reflections.settings):
        return
    reflections.start(run.turns)
    review = yield from _request_reflection(run, reflections.settings.prompt)
    if run.signals.is_cancelled:
        return
    if isinstance(review, str):
        shown = truncate(review, _MAX_GUIDANCE_CHARACTERS)
        notice = Notice(f"Your review of the work so far: {shown}", by="reflection", category="reflection")
        run.hooks.notices.add(notice)
    text = review if isinstance(review, str) else f"(No reflection: {review.reason})"
    reflections.add(text)
    run.recorder.emit(event.Reflected, text)


def _is_due(run: RunState, reflection: Reflection) -> bool:
    """Return True if it is time for a reflection and another turn can follow."""
    if check_end(run) is not None or run.budget.budgets["turns"].exceeded:
        return False
    if any(refusal.budget == "reflections" for refusal in run.budget.refusals):  # recorded once
        return False
    has_failed = any(isinstance(outcome, Failure | Timeout) for outcome in run.progress.outcomes)
    is_scheduled = reflection.every is not None and run.turns % reflection.every == 0
    return is_scheduled or (reflection.after_failure and has_failed)


def _request_reflection(run: RunState, prompt: str) -> Flow[str | SkippedReflection]:
    """Return the model's review, or why there is none."""
    if not run.budget.claim_reflection():
        emit_refusals(run)
        return SkippedReflection(run.budget.budgets["reflections"].warning)
    messages, max_input = run.messages, run.model.max_input_tokens
    question = messages.build_user_message(prompt)
    tokens = estimate_message_tokens(question)
    notices = run.hooks.notices.select_due(Purpose.REFLECTION)
    tokens += sum(estimate_tokens(notice.text) for notice in notices)
    if messages.input_tokens + tokens > max_input:
        yield from shorten(run, int(max_input) - tokens)
        if check_end(run) is not None:
            return SkippedReflection(_RUN_ENDS)
    if messages.input_tokens + tokens > run.model.max_input_tokens:
        return SkippedReflection("the conversation is too long.")
    request = Request([*messages.view.messages, question], run.spec.instructions, (), Purpose.REFLECTION)
    return (yield from _send_reflection(run, prepare_request(run, request, notices), messages.input_tokens + tokens))


def _send_reflection(run: RunState, request: Request, tokens: int) -> Flow[str | SkippedReflection]:
    max_output = run.model.card.output_room(tokens)
    max_reply = _MAX_REPLY_TOKENS if max_output is None else min(_MAX_REPLY_TOKENS, max_output)
    holds = NO_HOLDS
    if run.spending.is_limited or run.shared is not None:
        held = hold_reply(run, tokens, max_reply)
        if held is None:
            return SkippedReflection("too few tokens or too little money is left.")
        holds, max_reply = held
    request.max_output_tokens = max_reply
    if run.shared is not None:
        granted, refusal = yield from shared_budget.claim_request(run, run.shared, holds, check_end)
        if not granted:
            return SkippedReflection(_RUN_ENDS if refusal is None else refusal.warning)
    deadline = min(run.budget.work_at, run.clock.at + _MAX_SECONDS)
    reply = yield from send_request(run, request, tokens, holds, deadline)
    if isinstance(reply, ModelFailure):
        again = reply.kind is FailureKind.INTERRUPTED and check_end(run) is None
        return (yield from _send_reflection(run, request, tokens)) if again else SkippedReflection(reply.message)
    if reply.finish is Finish.CUT:
        return SkippedReflection("it took too long.")
    if reply.finish is Finish.CONTENT_FILTER:
        return SkippedReflection("the provider's filter stopped it.")
    if reply.finish is Finish.REFUSAL:
        return SkippedReflection("the model refused it.")
    return reply.text.strip() or SkippedReflection("the model said nothing.")
