"""One request to the model: reserve its worst case, send it, retry failures, and settle the fact."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from ..budget.spending import NO_HOLDS, Holds
from ..budget.usage import Usage
from ..event import ModelReplied, ModelRequested, Retried
from ..progress import Notice
from ..request import (
    FailureKind,
    Finish,
    History,
    ModelFailure,
    Purpose,
    Reply,
    Request,
    estimate_reply_tokens,
)
from ..result import Stop
from . import shared_budget
from .calibration import ENOUGH_OUTPUT_TOKENS, UNKNOWN_SCALE, LikelyTokens
from .compaction import estimate_request_tokens, shorten
from .effects import Ask, Flow, Wait
from .ending import ContinueReason, End
from .fallback import change_model, find_fallback
from .orders import emit_refusals
from .state import RunState, SharedBudget
from .stopping import check_end, end_by_refusal, refuse_budget

_TURN = Purpose.TURN  # a global is faster than an enum member
_NO_USAGE = Usage()
_MIN_CONTEXT_TOKENS = 1_000
"""Tokens. A provider that rejects less than this as too long has another reason."""
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 60.0
_CLOSED_FAILURE = ModelFailure(FailureKind.FINAL, "GeneratorExit", "cut", "the request was cancelled")


def ask_model(run: RunState) -> Flow[Reply | End | ContinueReason]:
    """Ask the model for the next turn, with retries. Return its reply, or why there is none."""
    attempt, was_empty, model = 1, False, run.model
    while True:
        request, tokens = _build_request(run)
        if tokens > model.max_input_tokens:
            fitted = yield from _fit_request(run, request, tokens)
            if isinstance(fitted, End):
                return fitted
            request, tokens = fitted
        reserved = _reserve_request(run, request, tokens)
        if reserved is None:
            continue
        if isinstance(reserved, End):
            return reserved
        holds, tokens = reserved
        if run.shared is not None:
            end = yield from _claim_shared(run, run.shared, holds)
            if end is not None:
                return end
        answer, end = (yield from send_request(run, request, tokens, holds, run.budget.work_at, attempt)), None
        if isinstance(answer, Reply):
            if answer.calls or was_empty or answer.text.strip() or not _may_retry_empty(run, answer):
                return answer
            was_empty = True
            run.hooks.repeat_notices()
            run.recorder.emit(Retried, attempt, 0.0, "the reply was empty")
        else:
            end = yield from _handle_failure(run, answer, attempt)
        attempt += 1
        end = end or check_end(run)
        if end is not None:
            return end


def send_request(
    run: RunState, request: Request, tokens: int, holds: Holds, deadline: float, attempt: int = 1
) -> Flow[Reply | ModelFailure]:
    """Send a request of at most this many input tokens once, and settle what it used."""
    progress, model, messages = run.progress, run.model.facts, run.messages
    progress.requests += 1
    progress.input_tokens = tokens
    run.request_deadline = deadline
    message_count = len(request.messages)
    run.recorder.emit(
        ModelRequested,
        request.purpose,
        model.name,
        model.provider,
        message_count,
        tokens,
        run.spec.tools.names if request.tools else (),
        attempt,
        messages.estimate_bytes(tokens),
        None if deadline == math.inf else deadline - run.clock.at,
        run.model.card.server,
    )
    if run.recorder.sinks:
        run.recorder.show(request, run.spec.tools.sensitive)
    answer: Reply | ModelFailure = _CLOSED_FAILURE
    try:
        answer = run.receive((yield Ask(request, deadline, message_count)))
        if isinstance(answer, Reply) and answer.usage is not None:
            amounts, is_estimate = run.spending.settle(holds, answer.usage), False
        else:
            amounts = _settle_unreported(run, request, tokens, holds, answer)
            is_estimate = amounts is not NO_HOLDS
    except BaseException:  # the loop is closed while it waits, or a price raises: the usage is unknown
        _emit_answer(run, request, answer, True)
        run.spending.settle_estimate(holds, tokens)
        raise
    _emit_answer(run, request, answer, is_estimate)
    if run.shared is not None:
        run.shared.settle({"tokens": amounts[0], "usd": amounts[1]})
    return answer


def prepare_request(run: RunState, request: Request, notices: tuple[Notice, ...]) -> Request:
    """Address a request to the active model, and attach notices to it."""
    request.run_id, request.model, request.turns = run.plan.run_id, run.model.name, run.turns
    run.hooks.attach_notices(request, notices)
    return request


def _emit_answer(run: RunState, request: Request, answer: Reply | ModelFailure, is_estimate: bool) -> None:
    """Record the answer to a request, what the provider counted, and that the model has seen the notices."""
    if isinstance(answer, ModelFailure):
        failed = request.purpose, None, 0, 0, 0, answer.message, answer.code, 0, 0, is_estimate, None, None
        run.recorder.emit(ModelReplied, *failed)
        return
    if run.recorder.sinks:
        run.recorder.show(answer, run.spec.tools.sensitive)
    purpose, used = request.purpose, answer.usage or _NO_USAGE
    if used.input and purpose is _TURN:
        run.messages.input_tokens, run.messages.is_counted = used.input, True
        if run.likely is not None:
            run.likely.note(run.model.facts.provider, run.model.facts.name, used.input)
    if request.notices:
        run.hooks.mark_delivered()
    run.recorder.emit(
        ModelReplied, purpose, answer.finish, used.input, used.output, len(answer.calls), None, None, used.cached,
        used.reasoning, is_estimate, answer.model, answer.id,
    )  # fmt: skip


def _settle_unreported(
    run: RunState, request: Request, tokens: int, holds: Holds, answer: Reply | ModelFailure
) -> Holds:
    """Settle a request without a reported usage, and return the amounts.

    It has used nothing if it failed before the provider began. Otherwise the reservation counts, or what was sent and
    received if nothing was reserved.
    """
    if isinstance(answer, ModelFailure) and not answer.began:
        run.spending.release(holds)
        return NO_HOLDS
    received = estimate_reply_tokens(answer) if isinstance(answer, Reply) else 0
    if request.max_output_tokens is not None:
        received = min(received, request.max_output_tokens)
    return run.spending.settle_estimate(holds, tokens, received)


def _build_request(run: RunState) -> tuple[Request, int]:
    """Build the next request, and return it with an upper bound of its tokens."""
    spec, messages, model = run.spec, run.messages, run.model
    shown, schema = History(messages.view.messages), spec.completion.output_schema
    tools, run_id = spec.tools.definitions, run.plan.run_id
    request = Request(shown, spec.instructions, tools, _TURN, None, schema, (), run_id, model.name, run.turns)
    notices, tokens = run.hooks.notices, messages.input_tokens
    if notices.pending:
        run.hooks.attach_notices(request, notices.select_due(_TURN))
        tokens += notices.tokens
    else:
        run.hooks.sent = ()
    count = model.card.count
    return request, tokens if count is None else count(request)


def _fit_request(run: RunState, request: Request, tokens: int) -> Flow[tuple[Request, int] | End]:
    """Return the request and its tokens. If it does not fit the model, it shows less of the conversation.

    Before the provider has counted it, the nearer estimate decides: the upper one is three times too high for English.
    Return the end if the request cannot be made to fit, or if the run was ended meanwhile.
    """
    model, is_counted = run.model, run.messages.is_counted
    while tokens > model.max_input_tokens:
        max_tokens = int(model.max_input_tokens)
        if not is_counted:
            tokens = _estimate_nearer(run, request, tokens)
            if tokens <= max_tokens:
                break
        if not is_counted or model.card.count is not None:  # `shorten` uses the upper estimate
            max_tokens = max_tokens * estimate_request_tokens(run) // tokens
        is_shorter = yield from shorten(run, max_tokens)
        end = check_end(run)
        if end is not None:
            run.refund_turn("round_never_started")
            return end
        if not is_shorter:
            return _refuse_turn(run, "context_tokens")
        request, tokens = _build_request(run)
    return request, tokens


def _reserve_request(run: RunState, request: Request, tokens: int) -> tuple[Holds, int] | End | None:
    """Reserve the worst case of a request, and return that with the tokens of its input.

    If it is refused, refund the turn and return the end. None if a rule switched to another model when it heard of the
    refusal: the request must be built for that model.
    """
    spending = run.spending
    if not spending.is_limited and run.shared is None:
        request.max_output_tokens = run.spec.model.max_output_tokens
        return NO_HOLDS, tokens
    max_output = run.model.card.output_room(tokens)
    held = hold_reply(run, tokens, max_output)
    enough = ENOUGH_OUTPUT_TOKENS if max_output is None else min(max_output, ENOUGH_OUTPUT_TOKENS)
    if held is None or (held[1] is not None and held[1] < enough):
        nearer = _estimate_nearer(run, request, tokens)
        if nearer < tokens:
            if held is not None:
                spending.release(held[0])
            tokens, max_output = nearer, run.model.card.output_room(nearer)
            held = hold_reply(run, tokens, max_output)
    if held is None:
        short = spending.find_short_budgets(tokens, run.model.card.min_output_tokens)
        end = refuse_budget(run, next(iter(short), "tokens"), tokens)
        if check_end(run) is None:  # a hook that heard of it may have ended the run
            if request.model != run.model.name:
                return None
            held = hold_reply(run, tokens, max_output)  # or a rule may have raised the limit
        if held is None:
            if run.likely is not None:
                run.likely.forget()
            run.refund_turn("round_never_started")
            return end
    holds, request.max_output_tokens = held
    return holds, tokens


def hold_reply(run: RunState, tokens: int, max_output: int | None) -> tuple[Holds, int | None] | None:
    """Reserve the input and the longest affordable reply.

    None if a budget refuses that, or if the provider accepts no reply so short.
    """
    held = run.spending.hold_up_to(tokens, max_output)
    if held is None or held[1] is None or held[1] >= run.model.card.min_output_tokens:
        return held
    run.spending.release(held[0])
    return None


def _estimate_nearer(run: RunState, request: Request, tokens: int) -> int:
    """Return the nearer estimate of a request, if it is below the upper one and if the model does not count itself."""
    scale = run.plan.token_scale
    if scale is None or run.model.card.count is not None:
        return tokens
    if run.likely is None:
        run.likely = LikelyTokens(UNKNOWN_SCALE if run.model.name else scale)
    nearer = run.likely.estimate(request, run.messages.view.messages, run.model.facts.provider)
    return min(tokens, max(nearer, run.spending.largest_input_tokens))  # a conversation rarely gets shorter


def _claim_shared(run: RunState, shared: SharedBudget, holds: Holds) -> Flow[End | None]:
    """Claim the same in the shared budgets, and the turn with it if this is its first request. Return the end."""
    turns = 0 if shared.turn_claimed else 1
    granted, refusal = yield from shared_budget.claim_request(run, shared, holds, check_end, turns)
    if granted:
        return None
    end = check_end(run)
    if end is None:
        assert refusal is not None, "a claim that is not granted was refused, or the run ends"
        end = end_by_refusal(run, refusal)
    run.refund_turn("round_never_started")
    return end


def _refuse_turn(run: RunState, budget: str) -> End:
    end = refuse_budget(run, budget)
    run.refund_turn("round_never_started")
    return end


def _may_retry_empty(run: RunState, reply: Reply) -> bool:
    if reply.finish is not Finish.STOP or run.budget.claim(retries=1):
        return reply.finish is Finish.STOP
    emit_refusals(run)
    return False


def _handle_failure(run: RunState, failure: ModelFailure, attempt: int) -> Flow[End | ContinueReason | None]:
    """Wait for the next attempt. Return why there is none, or None."""
    error = failure.described
    yield from shared_budget.flush(run)
    fallback = find_fallback(run, failure)
    is_final = failure.kind is FailureKind.FINAL and fallback is None
    end = None if is_final else check_end(run)
    if end is not None:
        return end
    if failure.kind is FailureKind.CONTEXT:
        return (yield from _handle_context_overflow(run, error))
    if failure.kind is FailureKind.INTERRUPTED:  # not the model's fault, so it takes no retry
        run.recorder.emit(Retried, attempt, 0.0, failure.message)
        return None
    if is_final or not run.budget.claim(retries=1):
        emit_refusals(run)
        run.refund_turn("round_never_started")
        return End(Stop.FAILED, error=error)
    model, starts_again = fallback or (run.model.name, True)
    wait_s = _compute_backoff_s(run, failure, attempt) if starts_again else 0.0
    if wait_s and run.clock.at + wait_s >= run.budget.work_at:
        return replace(_refuse_turn(run, "seconds"), error=error)
    if model == run.model.name:
        run.recorder.emit(Retried, attempt, wait_s, failure.message)
    else:
        change_model(run, model, error, wait_s)
    if wait_s:
        yield from run.perform(Wait(run.clock.at + wait_s))
    return None


def _handle_context_overflow(run: RunState, error: dict[str, Any]) -> Flow[End | ContinueReason]:
    """Shorten requests for a provider that takes less than the limits say, and try another turn."""
    max_tokens = estimate_request_tokens(run) - 1
    most = max_tokens if run.messages.is_counted else min(max_tokens, run.progress.input_tokens)
    run.model.lower_max_input(max(most * 9 // 10, _MIN_CONTEXT_TOKENS))
    if not (yield from shorten(run, max_tokens)):
        return replace(_refuse_turn(run, "context_tokens"), error=error)
    run.refund_turn("round_never_started")
    return check_end(run) or ContinueReason.SHORTENED


def _compute_backoff_s(run: RunState, failure: ModelFailure, attempt: int) -> float:
    """Return the seconds to wait: doubled each time, with jitter, and at least what the provider asks for."""
    usual = min(_MAX_BACKOFF_S, _FIRST_BACKOFF_S * 2 ** (attempt - 1))
    jitter = random.Random(run.plan.jitter_seed * 1_000 + run.progress.requests).uniform(0.5, 1.0)
    return max(failure.after_s or 0.0, usual * jitter)
