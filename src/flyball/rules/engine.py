"""Evaluation of the rules during a run.

At each point of the loop the engine evaluates the rules with the matching trigger, in order, and returns their orders.
The loop carries the orders out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from ..errors import RuleError
from ..outcome import BaseOutcome, Failure, Success, Timeout
from ..progress import Emit, Fault, Notice, Order, Point, Priority, Progress, SetState
from ..request import Call
from .actions import AskPersonAction
from .expression import ConditionResult
from .rule import Fire, Rule, Trigger
from .rule_context import RuleContext, RuleEvent
from .thresholds import Comparison, StartCache, ThresholdTable, ThresholdWatch, create_watch, find_size_interval

log = logging.getLogger("flyball.rules")

_TRIGGERS: Mapping[Point, Trigger] = {
    Point.RUN_STARTED: Trigger.QUERY_START,
    Point.TURN_STARTED: Trigger.TURN_START,
    Point.TURN_ENDED: Trigger.TURN_END,
    Point.CALL_PLANNED: Trigger.TOOL_CALL,
    Point.TOOL_CALLED: Trigger.TOOL_CALL,
    Point.BUDGET_REFUSED: Trigger.BUDGET_REFUSED,
    Point.STALLED: Trigger.STALLED,
    Point.RUN_ENDED: Trigger.SESSION_END,
}


_NOTHING_HELD: frozenset[tuple[str, str]] = frozenset()
_NO_IDS: frozenset[str] = frozenset()
_STARTED, _ENDED, _TURN_START = Point.TURN_STARTED, Point.TOOL_ENDED, Trigger.TURN_START
_NO_COMPARISONS: Mapping[Trigger, Mapping[str, Sequence[Comparison]]] = {}
_LEVELS = {f"log.{name}": getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
_ALWAYS_TRUE = ConditionResult(True)
_CROSSING = Fire.CROSSING
_URGENCY = {priority: position for position, priority in enumerate(Priority)}


class RuleEngine:
    """Hook that evaluates the rules in one run.

    It remembers which rules have fired, and when. Rules with simple comparisons are skipped until one of the compared
    values crosses its threshold (see `thresholds`).
    """

    __slots__ = (
        "_by_trigger",
        "_comparisons",
        "_fired_in",
        "_holding",
        "_must_recheck",
        "_quiet_sizes",
        "_start_cache",
        "_unclear_ids",
        "_watch",
    )  # fmt: skip

    def __init__(
        self,
        by_trigger: Mapping[Trigger, Sequence[Rule]],
        comparisons: Mapping[Trigger, Mapping[str, Sequence[Comparison]]] = _NO_COMPARISONS,
        start_cache: StartCache | None = None,
    ) -> None:
        """Create the engine of a run. Runs of one agent with unchanged limits share `start_cache`."""
        self._by_trigger = by_trigger
        self._comparisons = comparisons
        self._start_cache = start_cache
        self._watch: ThresholdWatch | None = None if start_cache is None else start_cache.watch
        self._quiet_sizes: tuple[float, float] | None = None if start_cache is None else start_cache.quiet_sizes
        self._must_recheck = False
        """True if a rule must be evaluated again although no compared value changed."""
        self._holding = _NOTHING_HELD
        """`(rule id, tool name)` of rules whose condition was last true. The tool is "" for a moment without one."""
        self._fired_in: dict[str, int] = {}
        """Turn in which each rule last fired, by rule id."""
        self._unclear_ids = _NO_IDS
        """Ids of rules whose evaluation error was already reported."""

    def __call__(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        """Evaluate the rules of a point and return their orders."""
        if point is _ENDED:
            sizes = self._quiet_sizes  # of results at which no rule fires
            if (
                sizes is not None
                and type(about) is Success
                and about.artifact is None
                and sizes[0] <= len(about.content) < sizes[1]
            ):
                return ()
        elif point is _STARTED:
            progress.envelope.expect_change()  # in the next turn again, unless a watch knows when
        trigger = _find_outcome_trigger(about) if point is _ENDED else _TRIGGERS.get(point)
        rules = self._by_trigger.get(trigger) if trigger is not None else None
        if rules is None or trigger is None:
            return ()
        if trigger in self._comparisons:
            return self._evaluate_changed(trigger, rules, progress, about)
        if trigger is Trigger.TOOL_CALL:  # questions to a person come before any call of the batch is made
            planned = point is Point.CALL_PLANNED
            rules = [rule for rule in rules if isinstance(rule.action, AskPersonAction) is planned]
        return self._evaluate(rules, progress, about)

    def build_initial_watch(self, progress: Progress) -> ThresholdWatch | None:
        """Return the watch of a run that has not started.

        None if a rule fires at its start.
        """
        rules = self._by_trigger.get(_TURN_START, ())
        if (
            _TURN_START not in self._comparisons
            or self._evaluate_rules(rules, RuleContext(progress, None))
            or self._must_recheck
        ):
            return None
        return self._build_watch(rules, progress)

    def _evaluate_changed(
        self, trigger: Trigger, rules: Sequence[Rule], progress: Progress, about: object
    ) -> Sequence[Order]:
        """Evaluate only the rules whose compared values crossed a threshold."""
        self._must_recheck = False
        if trigger is not _TURN_START:
            orders = self._evaluate(rules, progress, about)
            self._quiet_sizes = self._find_quiet_sizes(trigger, about)
            return orders
        advanced = None if self._watch is None else self._watch.advance(progress)
        changed, watch = (rules, None) if advanced is None else advanced
        orders = self._evaluate(changed, progress, about)
        self._watch = None if self._must_recheck else watch or self._build_watch(rules, progress)
        if self._watch is not None:
            self._watch.set_marks(progress.envelope)
        return orders

    def _build_watch(self, rules: Sequence[Rule], progress: Progress) -> ThresholdWatch:
        return create_watch(ThresholdTable(rules, self._comparisons[_TURN_START], progress.envelope), progress)

    def _find_quiet_sizes(self, trigger: Trigger, about: object) -> tuple[float, float] | None:
        """Return the range of result sizes around this one that fires no rule.

        None if a rule may fire.
        """
        held = {rule.id for rule in self._by_trigger[trigger]}.intersection([id for id, _ in self._holding])
        if self._must_recheck or held or type(about) is not Success or about.artifact is not None:
            return None
        quiet_sizes = find_size_interval(self._comparisons[trigger], len(about.content))
        if self._start_cache is not None:
            self._start_cache.quiet_sizes = quiet_sizes
        return quiet_sizes

    def _evaluate(self, rules: Sequence[Rule], progress: Progress, about: object) -> Sequence[Order]:
        context = RuleContext(progress, about)
        orders = self._evaluate_rules(rules, context)
        if not orders:
            return orders
        emitted = [order for order in orders if isinstance(order, Emit) and order.name not in _LEVELS]
        for event in emitted:
            orders += self._run_event_rules(
                event, RuleContext(progress, RuleEvent(event.name, event.data), context.changes)
            )
        return orders

    def _run_event_rules(self, event: Emit, context: RuleContext) -> list[Order]:
        """Evaluate the rules that listen to an event.

        They may not emit another event.
        """
        listening = self._by_trigger.get(Trigger.EVENT, ())
        rules = [rule for rule in listening if rule.event in (None, event.name)]
        orders: list[Order] = []
        for order in self._evaluate_rules(rules, context):
            if isinstance(order, Emit) and order.name not in _LEVELS:
                reason = f"it answers the event {event.name} with another event, {order.name}, which is not delivered"
                order = Fault(order.by, Trigger.EVENT.value, reason)
            orders.append(order)
        return orders

    def _evaluate_rules(self, rules: Sequence[Rule], context: RuleContext) -> list[Order]:
        orders: list[Order] = []
        subject = _find_tool_name(context.subject)
        for rule in rules:
            if rule.params:
                context.update(rule.named_params)
            verdict = _ALWAYS_TRUE if rule.condition is None else rule.condition.evaluate(context)
            if verdict.value:
                self._must_recheck = self._must_recheck or rule.fire is not _CROSSING
                orders += self._fire(rule, context, subject)
                continue
            if (rule.id, subject) in self._holding:
                self._holding -= {(rule.id, subject)}
            if verdict.reason is not None:
                self._must_recheck = True
                orders += self._handle_unclear(rule, verdict)
        return orders

    def _handle_unclear(self, rule: Rule, verdict: ConditionResult) -> list[Order]:
        """Return the orders for a condition that could not be evaluated.

        The condition counts as false, but a rule that guards a tool call fails closed. A missing field is no error. Any
        other reason is reported once per rule.
        """
        log.debug("rule %s: %s", rule.id, verdict.reason)
        if verdict.missing:
            return []
        orders = (
            rule.action.build_fallback_orders(rule.id, "it could not be checked")
            if rule.trigger is Trigger.TOOL_CALL
            else []
        )
        if rule.id not in self._unclear_ids:
            self._unclear_ids |= {rule.id}
            orders.append(_build_fault(rule, verdict.reason or ""))
        return orders

    def _fire(self, rule: Rule, context: RuleContext, subject: str) -> list[Order]:
        """Return the orders of a rule whose condition is true.

        An error affects only this rule.
        """
        turn = context.progress.turn
        if not self._is_due(rule, subject, turn):
            return []
        self._fired_in[rule.id] = turn
        try:
            orders = rule.action.build_orders(context, rule.id)
            for order in orders:
                if isinstance(order, SetState):
                    context.set_state(order.key, order.value)
                elif isinstance(order, Emit) and order.name in _LEVELS:
                    log.log(_LEVELS[order.name], "%s: %s", rule.id, order.data.get("message", ""))
        except Exception as error:
            if not isinstance(error, RuleError):  # a bug of ours; the other rules still run
                log.exception("rule %s failed", rule.id)
            reason = str(error) if isinstance(error, RuleError) else f"{type(error).__name__}: {error}"
            return [
                *rule.action.build_fallback_orders(rule.id, "its message could not be rendered"),
                _build_fault(rule, reason),
            ]
        return orders

    def _is_due(self, rule: Rule, subject: str, turn: int) -> bool:
        """Check the `fire` policy and the cooldown of a rule."""
        if rule.fire is _CROSSING:
            if (rule.id, subject) in self._holding:
                return False
            self._holding |= {(rule.id, subject)}
        last_turn = self._fired_in.get(rule.id)
        return last_turn is None or not rule.cooldown_turns or turn - last_turn > rule.cooldown_turns


def _build_fault(rule: Rule, reason: str) -> Fault:
    return Fault(rule.id, rule.trigger.value, reason)


def _find_tool_name(about: object) -> str:
    """Return the tool of a call or outcome, or "".

    Crossings are tracked per tool.
    """
    return about.tool if isinstance(about, BaseOutcome) else about.name if isinstance(about, Call) else ""


def _find_outcome_trigger(about: object) -> Trigger | None:
    """Return the trigger for an outcome.

    None for a call that was never made.
    """
    if isinstance(about, Success):
        return Trigger.TOOL_COMPLETE
    return Trigger.TOOL_FAILURE if isinstance(about, Failure | Timeout) else None


def collect_points(rules: Iterable[Rule]) -> frozenset[Point]:
    """Return the points at which at least one of these rules is evaluated."""
    points: set[Point] = set()
    for rule in rules:
        asks = isinstance(rule.action, AskPersonAction)
        if rule.trigger in (Trigger.TOOL_COMPLETE, Trigger.TOOL_FAILURE):
            points.add(Point.TOOL_ENDED)
        elif rule.trigger is Trigger.TOOL_CALL:
            points.add(Point.CALL_PLANNED if asks else Point.TOOL_CALLED)
        else:
            points |= {point for point, trigger in _TRIGGERS.items() if trigger is rule.trigger}
    return frozenset(points)


def sort_notices(notices: Sequence[Notice]) -> Sequence[Notice]:
    """Return notices with the most urgent first."""
    if len(notices) == 1:
        return notices
    return sorted(notices, key=lambda notice: _URGENCY.get(Priority(notice.priority), 0))
