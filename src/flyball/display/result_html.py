"""Result of a run as HTML for notebooks: the reason, bars of the budgets, and the timeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from .._internal.json_reader import JsonReader
from .._internal.markup import Markup, build_bar, build_element, build_table
from .._internal.text import pluralize, to_one_line
from ..errors import truncate
from ..unit import Unit
from .timeline import build_rows, shorten_rows

if TYPE_CHECKING:
    from ..result import Result  # cycle: its type only; a result imports this when a notebook shows it

_MAX_TEXT_CHARACTERS = 4_000
_MAX_CHILDREN = 20
_ALWAYS_SHOWN = frozenset({"turns", "tokens", "usd"})
_BADGE = "padding:1px 7px;border-radius:4px;color:white;background:"
_TEXT = "white-space:pre-wrap;margin:6px 0"


def render_result(result: Result) -> str:
    """Return the result as HTML."""
    parts = [_render_reason(result)]
    if result.text:
        parts.append(build_element("div", truncate(result.text, _MAX_TEXT_CHARACTERS), style=_TEXT))
    bars = list(_iter_bars(result))
    if bars:
        parts.append(build_table(("budget", "", "used"), bars))
    parts += [part for part in (_render_timeline(result), _render_children(result)) if part]
    return build_element("div", *parts)


def _render_reason(result: Result) -> Markup:
    badge = build_element("b", str(result.stop), style=_BADGE + ("#2a7" if result.completed else "#d33"))
    return build_element("div", badge, " ", result.explain())


def _iter_bars(result: Result) -> Iterator[tuple[str, str, str]]:
    for name, budget in result.budgets.items():
        if budget.ceiling is not None and name != "depth" and (budget.used or name in _ALWAYS_SHOWN):
            show = budget.unit.show
            yield name.replace("_", " "), build_bar(budget.ratio), f"{show(budget.used)} of {show(budget.ceiling)}"
    first = JsonReader(result.events[0].to_dict() if result.events else {})
    allowed = first.nested("limits").number("remaining_s")
    if allowed > 0:
        used, ceiling = Unit.SECONDS.show(round(result.seconds, 1)), Unit.SECONDS.show(round(allowed, 1))
        yield "seconds", build_bar(result.seconds / allowed), f"{used} of {ceiling}"


def _render_timeline(result: Result) -> Markup | None:
    events = [JsonReader(event.to_dict()) for event in result.events]
    outcomes = {outcome.call_id: JsonReader({"text": outcome.text}) for outcome in result.tool_results}
    rows = build_rows(events, {}, outcomes)
    if not rows:
        return None
    shown = [
        (
            str(row.turn),
            f"{row.at:.1f} s",
            row.line,
            "" if row.tokens is None else f"{row.tokens:,}",
            "" if row.seconds is None else f"{row.seconds:.1f} s",
        )
        for row in shorten_rows(rows, "`result.events` has them all")
    ]
    table = build_table(("turn", "at", "what", "tokens", "took"), shown)
    return build_element("details", build_element("summary", f"Timeline: {pluralize(len(rows), 'row')}"), table)


def _render_children(result: Result) -> Markup | None:
    if not result.children:
        return None
    shown = [(str(child.stop), to_one_line(child.explain())) for child in result.children[:_MAX_CHILDREN]]
    summary = build_element("summary", pluralize(len(result.children), "child run"))
    return build_element("details", summary, build_table(("stop", "why"), shown))
