"""The course of a run: where it stands. The parts of the loop read and change it; nobody else does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import inf
from threading import Condition
from typing import Any, TypeVar

from .. import event
from ..budget.spending import Spending
from ..message import Message, MessageType, Role
from ..outcome import Cancelled, Denied, Outcome, Reason, Status
from ..person import Question, Verdict
from ..progress import AskPerson, Evidence, Halt, Notice, Point, Progress, Veto
from ..recorder import Recorder
from ..request import (
    MESSAGE_OVERHEAD_TOKENS,
    Call,
    Finish,
    Reply,
    Request,
    estimate_bytes,
    estimate_call_tokens,
    estimate_content_tokens,
    estimate_tokens,
)
from ..result import Result, Stop
from ..rules.thresholds import StartCache
from ..unit import Unit
from .effects import Answer, Append, Effect, Flow, Grant
from .ending import End, describe_error
from .evidence import EvidenceTracker
from .hooks import Notices, apply_order
from .messages import MessageLog
from .plan import Plan
from .repetition import Key, Repetition
from .signals import apply_signal


class LoopClock:
    """The loop's clock: it stands still until an answer tells the time."""

    __slots__ = ("at", "started_at")

    def __init__(self, started_at: float) -> None:
        self.at = 0.0
        self.started_at = started_at

    def now(self) -> float:
        """The run's active seconds."""
        return self.at

    def wall(self) -> float:
        """Seconds since the epoch, as far as the loop knows."""
        return self.started_at + self.at

    def wait(self, condition: Condition, seconds: float) -> None:
        """The loop never waits; it yields a Wait."""
        raise NotImplementedError


T = TypeVar("T")

# A member of an enum takes Python 3.11 five times as long to find as a name, and these are wanted in every turn.
_CALL, _RESULT = MessageType.TOOL_CALL, MessageType.TOOL_RESULT
_ASSISTANT, _TOOL = Role.ASSISTANT, Role.TOOL
_DONE, _TOOL_ENDED = Status.DONE, Point.TOOL_ENDED
_WEAKER_THAN_DEADLINE = (Stop.HALTED, Stop.STALLED)
_NONE: frozenset[str] = frozenset()


