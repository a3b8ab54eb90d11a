"""Trials of a rule on a written context, from its `[[test]]` tables or a file."""

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
    """Outcome of a trial."""

    rule: str
    fires: bool
    reason: str | None = None
    """Why the rule does not fire, if not just because its condition is false, or why its action fails."""
    orders: tuple[Order, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as JSON types."""
        orders = [{"order": type(order).__name__, **to_jsonable(order)} for order in self.orders]
        return {"rule": self.rule, "fires": self.fires, "reason": self.reason, "orders": orders}


def try_rule(rule: Rule, context: Mapping[str, Any]) -> TrialFinding:
    """Evaluate a rule in a context, as if it had never fired."""
    view = View({"context": {"state": {}, **context}})
    view.update(rule.named_params)
    event = view.get("context.event.name", view.get("context.event.type"))
    if rule.event is not None and event is not None and event != rule.event:
        return TrialFinding(rule.id, False, f"it listens to the event {rule.event!r}, and the event is {event!r}")
    if rule.condition is not None:
        verdict = rule.condition.evaluate(view)
        if not verdict.value:
            return TrialFinding(rule.id, False, verdict.reason)
    try:
        return TrialFinding(rule.id, True, None, tuple(rule.action.build_orders(view, rule.id)))
    except RuleError as error:
        return TrialFinding(rule.id, True, str(error))
    except Exception as error:  # as in a run: the error is reported, and the other rules still run
        return TrialFinding(rule.id, True, f"{type(error).__name__}: {error}")


def failures(rule: Rule) -> Iterator[str]:
    """Yield a message for each `[[test]]` that a rule fails."""
    for number, test in enumerate(rule.tests, 1):
        finding = try_rule(rule, test.context)
        where = f"{rule.source}:{test.line}: test {number} of {rule.id}"
        if finding.fires != test.fires:
            actual = "fires" if finding.fires else "does not fire"
            expected = "expected it to fire" if test.fires else "expected it not to fire"
            yield f"{where}: it {actual}; {expected}{_format_reason(finding.reason)}"
        elif finding.fires and finding.reason is not None:
            yield f"{where}: {finding.reason}"
        elif finding.fires and test.message is not None:
            texts = _collect_texts(finding.orders)
            if test.message not in texts:
                yield f"{where}: it says {texts}; expected {test.message!r}"


def _format_reason(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _collect_texts(orders: tuple[Order, ...]) -> list[str]:
    """Return the texts of orders: messages, event data, state values and model names."""
    texts: list[object] = []
    for order in orders:
        match order:
            case Notice(text=text) | AskPerson(text=text) | Veto(message=text) | Halt(message=text):
                texts.append(text)
            case Emit(data=data):
                texts += data.values()
            case SetState(value=text) | UseModel(model=text):
                texts.append(text)
            case _:
                pass
    return [text for text in texts if isinstance(text, str)]
