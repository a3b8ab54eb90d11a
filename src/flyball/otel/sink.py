"""Sink that exports events as spans and metrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import __version__
from .._internal.distribution import format_install
from .._internal.jsonable import to_jsonable
from ..budget.snapshot import BudgetSnapshot
from ..errors import ConfigError, UsageError
from ..event import (
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
from ..outcome import BaseOutcome
from ..request import Reply, Request
from .messages import Sensitive, write_input, write_instructions, write_output
from .propagation import build_trace_headers

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, TracerProvider

OPERATION, PROVIDER = "gen_ai.operation.name", "gen_ai.provider.name"
AGENT, CONVERSATION = "gen_ai.agent.name", "gen_ai.conversation.id"
MODEL = "gen_ai.request.model"
FINISHES, REPLY_MODEL, REPLY_ID = "gen_ai.response.finish_reasons", "gen_ai.response.model", "gen_ai.response.id"
SERVER, PORT = "server.address", "server.port"
INPUT, OUTPUT = "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
CACHED, REASONING = "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.reasoning.output_tokens"
TOOL, TOOL_TYPE = "gen_ai.tool.name", "gen_ai.tool.type"
CALL_ID, CALL_ARGUMENTS = "gen_ai.tool.call.id", "gen_ai.tool.call.arguments"
CALL_RESULT = "gen_ai.tool.call.result"
INSTRUCTIONS, INPUTS, OUTPUTS = "gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages"
TOKEN_TYPE, ERROR = "gen_ai.token.type", "error.type"

TOKEN_USAGE, DURATION = "gen_ai.client.token.usage", "gen_ai.client.operation.duration"
RUN_DURATION, REFUSALS = "flyball.run.duration", "flyball.budget.refusals"
BUDGET_USAGE, BUDGET_UTILIZATION = "flyball.budget.usage", "flyball.budget.utilization"
BUDGET, STOP = "flyball.budget.name", "flyball.stop"
_TOKEN_BOUNDS = [4.0**n for n in range(14)]
_SECOND_BOUNDS = [0.01 * 2**n for n in range(14)]
_RUN_SECOND_BOUNDS = [0.1 * 2**n for n in range(16)]
_AMOUNT_BOUNDS = [0.001, 0.01, 0.1, *[4.0**n for n in range(14)]]
_SHARE_BOUNDS = [n / 10 for n in range(1, 11)]

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
    attributes: Attributes
    """Attributes of the metrics of the run."""
    chat: _OpenSpan | None = None
    calls: dict[str, _OpenSpan] = field(default_factory=dict[str, _OpenSpan])
    input_tokens: int = 0
    output_tokens: int = 0
    failure: str | None = None
    """Error code of the latest request. None if it succeeded."""


class OtelSink:
    """Sink that creates spans and metrics: `Agent(..., sinks=[OtelSink()])`.

    One sink may serve any number of agents and runs at once. Without providers it uses the global ones. `content=True`
    records instructions, messages, replies, and the arguments and results of calls; otherwise none of them is
    recorded. The sink does not block unless your span processor does, so use one that exports in batches.
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
            raise UsageError(f"the package opentelemetry is not installed: {format_install('otel')}") from None
        self._trace = trace
        self._tracer = trace.get_tracer("flyball", str(__version__), tracer_provider)
        meter = metrics.get_meter("flyball", str(__version__), meter_provider)
        self._tokens = meter.create_histogram(
            TOKEN_USAGE, "{token}", "Tokens of a request.", explicit_bucket_boundaries_advisory=_TOKEN_BOUNDS
        )
        self._seconds = meter.create_histogram(
            DURATION, "s", "Seconds of a request.", explicit_bucket_boundaries_advisory=_SECOND_BOUNDS
        )
        self._run_seconds = meter.create_histogram(
            RUN_DURATION, "s", "Seconds of a run.", explicit_bucket_boundaries_advisory=_RUN_SECOND_BOUNDS
        )
        self._usage = meter.create_histogram(
            BUDGET_USAGE, "1", "Used amount of a run's budget.", explicit_bucket_boundaries_advisory=_AMOUNT_BOUNDS
        )
        self._utilization = meter.create_histogram(
            BUDGET_UTILIZATION, "1", "Used share of a ceiling.", explicit_bucket_boundaries_advisory=_SHARE_BOUNDS
        )
        self._refusals = meter.create_counter(REFUSALS, "{refusal}", "Claims that a budget refused.")
        self._content = content
        self._runs: dict[int, _RunSpans] = {}
        self._newest: dict[str, _RunSpans] = {}
        """Open runs by their id, to find the parents of child runs. Of runs with the same id, the newest."""
        self._handlers: Mapping[type[Event], Callable[[_RunSpans, Any], None]] = {
            ModelRequested: self._on_model_requested,
            ModelReplied: self._on_model_replied,
            ToolStarted: self._on_tool_started,
            ToolEnded: self._on_tool_ended,
            RunEnded: self._on_run_ended,
            BudgetRefused: self._on_budget_refused,
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

    def receive_content(self, header: Header, content: object, sensitive: Sensitive) -> None:
        """Record a request, reply or outcome on its open span, if content is wanted."""
        run = self._runs.get(id(header)) if self._content else None
        if run is None:
            return
        match content:
            case Request() if run.chat:
                if content.instructions:
                    run.chat.span.set_attribute(INSTRUCTIONS, write_instructions(content.instructions))
                run.chat.span.set_attribute(INPUTS, write_input(content.messages, sensitive))
            case Reply() if run.chat:
                run.chat.span.set_attribute(OUTPUTS, write_output(content, sensitive))
            case BaseOutcome() if content.call_id in run.calls:
                run.calls[content.call_id].span.set_attribute(CALL_RESULT, content.text)
            case _:
                pass

    def build_headers(self, header: Header) -> Mapping[str, str]:
        """Return headers with which a service that the run asks continues its trace."""
        run = self._runs.get(id(header))
        return {} if run is None else build_trace_headers(run.context)

    def _on_run_started(self, event: RunStarted) -> None:
        header = event.header
        named = _drop_none({OPERATION: "invoke_agent", AGENT: event.agent})
        name = f"invoke_agent {event.agent}" if event.agent else "invoke_agent"
        span = self._tracer.start_span(
            name,
            self._find_parent(header),
            attributes=named | _drop_none({CONVERSATION: header.session_id, "flyball.run_id": header.run_id}),
            start_time=_to_nanoseconds(event, event.at),
        )
        run = _RunSpans(header, span, self._trace.set_span_in_context(span), named)
        self._runs[id(header)] = self._newest[header.run_id] = run

    def _find_parent(self, header: Header) -> Context | None:
        """Return the span of the call that delegated a child run, or of its parent. None means the current span."""
        parent = self._newest.get(header.parent_run_id or "")
        if parent is None:
            return None
        # The id of a child is that of its parent, of the call, and of its place among the children of the call.
        call_id = header.run_id.removeprefix(f"{parent.header.run_id}.")
        call = parent.calls.get(call_id) or parent.calls.get(call_id.rpartition(".")[0])
        return parent.context if call is None else self._trace.set_span_in_context(call.span)

    def _on_model_requested(self, run: _RunSpans, event: ModelRequested) -> None:
        host, _, port = (event.server or "").rpartition(":")
        asked = _drop_none({PROVIDER: event.provider, MODEL: event.model})
        server = {SERVER: host, PORT: int(port)} if host and port.isdecimal() else {}
        extra = {
            "flyball.purpose": str(event.purpose),
            "flyball.attempt": event.attempt,
            "flyball.turn": event.turn,
            "flyball.estimated_tokens": event.estimated_tokens,
        }
        name = f"chat {event.model}" if event.model else "chat"
        attributes = {OPERATION: "chat", **asked, **server}
        run.chat = self._start_span(run, name, event, attributes, extra, self._trace.SpanKind.CLIENT)
        run.span.set_attributes(asked)

    def _on_model_replied(self, run: _RunSpans, event: ModelReplied) -> None:
        chat, run.chat, run.failure = run.chat, None, event.code
        if chat is None:
            return
        if isinstance(event.reply_model, str):
            chat.attributes[REPLY_MODEL] = event.reply_model
            chat.span.set_attribute(REPLY_MODEL, event.reply_model)
        if event.finish is not None:
            self._record_reply(run, chat, event)
        error = {ERROR: event.code} if event.code else {}
        self._seconds.record(max(0.0, event.at - chat.started_at), chat.attributes | error, run.context)
        self._end_span(chat.span, event, event.at, event.code)

    def _record_reply(self, run: _RunSpans, chat: _OpenSpan, event: ModelReplied) -> None:
        tokens_used = {INPUT: event.input_tokens, OUTPUT: event.output_tokens}
        details = {CACHED: event.cached_tokens, REASONING: event.reasoning_tokens, REPLY_ID: event.reply_id}
        chat.span.set_attributes(
            {FINISHES: [str(event.finish)], **tokens_used, **{name: value for name, value in details.items() if value}}
        )
        run.input_tokens += event.input_tokens
        run.output_tokens += event.output_tokens
        for kind, tokens in (("input", event.input_tokens), ("output", event.output_tokens)):
            if tokens:
                self._tokens.record(tokens, {**chat.attributes, TOKEN_TYPE: kind}, run.context)

    def _on_budget_refused(self, run: _RunSpans, event: BudgetRefused) -> None:
        self._refusals.add(1, run.attributes | {BUDGET: event.budget}, run.context)
        _add_run_event(run, event)

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
        if self._newest.get(run.header.run_id) is run:
            del self._newest[run.header.run_id]
        for open_span in (*run.calls.values(), *([run.chat] if run.chat else ())):
            self._end_span(open_span.span, event, event.at, "cut")
        budgets = _read_budgets(event.budgets)
        self._record_run(run, event, budgets)
        run.span.set_attributes(
            _drop_none(
                {
                    STOP: str(event.stop),
                    "flyball.stopped_by": event.stopped_by,
                    "flyball.flags": list(event.flags),
                    "flyball.turns": event.turns,
                    "flyball.requests": event.requests,
                    INPUT: run.input_tokens or None,  # a governed run has no events of requests
                    OUTPUT: run.output_tokens or None,
                    **_budget_attributes(budgets),
                }
            )
        )
        error = run.failure or "failed" if event.stop == "failed" else None
        self._end_span(run.span, event, event.at, error)

    def _record_run(self, run: _RunSpans, event: RunEnded, budgets: Mapping[str, BudgetSnapshot]) -> None:
        attributes = run.attributes | {STOP: str(event.stop)}
        self._run_seconds.record(event.at, attributes, run.context)
        for name, budget in budgets.items():
            named = attributes | {BUDGET: name}
            if budget.used:
                self._usage.record(budget.unit.outer(budget.used) or 0, named, run.context)
            if budget.ceiling is not None and name != "depth":  # the position in the tree, not a usage
                self._utilization.record(budget.ratio, named, run.context)

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


def _read_budgets(budgets: Mapping[str, Any]) -> dict[str, BudgetSnapshot]:
    """Return the snapshots of the budgets. Those of a run at another service are JSON, and may be invalid."""
    snapshots: dict[str, BudgetSnapshot] = {}
    for name, budget in budgets.items():
        with suppress(ConfigError, TypeError):
            snapshots[name] = budget if isinstance(budget, BudgetSnapshot) else BudgetSnapshot.from_dict(budget)
    return snapshots


def _budget_attributes(budgets: Mapping[str, BudgetSnapshot]) -> Attributes:
    attributes: Attributes = {}
    for name, budget in budgets.items():
        attributes[f"flyball.budget.{name}.used"] = budget.unit.outer(budget.used)
        attributes[f"flyball.budget.{name}.ceiling"] = budget.unit.outer(budget.ceiling)
    return attributes


def _drop_none(attributes: Attributes) -> Attributes:
    return {name: value for name, value in attributes.items() if value is not None}


def _to_nanoseconds(event: Event, at: float) -> int:
    return round((event.header.started_at + at) * 1_000_000_000)
