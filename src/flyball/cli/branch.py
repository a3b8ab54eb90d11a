"""Branches: what is drawn left of each member of a tree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_Node = TypeVar("_Node")


def branches(
    top: Sequence[_Node], below: Callable[[_Node], Sequence[_Node]], ascii_only: bool = False
) -> Iterator[tuple[str, _Node]]:
    """Each node behind its branch, a parent before its children.

    >>> [branch + name for branch, name in branches(["a", "b"], {"a": ["c"], "b": [], "c": []}.__getitem__)]
    ['├─ a', '│  └─ c', '└─ b']
    """
    fork, last, through = ("|- ", "`- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")
    coming = [("", node, n == 0) for n, node in enumerate(reversed(top))]
    while coming:
        left, node, ends = coming.pop()
        yield left + (last if ends else fork), node
        under = left + ("   " if ends else through)
        coming += [(under, one, n == 0) for n, one in enumerate(reversed(below(node)))]
