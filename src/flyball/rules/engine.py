"""The rules of one run at work: at each moment those that look at it, in order; what they order, the loop does."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from ..errors import RuleError
from ..outcome import Ended, Failure, Success, Timeout
from ..progress import Emit, Fault, Notice, Order, Point, Priority, Progress, SetState
from ..request import Call
from .actions import AsksPerson
from .expression import ConditionResult
from .rule import Fire, Rule, Trigger
from .rule_context import RuleContext, RuleEvent
from .thresholds import Beginning, Compared, Points, Watch, sizes, watch_of

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


_NONE: frozenset[tuple[str, str]] = frozenset()
_NO_IDS: frozenset[str] = frozenset()
_STARTED, _ENDED, _TURN_START = Point.TURN_STARTED, Point.TOOL_ENDED, Trigger.TURN_START
_NOTHING: Mapping[Trigger, Mapping[str, Sequence[Compared]]] = {}
_LEVELS = {f"log.{name}": getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
_YES = ConditionResult(True)
_CROSSING = Fire.CROSSING
_URGENCY = {priority: place for place, priority in enumerate(Priority)}


def in_order(notices: Iterable[Notice]) -> list[Notice]:
    """The most urgent first."""
    return sorted(notices, key=lambda notice: _URGENCY.get(Priority(notice.priority), 0))


class RuleEngine:
    """A hook: the rules of one run. What they remember (that one fired, and when) is this run's own."""

    __slots__ = (
        "_beginning", "_by_trigger", "_compared", "_fired_in", "_held", "_restless", "_small", "_unclear_ids", "_watch",
    )  # fmt: skip

    def __init__(
        self,
        by_trigger: Mapping[Trigger, Sequence[Rule]],
        compared: Mapping[Trigger, Mapping[str, Sequence[Compared]]] = _NOTHING,
        beginning: Beginning | None = None,
    ) -> None:
        """`beginning` is shared by all runs that begin alike."""
        self._by_trigger = by_trigger
        self._compared = compared
        self._beginning = beginning
        self._watch: Watch | None = None if beginning is None else beginning.watch
        self._small: tuple[float, float] | None = None if beginning is None else beginning.small
        self._restless = False
        """Whether a rule wants to look again though nothing has changed."""
        self._held = _NONE
        """The rules whose condition held when they last looked; each with the tool, where a moment is about one."""
        self._fired_in: dict[str, int] = {}
        self._unclear_ids = _NO_IDS
        """The rules of which it was told that their condition cannot be worked out."""

    def __call__(self, point: Point, progress: Progress, about: object = None, /) -> Sequence[Order]:
        """What the rules that look now order."""
        trigger = _after(about) if point is _ENDED else _TRIGGERS.get(point)
        rules = self._by_trigger.get(trigger) if trigger is not None else None
        if rules is None or trigger is None:
            return ()
        if trigger in self._compared:
            return self._orders_now(trigger, rules, progress, about)
        if trigger is Trigger.TOOL_CALL:  # who asks a person does so before any call of the batch is made
            planned = point is Point.CALL_PLANNED
            rules = [rule for rule in rules if isinstance(rule.action, AsksPerson) is planned]
        return self._ordered(rules, progress, about)

    def rests(self, point: Point, progress: Progress, about: object) -> bool:
        """Whether no rule has to look, as nothing that they compare has turned over since they did; told fast."""
        if point is _STARTED:
            return self._watch is not None and self._watch.lasts(progress)
        small = self._small
        if point is not _ENDED or small is None or type(about) is not Success or about.artifact is not None:
            return False
        return small[0] <= len(about.content) < small[1]

    def _orders_now(
        self, trigger: Trigger, rules: Sequence[Rule], progress: Progress, about: object
    ) -> Sequence[Order]:
        """What those rules order for which something has turned over; it is known when that is."""
        watch = self._watch if trigger is _TURN_START else None
        turned = None if watch is None else watch.turned(progress)
        self._restless = False
        orders = self._ordered(rules if turned is None else turned, progress, about)
        if trigger is not _TURN_START:
            self._small = self._small_ones(trigger, about)
        elif self._restless:
            self._watch = None
        else:
            self._watch = self._rest(rules, progress) if watch is None or turned is None else watch.looked(progress)
        return orders

    def _rest(self, rules: Sequence[Rule], progress: Progress) -> Watch:
        return watch_of(Points(rules, self._compared[_TURN_START], progress.envelope), progress)

    def look_before(self, progress: Progress) -> Watch | None:
        """How long nothing is found, of a run that has not begun; None where something is."""
        rules = self._by_trigger.get(_TURN_START, ())
        if _TURN_START not in self._compared or self._look(rules, RuleContext(progress, None)) or self._restless:
            return None
        return self._rest(rules, progress)

    def _small_ones(self, trigger: Trigger, about: object) -> tuple[float, float] | None:
        """The sizes of results for which no rule need look, if this was one."""
        held = {rule.id for rule in self._by_trigger[trigger]}.intersection([id for id, _ in self._held])
        if self._restless or held or type(about) is not Success or about.artifact is not None:
            return None
        small = sizes(self._compared[trigger], len(about.content))
        if self._beginning is not None:
            self._beginning.small = small
        return small

    def _ordered(self, rules: Sequence[Rule], progress: Progress, about: object) -> Sequence[Order]:
        seen = RuleContext(progress, about)
        orders = self._look(rules, seen)
        if not orders:
            return orders
        emitted = [order for order in orders if isinstance(order, Emit) and order.name not in _LEVELS]
        for event in emitted:
            orders += self._listen(event, RuleContext(progress, RuleEvent(event.name, event.data), seen.changes))
        return orders

    def _listen(self, event: Emit, seen: RuleContext) -> list[Order]:
        """What the rules order that listen to an event; none of them may tell another one."""
        listening = self._by_trigger.get(Trigger.EVENT, ())
        rules = [rule for rule in listening if rule.event in (None, event.name)]
        orders: list[Order] = []
        for order in self._look(rules, seen):
            if isinstance(order, Emit) and order.name not in _LEVELS:
                reason = f"it answers the event {event.name} with another, {order.name}; that is not told"
                order = Fault(order.by, Trigger.EVENT.value, reason)
            orders.append(order)
        return orders

    def _look(self, rules: Sequence[Rule], seen: RuleContext) -> list[Order]:
        orders: list[Order] = []
        subject = _tool_of(seen.about)
        for rule in rules:
            if rule.params:
                seen.update(rule.named_params)
            verdict = _YES if rule.condition is None else rule.condition.evaluate(seen)
            if verdict.value:
                self._restless = self._restless or rule.fire is not _CROSSING
                orders += self._orders(rule, seen, subject)
                continue
            if (rule.id, subject) in self._held:
                self._held -= {(rule.id, subject)}
            if verdict.reason is not None:
                self._restless = True
                orders += self._unclear(rule, verdict)
        return orders

    def _unclear(self, rule: Rule, verdict: ConditionResult) -> list[Order]:
        """What becomes of a condition that cannot be worked out: it is false; but what guards a call fails closed.

        That a field is not there is nothing wrong. Anything else is, and is told once.
        """
        log.debug("rule %s: %s", rule.id, verdict.reason)
        if verdict.missing:
            return []
        orders = rule.action.closed(rule.id, "it could not be checked") if rule.trigger is Trigger.TOOL_CALL else []
        if rule.id not in self._unclear_ids:
            self._unclear_ids |= {rule.id}
            orders.append(_fault(rule, verdict.reason or ""))
        return orders

    def _orders(self, rule: Rule, seen: RuleContext, subject: str) -> list[Order]:
        """What a rule orders whose condition holds; an error in it is its own."""
        turn = seen.progress.turn
        if not self._fires(rule, subject, turn):
            return []
        self._fired_in[rule.id] = turn
        try:
            orders = rule.action.orders(seen, rule.id)
            for order in orders:
                if isinstance(order, SetState):
                    seen.set_state(order.key, order.value)
                elif isinstance(order, Emit) and order.name in _LEVELS:
                    log.log(_LEVELS[order.name], "%s: %s", rule.id, order.data.get("message", ""))
        except Exception as error:
            if not isinstance(error, RuleError):  # a fault of ours; the others still have their say
                log.exception("rule %s failed", rule.id)
            reason = str(error) if isinstance(error, RuleError) else f"{type(error).__name__}: {error}"
            return [*rule.action.closed(rule.id, "its message could not be made"), _fault(rule, reason)]
        return orders

    def _fires(self, rule: Rule, subject: str, turn: int) -> bool:
        """Whether it is time for it: a crossing counts once, and a rule that has just fired may have to keep quiet."""
        if rule.fire is _CROSSING:
            if (rule.id, subject) in self._held:
                return False
            self._held |= {(rule.id, subject)}
        last = self._fired_in.get(rule.id)
        return last is None or not rule.cooldown_turns or turn - last > rule.cooldown_turns


def _fault(rule: Rule, reason: str) -> Fault:
    return Fault(rule.id, rule.trigger.value, reason)


def _tool_of(about: object) -> str:
    """The tool that a moment is about; a result of another says nothing about what crossed a threshold here."""
    return about.tool if isinstance(about, Ended) else about.name if isinstance(about, Call) else ""


def _after(about: object) -> Trigger | None:
    """Which rules look at an outcome; a call that was never made neither completed nor failed."""
    if isinstance(about, Success):
        return Trigger.TOOL_COMPLETE
    return Trigger.TOOL_FAILURE if isinstance(about, Failure | Timeout) else None


def points_of(rules: Iterable[Rule]) -> frozenset[Point]:
    """When some of these rules look."""
    found: set[Point] = set()
    for rule in rules:
        asks = isinstance(rule.action, AsksPerson)
        if rule.trigger in (Trigger.TOOL_COMPLETE, Trigger.TOOL_FAILURE):
            found.add(Point.TOOL_ENDED)
        elif rule.trigger is Trigger.TOOL_CALL:
            found.add(Point.CALL_PLANNED if asks else Point.TOOL_CALLED)
        else:
            found |= {point for point, trigger in _TRIGGERS.items() if trigger is rule.trigger}
    return frozenset(found)
