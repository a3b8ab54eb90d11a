"""The player: steps through the loop of one run, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from ..recorder import Recorder
from ..result import Result
from .effects import Answer, Effect, Received
from .loop import converse
from .plan import Plan

Match = Callable[[int, Effect[Any], Answer[Any]], bool]
"""Checks whether the n-th recorded answer belongs to the current effect."""


class LoopPlayer:
    """Loop of one run, with the answers that it has received and its current effect.

    The caller performs `effect` and sends the answer, until `effect` is None and `result` is set.
    """

    __slots__ = ("_described", "_loop", "_received", "effect", "result")

    def __init__(self, plan: Plan, recorder: Recorder, described: list[Any] | None = None) -> None:
        """Create the loop. `described` receives the descriptions of the answered effects, one after the other."""
        self._loop: Generator[Effect[Any], Any, Result] = converse(plan, recorder)
        self._described = described
        self._received: list[Any] = []
        """Parts of the answers so far: one list, because each tuple would be work for the garbage collector."""
        self.effect: Effect[Any] | None = None
        """Effect that waits for its answer. None before the start and after the end."""
        self.result: Result | None = None
        """Result of the run. None until the loop has ended."""

    @property
    def answers(self) -> list[Answer[Any]]:
        """Answers so far. The run can be replayed from them."""
        parts = self._received
        return [Answer(*parts[start : start + 3]) for start in range(0, len(parts), 3)]

    @property
    def answer_count(self) -> int:
        """Number of answers so far."""
        return len(self._received) // 3

    def start(self) -> Effect[Any] | None:
        """Start the loop and return its first effect, or None if it has ended."""
        return self.receive(None)

    def send(self, answer: Answer[Any]) -> Effect[Any] | None:
        """Send the answer to the current effect and return the next effect, or None if the loop has ended."""
        return self.receive(answer.received)

    def receive(self, received: Received | None) -> Effect[Any] | None:
        """Send the parts of an answer, as `send` does. As with every generator, None starts it."""
        effect = self.effect
        if effect is not None and received is not None:
            self._received += received
            if self._described is not None:
                self._described += effect.describe()
        try:
            effect = self.effect = self._loop.send(received)
        except StopIteration as end:
            self.effect, self.result = None, end.value
            return None
        except BaseException:
            self.effect = None
            raise
        return effect

    def replay(self, answers: Sequence[Answer[Any]], matches: Match | None = None) -> int:
        """Start the loop, send recorded answers while `matches` is true, and return how many were sent.

        Without `matches`, every answer is sent until the loop ends.
        """
        self.start()
        for n, answer in enumerate(answers):
            if self.effect is None or (matches is not None and not matches(n, self.effect, answer)):
                return n
            self.send(answer)
        return len(answers)

    def close(self) -> None:
        """End the loop where it is. Its recorder receives the end of the run."""
        self._loop.close()
