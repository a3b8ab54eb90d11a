"""HTML for notebooks. Every text is escaped, because models and tools write most of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"
_TRACK = "display:inline-block;width:160px;height:9px;background:rgba(128,128,128,0.25)"


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def build_element(tag: str, *parts: str, style: str = "") -> Markup:
    """Return an element. Its parts are escaped unless they are Markup.

    >>> build_element("b", "1 < 2")
    '<b>1 &lt; 2</b>'
    """
    opened = f'{tag} style="{escape(style)}"' if style else tag
    return Markup(f"<{opened}>{''.join(part if isinstance(part, Markup) else escape(part) for part in parts)}</{tag}>")


def build_bar(ratio: float) -> Markup:
    """Return a bar that is filled to a ratio. From 1 on it is red."""
    colour = "#d33" if ratio >= 1 else "#47a"
    fill = f"display:block;height:9px;width:{100 * min(1.0, max(0.0, ratio)):.0f}%;background:{colour}"
    return build_element("span", build_element("span", style=fill), style=_TRACK)


def build_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Return a table."""
    lines = [[build_element("th", cell, style=_CELL) for cell in head]]
    lines += [[build_element("td", cell, style=_CELL) for cell in row] for row in rows]
    return build_element("table", *[build_element("tr", *line) for line in lines])