class RunState:
    """Where a run stands."""

    __slots__ = (
        "_interrupted",
        "_number_offset",
        "_refusals_reported",
        "admission",
        "call_ids",
        "call_keys",
        "cancelled",
        "card",
        "children",
        "clock",
        "completion",
        "context",
        "envelope",
        "evidence",
        "extended",
        "extension_asked",
        "failure",
        "faults",
        "finish",
        "halt",
        "history",
        "hooks",
        "hung",
        "idle_s",
        "input_tokens",
        "lease_lost",
        "max_input_tokens",
        "model",
        "model_name",
        "notices",
        "nudge",
        "pending_grant",
        "plan",
        "progress",
        "questions",
        "recorder",
        "reflected_at_turn",
        "reflections",
        "refund_reason",
        "repetition",
        "request_bytes",
        "request_deadline",
        "rule_questions",
        "rules",
        "sent_notices",
        "shared_turn_claimed",
        "spec",
        "spending",
        "state",
        "steered",
        "stored_count",
        "time_up",
        "turns",
        "verdicts",
    )  # fmt: skip

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        shared = plan.spec
        self.plan = plan
        self.spec = shared
        self.recorder = recorder
        self.clock = LoopClock(plan.started_at)
        self.envelope = shared.limits.open(self.clock, plan.max_seconds, plan.max_amounts, plan.level)
        if plan.elapsed_s:
            self.clock.at = recorder.at = plan.elapsed_s
        self.card = shared.model.cards[""]
        """What is known of the model that is asked."""
        self.spending = Spending(self.envelope, self.card.price, shared.model.main.name)
        self.admission = shared.tools.admission(self.envelope)
        self.history: list[Message] = list(plan.messages)
        self.context = MessageLog(self.history)
        self._fit_to_model()
        self.state = plan.state
        self.progress = Progress(
            plan.run_id, self.envelope, self.history, self.state, plan.metadata, 0, 0, "", (), (), [], {}, {}
        )
        self.evidence: EvidenceTracker | None = None
        if shared.completion.policy is not None or shared.tools.rules is not None:
            self.progress.evidence = Evidence(self.state)
            self.progress.task = _find_task(self.history)
            book = None if shared.tools.rules is None else shared.tools.rules.begin()
            self.evidence = EvidenceTracker(self.progress.evidence, book)
        self.repetition = Repetition(shared.behaviour.thresholds)
        self.call_keys: dict[str, Key] = {}
        """What the calls under way are compared by."""
        rules = shared.rules
        self.rules = None if rules.ruleset is None else rules.ruleset.begin(self._beginning())
        self.hooks = rules.hooks if self.rules is None else (*rules.hooks, self.rules)
        """Those of the agent, and the rules."""
        self.completion: dict[str, Any] = {}
        self.input_tokens = self.request_bytes = 0
        """Upper estimates of the next request: what the last one took, and the messages since."""
        self.estimate_input()
        self.call_ids: set[str] = set()
        self._number_offset = 0
        if len(self.history) > 1:
            self._load_history(self.history)
        self._init_progress()

    def _beginning(self) -> StartCache | None:
        """What is known of the first look of rules, where the run begins as all runs of its agent do."""
        plan, shared = self.plan, self.spec
        inherits = plan.max_amounts is not None or plan.max_seconds != inf or plan.level or plan.elapsed_s
        rules = shared.rules
        if inherits or rules.ruleset is None or shared.limits.limits.until is not None:
            return None
        if rules.start_cache is None:
            rules.start_cache = StartCache()
            rules.start_cache.watch = rules.ruleset.begin().build_initial_watch(self.progress)
        return rules.start_cache

    def _init_progress(self) -> None:
        """What every run begins with: nothing has happened yet."""
        self.progress.agent, self.progress.number = self.spec.name, self.plan.session_run_number
        self.model, self.model_name = self.spec.model.main, ""
        """Who is asked, and its name where it is not the agent's own."""
        self.stored_count = self.plan.stored_count
        """How many messages of the history are in the transcript."""
        self.nudge: str | None = None
        self.request_deadline = 0.0
        """The deadline of the last request."""
        self.notices = Notices()
        self.sent_notices: tuple[Notice, ...] = ()
        """Those of the last request."""
        self.steered: Sequence[str] = ()
        self.rule_questions: Sequence[AskPerson] = ()
        """What rules want a person to be asked."""
        self.children: Sequence[Result] = ()
        """What runs that were delegated have come to."""
        self.faults: Sequence[dict[str, str]] = ()
        """What went wrong in rules."""
        self.cancelled: str | None = None
        self.lease_lost = self.time_up = False
        self.idle_s: float | None = None
        """For how long nothing has come of it, where somebody found that too long."""
        self.extended: frozenset[str] = _NONE
        """Of what more was given since the end was decided."""
        self.halt: Halt | None = None
        self.failure: dict[str, Any] | None = None
        """What a hook raised, or why nothing can be kept."""
        self.finish: Finish | None = None
        self.turns = 0
        """How many took place: a fact that no refund lowers."""
        self.hung = 0
        self.reflections: Sequence[str] = ()
        self.reflected_at_turn = 0
        """After how many turns that was done last."""
        self.questions: Sequence[Question] = ()
        """Those that nobody has answered yet."""
        self.verdicts: dict[str, Verdict] = {}
        """What a person said to the calls under way."""
        self.extension_asked: tuple[str, int] | None = None
        """The limit of which more was asked for, and after how many turns."""
        self._interrupted = False
        """Whether anything but the time could end the run from outside."""
        self.refund_reason: str | None = None
        """Why the turn under way was given back, where others share the budget and must get it back too."""
        self.shared_turn_claimed = False
        """Whether the turn under way was taken there."""
        self.pending_grant: Grant | None = None
        """What they are still to be told."""
        self._refusals_reported = 0

    def _load_history(self, history: Sequence[Message]) -> None:
        """What was said before has its ids: of calls, and of messages where an earlier run had this one's name."""
        numbers = [message.n for message in history if message.run == self.plan.run_id]
        self._number_offset = max(0, max(numbers, default=0) + 1 - len(history))
        self.call_ids.update(
            str((message.payload or {}).get("call_id")) for message in history if message.type is MessageType.TOOL_CALL
        )

    @property
    def next_n(self) -> int:
        """The number of the message that comes next."""
        return len(self.history) + self._number_offset

    def perform(self, effect: Effect[T]) -> Flow[T]:
        """Have something done, and hear what it came to and what else has come in."""
        return self.receive(effect, (yield effect))

    def receive(self, effect: Effect[T], answer: Answer[Any]) -> T:
        """What an effect came to; the time and the letters that came with it are noted."""
        self.clock.at = self.recorder.at = answer.at
        if answer.signals:
            self._interrupted = True
            for signal in answer.signals:
                apply_signal(self, signal)
        return answer.value

    def check_end(self) -> End | None:
        """Whether the run may not go on, whatever it was about to do."""
        if not self._interrupted and self.clock.at < self.envelope.work_at:
            return None
        end = self.check_interruption()
        if (self.time_up or self.envelope.is_expired()) and (end is None or end.stop in _WEAKER_THAN_DEADLINE):
            return self.refuse_budget("seconds")
        return end

    def check_interruption(self) -> End | None:
        """Whether anything but the time ends the run from outside: somebody, or a hook."""
        if not self._interrupted:
            return None
        called_off = self.check_cancelled()
        if called_off is not None:
            return called_off
        if self.failure is not None:
            return End(Stop.FAILED, error=self.failure)
        if self.halt is not None:
            return End(Stop.HALTED, by=self.halt.by, warning=self.halt.message or None, grace=self.halt.grace)
        if self.idle_s is not None:
            return End(Stop.STALLED, warning=f"No progress for {Unit.SECONDS.show(self.idle_s)}.")
        return None

    def check_cancelled(self) -> End | None:
        """Whether somebody ended the run from outside."""
        if self.lease_lost:
            return End(Stop.CONTENDED)
        return None if self.cancelled is None else End(Stop.CANCELLED, by=self.cancelled)

    def is_over(self) -> bool:
        """Whether no call is made any more, because the run was called off or its time is over."""
        return self.check_cancelled() is not None or self.time_up or self.envelope.is_expired()

    def refuse_budget(self, budget: str) -> End:
        """The end of a run that a budget, or the time, does not let go on."""
        refusal = self.envelope.refuse(budget)
        self.emit_refusals()
        stop = Stop.DEADLINE if budget == "seconds" else Stop.BUDGET
        return End(stop, warning=refusal.warning, budget=budget)

    def emit_refusals(self) -> None:
        """Record each budget's first refusal, and ask the hooks about it."""
        if self._refusals_reported == self.envelope.refusal_count:
            return
        refusals = self.envelope.refusals
        while self._refusals_reported < len(refusals):
            refusal = refusals[self._refusals_reported]
            self._refusals_reported += 1
            self.recorder.emit(event.BudgetRefused, refusal.budget, refusal.flag)
            self.call_hooks(Point.BUDGET_REFUSED, refusal.budget)

    def call_hooks(self, point: Point, about: object = None) -> Veto | None:
        """Ask the hooks, and do what they order; a veto is the caller's business.

        One that raises ends the run, but not in the middle of something: every pair must close. Where it could have
        vetoed a call, it did.
        """
        veto, progress = None, self.progress
        rules = self.spec.rules
        looks = point in rules.points and not (self.rules and self.rules.can_skip(point, progress, about))
        for hook in self.hooks if looks else rules.hooks:
            try:
                for order in hook(point, progress, about) or ():
                    said = apply_order(self, order, point)
                    veto = veto or said  # the first counts, as with a halt
            except (KeyboardInterrupt, GeneratorExit):
                raise
            except BaseException as error:
                if point is Point.TOOL_CALLED:
                    veto = veto or Veto(f"a hook failed ({type(error).__name__}), so the call is not made")
                else:
                    self.failure = self.failure or describe_error(error)
                    self._interrupted = True
        return veto

    def request_halt(self, order: Halt) -> None:
        """Somebody wants the run to end; the first counts."""
        self.halt = self.halt or order
        self._interrupted = True

    def add_notice(self, notice: Notice) -> None:
        """Have a notice in the next request."""
        self.notices.add(notice)

    def prepare_request(self, request: Request, notices: tuple[Notice, ...]) -> Request:
        """A request of this run, to the model that is asked now, with these notices."""
        request.run_id, request.model, request.turns = self.plan.run_id, self.model_name, self.turns
        if notices:
            request.notices = tuple([notice.text for notice in notices])
        self.sent_notices = notices
        return request

    def mark_notices_delivered(self) -> None:
        """The model has seen the notices of the last request."""
        for notice in self.sent_notices:
            self.recorder.emit(event.NoticeDelivered, notice.by, notice.text, notice.category, notice.priority)
        self.notices.mark_delivered(self.sent_notices)

    def use_model(self, name: str) -> None:
        """Ask another model from now on; it counts otherwise, so what the old one told of its input is of no use."""
        self.model_name, self.model, self.card = name, self.spec.model.others[name], self.spec.model.cards[name]
        self.spending.set_model(self.model.name, self.card.price)
        self._fit_to_model()
        self.estimate_input()

    def estimate_input(self) -> None:
        """Estimate the next request from its parts alone, not from what the last one took."""
        self.input_tokens = self.card.base_tokens + self.context.tokens
        self.request_bytes = estimate_bytes(self.input_tokens)

    def _fit_to_model(self) -> None:
        self.max_input_tokens = self.card.input_room(self.spec.limits.context_tokens)
        """The most tokens of a request; less than the limits say where the model takes less."""
        self.envelope.context_tokens = None if self.max_input_tokens == inf else int(self.max_input_tokens)

    def add_message(
        self,
        kind: MessageType,
        role: Role,
        content: str,
        payload: dict[str, Any] | None = None,
        group: int | None = None,
    ) -> None:
        """Add a message to the history."""
        self._append_message(kind, role, content, payload, group, estimate_content_tokens(content, payload))

    def _append_message(
        self,
        kind: MessageType,
        role: Role,
        content: str,
        payload: dict[str, Any] | None,
        group: int | None,
        tokens: int,
    ) -> None:
        """The same where it is known how many tokens it has at most."""
        history, clock = self.history, self.clock
        n, at = len(history) + self._number_offset, clock.started_at + clock.at
        message = Message(self.plan.run_id, n, at, kind, role, content, payload, None, group)
        history.append(message)
        shown = self.context.messages
        if shown is not history:
            shown.append(message)
        self.input_tokens += tokens
        self.request_bytes += 3 * tokens // 2

    def add_user_message(self, text: str) -> None:
        """Add a message that the model reads as the user's."""
        self.add_message(MessageType.TEXT, Role.USER, text)

    def add_reply(self, reply: Reply) -> Sequence[Call]:
        """Add what the model said and asked for; the calls come back with ids of their own."""
        before, first = self.input_tokens, len(self.history)
        calls = self._assign_call_ids(reply.calls) if reply.calls else ()
        alone = len(calls) == 1 and not reply.text and not reply.parts
        group = None if alone or len(calls) + len(reply.parts) + bool(reply.text) < 2 else self.next_n
        for part in reply.parts:
            self.add_message(MessageType.MULTIMODAL_PART, _ASSISTANT, "", dict(part), group)
        if reply.text:
            self.add_message(MessageType.TEXT, Role.ASSISTANT, reply.text, None, group)
            self.progress.text = reply.text
        for call in calls:
            name, arguments = call.name, call.arguments
            payload = {"call_id": call.id, "name": name, "arguments": arguments}
            self._append_message(
                _CALL,
                _ASSISTANT,
                "",
                payload,
                group,
                estimate_call_tokens(name, arguments) + MESSAGE_OVERHEAD_TOKENS + 1,
            )
        if reply.usage is not None and reply.usage.input and reply.usage.output:  # a fact, and so no estimate
            self.input_tokens = before + reply.usage.output + MESSAGE_OVERHEAD_TOKENS * (len(self.history) - first)
        self.progress.calls = calls
        self.finish = reply.finish
        return calls

    def _assign_call_ids(self, calls: tuple[Call, ...]) -> Sequence[Call]:
        """Some models number the calls of every reply anew; a result must find its call all the same."""
        own: list[Call] = []
        for call in calls:
            if not call.id or call.id in self.call_ids:
                call = Call(self._new_id(call.id or "call"), call.name, call.arguments)
            self.call_ids.add(call.id)
            own.append(call)
        return own

    def _new_id(self, name: str) -> str:
        n = len(self.call_ids)
        while f"{name}-{n}" in self.call_ids:
            n += 1
        return f"{name}-{n}"

    def record_outcome(self, outcome: Outcome, group: int | None) -> None:
        """Keep what a call came to: in the record, in the history, in the counts."""
        progress, call_id, tool, status = self.progress, outcome.call_id, outcome.tool, outcome.status
        reason = None if outcome.same_as is None else Reason.DUPLICATE
        if type(outcome) is Denied:
            reason = outcome.reason
        ok = status is _DONE
        self.recorder.emit(event.ToolEnded, call_id, tool, status, reason, outcome.seconds)
        payload, text = {"call_id": call_id, "name": tool, "is_error": not ok}, outcome.text
        self._append_message(_RESULT, _TOOL, text, payload, group, estimate_tokens(text) + MESSAGE_OVERHEAD_TOKENS)
        progress.results.append(outcome)
        counts = progress.successes if ok else progress.failures
        counts[tool] = counts.get(tool, 0) + 1
        if self.hooks:
            self.call_hooks(_TOOL_ENDED, outcome)
        if self.notices.has_deferred:
            self.notices.release_deferred()

    def append_to_transcript(self) -> Flow[None]:
        """Have what was said since the last time kept in the transcript, if there is one."""
        new = self.history[self.stored_count :]
        if new:
            self.stored_count = len(self.history)
            yield from self.perform(Append(new))

    def add_steered(self) -> bool:
        """Put steered messages behind what was said; whether there were any."""
        steered, self.steered = self.steered, ()
        for text in steered:
            self.add_user_message(text)
            self.recorder.emit(event.Steered, text)
            self.repetition.reset()
        return bool(steered)

    def refund_turn(self, reason: str) -> int:
        """Give the turn back, within the limit of refunds."""
        given = self.envelope.budgets["turns"].refund(reason=reason)
        if given:
            self.recorder.emit(event.Refunded, "turns", given, reason)
            self.refund_reason = reason
        return given

    def cancel_open_calls(self) -> None:
        """Something raised in the middle of a turn: the calls that have no outcome yet get theirs."""
        ended = {outcome.call_id for outcome in self.progress.results}
        for call in self.progress.calls:
            if call.id not in ended:
                with suppress(BaseException):  # of a hook's; what raised first is raised
                    self.record_outcome(Cancelled(call_id=call.id, tool=call.name), None)


def _find_task(history: Sequence[Message]) -> str:
    """The last thing that the user said before the run began."""
    asked = [message.content for message in history if message.role is Role.USER and message.content]
    return asked[-1] if asked else ""
