"""Options that raise a limit: in code, on the command line and in the settings."""

from __future__ import annotations

from ..unit import Unit
from .model_limits import FIELDS as MODEL_FIELDS
from .model_limits import split_key
from .registry import BUILT_IN
from .run_budget import Refusal, TurnBudget
from .snapshot import BudgetSnapshot

COMMAND_OPTIONS = {
    "turns": "--turns", "tool_calls": "--tool-calls", "tokens": "--tokens", "usd": "--usd", "seconds": "--seconds",
}  # fmt: skip
"""Options of `flyball run` by the key of their budget."""
SETTINGS = {spec.name: spec.setting for spec in BUILT_IN if spec.setting is not None}
"""Settings by the name of their budget."""
_FIELDS = frozenset({*COMMAND_OPTIONS, "context_tokens", "reflections", "nudges", "retries", "children", "depth"})
_OTHER_TURNS = {"child_iterations": "Limits(turns={})", "conversation_turns": "run_conversation(max_turns={})"}
"""Options for turns that `flyball run` does not set, by the name of their budget."""


def double_ceiling(budget: BudgetSnapshot) -> int | None:
    """Return twice the ceiling of a budget, within its maximum.

    None if it cannot be raised.
    """
    if not budget.ceiling:
        return None
    doubled = budget.ceiling * 2 if budget.maximum is None else min(budget.ceiling * 2, budget.maximum)
    return doubled if doubled > budget.ceiling else None


def describe_remedy(key: str, budget: BudgetSnapshot) -> str:
    """Describe how to raise the limit of a budget, such as `Limits(turns=16)`. Empty if no option does."""
    if budget.ceiling and double_ceiling(budget) is None:
        return f"{budget.unit.show(budget.ceiling)} is the maximum allowed for {key.replace('_', ' ')}"
    raised = double_ceiling(budget)
    return _list_options(key, budget.name, "…" if raised is None else format_amount(budget.unit, raised))


def describe_seconds_remedy(seconds: float) -> str:
    """Describe how to double the seconds of a run."""
    return _list_options("seconds", "seconds", format_amount(Unit.SECONDS, 2 * max(seconds, 0.5)))


def describe_refusal_remedy(refusal: Refusal, envelope: TurnBudget) -> str:
    """Describe how to raise the limit that refused. Empty if no option does."""
    if refusal.is_shared:
        return _describe_shared_remedy(refusal.budget)
    match refusal.budget:
        case "seconds":
            return describe_seconds_remedy(envelope.seconds)
        case "context_tokens":
            doubled = "…" if envelope.context_tokens is None else str(2 * envelope.context_tokens)
            return _list_options("context_tokens", "context_tokens", doubled)
        case key:
            return describe_remedy(key, envelope.budgets[key].snapshot())


def format_amount(unit: Unit, amount: float) -> str:
    """Format an internal amount as users write it, such as `0.5` for dollars."""
    return str(amount) if unit is Unit.COUNT else f"{unit.outer(amount):.10g}"


def _describe_shared_remedy(key: str) -> str:
    """Describe what to raise in a budget that several runs share, such as `Limits(turns=…)`."""
    limit = _format_limit(key, "…") or "a higher limit"
    return f"{limit} of the shared budget (within= or the parent run)"


def _list_options(key: str, name: str, amount: str) -> str:
    kind, _, part = key.partition(".")
    options = [_OTHER_TURNS[name].format(amount) if name in _OTHER_TURNS else _format_limit(key, amount)]
    if split_key(key) is not None:
        options.append(f'the setting by_model."{part}".{MODEL_FIELDS[kind][0]}')
    if key in COMMAND_OPTIONS and name not in _OTHER_TURNS:
        options.append(f"{COMMAND_OPTIONS[key]} {amount}")
    if name in SETTINGS:
        options.append(f"the setting {SETTINGS[name]}")
    options = [option for option in options if option]
    return " or ".join(filter(None, (", ".join(options[:-1]), *options[-1:])))


def _format_limit(key: str, amount: str) -> str:
    """Format the limit with this key as code. Empty if `Limits` has none."""
    kind, _, part = key.partition(".")
    if split_key(key) is not None:
        return f'Limits(by_model={{"{part}": Limits({kind}={amount})}})'
    if kind == "calls":
        return f'Limits(calls={{"{part}": {amount}}})'
    return f"Limits({key}={amount})" if key in _FIELDS else ""
