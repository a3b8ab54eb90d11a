"""Replay of a stored run under other rules and limits.

The loop runs again and receives the recorded answers; no model, tool or person is asked. As soon as the loop yields an
effect that was not recorded, its answer is unknown and the replay ends there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from .._internal.json_reader import JsonReader
from .._internal.text import pluralize, to_one_line
from ..display.timeline import TimelineReader, format_call
from ..errors import UsageError

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from ..budget.price import Price
    from ..loop.effects import Answer, Effect
    from ..loop.plan import ModelFacts, Plan
    from ..outcome import Outcome
    from ..recorder import Recorder
    from ..result import Result
    from ..runtime.history import RunHistory
    from ..store import Row, Transcript

NO_MCP = "runs with --mcp cannot be replayed, because replay does not start MCP servers"
_VOLATILE_FIELDS = frozenset(
    {
        "at", "budgets", "limits", "metadata", "parent_run_id", "run_id", "seconds", "seq", "session_id", "size",
        "time", "timeout_s", "estimated_tokens", "wait_s", "server", "reply_model", "reply_id", "forecast",
        "turns_left", "unsupported",
    }
)  # fmt: skip
"""Event fields that are ignored in comparisons."""
_MAX_LINES = 4
"""Maximum number of lines shown per side."""
_MAX_EVENTS = 1_000_000
_MESSAGES_DIFFER = "the messages differ"
"""Shown if the difference is only in the transcript, which has no events."""


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """Result of a replay."""

    matched_effects: int
    """Number of effects that were equal."""
    total_effects: int
    """Number of effects in the journal."""
    turn: int
    """Turn in which the replay diverged or ended."""
    at: float
    """Seconds from the start of the run to that point."""
    is_same: bool
    """True if nothing differed up to the end of the record."""
    recorded_lines: Sequence[str]
    """Recorded events from the difference on."""
    replayed_lines: Sequence[str]
    """Replayed events from the difference on."""
    result: Result | None
    """Result of the replay. None if it is not known."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """Journal, events and stop reason of a stored run."""

    rows: Sequence[Row]
    events: Sequence[Mapping[str, Any]]
    stop: str | None
    """Stop reason. None means not ended."""
    transcript: Transcript
    """Transcripts of the store, which have the earlier messages of its session."""

    @property
    def purposes(self) -> list[str]:
        """Purpose of each request that the model answered."""
        readers = [JsonReader(event) for event in self.events]
        return [event.text("purpose") for event in readers if event.text("event") == "model_replied"]


def replay_run(agent: Agent, recorded: RecordedRun, *, lenient: bool = False) -> ReplayReport:
    """Replay a run with an agent and compare it with the record.

    The replay diverges at the first effect that differs from the recorded one. A `lenient` replay compares actions
    only: it assumes that the model gives its recorded replies even to changed requests.
    """
    from ..loop.player import LoopPlayer
    from ..recorder import Recorder
    from ..runtime.history import parse_journal

    history, plan = parse_journal(recorded.rows), _build_plan(agent, recorded)
    recorder = Recorder(plan.header, (), _MAX_EVENTS)
    player = LoopPlayer(plan, recorder)
    comparison = _Comparison(recorder, history, recorded.purposes if lenient else None)
    matched = player.replay(history.answers, comparison)
    effect, result = player.effect, player.result
    replayed_events = [event.to_dict() for event in recorder.events]
    player.close()  # this emits the end of the run, which no caller reads
    recorded_events = _remove_earlier_ends(recorded.events)
    diverged = matched < len(history.answers)
    is_same = not diverged and (result is None or result.stop == recorded.stop)
    is_same = is_same and (
        history.take > 0 or lenient or _count_common_prefix(recorded_events, replayed_events) == len(replayed_events)
    )
    if diverged:
        recorded_events, replayed_events = (
            recorded_events[history.started[matched - 1].events if matched else 0 :],
            replayed_events[comparison.events_before :],
        )
    common = _count_common_prefix(recorded_events, replayed_events)
    return ReplayReport(
        matched_effects=matched,
        total_effects=len(history.answers),
        turn=recorder.turn,
        at=recorder.at,
        is_same=is_same,
        recorded_lines=() if is_same else _format_lines(recorded_events, common)[:_MAX_LINES],
        replayed_lines=()
        if is_same
        else [
            *_format_lines(replayed_events, common)[:_MAX_LINES],
            *_describe_effect(effect if diverged else None),
        ]
        or [_MESSAGES_DIFFER],
        result=result,
    )


def _remove_earlier_ends(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Drop the `run_ended` events from before a resume."""
    return [event for n, event in enumerate(events, 1) if event.get("event") != "run_ended" or n == len(events)]


