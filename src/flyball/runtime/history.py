"""The past of a run, as its journal tells it: what its loop was told, and what was begun and not ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, cast

from .. import __version__
from ..budget.run_budget import Refusal, TurnBudget
from ..errors import ConfigError, ResumeError
from ..loop.child_task import told
from ..loop.effects import (
    Act,
    Answer,
    Ask,
    Cancel,
    Decide,
    Effect,
    Extend,
    Grant,
    Late,
    LeaseLost,
    Signal,
    Stalled,
    Steer,
    TimeUp,
    Unkept,
)
from ..loop.plan import Plan
from ..outcome import Outcome
from ..person import Verdict
from ..request import ModelFailure, Reply
from ..result import Result
from ..store import Codec, Kind, Row


class PausedRun:
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
        unheard: Sequence[Signal],
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


FORMAT = 1
"""The format of journals that this version writes, and the newest that it reads. Rows without a number are of 1."""
CODE = Codec(
    tags={
        "Answer": Answer, "Cancel": Cancel, "Steer": Steer, "Extend": Extend, "TimeUp": TimeUp, "LeaseLost": LeaseLost,
        "Late": Late, "Stalled": Stalled, "Unkept": Unkept,
    }
)  # fmt: skip
"""How journals are written."""
_PLAN_KEYS = {
    "run_id": "run_id", "messages": "messages", "session_id": "session_id", "started_at": "started_at",
    "until": "until", "state": "state", "metadata": "metadata", "most_s": "most_s", "most": "most",
    "number": "number", "spent_s": "spent_s", "parent_run_id": "parent_run_id", "level": "level", "within": "within",
    "seed": "seed", "told": "told",
}  # fmt: skip
"""Keys in the first row of a journal, and the fields of a plan that they hold. The keys are stored data."""


@dataclass(slots=True)
class StartedEffect:
    """An effect of which the journal has no answer yet."""

    events: int = 0
    """How many events the loop had told when it began."""
    print: int = 0
    """The fingerprint of the run with it."""
    question: str | None = None
    """The id of what a person was asked."""
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """What calls of it have come to, by their ids."""


@dataclass(slots=True)
class RunHistory:
    """What happened in a run until it was left."""

    answers: list[Answer[Any]] = field(default_factory=list[Answer[Any]])
    begun: list[StartedEffect] = field(default_factory=list[StartedEffect])
    """Each effect; there is one more of them than answers where the last was not answered."""
    take: int = 0
    """How often the run was taken up again."""
    said: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    """What was answered to questions behind the one that stayed open."""
    letters: list[Signal] = field(default_factory=list[Signal])
    """What came in behind it."""
    at: float = 0.0
    """The run's active seconds until then; also those of answers that do not count any more, as time only grows."""

    @property
    def events(self) -> int:
        """How many events of the loop are in the store for certain."""
        return self.begun[-1].events if self.begun else 0

    @property
    def unanswered(self) -> StartedEffect | None:
        """The effect that was begun and not answered, if there is one."""
        return self.begun[len(self.answers)] if len(self.begun) > len(self.answers) else None

    def until_open(self) -> RunHistory:
        """The same, as it was when the first question that nobody answered was about to be asked."""
        place = next((n for n, answer in enumerate(self.answers) if is_open(answer.value)), None)
        if place is None:
            return self
        behind = range(place + 1, len(self.answers))
        verdicts = {self.begun[n].question: self.answers[n].value for n in behind}
        mail = [letter for answer in self.answers[place:] for letter in answer.mail]
        return RunHistory(
            self.answers[:place],
            self.begun[: place + 1],
            self.take,
            {key: one for key, one in verdicts.items() if key and isinstance(one, Verdict) and not is_open(one)},
            [letter for letter in mail if isinstance(letter, Steer | Extend | Late)],
            self.at,
        )

    def extended(self, letters: Sequence[Signal]) -> None:
        """More was given when the last answer came."""
        last = self.answers[-1]
        self.answers[-1] = replace(last, mail=(*last.mail, *letters))


def past_of(rows: Iterable[Row]) -> RunHistory:
    """Read a journal. What a run did before it was taken up again at some place, from there on, does not count."""
    past = RunHistory()
    for row in rows:
        if row.take > past.take:
            past.take = row.take
            kept = row.n + (row.kind is Kind.EXTENDED)
            del past.answers[kept:], past.begun[kept:]
        match row.kind:
            case Kind.STARTED:
                past.begun.append(StartedEffect(print=row.fingerprint, **CODE.loads(row.data)))
            case Kind.OUTCOME:
                call_id, outcome = CODE.loads(row.data)
                past.begun[-1].outcomes[call_id] = outcome
            case Kind.ANSWER:
                if len(past.begun) == row.n:  # it was interrupted, and answered without being begun again
                    past.begun.append(StartedEffect(print=row.fingerprint))
                past.answers.append(CODE.loads(row.data))
                past.at = past.answers[-1].at
            case Kind.EXTENDED:
                past.extended(CODE.loads(row.data))
            case Kind.RUN:
                pass
    return past


def plan_told(plan: Plan) -> str:
    """What a run began with, for the first row of its journal."""
    own: dict[str, Any] = {key: getattr(plan, name) for key, name in _PLAN_KEYS.items()}
    about = {"format": FORMAT, "version": str(__version__)}
    return CODE.dumps({**own, "limits": plan.shared.terms.ceilings(), "agent": plan.shared.agent, **about})


def restored(plan: Plan, row: str) -> Plan:
    """The plan of a run that goes on: all that was its own then, on the terrain that its agent has now."""
    data: Mapping[str, Any] = CODE.loads(row)
    _check_format(plan.run_id, data)
    terms = plan.shared.terms.with_ceilings(data["limits"])
    shared = plan.shared if terms is plan.shared.terms else replace(plan.shared, terms=terms)
    if data["told"] != plan.told:
        shared = told(shared, data["told"], instead_of=plan.told)
    own = {name: data[key] for key, name in _PLAN_KEYS.items()}
    return replace(plan, shared=shared, **own)


def _check_format(run_id: str, data: Mapping[str, Any]) -> None:
    found = data.get("format", 1)
    if found != FORMAT:
        raise ResumeError(
            f"run {run_id}",
            f"a journal in format {found}, written by Flyball {data.get('version', 'of an unknown version')}",
            f"format {FORMAT}, which this Flyball {__version__} reads; resume it with the version that wrote it",
        )
