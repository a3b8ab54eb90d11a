"""The past of a run, as its journal tells it: what its loop was told, and what was begun and not ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, cast

from .. import __version__
from ..budget.run_budget import Refusal, TurnBudget
from ..errors import ResumeError, UsageError
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
    StoreFailed,
    TimeUp,
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

    __slots__ = (
        "_claimed",
        "agent",
        "answers",
        "later_verdicts",
        "plan",
        "question_id",
        "shared_budget",
        "signals",
        "sink_errors",
    )

    def __init__(
        self,
        plan: Plan,
        answers: Sequence[Answer[Any]],
        result: Result,
        later_verdicts: Mapping[str, Verdict],
        pending_signals: Sequence[Signal],
        shared_budget: TurnBudget | None,
    ) -> None:
        place = next(n for n, answer in enumerate(answers) if is_open(answer.value))
        self.plan = plan
        self.answers = answers[:place]
        self.question_id = result.questions[0].id
        """What was asked then."""
        self.later_verdicts = later_verdicts
        """What was answered to later questions of the batch: nobody is asked that again."""
        self.sink_errors = result.sink_errors
        self.shared_budget = shared_budget
        received = [signal for answer in answers[place:] for signal in answer.signals]
        self.signals = [signal for signal in (*received, *pending_signals) if isinstance(signal, Steer | Extend | Late)]
        """What came in while the run was closed: its senders were told that it came."""
        self.agent: object = None
        """Whose run it is, where nobody else has that in hand."""
        self._claimed = Lock()

    @property
    def at(self) -> float:
        """The run's active seconds until then."""
        return self.answers[-1].at if self.answers else 0.0

    def claim(self) -> None:
        """Go on from here, once: what comes next would else be done twice."""
        if not self._claimed.acquire(blocking=False):
            raise UsageError("this run was already resumed from this result: use the result that resume returned")

    def release(self) -> None:
        """It could not go on; nothing was done, and it may be tried again."""
        self._claimed.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()


def is_open(value: object) -> bool:
    """Whether nobody has answered yet."""
    return isinstance(value, Verdict) and value.approved is None


def is_answer_to(effect: Effect[Any] | None, value: Any) -> bool:
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
JOURNAL_CODEC = Codec(
    tags={
        "Answer": Answer, "Cancel": Cancel, "Steer": Steer, "Extend": Extend, "TimeUp": TimeUp, "LeaseLost": LeaseLost,
        "Late": Late, "Stalled": Stalled, "Unkept": StoreFailed,
    }
)  # fmt: skip
"""How journals are written."""
_PLAN_KEYS = {
    "run_id": "run_id", "messages": "messages", "session_id": "session_id", "started_at": "started_at",
    "until": "until", "state": "state", "metadata": "metadata", "most_s": "max_seconds", "most": "max_amounts",
    "number": "session_run_number", "spent_s": "elapsed_s", "parent_run_id": "parent_run_id", "level": "level",
    "within": "has_shared_budget", "seed": "jitter_seed", "told": "extra_instructions",
}  # fmt: skip
"""Keys in the first row of a journal, and the fields of a plan that they hold. The keys are stored data."""


@dataclass(slots=True)
class StartedEffect:
    """An effect of which the journal has no answer yet."""

    events: int = 0
    """How many events the loop had told when it began."""
    fingerprint: int = 0
    """The fingerprint of the run with it."""
    question: str | None = None
    """The id of what a person was asked."""
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """What calls of it have come to, by their ids."""


