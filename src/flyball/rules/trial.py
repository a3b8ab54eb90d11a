"""Trying a rule on a context that somebody wrote down: its own `[[test]]` tables, or a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._internal.jsonable import to_jsonable
from ..errors import RuleError
from ..progress import AskPerson, Emit, Halt, Notice, Order, SetState, UseModel, Veto
from .rule import Rule
from .view import View


@dataclass(frozen=True, slots=True)
class TrialFinding:
    """What a rule would do with a context."""

    rule: str
    fires: bool
    reason: str | None = None
    """Why it does not fire, where that is not just its condition; or what its action cannot do."""
    orders: tuple[Order, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The same in JSON types."""
        orders = [{"order": type(order).__name__, **to_jsonable(order)} for order in self.orders]
        return {"rule": self.rule, "fires": self.fires, "reason": self.reason, "orders": orders}


def try_rule(rule: Rule, context: Mapping[str, Any]) -> TrialFinding:
    """What the rule would do; it is asked as if it had never fired."""
    view = View({"context": dict(context)})
    view.update(rule.named_params)
    told = view.get("context.event.name")
    if rule.event is not None and told is not None and told != rule.event:
        return TrialFinding(rule.id, False, f"it listens to the event {rule.event!r}, and this is {told!r}")
    if rule.condition is not None:
        verdict = rule.condition.evaluate(view)
        if not verdict.value:
            return TrialFinding(rule.id, False, verdict.reason)
    try:
        return TrialFinding(rule.id, True, None, tuple(rule.action.build_orders(view, rule.id)))
    except RuleError as error:
        return TrialFinding(rule.id, True, str(error))
    except Exception as error:  # as in a run: it is told, and the other rules have their say
        return TrialFinding(rule.id, True, f"{type(error).__name__}: {error}")


def failures(rule: Rule) -> Iterator[str]:
    """Which of its own tests a rule does not pass, and why."""
    for number, test in enumerate(rule.tests, 1):
        found = try_rule(rule, test.context)
        where = f"{rule.source}:{test.line}: test {number} of {rule.id}"
        if found.fires != test.fires:
            expected = "expected it to fire" if test.fires else "expected it not to"
            yield f"{where}: it {'fires' if found.fires else 'does not fire'}; {expected}{_format_reason(found.reason)}"
        elif found.fires and found.reason is not None:
            yield f"{where}: {found.reason}"
        elif found.fires and test.message is not None and test.message not in (said := _collect_texts(found.orders)):
            yield f"{where}: it says {said}; expected {test.message!r}"


def _format_reason(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _collect_texts(orders: tuple[Order, ...]) -> list[str]:
    """What orders say in words: to the model, a person or the log; or the value or name that they set."""
    said: list[object] = []
    for order in orders:
        match order:
            case Notice(text=words) | AskPerson(text=words) | Veto(message=words) | Halt(message=words):
                said.append(words)
            case Emit(data=data):
                said += data.values()
            case SetState(value=words) | UseModel(model=words):
                said.append(words)
            case _:
                pass
    return [words for words in said if isinstance(words, str)]
