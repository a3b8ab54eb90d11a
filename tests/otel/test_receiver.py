"""What a collector receives over OTLP, decoded from its bytes and compared with the published conventions."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from flyball import Agent, Limits, TokenPrice, Usage, tool
from flyball.models import OpenAIModel
from flyball.otel import OtelSink
from flyball.testing import ModelServer, call, say

BOUND_MS = 30_000


CONVENTIONS = "opentelemetry.semconv"
"""Package with the published names. Those of GenAI are in its part for what may still change, without types."""
GEN_AI: Any = import_module(f"{CONVENTIONS}._incubating.attributes.gen_ai_attributes")


def constants(*modules: str) -> set[str]:
    values = [value for name in modules for value in vars(import_module(f"{CONVENTIONS}.{name}")).values()]
    return {value for value in values if isinstance(value, str)}


PUBLISHED = constants(
    "_incubating.attributes.gen_ai_attributes", "attributes.error_attributes", "attributes.server_attributes"
)
METRICS = constants("_incubating.metrics.gen_ai_metrics")
DEPRECATED = {"gen_ai.system", "gen_ai.prompt", "gen_ai.completion", "gen_ai.usage.prompt_tokens"}


class Collector(ThreadingHTTPServer):
    """Receiver of OTLP over HTTP on this machine."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.traces: list[Any] = []
        self.metrics: list[Any] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def spans(self) -> list[Any]:
        scopes = [scope for request in self.traces for found in request.resource_spans for scope in found.scope_spans]
        return sorted((span for scope in scopes for span in scope.spans), key=lambda span: span.start_time_unix_nano)

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    @property
    def instruments(self) -> dict[str, Any]:
        resources = [found for request in self.metrics for found in request.resource_metrics]
        return {one.name: one for found in resources for scope in found.scope_metrics for one in scope.metrics}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/v1/traces":
            self.server.traces.append(ExportTraceServiceRequest.FromString(body))
        else:
            self.server.metrics.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@tool
def look(place: str) -> str:
    """Look at a place."""
    if place == "Atlantis":
        raise OSError("it is gone")
    return f"seen: {place}"


