"""A pause: what a run that waits for a person goes on from, without doing anything again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, cast

from ..budget.run_budget import Refusal, TurnBudget
from ..errors import ConfigError
from ..loop.effects import Act, Answer, Ask, Decide, Effect, Extend, Grant, Late, Letter, Steer
from ..loop.plan import Plan
from ..outcome import Outcome
from ..person import Verdict
from ..request import ModelFailure, Reply
from ..result import Result


class Pause:
    """The plan of a paused run, and all that its loop was told until it asked what nobody has answered.

    Going on is the same loop again, fed with those answers. It is kept in memory: a copy by pickle has none.
    """

    __slots__ = ("_taken", "agent", "answers", "letters", "plan", "question_id", "said", "sink_errors", "within")

    def __init__(
        self,
        plan: Plan,
        answers: Sequence[Answer[Any]],
        result: Result,
        said: Mapping[str, Verdict],
        unheard: Sequence[Letter],
        within: TurnBudget | None,
    ) -> None:
        place = next(n for n, answer in enumerate(answers) if is_open(answer.value))
        self.plan = plan
        self.answers = answers[:place]
        self.question_id = result.questions[0].id
        """What was asked then."""
        self.said = said
        """What was answered to later questions of the batch: nobody is asked that again."""
        self.sink_errors = result.sink_errors
        self.within = within
        mail = [letter for answer in answers[place:] for letter in answer.mail]
        self.letters = [letter for letter in (*mail, *unheard) if isinstance(letter, Steer | Extend | Late)]
        """What came in while the run was closed: its senders were told that it came."""
        self.agent: object = None
        """Whose run it is, where nobody else has that in hand."""
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

    def give_back(self) -> None:
        """It could not go on; nothing was done, and it may be tried again."""
        self._taken.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()


def is_open(value: object) -> bool:
    """Whether nobody has answered yet."""
    return isinstance(value, Verdict) and value.approved is None


def came_from(effect: Effect[Any] | None, value: Any) -> bool:
    """Whether this can be what the effect came to; a run that goes another way when it is played again is found out."""
    match effect:
        case None:
            return False
        case Ask():
            return isinstance(value, Reply | ModelFailure)
        case Act(acts):
            outcomes = cast("Sequence[Outcome]", value) if isinstance(value, Sequence) else ()
            return [outcome.call_id for outcome in outcomes] == [act.call.id for act in acts]
        case Decide():
            return isinstance(value, Verdict)
        case Grant():
            return value is None or isinstance(value, Refusal)
        case _:
            return value is None


def _nothing() -> None:
    return None
