"""The mailbox of a run: what others want of it while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock

from ..loop.effects import Cancel, Extend, LeaseLost, Letter, Steer, Unkept


class Mailbox:
    """Takes letters from any thread until the run is past the point where they could still count.

    The driver holds `lock` from the moment it empties the box until the loop has heard the letters and decided; so
    whoever is told that a letter was taken knows that the run hears it.
    """

    __slots__ = ("_cut", "cutting", "ended", "letters", "lock", "reporting")

    def __init__(self) -> None:
        self.lock = RLock()
        self.ended = False
        self.reporting = False
        """In the grace turn: nothing can be steered or extended any more."""
        self.cutting = False
        """Whether somebody wants what is under way to be cut."""
        self.letters: list[Letter] = []
        self._cut: Callable[[], object] | None = None

    def post(self, letter: Letter) -> bool:
        """Leave a letter; False where it comes too late."""
        urgent = isinstance(letter, Cancel | LeaseLost | Unkept)
        with self.lock:
            if self.ended or (self.reporting and isinstance(letter, Steer | Extend)):
                return False
            self.letters.append(letter)
            if urgent:
                self.cutting = True
                if self._cut is not None:
                    self._cut()
            return True

    def on_cut(self, cut: Callable[[], object] | None) -> None:
        """What to call when somebody wants what is under way to be cut; it may be called from any thread."""
        with self.lock:
            self._cut = cut

    def empty(self) -> Sequence[Letter]:
        """All letters since the last time; `lock` is held."""
        letters, self.letters = self.letters, []
        return letters
