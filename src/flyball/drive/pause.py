"""A pause: what a run that waits for a person goes on from, without doing anything again."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

from ..envelope import TurnBudget
from ..errors import ConfigError
from ..loop.effect import Answer, Extend, Letter, Steer
from ..loop.plan import Plan


class Pause:
    """The plan of a paused run, and all that its loop was told until it asked what nobody has answered.

    Going on is the same loop again, fed with those answers. It is kept in memory: a copy by pickle has none.
    """

    __slots__ = ("_taken", "answers", "letters", "plan", "within")

    def __init__(self, plan: Plan, answers: Sequence[Answer[Any]], place: int, within: TurnBudget | None) -> None:
        self.plan = plan
        self.answers = answers[:place]
        self.within = within
        self.letters: list[Letter] = [
            letter for answer in answers[place:] for letter in answer.mail if isinstance(letter, Steer | Extend)
        ]
        """What came in while the run was closed: its senders were told that it came."""
        self._taken = Lock()

    @property
    def at(self) -> float:
        """The run's active seconds until then."""
        return self.answers[-1].at if self.answers else 0.0

    def take(self) -> None:
        """Go on from here, once: what comes next would else be done twice."""
        if not self._taken.acquire(blocking=False):
            raise ConfigError(
                "resume", "a result from which the run went on already", "the result that it came to then"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()


def _nothing() -> None:
    return None
