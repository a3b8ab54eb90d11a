"""History of a run: the effects that started and their answers, from a journal or from memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from .. import __version__
from ..budget.run_budget import TurnBudget
from ..errors import ResumeError, UsageError
from ..loop.effects import (
    Answer,
    Cancel,
    ChildDone,
    Extend,
    Hung,
    Late,
    LeaseLost,
    PauseChildren,
    Signal,
    Stalled,
    Steer,
    StoreFailed,
    TimeUp,
)
from ..loop.plan import Plan
from ..outcome import Outcome
from ..person import Verdict
from ..result import Result
from ..store import Codec, Kind, Row, Transcript


class PausedRun:
    """Plan and history of a run that paused in this process.

    It exists in memory only: unpickling returns None.
    """

    __slots__ = ("_claimed", "agent", "history", "plan", "shared_budget")

    def __init__(
        self,
        plan: Plan,
        history: RunHistory,
        result: Result,
        pending_signals: Sequence[Signal],
        shared_budget: TurnBudget | None,
    ) -> None:
        self.plan = plan
        self.history = history.truncate_at_question()
        self.history.sink_errors = result.sink_errors
        self.history.signals += _select_kept(pending_signals)
        self.shared_budget = shared_budget
        self.agent: object = None
        """Agent of the run, if its caller has none."""
        self._claimed = Lock()

    def claim(self) -> None:
        """Allow this one resume. A second one would repeat effects."""
        if not self._claimed.acquire(blocking=False):
            raise UsageError("this run was already resumed from this result: use the result that resume returned")

    def release(self) -> None:
        """Allow another resume, because this one did nothing."""
        self._claimed.release()

    def __reduce__(self) -> tuple[Any, ...]:
        return _nothing, ()


def is_open(value: object) -> bool:
    """Return True for the verdict of a question that no person has answered."""
    return isinstance(value, Verdict) and value.approved is None


def _select_kept(signals: Iterable[Signal]) -> list[Signal]:
    """Return the signals that count after a pause: their senders know that the run has received them."""
    return [
        signal for signal in signals if isinstance(signal, Steer | Extend | Late | Hung | PauseChildren | ChildDone)
    ]


def _nothing() -> None:
    return None


FORMAT = 2
"""Newest format of journals that this version reads. Rows without a number have format 1.

