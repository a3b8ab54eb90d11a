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
    bytes_of,
    tokens_of_reply,
)
from ..result import Stop
from . import shared_budget
from .compaction import estimated, shorten
from .effects import Ask, Flow, Wait
from .ending import Continue, End
from .state import RunState

_TURN = Purpose.TURN  # found once: see course.py
_UNTOLD = Usage()
_LEAST_CONTEXT = 1_000
"""Tokens: a provider that says that this is too long means something else."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 60.0
_UNUSED = {"tokens": 0, "usd": 0}
_UNHEARD = ModelFailure(FailureKind.FINAL, "GeneratorExit", "cut", "nobody waited for the reply")


def ask(course: RunState) -> Flow[Reply | End | Continue]:
    """Ask for the next turn, again where that may help; the reply, or why there is none."""
    attempt, empty = 1, False
    while True:
        request, tokens = _request(course)
        if tokens > course.context_most:
            end = yield from _shortened(course, tokens)
            if end is not None:
                return end
            request, tokens = _request(course)
        holds = _held(course, request, tokens)
        if not isinstance(holds, End) and course.plan.within:
            holds = yield from _granted(course, holds)
        if isinstance(holds, End):
            return holds
        answer = yield from send(course, request, tokens, holds, course.envelope.work_at, attempt)
        if isinstance(answer, Reply):
            if answer.calls or empty or answer.text.strip() or not _may_try_again(course, answer):
                return answer
            empty = True
            for notice in course.carried:
                course.show(notice)
            course.recorder.emit(event.Retried, attempt, 0.0, "the reply was empty")
        else:
            end = yield from _after_failure(course, answer, attempt)
            if end is not None:
                return end
        attempt += 1
        end = course.must_end()
        if end is not None:
            return end


def send(
    course: RunState, request: Request, tokens: int, holds: Holds, deadline: float, attempt: int = 1
) -> Flow[Reply | ModelFailure]:
    """Ask once, for at most so many tokens of input, and book what it used."""
    progress, model, purpose = course.progress, course.model, request.purpose
    progress.requests += 1
    progress.input_tokens = tokens
    more = tokens - course.input_tokens
    course.recorder.emit(
        event.ModelRequested,
        purpose,
        model.name,
        model.provider,
        len(request.messages),
        tokens,
        course.shared.tool_names if request.tools else (),
        attempt,
        course.size + bytes_of(more) if more > 0 else course.size,
        None if deadline == math.inf else deadline - course.clock.at,
    )
    course.asked_until = deadline
    effect = Ask(request, deadline)
    try:
        answer = course.hear(effect, (yield effect))
    except BaseException:  # the loop is closed in the middle of it: nobody knows what it used
        course.purse.book((holds,), tokens)
        _tell(course, purpose, _UNHEARD, True)
        raise
    facts, guessed = _booked(course, request, tokens, holds, answer)
    if isinstance(answer, Reply):
        if request.notices:
            course.delivered()
        usage = answer.usage
        if usage is not None and usage.input and purpose is _TURN:
            course.input_tokens = usage.input
    _tell(course, purpose, answer, guessed)
    if course.plan.within:
        shared_budget.settle(course, facts)
    return answer


def _tell(course: RunState, purpose: Purpose, answer: Reply | ModelFailure, guessed: bool) -> None:
    kind, emit = event.ModelReplied, course.recorder.emit
    if isinstance(answer, ModelFailure):
        emit(kind, purpose, None, 0, 0, 0, answer.message, answer.code, 0, 0, guessed)
        return
    used, calls, finish = answer.usage or _UNTOLD, len(answer.calls), answer.finish
    emit(kind, purpose, finish, used.input, used.output, calls, None, None, used.cached, used.reasoning, guessed)


def _booked(
    course: RunState, request: Request, tokens: int, holds: Holds, answer: Reply | ModelFailure
) -> tuple[dict[str, int], bool]:
    """Book what a request has used; that, and whether it is an estimate, because nobody told.

    One that failed before the provider began has used nothing. Where nothing was set aside, what was sent and came is
    the estimate.
    """
    if isinstance(answer, Reply):
        if answer.usage is not None:
            return course.purse.settle((holds,), answer.usage), False
    elif not answer.began:
        _release(holds)
        return _UNUSED, False
    came = tokens_of_reply(answer) if isinstance(answer, Reply) else 0
    most = request.max_output_tokens
    return course.purse.book((holds,), tokens, came if most is None else min(came, most)), True


def _release(holds: Holds) -> None:
    for hold in holds.values():
        hold.release()


def _request(course: RunState) -> tuple[Request, int]:
    """The next request, and how many tokens it takes at most."""
    shared, waiting = course.shared, course.notices.waiting
    shown, schema = History(course.context.messages), shared.output_schema
    run_id, model, turns = course.plan.run_id, course.model_name, course.turns
    request = Request(shown, shared.instructions, shared.tools, _TURN, None, schema, (), run_id, model, turns)
    course.carried = ()
    if waiting:
        course.addressed(request, course.notices.due(_TURN))
    count = course.card.count
    return request, course.input_tokens + course.notices.tokens if count is None else count(request)


def _shortened(course: RunState, tokens: int) -> Flow[End | None]:
    """Show less; or why the run ends, if somebody has ended it meanwhile."""
    most = int(course.context_most)
    if course.card.count is not None:  # it counts otherwise than the estimate by which is shortened
        most = most * estimated(course) // tokens
    yield from shorten(course, most)
    end = course.must_end()
    if end is not None:
        course.refund_turn("round_never_started")
    return end


def _held(course: RunState, request: Request, tokens: int) -> Holds | End:
    """The most that the request can use, set aside; or why it is not made, and then the turn is given back."""
    if tokens > course.context_most:
        return _never_started(course, "context_tokens")
    if not course.purse.limited and not course.plan.within:
        request.max_output_tokens = course.shared.max_output_tokens
        return {}
    longest = course.card.output_room(tokens)
    held = course.purse.hold_most(tokens, longest)
    if held is None:
        end = course.refused(next(iter(course.purse.short_of(tokens)), "tokens"))
        held = course.purse.hold_most(tokens, longest)  # a rule may have given more, when it heard
        if held is None:
            course.refund_turn("round_never_started")
            return end
    holds, request.max_output_tokens = held
    return holds


def _granted(course: RunState, holds: Holds) -> Flow[Holds | End]:
    """The same in the budgets that others share, and with it the turn, if this is its first request."""
    turns = 0 if course.granted else 1
    refusal = yield from shared_budget.take(course, turns=turns, **{name: hold.amount for name, hold in holds.items()})
    course.granted = course.granted or refusal is None
    end = course.must_end()
    if end is None:
        if refusal is None:
            return holds
        end = course.refused(refusal.budget)
    course.refund_turn("round_never_started")
    let_go(course, holds, taken=refusal is None)
    return end


def let_go(course: RunState, holds: Holds, taken: bool) -> None:
    """Free what was set aside for a request that is not made after all."""
    _release(holds)
    if taken:
        shared_budget.settle(course, _UNUSED)


def _never_started(course: RunState, budget: str) -> End:
    end = course.refused(budget)
    course.refund_turn("round_never_started")
    return end


def _may_try_again(course: RunState, empty: Reply) -> bool:
    if empty.finish is not Finish.STOP or course.envelope.claim(retries=1):
        return empty.finish is Finish.STOP
    course.tell_refusals()
    return False


def _after_failure(course: RunState, failure: ModelFailure, attempt: int) -> Flow[End | Continue | None]:
    """Wait for the next attempt, or why there is none."""
    error = {"code": failure.code, "kind": failure.error, "message": failure.message}
    yield from shared_budget.pay(course)
    must_end = None if failure.kind is FailureKind.FINAL else course.must_end()
    if must_end is not None:
        return must_end
    if failure.kind is FailureKind.CONTEXT:
        return (yield from _too_long(course, error))
    if failure.kind is FailureKind.INTERRUPTED:  # which was no fault of the model's
        course.recorder.emit(event.Retried, attempt, 0.0, failure.message)
        return None
    if failure.kind is FailureKind.FINAL or not course.envelope.claim(retries=1):
        course.tell_refusals()
        course.refund_turn("round_never_started")
        return End(Stop.FAILED, error=error)
    wait_s = _wait_s(course, failure, attempt)
    if course.clock.at + wait_s >= course.envelope.work_at:
        return replace(_never_started(course, "seconds"), error=error)
    course.recorder.emit(event.Retried, attempt, wait_s, failure.message)
    yield from course.do(Wait(course.clock.at + wait_s))
    return None


def _too_long(course: RunState, error: dict[str, Any]) -> Flow[End | Continue]:
    """The provider takes less than the limits say: less is shown from now on, in another turn; or the run ends."""
    most = estimated(course) - 1
    course.context_most = min(course.context_most, max(most * 9 // 10, _LEAST_CONTEXT))
    if not (yield from shorten(course, most)):
        return replace(_never_started(course, "context_tokens"), error=error)
    course.refund_turn("round_never_started")
    return course.must_end() or Continue.SHORTENED


def _wait_s(course: RunState, failure: ModelFailure, attempt: int) -> float:
    """Twice as long each time, less up to a half, or many runs would come back at once; the provider's word counts."""
    usual = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** (attempt - 1))
    jitter = random.Random(course.plan.seed * 1_000 + course.progress.requests).uniform(0.5, 1.0)
    return max(failure.after_s or 0.0, usual * jitter)
