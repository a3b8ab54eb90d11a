"""Limits, rules, a grace turn and a result for a loop that the caller drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from ..errors import UsageError
from .govern_options import GovernOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

    from ..budget.forecast import Forecast
    from ..budget.run_budget import TurnBudget
    from ..event import Event, Header
    from ..recorder import Fields
    from ..result import Result
    from .governed_run import GovernedRun
    from .turn import Turn


class govern(GovernOptions):  # noqa: N801  (reads as a verb: `with govern(limits) as run`)
    """Govern a loop of your own: `with govern(Limits(turns=3)) as run`, then `for turn in run`.

    Each iteration claims a turn. After a refusal there is one last turn with `turn.grace` true. `govern` keeps no
    history and needs no model. `async with` and `async for` work the same way.

    `begin_turn` begins turns of several conversations at once, from any thread or task, instead of the loop.

    `cancel()`, `begin_turn()`, `enter_grace()` and a turn are thread-safe. Call everything else from one thread.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        from .ending import RunEnding  # imported here, as a run needs it: importing govern loads only its options

        self._ending = RunEnding()
        self._run: GovernedRun | None = None

    def begin_turn(
        self, conversation: Hashable = None, *, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin a turn of a conversation, from any thread; return None if it is refused.

        Turns of all conversations draw on the same budgets. A turn reserves its tokens and money at once, and waits
        while other turns hold what it needs. `max_output_tokens` is the longest reply; without it a turn holds all that
        is left, so that others wait for it. `input_tokens` None means the largest input so far. Call `turn.end()`
        afterwards.
        """
        return self._require_open().begin_turn(conversation, input_tokens, max_output_tokens)

    async def abegin_turn(
        self, conversation: Hashable = None, *, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin a turn in the same way as `begin_turn`, without blocking the event loop."""
        return await self._require_open().abegin_turn(conversation, input_tokens, max_output_tokens)

    def enter_grace(
        self, conversation: Hashable = None, *, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin the grace turn of a conversation that had a turn before, once a limit was reached.

        Each conversation has at most one. Returns None if it has none, or if the reserve is too small.
        """
        return self._require_open().enter_grace(conversation, input_tokens, max_output_tokens)

    async def aenter_grace(
        self, conversation: Hashable = None, *, input_tokens: int | None = None, max_output_tokens: int | None = None
    ) -> Turn | None:
        """Begin the grace turn in the same way as `enter_grace`, without blocking the event loop."""
        return await self._require_open().aenter_grace(conversation, input_tokens, max_output_tokens)

    def complete(self, text: str | None = "") -> None:
        """End the run with its answer. None, which some clients return for an empty reply, is no text.

        In the grace turn, `text` is the report, and the run keeps the stop reason that led to the grace turn.
        """
        self._require_open().complete(text or "")

    def fail(self, error: BaseException | str) -> None:
        """End the run as failed; the result keeps everything done so far."""
        self._ending.fail(error)

    def postpone(self, seconds: float, reason: str) -> None:
        """Move the deadline by `seconds`, for time spent waiting for a person."""
        self._require_open().postpone(seconds, reason)

    def halt(self, by: str, message: str = "", *, grace: bool = False) -> None:
        """End the run when the loop asks for its next turn.

        With `grace`, the loop gets one last turn for a report first.
        """
        self._require_open().halt(by, message, grace=grace)

    def cancel(self) -> bool:
        """Cancel the run at its next turn; return False if it has already ended."""
        return self._ending.cancel()

    @property
    def envelope(self) -> TurnBudget:
        """Budgets and deadlines of the open run."""
        return self._require_open().envelope

    @property
    def forecast(self) -> Forecast | None:
        """Limit that the open run will meet first, and after about how many turns. None if it is not known yet."""
        return self._require_open().forecast

    def result(self) -> Result:
        """Return the result, available after the `with` block.

        Raises UsageError while the run is open.
        """
        if self._run is None or self._run.result is None:
            raise UsageError("govern.result() is available only after the with block")
        return self._run.result

    def tell(self, kind: Callable[[int, float, int, Header, *Fields], Event], *fields: *Fields) -> None:
        """Record an event.

        An event from another thread is delivered when the loop's own thread records its next one.
        """
        self._require_open().tell(kind, *fields)

    def __enter__(self) -> Self:
        if self._run is not None:
            raise UsageError("this govern object was already used: create a new govern(...) for each run")
        from .governed_run import GovernedRun

        self._run = GovernedRun(self, self._ending)
        self._run.start(self.rules, self.metadata)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._require_open().close(error)

    def __iter__(self) -> Iterator[Turn]:
        return self._require_open()

    def __next__(self) -> Turn:
        return next(self._require_open())

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.__exit__(kind, error, trace)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Turn:
        turn = await self._require_open().anext()
        if turn is None:
            raise StopAsyncIteration
        return turn

    def _require_open(self) -> GovernedRun:
        if self._run is None:
            raise UsageError("this run is not open: put `with govern(...) as run:` around the loop")
        return self._run
