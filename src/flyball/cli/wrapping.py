"""Lines wrapped between words, with a hanging indent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_MIN_TEXT_COLUMNS = 16
_INDENT = 4
"""Indent of continued lines if that of the first line leaves too little room."""


def wrap_line(head: str, text: str, columns: int) -> list[str]:
    """Wrap a text behind its head; continued lines begin below the text.

    Only a word that is longer than a whole line is cut.

    >>> wrap_line("notice   ", "This is the last turn.", 28)
    ['notice   This is the last', '         turn.']
    >>> wrap_line("  finder 1  refused  ", "max_child_iterations_reached", 44)
    ['  finder 1  refused', '                max_child_iterations_reached']
    """
    from rich.cells import cell_len, chop_cells

    indent = cell_len(head)
    if columns - indent < _MIN_TEXT_COLUMNS:
        indent = min(_INDENT, columns // 2)
    lines, line, used, is_empty = list[str](), head, cell_len(head), True
    for word in text.split(" "):
        needed = cell_len(word)
        if used + needed + (not is_empty) > columns and (not is_empty or needed <= columns):
            lines.append(line.rstrip())
            used, is_empty = min(indent, max(0, columns - needed)), True
            line = " " * used
        pieces = chop_cells(word, max(1, columns - used)) if used + needed > columns else [word]
        for n, piece in enumerate(pieces or [""]):
            if n:
                lines.append(line)
                line, used, is_empty = " " * indent, indent, True
            line = f"{line}{piece}" if is_empty else f"{line} {piece}"
            used, is_empty = cell_len(line), False
    return [*lines, line]


def wrap_parts(parts: Iterable[str], separator: str, columns: int) -> Iterator[str]:
    """Yield lines of joined parts, broken between parts if possible.

    >>> list(wrap_parts(["3 turns", "4 requests", "0.1 s"], " · ", 20))
    ['3 turns · 4 requests', '0.1 s']
    """
    from rich.cells import cell_len

    line = ""
    for part in filter(None, parts):
        joined = f"{line}{separator}{part}" if line else part
        if line and cell_len(joined) > columns:
            yield line
            joined = part
        line = joined
    if line:
        yield line
