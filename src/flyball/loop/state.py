"""Mutable state of one run. Only the modules of the loop change it, each through its own part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from .. import event
from ..budget.model_spending import ModelSpending
from ..budget.run_budget import describe_postponement
from ..budget.spending import Spending
from ..errors import UnknownBudget
from ..outcome import Outcome, Success
from ..person import Question, Verdict
from ..progress import Evidence, Progress, RunPace
from ..recorder import Recorder
from ..request import Call, Reply
from ..result import Result
from ..rules.thresholds import StartCache
from ..steadiness import Duplicates, Reflection
from .active_model import ActiveModel
from .background_runs import BackgroundRuns
from .calibration import LikelyTokens
from .clock import LoopClock
from .effects import Append, ChildDone, Effect, Extend, Flow, Grant, Hung, Late, PauseChildren, Received, Signal
from .evidence import EvidenceTracker
from .hooks import Hooks
from .messages import MessageLog
from .plan import Plan, Prepared
from .repetition import Repetition
from .signals import StopSignals

T = TypeVar("T")
_ALLOW = Duplicates.ALLOW  # a global is faster than an enum member


class RunState:
    """State of one run, in parts."""

    __slots__ = (
        "admission", "approvals", "background", "budget", "children", "clock", "completion", "evidence", "hooks",
        "hung", "likely", "messages", "model", "plan", "progress", "recorder", "reflections", "repetition",
        "request_deadline", "shared", "signals", "spec", "spending", "state", "turns",
    )  # fmt: skip

    def __init__(self, plan: Plan, recorder: Recorder) -> None:
        spec = plan.spec
        self.plan = plan
        self.spec = spec
        self.recorder = recorder
        self.clock = LoopClock(plan.started_at)
        start = None if plan.inherits else spec.rules.start_cache
        limits = spec.limits if start is None else start.limits
        self.budget = limits.open(self.clock, plan.max_seconds, plan.max_amounts, plan.level)
        if plan.elapsed_s:
            self.clock.at = recorder.at = plan.elapsed_s
        main, kind = spec.model.main, ModelSpending if spec.limits.has_model_budgets else Spending
        self.spending = kind(self.budget, spec.model.cards[""].price, main.name, provider=main.provider)
        self.model = ActiveModel(spec, self.spending, self.budget)
        self.admission = spec.tools.admission(self.budget)
        self.messages = MessageLog(plan.messages, plan.run_id, self.clock, plan.stored_count)
        self.messages.estimate(self.model.card.base_tokens)
        self.state = plan.state
        """Values that tools and rules have set."""
        self.progress = Progress(
            plan.run_id, self.budget, self.messages.history, self.state, plan.metadata, 0, 0, "", (), (), [], {}, {},
            agent=spec.name, number=plan.session_run_number, pace=RunPace(recorder),
        )  # fmt: skip
        self.evidence: EvidenceTracker | None = None
        if spec.completion.policy is not None or spec.tools.rules is not None:
            self.evidence = self._build_evidence()
        keeps_results = spec.tools.skip_duplicates or spec.behaviour.duplicates is not _ALLOW
        self.likely: LikelyTokens | None = None
        """Nearer estimates of requests. None until one is needed."""
        self.repetition = Repetition(spec.behaviour.thresholds, keeps_results)
        rules = None if spec.rules.ruleset is None else spec.rules.ruleset.begin(start or self._build_start_cache())
        self.hooks = Hooks(spec.rules.hooks, rules, recorder, spec.rules.points)
        self.signals = StopSignals(self.clock.at >= self.budget.work_at)
        self.shared = SharedBudget() if plan.has_shared_budget else None
        """Claims on budgets that other runs share. None if there are none."""
        self.approvals = Approvals()
        self.completion = CompletionState()
        if spec.completion.may_end_early:
            self.completion.checks_calls = True
        reflection = spec.behaviour.reflection
        self.reflections = None if reflection is None else Reflections(reflection)
        """Reflections so far. None if the agent never reflects."""
        self.background = BackgroundRuns() if spec.children.in_background else None
        """Child runs in the background. None if the agent has none."""
        self.children: Sequence[Result] = ()
        """Results of child runs."""
        self.request_deadline = 0.0
        """Deadline of the last request, in the run's seconds."""
        self.turns = 0
        """Turns that took place. A refund does not lower it."""
        self.hung = 0
        """Calls that were given up and still run."""

    def _build_evidence(self) -> EvidenceTracker:
        spec, progress = self.spec, self.progress
        progress.evidence = Evidence(self.state)
        progress.task = self.messages.task
        tracker = None if spec.tools.rules is None else spec.tools.rules.begin()
        return EvidenceTracker(progress.evidence, tracker)

    def _build_start_cache(self) -> StartCache | None:
        """Return what rules know of the first turn, for all runs that start like this one."""
        spec = self.spec
        if self.plan.inherits or spec.rules.ruleset is None or spec.limits.limits.until is not None:
            return None
        watch, limits = spec.rules.ruleset.begin().build_initial_watch(self.progress), spec.limits
        if watch is not None:
            limits = limits.with_marks(watch.marks, min(watch.until, self.budget.nearly_over_at))
        spec.rules.start_cache = StartCache(limits, watch)
        return spec.rules.start_cache

    def perform(self, effect: Effect[T]) -> Flow[T]:
        """Yield an effect, and apply the time and the signals that come with its answer."""
        return self.receive((yield effect))

    def receive(self, received: Received) -> Any:
        """Apply the time and the signals of an answer, and return its value."""
        value, at, signals = received
        self.clock.at = self.recorder.at = at
        if at >= self.budget.work_at:
            self.signals.has_stop = True
        for signal in signals:
            self._apply(signal)
        return value

    def _apply(self, signal: Signal) -> None:
        match signal:
            case Extend():
                self.extend(signal)
            case Late(call_id, tool, own):
                self.hung -= own
                self.repetition.forget_reads()
                self.recorder.emit(event.LateResultDropped, call_id, tool)
            case Hung(count):
                self.hung += count
            case ChildDone():
                if self.background is not None:
                    self.background.received.append(signal)
            case PauseChildren(paused, by):
                self.admission.pause_children(by if paused else None)
                self.recorder.emit(event.ChildrenPaused if paused else event.ChildrenResumed, by)
            case _:
                self.signals.receive(signal)

    def extend(self, extension: Extend) -> bool:
        """Raise ceilings and the deadline within the registry's maxima. Return True if anything was raised."""
        raised = [self._raise_ceiling(name, amount, extension.by) for name, amount in extension.amounts.items()]
        limits, budget = self.spec.limits, self.budget
        seconds = min(extension.seconds, max(0.0, limits.max_extended_seconds - limits.seconds - budget.postponed_s))
        if seconds:
            is_capped = seconds < extension.seconds
            reason = describe_postponement(extension.by, limits.max_extended_seconds if is_capped else None)
            budget.postpone(seconds, reason)
            self.recorder.emit(event.Postponed, seconds, reason)
            self.signals.note_extended("seconds")
        return bool(seconds) or any(raised)

    def _raise_ceiling(self, name: str, amount: int, by: str) -> int:
        budgets = self.budget.budgets
        if name not in budgets:
            raise UnknownBudget(name, tuple(budgets))
        raised = budgets[name].extend(amount, by=by)
        if raised:
            self.recorder.emit(event.Extended, name, raised, by, budgets[name].maximum if raised < amount else None)
            self.signals.note_extended(name)
        return raised

    def add_reply(self, reply: Reply) -> Sequence[Call]:
        """Add what the model said to the messages, and return its calls with unique ids."""
        calls = self.progress.calls = self.messages.add_reply(reply)
        if reply.text:
            self.progress.text = reply.text
        return calls

    def estimate_for_model(self) -> None:
        """Estimate the next request again: the model has changed, and each counts tokens in its own way."""
        self.likely = None
        self.messages.estimate(self.model.card.base_tokens)

    def add_steered(self) -> bool:
        """Add steered texts to the messages. Return True if there were any."""
        steered = self.signals.take_steered()
        for text in steered:
            self.messages.add_user_text(text)
            self.recorder.emit(event.Steered, text)
            self.repetition.reset()
        return bool(steered)

    def append_to_transcript(self) -> Flow[None]:
        """Append the messages since the last time to the transcript, if there is one."""
        unsaved = self.messages.take_unsaved()
        if unsaved:
            yield from self.perform(Append(unsaved))

    def refund_turn(self, reason: str) -> None:
        """Refund the current turn, within the limit of refunds."""
        refunded = self.budget.budgets["turns"].refund(reason=reason)
        if refunded:
            self.recorder.emit(event.Refunded, "turns", refunded, reason)
            if self.shared is not None:
                self.shared.turn_refund = reason


