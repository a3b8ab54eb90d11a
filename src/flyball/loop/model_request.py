"""One request to the model: what it may use is set aside, failures are tried again, and the fact is booked."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from .. import event
from ..budget.spending import Holds
from ..budget.usage import Usage
from ..request import (
    FailureKind,
    Finish,
    History,
    ModelFailure,
    Purpose,
    Reply,
    Request,
    estimate_bytes,
    estimate_reply_tokens,
)
from ..result import Stop
from . import shared_budget
from .compaction import estimate_request_tokens, shorten
from .effects import Ask, Flow, Wait
from .ending import ContinueReason, End
from .state import RunState

_TURN = Purpose.TURN  # found once: see course.py
_NO_USAGE = Usage()
_MIN_CONTEXT_TOKENS = 1_000
"""Tokens: a provider that says that this is too long means something else."""
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 60.0
_NOTHING_USED = {"tokens": 0, "usd": 0}
_CLOSED_FAILURE = ModelFailure(FailureKind.FINAL, "GeneratorExit", "cut", "the request was cancelled")


def ask_model(run: RunState) -> Flow[Reply | End | ContinueReason]:
    """Ask for the next turn, again where that may help; the reply, or why there is none."""
    attempt, empty = 1, False
    while True:
        request, tokens = _build_request(run)
        if tokens > run.max_input_tokens:
            end = yield from _shorten_request(run, tokens)
            if end is not None:
                return end
            request, tokens = _build_request(run)
        holds = _reserve_request(run, request, tokens)
        if not isinstance(holds, End) and run.plan.has_shared_budget:
            holds = yield from _claim_shared(run, holds)
        if isinstance(holds, End):
            return holds
        answer = yield from send_request(run, request, tokens, holds, run.envelope.work_at, attempt)
        if isinstance(answer, Reply):
            if answer.calls or empty or answer.text.strip() or not _may_retry_empty(run, answer):
                return answer
            empty = True
            for notice in run.sent_notices:
                run.add_notice(notice)
            run.recorder.emit(event.Retried, attempt, 0.0, "the reply was empty")
        else:
            end = yield from _handle_failure(run, answer, attempt)
            if end is not None:
                return end
        attempt += 1
        end = run.check_end()
        if end is not None:
            return end


def send_request(
    run: RunState, request: Request, tokens: int, holds: Holds, deadline: float, attempt: int = 1
) -> Flow[Reply | ModelFailure]:
    """Ask once, for at most so many tokens of input, and book what it used."""
    progress, model, purpose = run.progress, run.model, request.purpose
    progress.requests += 1
    progress.input_tokens = tokens
    more = tokens - run.input_tokens
    run.recorder.emit(
        event.ModelRequested,
        purpose,
        model.name,
        model.provider,
        len(request.messages),
        tokens,
        run.spec.tools.names if request.tools else (),
        attempt,
        run.request_bytes + estimate_bytes(more) if more > 0 else run.request_bytes,
        None if deadline == math.inf else deadline - run.clock.at,
    )
    run.request_deadline = deadline
    effect = Ask(request, deadline)
    try:
        answer = run.receive(effect, (yield effect))
    except BaseException:  # the loop is closed in the middle of it: nobody knows what it used
        run.spending.settle_estimate((holds,), tokens)
        _emit_reply(run, purpose, _CLOSED_FAILURE, True)
        raise
    facts, guessed = _settle_usage(run, request, tokens, holds, answer)
    if isinstance(answer, Reply):
        if request.notices:
            run.mark_notices_delivered()
        usage = answer.usage
        if usage is not None and usage.input and purpose is _TURN:
            run.input_tokens = usage.input
    _emit_reply(run, purpose, answer, guessed)
    if run.plan.has_shared_budget:
        shared_budget.settle(run, facts)
    return answer


def _emit_reply(run: RunState, purpose: Purpose, answer: Reply | ModelFailure, is_estimate: bool) -> None:
    kind, emit = event.ModelReplied, run.recorder.emit
    if isinstance(answer, ModelFailure):
        emit(kind, purpose, None, 0, 0, 0, answer.message, answer.code, 0, 0, is_estimate)
        return
    used, calls, finish = answer.usage or _NO_USAGE, len(answer.calls), answer.finish
    emit(kind, purpose, finish, used.input, used.output, calls, None, None, used.cached, used.reasoning, is_estimate)


def _settle_usage(
    run: RunState, request: Request, tokens: int, holds: Holds, answer: Reply | ModelFailure
) -> tuple[dict[str, int], bool]:
    """Book what a request has used; that, and whether it is an estimate, because nobody told.

    One that failed before the provider began has used nothing. Where nothing was set aside, what was sent and came is
    the estimate.
    """
    if isinstance(answer, Reply):
        if answer.usage is not None:
            return run.spending.settle((holds,), answer.usage), False
    elif not answer.began:
        _release_holds(holds)
        return _NOTHING_USED, False
    came = estimate_reply_tokens(answer) if isinstance(answer, Reply) else 0
    most = request.max_output_tokens
    return run.spending.settle_estimate((holds,), tokens, came if most is None else min(came, most)), True


def _release_holds(holds: Holds) -> None:
    for hold in holds.values():
        hold.release()


def _build_request(run: RunState) -> tuple[Request, int]:
    """The next request, and how many tokens it takes at most."""
    shared, waiting = run.spec, run.notices.pending
    shown, schema = History(run.context.messages), shared.completion.output_schema
    run_id, model, turns = run.plan.run_id, run.model_name, run.turns
    tools = shared.tools.definitions
    request = Request(shown, shared.instructions, tools, _TURN, None, schema, (), run_id, model, turns)
    run.sent_notices = ()
    if waiting:
        run.prepare_request(request, run.notices.select_due(_TURN))
    count = run.card.count
    return request, run.input_tokens + run.notices.tokens if count is None else count(request)


def _shorten_request(run: RunState, tokens: int) -> Flow[End | None]:
    """Show less; or why the run ends, if somebody has ended it meanwhile."""
    most = int(run.max_input_tokens)
    if run.card.count is not None:  # it counts otherwise than the estimate by which is shortened
        most = most * estimate_request_tokens(run) // tokens
    yield from shorten(run, most)
    end = run.check_end()
    if end is not None:
        run.refund_turn("round_never_started")
    return end


def _reserve_request(run: RunState, request: Request, tokens: int) -> Holds | End:
    """The most that the request can use, set aside; or why it is not made, and then the turn is given back."""
    if tokens > run.max_input_tokens:
        return _refuse_turn(run, "context_tokens")
    if not run.spending.is_limited and not run.plan.has_shared_budget:
        request.max_output_tokens = run.spec.model.max_output_tokens
        return {}
    longest = run.card.output_room(tokens)
    held = run.spending.hold_up_to(tokens, longest)
    if held is None:
        end = run.refuse_budget(next(iter(run.spending.find_short_budgets(tokens)), "tokens"))
        held = run.spending.hold_up_to(tokens, longest)  # a rule may have given more, when it heard
        if held is None:
            run.refund_turn("round_never_started")
            return end
    holds, request.max_output_tokens = held
    return holds


def _claim_shared(run: RunState, holds: Holds) -> Flow[Holds | End]:
    """The same in the budgets that others share, and with it the turn, if this is its first request."""
    turns = 0 if run.shared_turn_claimed else 1
    refusal = yield from shared_budget.claim(run, turns=turns, **{name: hold.amount for name, hold in holds.items()})
    run.shared_turn_claimed = run.shared_turn_claimed or refusal is None
    end = run.check_end()
    if end is None:
        if refusal is None:
            return holds
        end = run.refuse_budget(refusal.budget)
    run.refund_turn("round_never_started")
    release_request(run, holds, claimed=refusal is None)
    return end


def release_request(run: RunState, holds: Holds, claimed: bool) -> None:
    """Free what was set aside for a request that is not made after all."""
    _release_holds(holds)
    if claimed:
        shared_budget.settle(run, _NOTHING_USED)


def _refuse_turn(run: RunState, budget: str) -> End:
    end = run.refuse_budget(budget)
    run.refund_turn("round_never_started")
    return end


def _may_retry_empty(run: RunState, reply: Reply) -> bool:
    if reply.finish is not Finish.STOP or run.envelope.claim(retries=1):
        return reply.finish is Finish.STOP
    run.emit_refusals()
    return False


def _handle_failure(run: RunState, failure: ModelFailure, attempt: int) -> Flow[End | ContinueReason | None]:
    """Wait for the next attempt, or why there is none."""
    error = {"code": failure.code, "kind": failure.error, "message": failure.message}
    yield from shared_budget.flush(run)
    must_end = None if failure.kind is FailureKind.FINAL else run.check_end()
    if must_end is not None:
        return must_end
    if failure.kind is FailureKind.CONTEXT:
        return (yield from _handle_context_overflow(run, error))
    if failure.kind is FailureKind.INTERRUPTED:  # which was no fault of the model's
        run.recorder.emit(event.Retried, attempt, 0.0, failure.message)
        return None
    if failure.kind is FailureKind.FINAL or not run.envelope.claim(retries=1):
        run.emit_refusals()
        run.refund_turn("round_never_started")
        return End(Stop.FAILED, error=error)
    wait_s = _compute_backoff_s(run, failure, attempt)
    if run.clock.at + wait_s >= run.envelope.work_at:
        return replace(_refuse_turn(run, "seconds"), error=error)
    run.recorder.emit(event.Retried, attempt, wait_s, failure.message)
    yield from run.perform(Wait(run.clock.at + wait_s))
    return None


def _handle_context_overflow(run: RunState, error: dict[str, Any]) -> Flow[End | ContinueReason]:
    """The provider takes less than the limits say: less is shown from now on, in another turn; or the run ends."""
    most = estimate_request_tokens(run) - 1
    run.max_input_tokens = min(run.max_input_tokens, max(most * 9 // 10, _MIN_CONTEXT_TOKENS))
    if not (yield from shorten(run, most)):
        return replace(_refuse_turn(run, "context_tokens"), error=error)
    run.refund_turn("round_never_started")
    return run.check_end() or ContinueReason.SHORTENED


def _compute_backoff_s(run: RunState, failure: ModelFailure, attempt: int) -> float:
    """Twice as long each time, less up to a half, or many runs would come back at once; the provider's word counts."""
    usual = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (attempt - 1))
    jitter = random.Random(run.plan.jitter_seed * 1_000 + run.progress.requests).uniform(0.5, 1.0)
    return max(failure.after_s or 0.0, usual * jitter)