In format 2 the first row refers to earlier messages of the session by their number in the transcript. A row that has
none to refer to is written in format 1, which earlier versions read too.
"""
JOURNAL_CODEC = Codec(
    tags={
        "Answer": Answer, "Cancel": Cancel, "Steer": Steer, "Extend": Extend, "TimeUp": TimeUp, "LeaseLost": LeaseLost,
        "Late": Late, "Hung": Hung, "Stalled": Stalled, "Unkept": StoreFailed,
        "PauseChildren": PauseChildren,
        "ChildDone": ChildDone,
    }
)  # fmt: skip
"""Codec of journal rows."""
_PLAN_KEYS = {
    "run_id": "run_id", "messages": "messages", "session_id": "session_id", "started_at": "started_at",
    "until": "until", "state": "state", "metadata": "metadata", "most_s": "max_seconds", "most": "max_amounts",
    "number": "session_run_number", "spent_s": "elapsed_s", "parent_run_id": "parent_run_id", "level": "level",
    "within": "has_shared_budget", "seed": "jitter_seed", "told": "extra_instructions",
    "scale": "token_scale",
}  # fmt: skip
"""Keys in the first row of a journal, and the fields of a plan that they hold. The keys are stored data."""


@dataclass(slots=True)
class StartedEffect:
    """Recorded start of an effect."""

    events: int = 0
    """Number of events that the loop had emitted before."""
    fingerprint: int = 0
    """Fingerprint of all effects up to this one."""
    question: str | None = None
    """Id of the question, if a person was asked."""
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """Known outcomes of its calls, by call id."""


@dataclass(slots=True)
class RunHistory:
    """Effects and answers of a run until it was interrupted or paused."""

    answers: list[Answer[Any]] = field(default_factory=list[Answer[Any]])
    started: list[StartedEffect] = field(default_factory=list[StartedEffect])
    """Every effect. One more than `answers` if the last effect has no answer."""
    take: int = 0
    """Number of times that the run was resumed."""
    later_verdicts: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    """Verdicts on questions after the one that stayed open, by question id."""
    signals: list[Signal] = field(default_factory=list[Signal])
    """Signals since the open question."""
    at: float = 0.0
    """Active seconds of the run. Answers that no longer count are included, because time only grows."""
    version: str = "(unknown version)"
    """Version of Flyball that wrote the journal."""
    sink_errors: int = 0
    """Exceptions of sinks so far."""

    @property
    def events(self) -> int:
        """Number of loop events that are certainly in the store."""
        return self.started[-1].events if self.started else 0

    @property
    def unanswered(self) -> StartedEffect | None:
        """Last effect, if it has no answer."""
        return self.started[len(self.answers)] if len(self.started) > len(self.answers) else None

    def truncate_at_question(self) -> RunHistory:
        """Return the history up to the first open question, which is then unanswered."""
        place = next((n for n, answer in enumerate(self.answers) if is_open(answer.value)), None)
        if place is None:
            return self
        later = range(place + 1, len(self.answers))
        verdicts = {self.started[n].question: self.answers[n].value for n in later}
        received = [signal for answer in self.answers[place:] for signal in answer.signals]
        return RunHistory(
            self.answers[:place],
            self.started[: place + 1],
            self.take,
            {key: one for key, one in verdicts.items() if key and isinstance(one, Verdict) and not is_open(one)},
            _select_kept(received),
            self.at,
            self.version,
        )

    def add_signals(self, signals: Sequence[Signal]) -> None:
        """Add signals to the last answer."""
        last = self.answers[-1]
        self.answers[-1] = replace(last, signals=(*last.signals, *signals))


def parse_journal(rows: Iterable[Row]) -> RunHistory:
    """Read a journal. When a run was resumed at some effect, its earlier rows from there on do not count."""
    history = RunHistory()
    for row in rows:
        if row.take > history.take:
            history.take = row.take
            kept = row.n + (row.kind is Kind.EXTENDED)
            del history.answers[kept:], history.started[kept:]
        match row.kind:
            case Kind.STARTED:
                history.started.append(StartedEffect(fingerprint=row.fingerprint, **JOURNAL_CODEC.loads(row.data)))
            case Kind.OUTCOME:
                call_id, outcome = JOURNAL_CODEC.loads(row.data)
                history.started[-1].outcomes[call_id] = outcome
            case Kind.ANSWER:
                if len(history.started) == row.n:  # interrupted by a crash, and answered without another start
                    history.started.append(StartedEffect(fingerprint=row.fingerprint))
                history.answers.append(JOURNAL_CODEC.loads(row.data))
                history.at = history.answers[-1].at
            case Kind.EXTENDED:
                history.add_signals(JOURNAL_CODEC.loads(row.data))
            case Kind.RUN:
                history.version = JOURNAL_CODEC.loads(row.data).get("version", history.version)
    return history


def encode_plan(plan: Plan, earlier: int = 0) -> str:
    """Return the plan of a run as the first row of its journal.

    `earlier` is the number of its messages that the transcript had before. They are not repeated: a long session would
    store each message again in every run.
    """
    own: dict[str, Any] = {key: getattr(plan, name) for key, name in _PLAN_KEYS.items()}
    about: dict[str, Any] = {"format": 1, "version": str(__version__)}
    if earlier:
        own["messages"] = plan.messages[earlier:]
        about |= {"format": FORMAT, "earlier": earlier}
    return JOURNAL_CODEC.dumps({**own, "limits": plan.spec.limits.ceilings(), "agent": plan.spec.name, **about})


def read_session_run_number(row: str) -> int:
    """Return the number of a run in its session, from the first row of its journal."""
    return JOURNAL_CODEC.loads(row)["number"]


def restore_plan(plan: Plan, row: str, transcript: Transcript) -> Plan:
    """Return the recorded plan of a run, with the current spec of its agent.

    `transcript` has the earlier messages of its session.
    """
    data: dict[str, Any] = JOURNAL_CODEC.loads(row)
    _check_format(plan.run_id, data)
    limits = plan.spec.limits.with_ceilings(data["limits"])
    spec = plan.spec if limits is plan.spec.limits else plan.spec.with_limits(limits)
    if data["told"] != plan.extra_instructions:
        spec = spec.add_instructions(data["told"], replacing=plan.extra_instructions)
    earlier = data.get("earlier", 0)
    if earlier:
        data["messages"] = [*transcript.read(data["session_id"])[:earlier], *data["messages"]]
    data.setdefault("scale", None)  # journals of earlier versions: their runs had no nearer estimates
    own = {name: data[key] for key, name in _PLAN_KEYS.items()}
    return replace(plan, spec=spec, **own)


def _check_format(run_id: str, data: Mapping[str, Any]) -> None:
    found = data.get("format", 1)
    if found not in range(1, FORMAT + 1):
        raise ResumeError(
            f"run {run_id}",
            f"its journal has format {found}, written by Flyball {data.get('version', '(unknown version)')}, and this "
            f"Flyball {__version__} reads format 1 to {FORMAT}; resume it with the version that wrote it",
        )