class SharedBudget:
    """Pending usage and refunds of one run in the budgets that other runs share."""

    __slots__ = ("_pending", "turn_claimed", "turn_refund")

    def __init__(self) -> None:
        self._pending: Grant | None = None
        self.turn_claimed = False
        """True if the current turn was claimed there."""
        self.turn_refund: str | None = None
        """Refund reason of the current turn, to be passed on."""

    def start_turn(self) -> None:
        """Forget the last turn."""
        self.turn_claimed, self.turn_refund = False, None

    def end_turn(self) -> None:
        """Refund the turn there as well, if it was refunded here."""
        if self.turn_claimed and self.turn_refund is not None:
            self.refund(self.turn_refund, {"turns": 1})

    def settle(self, usage: Mapping[str, int]) -> None:
        """Report the usage of a request with the next Grant."""
        self._get_pending().settle = usage

    def refund(self, reason: str, amounts: Mapping[str, int]) -> None:
        """Refund amounts with the next Grant."""
        refunds = self._get_pending().refund.setdefault(reason, {})
        for name, amount in amounts.items():
            refunds[name] = refunds.get(name, 0) + amount

    @property
    def has_pending(self) -> bool:
        """True if there is anything to report."""
        return self._pending is not None

    def take_pending(self) -> Grant:
        """Return the pending Grant, or an empty one, and start a new one."""
        grant, self._pending = self._get_pending(), None
        return grant

    def _get_pending(self) -> Grant:
        self._pending = self._pending or Grant()
        return self._pending


