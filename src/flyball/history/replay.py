"""A rehearsal: a run that is over is played again under other rules and limits, from what its loop was told then.

Nothing is asked and nothing is done. As long as the loop wants the same as then, it is told the same as then; where it
wants something else, nobody knows what that would have come to, and the rehearsal is over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from .record import JsonReader
from .timeline import TimelineReader, call_text, one_line

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..budget.price import Price
    from ..loop.effects import Answer, Effect, Flow
    from ..loop.plan import ModelFacts, Plan
    from ..result import Result
    from ..runtime.history import RunHistory
    from ..store import Row

_PASSING = frozenset(
    {
        "at", "budgets", "limits", "metadata", "parent_run_id", "run_id", "seconds", "seq", "session_id", "size",
        "time", "timeout_s", "estimated_tokens", "wait_s",
    }
)  # fmt: skip
"""What may differ in an event without anything being different."""
_FEW = 4
"""Lines of what comes next: more would not be read."""
_EVERY_EVENT = 1_000_000
_OTHER = "something else is said"
"""What there is to say where no event tells the difference: it is in the messages that are kept."""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What came of it."""

    steps: int
    """How many effects were the same."""
    of: int
    """How many the run has had."""
    turn: int
    """The turn in which it went another way, or ended."""
    at: float
    """The seconds until then."""
    same: bool
    """Whether all was the same, as far as the run came."""
    then: Sequence[str]
    """What happened then, from where on it was something else."""
    today: Sequence[str]
    """What would happen today."""
    result: Result | None
    """What it would have come to, if that is known."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """What is known of a run: its journal, its events, and how it ended."""

    rows: Sequence[Row]
    events: Sequence[Mapping[str, Any]]
    stop: str | None

    @property
    def purposes(self) -> list[str]:
        """What the model was asked for, each time that it answered."""
        told = [JsonReader(event) for event in self.events]
        return [event.text("purpose") for event in told if event.text("event") == "model_replied"]


def rehearse(agent: Agent, score: RecordedRun, *, lenient: bool = False) -> ReplayReport:
    """Play a run again with an agent, and compare it with what was told then, and how it ended.

    It goes another way where the loop wants another thing than then. A `lenient` one takes it that the model says what
    it said, whatever it is shown: only what is done counts.
    """
    from ..runtime.history import past_of

    past, plan = past_of(score.rows), _plan(agent, score.rows)
    with _LoopPlayer(plan) as stage:
        steps = stage.play(past, score.purposes if lenient else None)
        heard = [event.to_dict() for event in stage.recorder.events]
    result, then, today = stage.result, _whole(score.events), heard
    parted = steps < len(past.answers)
    same = not parted and (result is None or result.stop == score.stop)
    same = same and (past.take > 0 or lenient or _same(then, today) == len(today))
    if parted:
        then, today = then[past.begun[steps - 1].events if steps else 0 :], today[stage.told :]
    first = _same(then, today)
    return ReplayReport(
        steps=steps,
        of=len(past.answers),
        turn=stage.recorder.turn,
        at=stage.recorder.at,
        same=same,
        then=() if same else _lines(then, first)[:_FEW],
        today=() if same else [*_lines(today, first)[:_FEW], *_wanted(stage.wanted if parted else None)] or [_OTHER],
        result=result,
    )


def _whole(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events as they would be if the run had never ended before it was taken up again."""
    return [event for n, event in enumerate(events, 1) if event.get("event") != "run_ended" or n == len(events)]


class _LoopPlayer:
    """The loop, what it tells, and what it wants now."""

    def __init__(self, plan: Plan) -> None:
        from ..loop.loop import converse
        from ..recorder import Recorder

        self.recorder = Recorder(plan.header, (), _EVERY_EVENT)
        self._loop: Flow[Result] = converse(plan, self.recorder)
        self.wanted: Effect[Any] | None = None
        self.result: Result | None = None
        self.told = 0
        """How many events it had told before it was last told anything."""

    def __enter__(self) -> _LoopPlayer:
        return self

    def __exit__(self, *_: object) -> None:
        """It tells of that, too, which nobody wants to hear."""
        self._loop.close()

    def play(self, past: RunHistory, purposes: Sequence[str] | None) -> int:
        """Tell it all again, as long as it wants the same; how many steps that were.

        With `purposes`, a request to the model is the same if it is for that.
        """
        same = _SameWords([begun.print for begun in past.begun]) if purposes is None else _SamePurpose(purposes)
        self._go_on(None)
        for n, answer in enumerate(past.answers):
            if self.wanted is None or not same(n, self.wanted, answer):
                return n
            self._go_on(answer)
        return len(past.answers)

    def _go_on(self, answer: Any) -> None:
        self.told = self.recorder.seq
        try:
            self.wanted = self._loop.send(answer)
        except StopIteration as end:
            self.wanted, self.result = None, end.value