class _Comparison:
    """Compares effects with the recorded ones.

    With `purposes`, a model request matches if its purpose does.
    """

    def __init__(self, recorder: Recorder, history: RunHistory, purposes: Sequence[str] | None) -> None:
        self.events_before = 0
        """Number of events emitted before the last answer."""
        self._recorder = recorder
        self._matches = (
            _ExactMatcher([effect.fingerprint for effect in history.started])
            if purposes is None
            else _PurposeMatcher(purposes)
        )

    def __call__(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        if not self._matches(n, effect, answer):
            return False
        self.events_before = self._recorder.seq
        return True


class _ExactMatcher:
    """Comparison by fingerprint: the effect must be identical."""

    def __init__(self, fingerprints: Sequence[int]) -> None:
        from ..loop.effects import Fingerprint

        self._recorded = fingerprints
        self._fingerprint = Fingerprint()

    def __call__(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        return self._fingerprint.add(effect) == self._recorded[n] and is_answer_to(effect, answer.value)


class _PurposeMatcher:
    """Comparison by kind: equal calls, or a request's purpose."""

    def __init__(self, purposes: Sequence[str]) -> None:
        self._purposes = iter(purposes)

    def __call__(self, n: int, effect: Effect[Any], answer: Answer[Any]) -> bool:
        from ..loop.effects import Ask

        if not is_answer_to(effect, answer.value):
            return False
        return not isinstance(effect, Ask) or effect.request.purpose.value == next(self._purposes, None)


def is_answer_to(effect: Effect[Any], value: Any) -> bool:
    """Check whether this value can be the answer to the effect."""
    from ..budget.run_budget import Refusal
    from ..loop.effects import Act, Ask, Decide, Grant
    from ..person import Verdict
    from ..request import ModelFailure, Reply

    match effect:
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


def _build_plan(agent: Agent, recorded: RecordedRun) -> Plan:
    """Build the run's recorded plan with the agent's current rules, limits and tools."""
    from ..runtime.history import restore_plan

    plan = agent.plan("A task that the journal has.")
    if plan.spec.tools.sources:
        raise UsageError(NO_MCP)
    model = plan.spec.model
    others = {name: OfflineModel(other) for name, other in model.others.items()}
    spec = replace(plan.spec, model=replace(model, main=OfflineModel(model.main), others=others))
    restored = restore_plan(plan, recorded.rows[0].data, recorded.transcript)
    return replace(restored, spec=spec, has_transcript=True, stored_count=len(restored.messages))


class OfflineModel:
    """Model that is always ready, because it is never asked."""

    def __init__(self, model: ModelFacts) -> None:
        self._model = model

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def provider(self) -> str | None:
        return self._model.provider

    @property
    def price(self) -> Price | None:
        return self._model.price

    def ready(self) -> str | None:
        return None


def _count_common_prefix(recorded: Sequence[Mapping[str, Any]], replayed: Sequence[Mapping[str, Any]]) -> int:
    """Return how many events at the start are equal."""
    pairs = enumerate(zip(recorded, replayed, strict=False))
    return next(
        (n for n, (old, new) in pairs if _strip_volatile(old) != _strip_volatile(new)),
        min(len(recorded), len(replayed)),
    )


def _strip_volatile(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name not in _VOLATILE_FIELDS}


def _format_lines(events: Sequence[Mapping[str, Any]], skip: int) -> list[str]:
    """Format the events after the first `skip` ones."""
    reader, lines = TimelineReader(), list[str]()
    for n, event in enumerate(events):
        row = reader.read(JsonReader(event))
        if n >= skip and row is not None:
            lines.append(row.line)
        elif n >= skip:
            lines += _describe_event(JsonReader(event))
    return lines


def _describe_event(event: JsonReader) -> Iterator[str]:
    """Describe an event that has no timeline row."""
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
    """Describe what the loop wants to do; nothing if it has ended."""
    from ..loop.effects import Act, Ask, Decide

    match effect:
        case None:
            pass
        case Ask(request):
            yield f"the model is asked ({request.purpose.value}), {pluralize(len(request.messages), 'message')}"
            yield from (f"notice: {to_one_line(notice)}" for notice in request.notices)
        case Act(acts):
            yield from (f"calls {format_call(act.call.name, act.call.arguments)}" for act in acts)
        case Decide(question):
            yield f"a person is asked: {to_one_line(question.text)}"
        case _:
            pass