class Approvals:
    """Questions without an answer, and what was decided about the calls of the current batch."""

    questions: Sequence[Question] = ()
    """Questions without an answer."""
    _extension_asked: tuple[str, int] | None = None

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        """Verdicts by call id."""
        self.planned: dict[str, Prepared | Outcome] = {}
        """Calls of client tools, by id: claimed, or the outcome of those that are not made."""

    def start_batch(self) -> None:
        """Forget the calls of the last batch."""
        self.verdicts, self.planned = {}, {}

    def add_open_question(self, question: Question) -> None:
        """Note a question that no person has answered."""
        self.questions = [*self.questions, question]

    def ask_extension_once(self, budget: str, turns: int) -> bool:
        """Return True the first time that more of a budget is asked for after this many turns."""
        asked, self._extension_asked = self._extension_asked, (budget, turns)
        return asked != (budget, turns)


class CompletionState:
    """Last findings of the completion policy."""

    checks_calls = False
    """True if the run may be complete after its next calls, before the model ends."""
    final_result: Success | None = None
    """First result of the current batch that ends the run. None if there is none."""
    findings: Mapping[str, Any] = MappingProxyType({})
    """Last findings: `complete`, `missing` and `satisfied`. Empty before the first check."""
    nudge: str | None = None
    """Last nudge."""

    def note_final_result(self, outcome: Success) -> None:
        """Note a result that ends the run. The first of a batch is the answer."""
        self.final_result, self.checks_calls = self.final_result or outcome, True

    def take_final_result(self) -> Success | None:
        """Return the result that ends the run, and forget it."""
        final, self.final_result = self.final_result, None
        return final


class Reflections:
    """Reflections of one run."""

    texts: Sequence[str] = ()
    last_turn = 0
    """Number of turns at the last reflection."""

    def __init__(self, settings: Reflection) -> None:
        self.settings = settings

    def start(self, turns: int) -> None:
        """Note that the model reflects after this many turns."""
        self.last_turn = turns

    def add(self, text: str) -> None:
        """Add a reflection, or why there is none."""
        self.texts = [*self.texts, text]
