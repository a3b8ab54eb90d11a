"""Last lines of a run: why it ended, what it used, and the next command to type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .._internal.text import pluralize
from ..history.record import RunRecord, result_to_dict
from ..person import escape_unprintable
from ..result import Stop
from ..unit import Unit
from .hints import build_hints
from .output import print_raw
from .report import choose_colour
from .wrapping import wrap_line

if TYPE_CHECKING:
    from rich.console import Console

    from ..result import Result

_HEAD_WIDTH = 8
_UNKNOWN_COST = "cost not known"


def print_ending(result: Result, stored: bool, console: Console) -> None:
    """Print the ending; on a terminal with a badge, and wrapped between words."""
    from rich.text import Text

    stop = result.stop.value
    for head, text in iter_ending(result, stored):
        line_head, text = f"{head:{_HEAD_WIDTH}} ", escape_unprintable(text)
        if not console.is_terminal:
            print_raw(line_head + text, console.file)
            continue
        badge = f" {head} " if head == stop else line_head
        padding = " " * max(1, len(line_head) - len(badge)) if head == stop else ""
        first, *rest = wrap_line(badge + padding, text, console.width)
        style = f"bold reverse {choose_colour(result.stop)}" if head == stop else "dim"
        console.print(Text.assemble((badge, style), first[len(badge) :]), soft_wrap=True)
        for line in rest:
            console.print(Text(line), soft_wrap=True)


def iter_ending(result: Result, stored: bool) -> Iterator[tuple[str, str]]:
    """Yield each line as its first word and its text."""
    yield result.stop.value, format_reason(result)
    yield "used", ", ".join(_iter_used(result))
    if result.children:
        yield "tree", _format_tree_totals(result)
    for remark in result.list_remarks():
        yield "note", remark
    if result.store_error is not None:
        yield "note", f"The end of this run is not stored: {result.store_error.get('message')}"
    for question in result.questions:
        yield "question", question.text
    yield "next", choose_next_command(result, stored)


def summarize_ending(result: Result, *, with_next: bool) -> str:
    """Return the ending as one line, for programs whose own output is above it. They cannot be resumed.

    `with_next` adds the next command. Its amounts are twice those of the whole run.
    """
    reason = "It completed." if result.stop is Stop.COMPLETED else format_reason(result)
    cost, time = _format_cost(result), _format_time(result)
    is_known = cost != _UNKNOWN_COST
    used = ", ".join((*_iter_counts(result), cost) if is_known else _iter_counts(result))
    used = f"It used {used} in {time}." if is_known else f"It used {used} in {time}, {cost}."
    parts = [reason[:1].upper() + reason[1:], used, *result.list_remarks()]
    if result.store_error is not None:
        parts.append(f"The end of this run is not stored: {result.store_error.get('message')}")
    if with_next and result.stop is not Stop.COMPLETED:
        parts.append(f"Next: {choose_next_command(result, stored=False)}")
    return " ".join(parts)


def format_reason(result: Result) -> str:
    """Return the one reason of the end as a sentence."""
    if result.stop is Stop.COMPLETED:
        return "It ended with an answer."
    if result.error is not None:
        return f"{str(result.error.get('message')).rstrip('.')}."
    if result.warning:
        return result.warning
    return result.explain().partition(". ")[0].rstrip(".") + "."


def _iter_used(result: Result) -> Iterator[str]:
    yield from _iter_counts(result)
    yield _format_time(result)
    yield _format_cost(result)


def _iter_counts(result: Result) -> Iterator[str]:
    if "turns" not in result.budgets:
        yield pluralize(result.turns, "turn")
    yield from (used for used in result.list_used() if not used.startswith("$"))


def _format_time(result: Result) -> str:
    return Unit.SECONDS.show(round(result.seconds, 1))


def _format_cost(result: Result) -> str:
    cost, money = sum(result.cost.values()), result.budgets.get("usd")
    amount = _format_amount(cost, [result])
    if money is None or money.ceiling is None or (result.unpriced and not cost):
        return amount
    return f"{amount} of {Unit.USD.show(money.ceiling)}"


def _format_amount(cost: float, runs: Sequence[Result]) -> str:
    """Format what the runs cost together. The cost of models without a price is not known."""
    is_partly_unknown = any(run.unpriced for run in runs)
    if is_partly_unknown and not cost:
        return _UNKNOWN_COST
    is_imputed = any(run.state.get("plan") for run in runs)
    return f"{'at least ' if is_partly_unknown else ''}{Unit.USD.show(cost)}{' imputed' if is_imputed else ''}"


def _format_tree_totals(result: Result) -> str:
    """Format the totals of the run and its children."""
    runs = [result]
    for run in runs:  # grows while iterating, so it reaches all descendants
        runs += run.children
    turns, tokens = sum(run.turns for run in runs), result.usage_with_children.total
    counts = f"{pluralize(len(runs), 'run')}, {pluralize(turns, 'turn')}, {pluralize(tokens, 'token')}"
    return f"{counts}, {_format_amount(sum(result.cost_with_children.values()), runs)}"


def choose_next_command(result: Result, stored: bool) -> str:
    """Return what to type next: to continue the run if that is possible, else to look at it."""
    if result.stop is Stop.COMPLETED:
        return "flyball why"
    record = RunRecord.from_dict(result_to_dict(result, stored))
    return next(iter(build_hints(record)), "flyball why")
