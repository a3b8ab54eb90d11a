"""OpenTelemetry spans and metrics of runs, by the GenAI semantic conventions.

    invoke_agent researcher                  the run; its parent is the caller's current span
    ├── chat gpt-5.5                         one attempt of one request
    ├── execute_tool search                  one call; parallel calls are parallel spans
    └── chat gpt-5.5

Needs the extra `otel`, which has only OpenTelemetry's API. Without a configured SDK nothing is exported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import __version__
from ._internal.jsonable import to_jsonable
from .budget.snapshot import BudgetSnapshot
from .errors import UsageError
from .event import (
    BudgetRefused,
    Event,
    FellBack,
    GraceStarted,
    Header,
    ModelReplied,
    ModelRequested,
    Retried,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
)

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, TracerProvider

OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
AGENT, CONVERSATION = "gen_ai.agent.name", "gen_ai.conversation.id"
MODEL, FINISHES = "gen_ai.request.model", "gen_ai.response.finish_reasons"
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHED, REASONING = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.reasoning.output_tokens"
TOOL, TOOL_TYPE = "gen_ai.tool.name", "gen_ai.tool.type"
CALL_ID, CALL_ARGUMENTS = "gen_ai.tool.call.id", "gen_ai.tool.call.arguments"
TOKEN_TYPE, ERROR = "gen_ai.token.type", "error.type"

TOKEN_USAGE, DURATION = "gen_ai.client.token.usage", "gen_ai.client.operation.duration"
_TOKEN_BOUNDS = [4.0**n for n in range(14)]
_SECOND_BOUNDS = [0.01 * 2**n for n in range(14)]

Attributes = dict[str, Any]


@dataclass(slots=True)
class _OpenSpan:
    """Open span and its start, in seconds since the run started."""

    span: Span
    started_at: float
    attributes: Attributes


@dataclass(slots=True)
class _RunSpans:
    """Open spans and token counts of one run."""

    header: Header
    """Runs are looked up by the id() of their header. This reference keeps that id from being reused."""
    span: Span
    context: Context
    chat: _OpenSpan | None = None
    calls: dict[str, _OpenSpan] = field(default_factory=dict[str, _OpenSpan])
    input_tokens: int = 0
    output_tokens: int = 0
    failure: str | None = None
    """Error code of the latest request. None if it succeeded."""


class OtelSink:
    """Sink that creates spans and metrics: `Agent(..., sinks=[OtelSink()])`.

    One sink may serve any number of agents and runs at once. Without providers it uses the global ones. Prompts and
    replies are not recorded; `content=True` records the arguments of calls. It does not block unless your span
    processor does, so use one that exports in batches.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        content: bool = False,
    ) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError:
            raise UsageError("the package opentelemetry is not installed: pip install 'flyball[otel]'") from None
        self._trace = trace
        self._tracer = trace.get_tracer("flyball", str(__version__), tracer_provider)
        meter = metrics.get_meter("flyball", str(__version__), meter_provider)
        self._tokens = meter.create_histogram(
            TOKEN_USAGE, "{token}", "Tokens of a request.", explicit_bucket_boundaries_advisory=_TOKEN_BOUNDS
        )
        self._seconds = meter.create_histogram(
            DURATION, "s", "Seconds of a request.", explicit_bucket_boundaries_advisory=_SECOND_BOUNDS
        )
        self._content = content
        self._runs: dict[int, _RunSpans] = {}
        self._handlers: Mapping[type[Event], Callable[[_RunSpans, Any], None]] = {
            ModelRequested: self._on_model_requested,
            ModelReplied: self._on_model_replied,
            ToolStarted: self._on_tool_started,
            ToolEnded: self._on_tool_ended,
            RunEnded: self._on_run_ended,
            BudgetRefused: _add_run_event,
            GraceStarted: _add_run_event,
            Retried: _add_run_event,
            FellBack: _add_run_event,
        }

    def __call__(self, event: Event) -> None:
        """Handle an event; ignore runs whose start it has not seen."""
        if isinstance(event, RunStarted):
            self._on_run_started(event)
            return
        handler = self._handlers.get(type(event))
        run = self._runs.get(id(event.header)) if handler else None
        if handler and run:
            handler(run, event)

    def _on_run_started(self, event: RunStarted) -> None:
        header = event.header
        attributes = _drop_none(
            {
                OPERATION: "invoke_agent",
                AGENT: event.agent,
                CONVERSATION: header.session_id,
                "flyball.run_id": header.run_id,
            }
        )
        name = f"invoke_agent {event.agent}" if event.agent else "invoke_agent"
        span = self._tracer.start_span(name, attributes=attributes, start_time=_to_nanoseconds(event, event.at))
        self._runs[id(header)] = _RunSpans(header, span, self._trace.set_span_in_context(span))

    def _on_model_requested(self, run: _RunSpans, event: ModelRequested) -> None:
        attributes = _drop_none({OPERATION: "chat", PROVIDER: event.provider, MODEL: event.model})
        extra = {
            "flyball.purpose": str(event.purpose),
            "flyball.attempt": event.attempt,
            "flyball.turn": event.turn,
            "flyball.estimated_tokens": event.estimated_tokens,
        }
        name = f"chat {event.model}" if event.model else "chat"
        run.chat = self._start_span(run, name, event, attributes, extra, self._trace.SpanKind.CLIENT)

    def _on_model_replied(self, run: _RunSpans, event: ModelReplied) -> None:
        chat, run.chat, run.failure = run.chat, None, event.code
        if chat is None:
            return
        if event.finish is not None:
            tokens_used = {INPUT: event.input_tokens, OUTPUT: event.output_tokens}
            token_details = {CACHED: event.cached_tokens, REASONING: event.reasoning_tokens}
            chat.span.set_attributes(
                {FINISHES: [str(event.finish)], **tokens_used, **{k: v for k, v in token_details.items() if v}}
            )
            run.input_tokens += event.input_tokens
            run.output_tokens += event.output_tokens
            for kind, tokens in (("input", event.input_tokens), ("output", event.output_tokens)):
                if tokens:
                    self._tokens.record(tokens, {**chat.attributes, TOKEN_TYPE: kind}, run.context)
        error = {ERROR: event.code} if event.code else {}
        self._seconds.record(max(0.0, event.at - chat.started_at), chat.attributes | error, run.context)
        self._end_span(chat.span, event, event.at, event.code)

    def _on_tool_started(self, run: _RunSpans, event: ToolStarted) -> None:
        extra = {CALL_ARGUMENTS: json.dumps(to_jsonable(event.arguments))} if self._content else {}
        run.calls[event.call_id] = self._start_tool_span(run, event, extra)

    def _on_tool_ended(self, run: _RunSpans, event: ToolEnded) -> None:
        # A call that was not made (denied, or an earlier result reused) becomes a span of zero length.
        call = run.calls.pop(event.call_id, None) or self._start_tool_span(run, event, {})
        attributes = {
            "flyball.call.status": str(event.status),
            "flyball.call.reason": event.reason and str(event.reason),
        }
        call.span.set_attributes(_drop_none(attributes))
        error = None if event.status == "done" else str(event.status)
        # The end events of a batch all come when its last call ends; `seconds` is the call's own duration.
        self._end_span(call.span, event, min(event.at, call.started_at + event.seconds), error)

    def _start_tool_span(self, run: _RunSpans, event: ToolStarted | ToolEnded, extra: Attributes) -> _OpenSpan:
        attributes = {OPERATION: "execute_tool", TOOL: event.tool, TOOL_TYPE: "function", CALL_ID: event.call_id}
        extra = {**extra, "flyball.turn": event.turn}
        return self._start_span(
            run, f"execute_tool {event.tool}", event, attributes, extra, self._trace.SpanKind.INTERNAL
        )

    def _on_run_ended(self, run: _RunSpans, event: RunEnded) -> None:
        del self._runs[id(run.header)]
        for open_span in (*run.calls.values(), *([run.chat] if run.chat else ())):
            self._end_span(open_span.span, event, event.at, "cut")
        run.span.set_attributes(
            _drop_none(
                {
                    "flyball.stop": str(event.stop),
                    "flyball.stopped_by": event.stopped_by,
                    "flyball.flags": list(event.flags),
                    "flyball.turns": event.turns,
                    "flyball.requests": event.requests,
                    INPUT: run.input_tokens,
                    OUTPUT: run.output_tokens,
                    **_budget_attributes(event.budgets),
                }
            )
        )
        error = run.failure or "failed" if event.stop == "failed" else None
        self._end_span(run.span, event, event.at, error)

    def _start_span(
        self, run: _RunSpans, name: str, event: Event, attributes: Attributes, extra: Attributes, kind: SpanKind
    ) -> _OpenSpan:
        span = self._tracer.start_span(
            name,
            run.context,
            kind=kind,
            attributes={**attributes, **extra},
            start_time=_to_nanoseconds(event, event.at),
        )
        return _OpenSpan(span, event.at, attributes)

    def _end_span(self, span: Span, event: Event, at: float, error: str | None) -> None:
        if error is not None:
            span.set_attribute(ERROR, error)
            span.set_status(self._trace.StatusCode.ERROR)
        span.end(_to_nanoseconds(event, at))


_RUN_EVENT_FIELDS: Mapping[type[Event], tuple[str, ...]] = {
    BudgetRefused: ("budget", "flag"),
    GraceStarted: ("reason",),
    Retried: ("attempt", "wait_s"),
    FellBack: ("model", "to", "code", "wait_s"),
}
"""Events added to the span of a run, with their recorded fields. No field contains prompts or replies."""


def _add_run_event(run: _RunSpans, event: Event) -> None:
    fields = {f"flyball.{name}": getattr(event, name) for name in _RUN_EVENT_FIELDS[type(event)]}
    run.span.add_event(f"flyball.{event.kind}", fields, _to_nanoseconds(event, event.at))


def _budget_attributes(budgets: Mapping[str, Any]) -> Attributes:
    attributes: Attributes = {}
    for name, budget in budgets.items():
        if isinstance(budget, BudgetSnapshot):
            attributes[f"flyball.budget.{name}.used"] = budget.unit.outer(budget.used)
            attributes[f"flyball.budget.{name}.ceiling"] = budget.unit.outer(budget.ceiling)
    return attributes


def _drop_none(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _to_nanoseconds(event: Event, at: float) -> int:
    return round((event.header.started_at + at) * 1_000_000_000)
