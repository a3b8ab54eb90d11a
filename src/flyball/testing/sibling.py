"""Siblings: children that go on side by side, without an event loop, in an order that can be had again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from random import Random
from typing import TypeVar

T = TypeVar("T")
Place = TypeVar("Place", bound=Hashable)
Moments = Generator[float, None, T]
"""Something that goes on step by step: each tells how far its time is, and others may go on first."""


@dataclass(slots=True)
class _Child:
    moments: Moments[float]
    began: float
    at: float
    stepped: int = 0
    """When it went on last, among all steps."""


def siblings(
    places: Sequence[Place],
    now: float,
    at_once: int,
    begin: Callable[[Place, float], Moments[float]],
    order: Random | None = None,
) -> Moments[dict[Place, float]]:
    """Let them all go on to their ends, so many at a time and begun in this order; and when each ended.

    `begin` gives one that begins at a moment: its own time counts from there, and it comes to how long it took. The
    next step is that of the one whose time is least, of several the one that waits longest; or as `order` has it.
    """
    waiting, free = deque(places), [now] * at_once
    heapify(free)
    running: dict[Place, _Child] = {}
    ended: dict[Place, float] = {}
    steps = 0
    while waiting or running:
        while waiting and free:
            place, began = waiting.popleft(), heappop(free)
            running[place] = _Child(begin(place, began), began, began)
        names = list(running)
        chosen = order.choice(names) if order else min(names, key=lambda one: (running[one].at, running[one].stepped))
        child, steps = running[chosen], steps + 1
        child.stepped = steps
        try:
            child.at = child.began + next(child.moments)
            yield child.at
        except StopIteration as end:
            ended[chosen] = child.began + end.value
            heappush(free, ended[chosen])
            del running[chosen]
    return ended