class _SameWords:
    """Whether an effect is the very one that it was."""

    def __init__(self, prints: Sequence[int]) -> None:
        from ..loop.effects import Fingerprint

        self._then = prints
        self._now = Fingerprint()

    def __call__(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        return self._now.add(effect) == self._then[n] and came_from(effect, answer.value)


class _SamePurpose:
    """Whether an effect is of the kind that it was: these calls, or the model for this purpose."""

    def __init__(self, purposes: Sequence[str]) -> None:
        self._purposes = iter(purposes)

    def __call__(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        from ..loop.effects import Ask

        if not came_from(effect, answer.value):
            return False
        return not isinstance(effect, Ask) or effect.request.purpose.value == next(self._purposes, None)


def came_from(effect: Effect[Any], value: object) -> bool:
    """Whether this can be what the effect came to."""
    from ..runtime import history

    return history.came_from(effect, value)


def _plan(agent: Agent, rows: Sequence[Row]) -> Plan:
    """The plan of the run, on the terrain that the agent has today."""
    from ..runtime.history import restored

    plan = agent.plan("A task that the journal has.")
    if plan.shared.sources:
        raise ConfigError("replay", "tools of an MCP server, which is not started for this", "a run without --mcp")
    others = {name: OfflineModel(model) for name, model in plan.shared.models.items()}
    shared = replace(plan.shared, model=OfflineModel(plan.shared.model), models=others)
    own = restored(plan, rows[0].data)
    return replace(own, shared=shared, keeps=True, kept=len(own.messages))


class OfflineModel:
    """A model that is always ready, because it is never asked."""

    def __init__(self, model: ModelFacts) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """What events call it."""
        return self._model.name

    @property
    def provider(self) -> str | None:
        """Who runs it."""
        return self._model.provider

    @property
    def price(self) -> Price | None:
        """What its tokens cost."""
        return self._model.price

    def ready(self) -> str | None:
        """Nothing is in the way."""
        return None


def _same(then: Sequence[Mapping[str, Any]], today: Sequence[Mapping[str, Any]]) -> int:
    """How many events are the same at the beginning."""
    pairs = enumerate(zip(then, today, strict=False))
    return next((n for n, (one, other) in pairs if _core(one) != _core(other)), min(len(then), len(today)))


def _core(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in _PASSING}


def _lines(events: Sequence[Mapping[str, Any]], behind: int) -> list[str]:
    """What the events behind the first so many tell."""
    reader, lines = TimelineReader(), list[str]()
    for n, event in enumerate(events):
        row = reader.read(JsonReader(event))
        if n >= behind and row is not None:
            lines.append(row.line)
        elif n >= behind:
            lines += _told(JsonReader(event))
    return lines


def _told(event: JsonReader) -> Iterator[str]:
    """What has no line in a timeline, where it is one of its end's two sides."""
    match event.text("event"):
        case "turn_started":
            yield f"turn {event.whole('turn')}"
        case "tool_started":
            yield f"calls {call_text(event.text('tool'), event.get('arguments'))}"
        case "run_ended":
            yield f"ended: {event.text('stop')}"
        case _:
            pass


def _wanted(effect: Effect[Any] | None) -> Iterator[str]:
    """What the loop wants, for a person; nothing where it has ended."""
    from ..loop.effects import Act, Ask, Decide

    match effect:
        case None:
            pass
        case Ask(request):
            yield f"the model is asked ({request.purpose.value}), {_counted(len(request.messages), 'message')}"
            yield from (f"notice: {one_line(notice)}" for notice in request.notices)
        case Act(acts):
            yield from (f"calls {call_text(act.call.name, act.call.arguments)}" for act in acts)
        case Decide(question):
            yield f"a person is asked: {one_line(question.text)}"
        case _:
            pass


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
