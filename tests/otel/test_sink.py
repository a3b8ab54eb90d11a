"""Runs as OpenTelemetry's spans and metrics, read back from the SDK's exporters in memory."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import flyball
from flyball import Agent, Limits, ModelError, TokenPrice, Usage, tool
from flyball.errors import Retryable
from flyball.event import Event, ModelReplied, ToolEnded
from flyball.models import Model, OpenAIModel
from flyball.otel import OtelSink
from flyball.testing import ModelServer, ScriptDriver, ScriptedModel, call, fail, say, together


@tool(effects="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effects="read")
def broken() -> str:
    """It does not work."""
    raise OSError("a secret path")


class Telemetry:
    """A sink with exporters of its own; nothing global is touched."""

    def __init__(self, **options: Any) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.sink = OtelSink(tracer_provider=self.tracers, meter_provider=self.meters, **options)

    @property
    def spans(self) -> list[ReadableSpan]:
        """In the order in which they began; of those that began together, the outer first."""
        finished = self.exporter.get_finished_spans()
        return sorted(finished, key=lambda span: (span.start_time or 0, span.parent is not None))

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def points(self, metric: str) -> list[Any]:
        data: Any = self.reader.get_metrics_data()
        (scope,) = data.resource_metrics[0].scope_metrics
        return [point for one in scope.metrics if one.name == metric for point in one.data.data_points]

    def close(self) -> None:
        self.tracers.shutdown()
        self.meters.shutdown()


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.close()


def about(span: ReadableSpan) -> Mapping[str, Any]:
    return span.attributes or {}


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def seconds(span: ReadableSpan) -> float:
    return round(((span.end_time or 0) - (span.start_time or 0)) / 1e9, 3)


def scripted(*lines: Any, **more: Any) -> ScriptedModel:
    return ScriptedModel(*lines, name="gpt-5.5", provider="openai", **more)


def agent(model: Model, telemetry: Telemetry, **more: Any) -> Agent:
    return Agent(model=model, tools=[add, broken], sinks=[telemetry.sink], name="adder", **more)


class TestSpans:
    def test_a_run_its_requests_and_its_calls_are_spans_with_the_names_of_the_convention(
        self, telemetry: Telemetry
    ) -> None:
        model = scripted(call("add", a=1, b=2).using(Usage(100, 20, cached=60, reasoning=7)), say("3"))
        agent(model, telemetry).run("1 + 2?", run_id="run-1", session="talk-1")
        run, *inner = telemetry.spans
        assert [span.name for span in (run, *inner)] == [
            "invoke_agent adder",
            "chat gpt-5.5",
            "execute_tool add",
            "chat gpt-5.5",
        ]
        assert {parent(span) for span in inner} == {run.context.span_id if run.context else 0}
        chat, executed, _ = inner
        assert (run.kind, chat.kind, executed.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
        assert about(chat) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5.5",
            "gen_ai.response.model": "gpt-5.5",
            "gen_ai.response.finish_reasons": ("tool_calls",),
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
            "gen_ai.usage.cache_read.input_tokens": 60,
            "gen_ai.usage.reasoning.output_tokens": 7,
            "flyball.purpose": "turn",
            "flyball.attempt": 1,
            "flyball.turn": 1,
            "flyball.estimated_tokens": about(chat)["flyball.estimated_tokens"],
        }
        assert about(executed) == {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "add",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": "call-0",
            "flyball.call.status": "done",
            "flyball.turn": 1,
        }

    def test_a_run_tells_its_end_and_its_budgets(self, telemetry: Telemetry) -> None:
        model = scripted(call("add", a=1, b=2), say("I added."), price=TokenPrice(input=3, output=15))
        agent(model, telemetry, limits=Limits(turns=1, usd=2)).run("Go.", run_id="run-1", session="talk-1")
        run = telemetry.only("invoke_agent adder")
        expected = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "adder",
            "gen_ai.conversation.id": "talk-1",
            "gen_ai.usage.input_tokens": 20,
            "gen_ai.usage.output_tokens": 10,
            "flyball.run_id": "run-1",
            "flyball.stop": "budget",
            "flyball.flags": ("max_agent_iterations_reached",),
            "flyball.turns": 1,
            "flyball.requests": 2,
            "flyball.budget.turns.used": 1,
            "flyball.budget.turns.ceiling": 1,
            "flyball.budget.usd.used": 0.00021,
            "flyball.budget.usd.ceiling": 2.0,
        }
        assert {name: about(run).get(name) for name in expected} == expected
        assert "flyball.budget.tokens.ceiling" not in about(run)
        assert run.status.status_code is StatusCode.UNSET
        assert [event.name for event in run.events] == ["flyball.budget_refused", "flyball.grace_started"]

    def test_times_are_those_of_the_events(self, telemetry: Telemetry) -> None:
        model = scripted(together(call("add", a=1, b=2), call("broken")).after(5), say("3").after(2))
        ScriptDriver(agent(model, telemetry), seconds={"add": 30, "broken": 10}).run("1 + 2?")
        spans = {span.name: seconds(span) for span in telemetry.spans}
        assert (spans["invoke_agent adder"], spans["execute_tool add"], spans["execute_tool broken"]) == (37, 30, 10)
        assert [seconds(span) for span in telemetry.named("chat gpt-5.5")] == [5, 2]

    def test_the_parent_is_the_span_of_the_caller(self, telemetry: Telemetry) -> None:
        tracer = telemetry.tracers.get_tracer("app")
        made = agent(scripted(say("x")), telemetry)
        with tracer.start_as_current_span("sync"):
            made.run("Go.")

        async def later() -> None:
            with tracer.start_as_current_span("async"):
                await made.arun("Go.")

        anyio.run(later)
        with tracer.start_as_current_span("handle"):
            run = made.start("Go.")
        run.result(60)
        callers = {span.context.span_id: span.name for span in telemetry.spans if span.context}
        runs = telemetry.named("invoke_agent adder")
        assert [callers[parent(span) or 0] for span in runs] == ["sync", "async", "handle"]

    def test_a_child_run_is_in_the_trace_of_its_parent_below_the_call_that_delegated_it(
        self, telemetry: Telemetry
    ) -> None:
        grandchild = Agent(model=scripted(say("Deep.")), name="digger", settings={})
        digging = call("delegate", tasks=[{"child": "digger", "goal": "Dig."}])
        child = Agent(model=scripted(digging, say("Found.")), name="finder", children=[grandchild], settings={})
        delegating = call("delegate", tasks=[{"child": "finder", "goal": goal} for goal in ("Find it.", "Find more.")])
        boss = Agent(model=scripted(delegating, say("x")), name="boss", children=[child], sinks=[telemetry.sink])
        assert boss.run("Go.").completed
        spans = {span.context.span_id: span for span in telemetry.spans if span.context}

        def path(span: ReadableSpan) -> list[str]:
            outer = spans.get(parent(span) or 0)
            return [*(path(outer) if outer else ()), span.name]

        finder = ["invoke_agent boss", "execute_tool delegate", "invoke_agent finder"]
        assert [path(span) for span in telemetry.named("invoke_agent finder")] == [finder] * 2
        digger = [*finder, "execute_tool delegate", "invoke_agent digger"]
        assert path(telemetry.named("invoke_agent digger")[0]) == digger
        assert len({span.context.trace_id for span in telemetry.spans if span.context}) == 1

    def test_the_server_the_model_and_the_id_of_a_reply_are_recorded(self, telemetry: Telemetry) -> None:
        with ModelServer(say("So.")) as server:
            model = OpenAIModel("gpt-5.5", url=f"{server.url}/v1", key="none", price=TokenPrice(1, 1))
            agent(model, telemetry).run("Go.")
            host, port = server.url.removeprefix("http://").split(":")
        chat, run = telemetry.only("chat gpt-5.5"), telemetry.only("invoke_agent adder")
        assert (about(chat)["server.address"], about(chat)["server.port"]) == (host, int(port))
        assert about(chat)["gen_ai.response.model"] == "gpt-5.5"
        assert str(about(chat)["gen_ai.response.id"])
        assert about(run)["gen_ai.provider.name"] == about(chat)["gen_ai.provider.name"]
        (duration,) = telemetry.points("gen_ai.client.operation.duration")
        assert duration.attributes["server.address"] == host
        assert "gen_ai.response.id" not in duration.attributes

    def test_many_runs_at_once_keep_their_spans_apart(self, telemetry: Telemetry) -> None:
        def ask(n: int) -> None:
            lines = [together(call("add", a=n, b=1), call("add", a=n, b=2)).after(0.01), say(str(n)).after(0.01)]
            agent(scripted(*lines), telemetry).run("Go.", run_id="same name")

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
        [thread.start() for thread in threads]
        [thread.join(60) for thread in threads]
        runs = telemetry.named("invoke_agent adder")
        spans, ids = telemetry.spans, [run.context.span_id for run in runs if run.context]
        inner = [[span.name for span in spans if parent(span) == outer] for outer in ids]
        assert len({run.context.trace_id for run in runs if run.context}) == 8
        assert inner == [["chat gpt-5.5", "execute_tool add", "execute_tool add", "chat gpt-5.5"]] * 8


class TestFailures:
    def test_each_attempt_is_a_span_and_says_how_it_failed(self, telemetry: Telemetry) -> None:
        model = scripted(fail(Retryable("busy: hunter2", after=1)), say("x"))
        ScriptDriver(agent(model, telemetry)).run("Go.")
        first, second = telemetry.named("chat gpt-5.5")
        assert (about(first)["error.type"], about(first)["flyball.attempt"]) == ("model_unavailable", 1)
        assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, None)
        assert "gen_ai.response.finish_reasons" not in about(first)
        assert (about(second)["flyball.attempt"], second.status.status_code) == (2, StatusCode.UNSET)
        (retried,) = telemetry.only("invoke_agent adder").events
        assert (retried.name, dict(retried.attributes or {})) == (
            "flyball.retried",
            {"flyball.attempt": 1, "flyball.wait_s": 1},
        )

    def test_a_run_that_failed_is_an_error(self, telemetry: Telemetry) -> None:
        agent(scripted(fail(ModelError("no such model"))), telemetry).run("Go.")
        run = telemetry.only("invoke_agent adder")
        assert (run.status.status_code, about(run)["error.type"], about(run)["flyball.stop"]) == (
            StatusCode.ERROR,
            "model_failed",
            "failed",
        )

    def test_a_call_that_fails_or_is_denied_says_so(self, telemetry: Telemetry) -> None:
        model = scripted(together(call("broken"), call("add", a=1, b=2)), say("x"))
        agent(model, telemetry, limits=Limits(tool_calls=1)).run("Go.")
        failed, denied = telemetry.only("execute_tool broken"), telemetry.only("execute_tool add")
        assert (about(failed)["error.type"], failed.status.status_code) == ("failed", StatusCode.ERROR)
        assert (about(denied)["error.type"], about(denied)["flyball.call.reason"]) == ("denied", "budget")
        assert seconds(denied) == 0

    def test_a_run_that_is_cancelled_leaves_no_span_open(self, telemetry: Telemetry) -> None:
        run = agent(scripted(say("x").after(60)), telemetry).start("Go.")
        next(iter(run))
        run.cancel()
        assert run.result(60).stop == "cancelled"
        assert [span.name for span in telemetry.spans] == ["invoke_agent adder", "chat gpt-5.5"]


class TestMetrics:
    def test_tokens_and_seconds_of_requests_are_measured(self, telemetry: Telemetry) -> None:
        model = scripted(fail(Retryable("busy", after=1)), say("x").after(3).using(Usage(100, 20)))
        ScriptDriver(agent(model, telemetry)).run("Go.")
        whom = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "openai",
            "gen_ai.request.model": "gpt-5.5",
        }
        tokens = telemetry.points("gen_ai.client.token.usage")
        answered = {**whom, "gen_ai.response.model": "gpt-5.5"}
        assert [(dict(point.attributes), point.sum) for point in tokens] == [
            ({**answered, "gen_ai.token.type": "input"}, 100),
            ({**answered, "gen_ai.token.type": "output"}, 20),
        ]
        durations = telemetry.points("gen_ai.client.operation.duration")
        assert [(dict(point.attributes), point.sum) for point in durations] == [
            ({**whom, "error.type": "model_unavailable"}, 0),
            (answered, 3),
        ]
        assert tokens[0].explicit_bounds[:4] == (1, 4, 16, 64)

    def test_budgets_and_refusals_of_runs_are_measured(self, telemetry: Telemetry) -> None:
        for _ in range(2):
            model = scripted(call("add", a=1, b=2), say("I added."), price=TokenPrice(input=3, output=15))
            agent(model, telemetry, limits=Limits(turns=1, usd=2, tokens=1_000)).run("Go.")

        def sums(metric: str) -> dict[str, tuple[int, float]]:
            points = telemetry.points(metric)
            assert {point.attributes["gen_ai.agent.name"] for point in points} == {"adder"}
            assert {point.attributes["flyball.stop"] for point in points} == {"budget"}
            return {point.attributes["flyball.budget.name"]: (point.count, round(point.sum, 6)) for point in points}

        used, share = sums("flyball.budget.usage"), sums("flyball.budget.utilization")
        assert (used["turns"], used["tokens"], used["usd"]) == ((2, 2), (2, 60), (2, 0.00042))
        assert (share["turns"], share["tokens"], share["usd"]) == ((2, 2.0), (2, 0.06), (2, 0.00021))
        assert "depth" not in share
        (refusal,) = telemetry.points("flyball.budget.refusals")
        assert (refusal.attributes["flyball.budget.name"], refusal.value) == ("turns", 2)
        (run,) = telemetry.points("flyball.run.duration")
        assert run.count == 2

    def test_tokens_that_nobody_told_are_not_measured(self, telemetry: Telemetry) -> None:
        agent(scripted(say("x").using(None)), telemetry).run("Go.")
        assert telemetry.points("gen_ai.client.token.usage") == []


class TestContent:
    def test_nothing_that_was_said_is_recorded(self, telemetry: Telemetry) -> None:
        model = scripted(say("hunter2", call("broken")), fail(Retryable("hunter2", after=0)), say("hunter2"))
        agent(model, telemetry, instructions="hunter2").run("hunter2")
        told = " ".join(span.to_json() for span in telemetry.spans)
        assert "chat gpt-5.5" in told
        assert "hunter2" not in told
        assert "secret path" not in told

    def test_messages_arguments_and_results_are_recorded_on_request(self) -> None:
        telemetry = Telemetry(content=True)
        agent(scripted(say("I add.", call("add", a=1, b=2)), say("3")), telemetry, instructions="Add.").run("1 + 2?")
        first, second = telemetry.named("chat gpt-5.5")
        assert json.loads(about(first)["gen_ai.system_instructions"]) == [{"type": "text", "content": "Add."}]
        task = {"role": "user", "parts": [{"type": "text", "content": "1 + 2?"}]}
        asked = {"type": "tool_call", "id": "call-0", "name": "add", "arguments": {"a": 1, "b": 2}}
        text = {"type": "text", "content": "I add."}
        assert json.loads(about(first)["gen_ai.input.messages"]) == [task]
        assert json.loads(about(first)["gen_ai.output.messages"]) == [
            {"role": "assistant", "parts": [text, asked], "finish_reason": "tool_calls"}
        ]
        response = {"type": "tool_call_response", "id": "call-0", "response": "3"}
        assert json.loads(about(second)["gen_ai.input.messages"]) == [
            task,
            {"role": "assistant", "parts": [text, asked]},
            {"role": "tool", "parts": [response]},
        ]
        executed = telemetry.only("execute_tool add")
        assert about(executed)["gen_ai.tool.call.arguments"] == '{"a": 1, "b": 2}'
        assert about(executed)["gen_ai.tool.call.result"] == "3"
        telemetry.close()

    def test_sensitive_parameters_are_hidden_even_then(self) -> None:
        @tool(sensitive=["password"])
        def log_in(user: str, password: str) -> str:
            """Log in."""
            return f"welcome, {user}"

        telemetry = Telemetry(content=True)
        model = scripted(call("log_in", user="ada", password="hunter2"), say("Done."))
        Agent(model=model, tools=[log_in], sinks=[telemetry.sink]).run("Go.")
        told = " ".join(span.to_json() for span in telemetry.spans)
        assert "welcome, ada" in told
        assert "hunter2" not in told
        telemetry.close()

    def test_other_sinks_do_not_see_content(self) -> None:
        seen: list[Event] = []
        telemetry = Telemetry(content=True)
        made = Agent(model=scripted(say("x")), instructions="hunter2", sinks=[telemetry.sink, seen.append])
        made.run("Go.")
        assert "hunter2" not in str([event.to_dict() for event in seen])
        telemetry.close()


class TestMemory:
    def test_nothing_of_a_run_that_ended_is_kept(self, telemetry: Telemetry) -> None:
        for _ in range(3):
            agent(scripted(call("add", a=1, b=2), say("3")), telemetry).run("1 + 2?")
        assert telemetry.sink._runs == telemetry.sink._newest == {}  # pyright: ignore[reportPrivateUsage]

    def test_a_governed_run_is_a_span_too(self, telemetry: Telemetry) -> None:
        with flyball.govern(Limits(turns=1), sinks=[telemetry.sink]) as run:
            for turn in run:
                turn.settle({"input_tokens": 40, "output_tokens": 10})
        span = telemetry.only("invoke_agent")
        assert (about(span)["flyball.stop"], about(span)["flyball.budget.turns.used"]) == ("budget", 1)

    def test_a_governed_run_does_not_claim_that_it_used_no_tokens(self, telemetry: Telemetry) -> None:
        with flyball.govern(Limits(turns=1), sinks=[telemetry.sink]) as run:
            for turn in run:
                turn.settle({"input_tokens": 40, "output_tokens": 10})
        facts = about(telemetry.only("invoke_agent"))
        assert facts["flyball.budget.tokens.used"] == 100
        assert [name for name in facts if name.startswith("gen_ai.usage.")] == []

    def test_what_is_open_when_a_run_ends_ends_with_it(self, telemetry: Telemetry) -> None:
        lost: list[Event] = []
        maker = Agent(model=scripted(call("add", a=1, b=2), say("3")), tools=[add], sinks=[lost.append])
        maker.run("1 + 2?")
        for event in lost:
            if not isinstance(event, ModelReplied | ToolEnded):
                telemetry.sink(event)
        assert {about(span).get("error.type") for span in telemetry.spans if span.parent} == {"cut"}
        assert len(telemetry.spans) == 3

    def test_events_of_a_run_whose_beginning_it_missed_are_left_aside(self, telemetry: Telemetry) -> None:
        result = agent(scripted(call("add", a=1, b=2), say("3")), telemetry).run("1 + 2?")
        telemetry.exporter.clear()
        for event in result.events[1:]:
            telemetry.sink(event)
        assert (telemetry.spans, result.sink_errors) == ([], 0)


def test_without_the_extra_one_line_says_so(snapshot: Callable[..., None]) -> None:
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from flyball.otel import OtelSink\n"
        "try: OtelSink()\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("UsageError ")
    assert "pip install 'flyball-ai[otel]'\n" in done.stdout
    snapshot(done.stdout)


def test_the_api_alone_is_enough_and_then_nothing_is_made() -> None:
    program = (
        "import sys; sys.modules['opentelemetry.sdk'] = None; sys.modules['opentelemetry.semconv'] = None\n"
        "from flyball import Agent\n"
        "from flyball.otel import OtelSink\n"
        "from flyball.testing import ScriptedModel, say\n"
        "print(Agent(model=ScriptedModel(say('x')), sinks=[OtelSink()]).run('Go.').sink_errors)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "0\n"