@dataclass(slots=True)
class RunHistory:
    """What happened in a run until it was left."""

    answers: list[Answer[Any]] = field(default_factory=list[Answer[Any]])
    started: list[StartedEffect] = field(default_factory=list[StartedEffect])
    """Each effect; there is one more of them than answers where the last was not answered."""
    take: int = 0
    """How often the run was taken up again."""
    later_verdicts: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    """What was answered to questions behind the one that stayed open."""
    signals: list[Signal] = field(default_factory=list[Signal])
    """What came in behind it."""
    at: float = 0.0
    """The run's active seconds until then; also those of answers that do not count any more, as time only grows."""
    version: str = "(unknown version)"
    """Version of Flyball that wrote the journal."""

    @property
    def events(self) -> int:
        """How many events of the loop are in the store for certain."""
        return self.started[-1].events if self.started else 0

    @property
    def unanswered(self) -> StartedEffect | None:
        """The effect that was begun and not answered, if there is one."""
        return self.started[len(self.answers)] if len(self.started) > len(self.answers) else None

    def truncate_at_question(self) -> RunHistory:
        """The same, as it was when the first question that nobody answered was about to be asked."""
        place = next((n for n, answer in enumerate(self.answers) if is_open(answer.value)), None)
        if place is None:
            return self
        behind = range(place + 1, len(self.answers))
        verdicts = {self.started[n].question: self.answers[n].value for n in behind}
        received = [signal for answer in self.answers[place:] for signal in answer.signals]
        return RunHistory(
            self.answers[:place],
            self.started[: place + 1],
            self.take,
            {key: one for key, one in verdicts.items() if key and isinstance(one, Verdict) and not is_open(one)},
            [signal for signal in received if isinstance(signal, Steer | Extend | Late)],
            self.at,
            self.version,
        )

    def add_signals(self, signals: Sequence[Signal]) -> None:
        """More was given when the last answer came."""
        last = self.answers[-1]
        self.answers[-1] = replace(last, signals=(*last.signals, *signals))


def parse_journal(rows: Iterable[Row]) -> RunHistory:
    """Read a journal. What a run did before it was taken up again at some place, from there on, does not count."""
    past = RunHistory()
    for row in rows:
        if row.take > past.take:
            past.take = row.take
            kept = row.n + (row.kind is Kind.EXTENDED)
            del past.answers[kept:], past.started[kept:]
        match row.kind:
            case Kind.STARTED:
                past.started.append(StartedEffect(fingerprint=row.fingerprint, **JOURNAL_CODEC.loads(row.data)))
            case Kind.OUTCOME:
                call_id, outcome = JOURNAL_CODEC.loads(row.data)
                past.started[-1].outcomes[call_id] = outcome
            case Kind.ANSWER:
                if len(past.started) == row.n:  # it was interrupted, and answered without being begun again
                    past.started.append(StartedEffect(fingerprint=row.fingerprint))
                past.answers.append(JOURNAL_CODEC.loads(row.data))
                past.at = past.answers[-1].at
            case Kind.EXTENDED:
                past.add_signals(JOURNAL_CODEC.loads(row.data))
            case Kind.RUN:
                past.version = JOURNAL_CODEC.loads(row.data).get("version", past.version)
    return past


def encode_plan(plan: Plan) -> str:
    """What a run began with, for the first row of its journal."""
    own: dict[str, Any] = {key: getattr(plan, name) for key, name in _PLAN_KEYS.items()}
    about = {"format": FORMAT, "version": str(__version__)}
    return JOURNAL_CODEC.dumps({**own, "limits": plan.spec.limits.ceilings(), "agent": plan.spec.name, **about})


def restore_plan(plan: Plan, row: str) -> Plan:
    """The plan of a run that goes on: all that was its own then, on the terrain that its agent has now."""
    data: Mapping[str, Any] = JOURNAL_CODEC.loads(row)
    _check_format(plan.run_id, data)
    limits = plan.spec.limits.with_ceilings(data["limits"])
    spec = plan.spec if limits is plan.spec.limits else plan.spec.with_limits(limits)
    if data["told"] != plan.extra_instructions:
        spec = spec.add_instructions(data["told"], replacing=plan.extra_instructions)
    own = {name: data[key] for key, name in _PLAN_KEYS.items()}
    return replace(plan, spec=spec, **own)


def _check_format(run_id: str, data: Mapping[str, Any]) -> None:
    found = data.get("format", 1)
    if found != FORMAT:
        raise ResumeError(
            f"run {run_id}",
            f"its journal has format {found}, written by Flyball {data.get('version', '(unknown version)')}, and this "
            f"Flyball {__version__} reads format {FORMAT}; resume it with the version that wrote it",
        )