def read(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """A collector that has received a run with a child, a failed call, a refused budget, and content."""
    with Collector() as received:
        thread = threading.Thread(target=received.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{received.url}/v1/traces")))
        exporter = OTLPMetricExporter(f"{received.url}/v1/metrics")
        meters = MeterProvider([PeriodicExportingMetricReader(exporter, 3_600_000)], shutdown_on_exit=False)
        run_tree(OtelSink(tracer_provider=tracers, meter_provider=meters, content=True))
        assert tracers.force_flush(BOUND_MS)
        assert meters.force_flush(BOUND_MS)
        yield received
        tracers.shutdown()
        meters.shutdown()
        received.shutdown()
        thread.join(60)
        assert not thread.is_alive()


def run_tree(sink: OtelSink) -> None:
    lines = [
        call("look", place="Oslo").using(Usage(100, 20, cached=60, reasoning=7)),
        call("look", place="Atlantis"),
        call("delegate", tasks=[{"child": "reader", "goal": "Read."}]),
        say("I saw Oslo."),
    ]
    with ModelServer(*lines) as server, ModelServer(say("It is read.")) as other:
        price = TokenPrice(1, 2)
        reader = OpenAIModel("small", url=f"{other.url}/v1", key="none", price=price)
        model = OpenAIModel("large", url=f"{server.url}/v1", key="none", price=price)
        child = Agent(model=reader, name="reader", settings={})
        limits = Limits(turns=3, usd=5)
        boss = Agent(model=model, tools=[look], children=[child], name="boss", limits=limits, sinks=[sink])
        result = boss.run("Look around.", session="talk-1")
    assert (result.stop, result.text) == ("budget", "I saw Oslo.")


def test_the_spans_arrive_in_one_trace_each_below_its_parent(collector: Collector) -> None:
    spans = {span.span_id: span for span in collector.spans}
    assert len({span.trace_id for span in spans.values()}) == 1
    edges = {(spans[span.parent_span_id].name if span.parent_span_id else "", span.name) for span in spans.values()}
    assert edges == {
        ("", "invoke_agent boss"),
        ("invoke_agent boss", "chat large"),
        ("invoke_agent boss", "execute_tool look"),
        ("invoke_agent boss", "execute_tool delegate"),
        ("execute_tool delegate", "invoke_agent reader"),
        ("invoke_agent reader", "chat small"),
    }


def test_every_attribute_is_published_or_our_own(collector: Collector) -> None:
    names = {one.key for span in collector.spans for one in span.attributes}
    for metric in collector.instruments.values():
        points = metric.histogram.data_points or metric.sum.data_points
        names |= {one.key for point in points for one in point.attributes}
    foreign = {name for name in names if not name.startswith("flyball.")}
    assert foreign - PUBLISHED == set()
    assert foreign & DEPRECATED == set()
    assert foreign >= {
        "gen_ai.input.messages",
        "gen_ai.response.id",
        "gen_ai.response.model",
        "gen_ai.tool.call.result",
        "server.address",
        "error.type",
    }


def test_operations_kinds_and_token_types_are_those_of_the_convention(collector: Collector) -> None:
    operations = {value.value for value in GEN_AI.GenAiOperationNameValues}
    token_types = {value.value for value in GEN_AI.GenAiTokenTypeValues}
    for span in collector.spans:
        operation = read(span.attributes)["gen_ai.operation.name"]
        assert operation in operations
        assert span.name.startswith(f"{operation} ")
        assert span.SpanKind.Name(span.kind) == ("SPAN_KIND_CLIENT" if operation == "chat" else "SPAN_KIND_INTERNAL")
    tokens = collector.instruments["gen_ai.client.token.usage"].histogram.data_points
    assert {read(point.attributes)["gen_ai.token.type"] for point in tokens} <= token_types


def test_a_request_has_what_the_convention_requires(collector: Collector) -> None:
    chats = [read(span.attributes) for span in collector.named("chat large")]
    assert len(chats) == 4
    required = {"gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"}
    recommended = {
        "gen_ai.response.finish_reasons",
        "gen_ai.response.id",
        "gen_ai.response.model",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.output_tokens",
        "server.address",
        "server.port",
    }
    for chat in chats:
        assert required | recommended <= set(chat)
        assert chat["server.address"] == "127.0.0.1"
    assert (chats[0]["gen_ai.usage.input_tokens"], chats[0]["gen_ai.usage.cache_read.input_tokens"]) == (100, 60)


def test_a_failed_call_is_an_error_and_a_run_that_met_its_limit_is_none(collector: Collector) -> None:
    calls = collector.named("execute_tool look")
    failed = [span for span in calls if span.status.code == span.status.STATUS_CODE_ERROR]
    assert [read(span.attributes)["error.type"] for span in failed] == ["failed"]
    (run,) = collector.named("invoke_agent boss")
    facts = read(run.attributes)
    assert (facts["flyball.stop"], facts["gen_ai.conversation.id"]) == ("budget", "talk-1")
    assert run.status.code == run.status.STATUS_CODE_UNSET


def test_the_metrics_have_the_names_and_units_of_the_convention(collector: Collector) -> None:
    found = collector.instruments
    published = {name for name in found if name.startswith("gen_ai.")}
    assert published <= METRICS
    assert {name: found[name].unit for name in published} == {
        "gen_ai.client.token.usage": "{token}",
        "gen_ai.client.operation.duration": "s",
    }
    bounds = found["gen_ai.client.token.usage"].histogram.data_points[0].explicit_bounds
    assert list(bounds) == [4**n for n in range(14)]
    durations = found["gen_ai.client.operation.duration"].histogram.data_points
    assert [round(bound, 2) for bound in durations[0].explicit_bounds] == [
        0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    ]  # fmt: skip
    used = found["flyball.budget.usage"].histogram.data_points
    assert {"turns", "tokens", "usd"} <= {read(point.attributes)["flyball.budget.name"] for point in used}
    (refused,) = found["flyball.budget.refusals"].sum.data_points
    assert (read(refused.attributes)["flyball.budget.name"], refused.as_int) == ("turns", 1)
