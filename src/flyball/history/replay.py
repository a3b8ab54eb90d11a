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
from .timeline import TimelineReader, format_call, to_one_line

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..budget.price import Price
    from ..loop.effects import Answer, Effect, Flow
    from ..loop.plan import ModelFacts, Plan
    from ..result import Result
    from ..runtime.history import RunHistory
    from ..store import Row

_VOLATILE_FIELDS = frozenset(
    {
        "at", "budgets", "limits", "metadata", "parent_run_id", "run_id", "seconds", "seq", "session_id", "size",
        "time", "timeout_s", "estimated_tokens", "wait_s",
    }
)  # fmt: skip
"""What may differ in an event without anything being different."""
_MAX_LINES = 4
"""Lines of what comes next: more would not be read."""
_MAX_EVENTS = 1_000_000
_MESSAGES_DIFFER = "something else is said"
"""What there is to say where no event tells the difference: it is in the messages that are kept."""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What came of it."""

    matched_effects: int
    """How many effects were the same."""
    total_effects: int
    """How many the run has had."""
    turn: int
    """The turn in which it went another way, or ended."""
    at: float
    """The seconds until then."""
    is_same: bool
    """Whether all was the same, as far as the run came."""
    recorded_lines: Sequence[str]
    """What happened then, from where on it was something else."""
    replayed_lines: Sequence[str]
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


def replay_run(agent: Agent, recorded: RecordedRun, *, lenient: bool = False) -> ReplayReport:
    """Play a run again with an agent, and compare it with what was told then, and how it ended.

    It goes another way where the loop wants another thing than then. A `lenient` one takes it that the model says what
    it said, whatever it is shown: only what is done counts.
    """
    from ..runtime.history import parse_journal

    past, plan = parse_journal(recorded.rows), _build_plan(agent, recorded.rows)
    with _LoopPlayer(plan) as stage:
        steps = stage.replay(past, recorded.purposes if lenient else None)
        heard = [event.to_dict() for event in stage.recorder.events]
    result, then, today = stage.result, _remove_earlier_ends(recorded.events), heard
    parted = steps < len(past.answers)
    same = not parted and (result is None or result.stop == recorded.stop)
    same = same and (past.take > 0 or lenient or _count_common_prefix(then, today) == len(today))
    if parted:
        then, today = then[past.started[steps - 1].events if steps else 0 :], today[stage.events_before :]
    first = _count_common_prefix(then, today)
    return ReplayReport(
        matched_effects=steps,
        total_effects=len(past.answers),
        turn=stage.recorder.turn,
        at=stage.recorder.at,
        is_same=same,
        recorded_lines=() if same else _format_lines(then, first)[:_MAX_LINES],
        replayed_lines=()
        if same
        else [*_format_lines(today, first)[:_MAX_LINES], *_describe_effect(stage.effect if parted else None)]
        or [_MESSAGES_DIFFER],
        result=result,
    )


def _remove_earlier_ends(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The events as they would be if the run had never ended before it was taken up again."""
    return [event for n, event in enumerate(events, 1) if event.get("event") != "run_ended" or n == len(events)]


class _LoopPlayer:
    """The loop, what it tells, and what it wants now."""

    def __init__(self, plan: Plan) -> None:
        from ..loop.loop import converse
        from ..recorder import Recorder

        self.recorder = Recorder(plan.header, (), _MAX_EVENTS)
        self._loop: Flow[Result] = converse(plan, self.recorder)
        self.effect: Effect[Any] | None = None
        self.result: Result | None = None
        self.events_before = 0
        """How many events it had told before it was last told anything."""

    def __enter__(self) -> _LoopPlayer:
        return self

    def __exit__(self, *_: object) -> None:
        """It tells of that, too, which nobody wants to hear."""
        self._loop.close()

    def replay(self, history: RunHistory, purposes: Sequence[str] | None) -> int:
        """Tell it all again, as long as it wants the same; how many steps that were.

        With `purposes`, a request to the model is the same if it is for that.
        """
        same = (
            _ExactMatcher([begun.fingerprint for begun in history.started])
            if purposes is None
            else _PurposeMatcher(purposes)
        )
        self._send_answer(None)
        for n, answer in enumerate(history.answers):
            if self.effect is None or not same(n, self.effect, answer):
                return n
            self._send_answer(answer)
        return len(history.answers)

    def _send_answer(self, answer: Any) -> None:
        self.events_before = self.recorder.seq
        try:
            self.effect = self._loop.send(answer)
        except StopIteration as end:
            self.effect, self.result = None, end.value


