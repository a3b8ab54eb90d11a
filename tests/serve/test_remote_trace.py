"""One trace across services: the spans of a remote run are below the span of the run that asked for it."""

from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from flyball import Agent
from flyball.otel import OtelSink
from flyball.serve import chat_app, remote_agent
from flyball.testing import ScriptedModel, call, say

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A sink of one process, and the spans that it has exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.sink = OtelSink(tracer_provider=self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def traced() -> Iterator[Callable[[], Traced]]:
    """Makes sinks, each as of another process."""
    made: list[Traced] = []

    def make() -> Traced:
        made.append(Traced())
        return made[-1]

    yield make
    for one in made:
        one.provider.shutdown()


def service(sink: OtelSink | None = None) -> Any:
    model = ScriptedModel.looping(say("Found it."), grace=say("Found."))
    return chat_app(Agent(model=model, name="finder", settings={}, sinks=[sink] if sink else []))


def ask_remote(url: str, sink: Any) -> None:
    model = ScriptedModel(call("delegate", tasks=[{"child": "finder", "goal": "Find it."}]), say("Done."))
    boss = Agent(model=model, name="boss", children=[remote_agent(url, name="finder")], sinks=[sink], settings={})
    assert boss.run("Go.").completed


def receive_nothing(_: object) -> None:
    """Receive events."""


def test_the_spans_that_a_service_exports_itself_are_in_the_trace_of_the_caller(
    served: Callable[..., Any], traced: Callable[[], Traced]
) -> None:
    here, there = traced(), traced()
    with served(service(there.sink)) as url:
        ask_remote(url, here.sink)
    (boss,), (own,) = here.named("invoke_agent boss"), there.named("invoke_agent finder")
    assert boss.context
    assert own.context
    assert own.parent
    assert own.context.trace_id == boss.context.trace_id
    assert own.parent.span_id in {span.context.span_id for span in here.named("invoke_agent finder") if span.context}


def test_the_spans_of_a_service_without_telemetry_are_made_here_from_its_events(
    served: Callable[..., Any], traced: Callable[[], Traced]
) -> None:
    here = traced()
    with served(service()) as url:
        ask_remote(url, here.sink)
    spans = {span.context.span_id: span for span in here.exporter.get_finished_spans() if span.context}

    def path(span: ReadableSpan) -> list[str]:
        outer = spans.get(span.parent.span_id) if span.parent else None
        return [*(path(outer) if outer else ()), span.name]

    (chat,) = [span for span in here.named("chat scripted") if "invoke_agent finder" in path(span)]
    assert path(chat) == [
        "invoke_agent boss",
        "execute_tool delegate",
        "invoke_agent finder",
        "invoke_agent finder",
        "chat scripted",
    ]
    assert all("flyball.budget.turns.ceiling" in (run.attributes or {}) for run in here.named("invoke_agent finder"))


def test_any_client_can_name_the_parent_in_its_header(ask: Callable[..., Any], traced: Callable[[], Traced]) -> None:
    there = traced()
    assert ask(service(there.sink), headers={"traceparent": CALLER}).status == 200
    (run,) = there.named("invoke_agent finder")
    assert run.parent
    assert f"{run.parent.trace_id:032x}-{run.parent.span_id:016x}" == CALLER[3:52]


@pytest.mark.parametrize("header", ["", "nonsense", "00-0-0-01", "x" * 10_000], ids=["none", "word", "zeros", "long"])
def test_an_invalid_header_starts_a_trace_of_its_own(
    header: str, ask: Callable[..., Any], traced: Callable[[], Traced]
) -> None:
    there = traced()
    assert ask(service(there.sink), headers={"traceparent": header}).status == 200
    (run,) = there.named("invoke_agent finder")
    assert run.parent is None


def test_the_span_of_an_instrumented_server_is_the_parent(request_of: type[Any], traced: Callable[[], Traced]) -> None:
    there = traced()

    async def serve() -> None:
        with trace.use_span(there.provider.get_tracer("server").start_span("POST /chat"), end_on_exit=True):
            answer = await request_of({"message": "Go."}, headers={"traceparent": CALLER}).sent_to(service(there.sink))
            assert answer.status == 200

    anyio.run(serve)
    (run,), (server,) = there.named("invoke_agent finder"), there.named("POST /chat")
    assert run.parent
    assert server.context
    assert run.parent.span_id == server.context.span_id


def test_without_such_a_sink_no_header_is_sent(served: Callable[..., Any], traced: Callable[[], Traced]) -> None:
    there = traced()
    with served(service(there.sink)) as url:
        ask_remote(url, receive_nothing)
    (run,) = there.named("invoke_agent finder")
    assert run.parent is None