class _ExactMatcher:
    """Whether an effect is the very one that it was."""

    def __init__(self, fingerprints: Sequence[int]) -> None:
        from ..loop.effects import Fingerprint

        self._recorded = fingerprints
        self._fingerprint = Fingerprint()

    def __call__(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        return self._fingerprint.add(effect) == self._recorded[n] and is_answer_to(effect, answer.value)


class _PurposeMatcher:
    """Whether an effect is of the kind that it was: these calls, or the model for this purpose."""

    def __init__(self, purposes: Sequence[str]) -> None:
        self._purposes = iter(purposes)

    def __call__(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        from ..loop.effects import Ask

        if not is_answer_to(effect, answer.value):
            return False
        return not isinstance(effect, Ask) or effect.request.purpose.value == next(self._purposes, None)


def is_answer_to(effect: Effect[Any], value: object) -> bool:
    """Whether this can be what the effect came to."""
    from ..runtime import history

    return history.is_answer_to(effect, value)


def _build_plan(agent: Agent, rows: Sequence[Row]) -> Plan:
    """The plan of the run, on the terrain that the agent has today."""
    from ..runtime.history import restore_plan

    plan = agent.plan("A task that the journal has.")
    if plan.spec.sources:
        raise ConfigError("replay", "tools of an MCP server, which is not started for this", "a run without --mcp")
    others = {name: OfflineModel(model) for name, model in plan.spec.models.items()}
    spec = replace(plan.spec, model=OfflineModel(plan.spec.model), models=others)
    own = restore_plan(plan, rows[0].data)
    return replace(own, spec=spec, has_transcript=True, stored_count=len(own.messages))


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


def _count_common_prefix(recorded: Sequence[Mapping[str, Any]], replayed: Sequence[Mapping[str, Any]]) -> int:
    """How many events are the same at the beginning."""
    pairs = enumerate(zip(recorded, replayed, strict=False))
    return next(
        (n for n, (one, other) in pairs if _strip_volatile(one) != _strip_volatile(other)),
        min(len(recorded), len(replayed)),
    )


def _strip_volatile(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in _VOLATILE_FIELDS}


def _format_lines(events: Sequence[Mapping[str, Any]], skip: int) -> list[str]:
    """What the events behind the first so many tell."""
    reader, lines = TimelineReader(), list[str]()
    for n, event in enumerate(events):
        row = reader.read(JsonReader(event))
        if n >= skip and row is not None:
            lines.append(row.line)
        elif n >= skip:
            lines += _describe_event(JsonReader(event))
    return lines


def _describe_event(event: JsonReader) -> Iterator[str]:
    """What has no line in a timeline, where it is one of its end's two sides."""
    match event.text("event"):
        case "turn_started":
            yield f"turn {event.integer('turn')}"
        case "tool_started":
            yield f"calls {format_call(event.text('tool'), event.get('arguments'))}"
        case "run_ended":
            yield f"ended: {event.text('stop')}"
        case _:
            pass


def _describe_effect(effect: Effect[Any] | None) -> Iterator[str]:
    """What the loop wants, for a person; nothing where it has ended."""
    from ..loop.effects import Act, Ask, Decide

    match effect:
        case None:
            pass
        case Ask(request):
            yield f"the model is asked ({request.purpose.value}), {_pluralize(len(request.messages), 'message')}"
            yield from (f"notice: {to_one_line(notice)}" for notice in request.notices)
        case Act(acts):
            yield from (f"calls {format_call(act.call.name, act.call.arguments)}" for act in acts)
        case Decide(question):
            yield f"a person is asked: {to_one_line(question.text)}"
        case _:
            pass


def _pluralize(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
