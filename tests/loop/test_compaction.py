"""Runs whose conversation gets too long: they go on with less of it, or end with a report."""

import threading
from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from flyball import Agent, Limits, tool
from flyball.errors import ConfigError, ContextTooLong, Retryable
from flyball.event import Elided, Header, ModelRequested, Refunded
from flyball.loop import Act, Answer, Ask, converse
from flyball.loop.effects import Cancel
from flyball.message import Message, check_pairs
from flyball.outcome import Success, Timeout
from flyball.recorder import Recorder
from flyball.request import Call, Finish, Purpose, Reply, Request, Usage, estimate_request_tokens
from flyball.result import Result
from flyball.testing import ScriptDriver, ScriptedModel, assert_honest, call, fail, say


@tool(effects="read")
def fetch(n: int, size: int = 1_000) -> str:
    """Fetch a page."""
    return f"page {n}: " + "word " * (size // 5)


class Reader:
    """A model that fetches page after page, counts as providers do, and takes no more than it can."""

    name, provider, price = "reader", None, None

    def __init__(self, pages: int, size: int = 1_000, takes: float = float("inf"), told: float = 0.5) -> None:
        self.pages = pages
        self.size = size
        self.takes = takes
        self.told = told
        self.requests: list[Request] = []

    def ready(self) -> str | None:
        return None

    async def ask(self, request: Request, tell: object, /) -> Reply:
        tokens = estimate_request_tokens(request)
        if tokens > self.takes:
            raise ContextTooLong(f"{tokens} tokens are too many")
        assert check_pairs(request.messages) == []
        if request.purpose is Purpose.GRACE:
            return Reply("I fetched pages.", usage=Usage(tokens, 5))
        self.requests.append(request)
        usage, n = Usage(int(tokens * self.told), 40), len(self.requests)
        if n > self.pages:
            return Reply("All read.", usage=usage)
        arguments = f'{{"n": {n}, "size": {self.size}}}'
        return Reply("", (Call(f"c{n}", "fetch", arguments),), usage, Finish.CALLS)


def run(model: Any, limits: Limits, **options: Any) -> Result:
    return assert_honest(
        ScriptDriver(Agent(model=model, tools=[fetch], limits=limits, **options)).run("Read them all.")
    )


def elisions(result: Result) -> list[Elided]:
    return [event for event in result.events if isinstance(event, Elided)]


@pytest.mark.parametrize("told", [0.3, 0.5, 1.0])
def test_three_hundred_turns_go_on_under_8_000_tokens(told: float) -> None:
    model = Reader(300, told=told)
    result = run(model, Limits(turns=301, context_tokens=8_000))
    assert (result.stop, result.turns, result.flags) == ("completed", 301, ())
    assert max(estimate_request_tokens(request) * told for request in model.requests) <= 8_000
    assert len(result.messages) == 1 + 2 * 300 + 1, "the whole stays in the result"
    assert sum(len(message.content) for message in result.messages) > 300_000
    assert 1 <= len(elisions(result)) <= 70, "much at a time"
    assert all(request.messages[0].content == "Read them all." for request in model.requests)


def test_without_usage_it_is_never_over_the_limit_by_the_upper_estimate() -> None:
    model = Reader(60, told=1.0)
    run(model, Limits(context_tokens=4_000))
    assert max(map(estimate_request_tokens, model.requests)) <= 4_000


def test_an_event_says_how_many_messages_and_tokens_are_gone() -> None:
    result = run(Reader(6), Limits(context_tokens=2_000))
    first = elisions(result)[0]
    assert first.messages >= 1
    assert first.tokens > 0


def test_where_the_newest_result_alone_is_too_long_the_run_ends_with_a_report() -> None:
    result = run(Reader(6, size=20_000), Limits(context_tokens=2_000))
    assert (result.stop, result.flags) == ("budget", ("max_context_tokens_reached",))
    assert result.text == "I fetched pages."
    assert result.turns == result.budgets["turns"].used == 1


def test_a_provider_that_takes_less_leads_there_too_and_the_turn_is_given_back() -> None:
    model = Reader(20, takes=3_000)
    result = run(model, Limits())
    assert (result.stop, result.text) == ("completed", "All read.")
    refunds = [event.reason for event in result.events if isinstance(event, Refunded)]
    assert refunds == ["round_never_started"] * len(refunds)
    assert refunds
    assert result.budgets["turns"].used == result.turns == 21
    assert result.requests == 21 + len(refunds)


def test_after_a_refusal_the_model_is_asked_less_from_then_on_and_not_only_once() -> None:
    model = Reader(60, takes=3_000, told=1.0)
    result = run(model, Limits())
    assert result.stop == "completed"
    assert result.requests - result.turns <= 2, "it remembers what was too long"


def test_a_provider_that_finds_everything_too_long_ends_it() -> None:
    result = run(Reader(60, takes=10), Limits())
    assert (result.stop, result.flags) == ("budget", ("max_context_tokens_reached",))
    assert result.warning is not None
    assert result.text.startswith(result.warning)


def test_a_shortened_run_goes_on_where_one_turn_was_allowed() -> None:
    history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b " * 2_000}] * 3
    model = ScriptedModel(fail(ContextTooLong("too long")), say("Here."))
    agent = Agent(model=model, single_turn=True)
    assert assert_honest(ScriptDriver(agent).run([*history, {"role": "user", "content": "c"}])).text == "Here."


def test_the_models_own_counter_is_believed() -> None:
    class Counting(Reader):
        def count(self, request: Request) -> int:
            return estimate_request_tokens(request) // 4

    model = Counting(30)
    assert run(model, Limits(context_tokens=2_000)).stop == "completed"
    assert max(estimate_request_tokens(request) // 4 for request in model.requests) in range(1_000, 2_001)


@pytest.mark.parametrize("share", [0.25, 3.0])
def test_as_much_stays_as_its_own_counter_allows(share: float) -> None:
    class Counting(Reader):
        def count(self, request: Request) -> int:
            return int(estimate_request_tokens(request) * share)

    model = Counting(12, size=1_200)
    result = run(model, Limits(context_tokens=int(3_000 * share)))
    assert (result.stop, result.flags) == ("completed", ())
    counted = [model.count(request) for request in model.requests]
    assert max(counted) <= 3_000 * share
    assert min(counted[5:]) >= 1_000 * share, "not more is taken away than need be"


def test_a_run_is_played_again_with_the_same_elisions() -> None:
    script = ScriptDriver(Agent(model=Reader(30), tools=[fetch], limits=Limits(context_tokens=3_000)))
    first = script.run("Read them all.")
    assert elisions(script.replay()) == elisions(first)


class TestCompact:
    def test_a_summary_stands_in_place_of_what_is_old(self) -> None:
        given: list[Sequence[Message]] = []

        def compact(messages: Sequence[Message]) -> str:
            given.append(messages)
            return f"Summary {len(given)}."

        model = Reader(40)
        result = run(model, Limits(context_tokens=4_000), compact=compact)
        assert result.stop == "completed"
        last = model.requests[-1].messages
        assert last[1].content.endswith(f"\nSummary: Summary {len(given)}.")
        assert any("Summary: Summary 1." in message.content for message in given[1]), "the next takes it in"
        assert not [message for message in result.messages if "Summary" in message.content]
        assert elisions(result)

    def test_a_compact_function_may_be_async(self) -> None:
        async def compact(messages: Sequence[Message]) -> str:
            return "Read."

        model = Reader(20)
        assert run(model, Limits(context_tokens=4_000), compact=compact).stop == "completed"
        assert any("Read." in message.content for message in model.requests[-1].messages)

    @pytest.mark.parametrize("answer", [None, 3, "", " ", "long " * 9_000, ValueError("no")], ids=repr)
    def test_without_a_summary_that_helps_it_is_as_without_one(self, answer: object) -> None:
        def compact(messages: Sequence[Message]) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        with_one, without = Reader(30), Reader(30)
        run(with_one, Limits(context_tokens=4_000), compact=compact)
        run(without, Limits(context_tokens=4_000))
        seen = [[[m.content for m in request.messages] for request in model.requests] for model in (with_one, without)]
        assert seen[0] == seen[1]

    def test_a_compact_function_that_blocks_does_so_in_a_thread_of_its_own(self) -> None:
        threads = set[str]()

        def compact(messages: Sequence[Message]) -> str:
            threads.add(threading.current_thread().name)
            return "Read."

        async def main() -> Result:
            agent = Agent(model=Reader(20), tools=[fetch], limits=Limits(context_tokens=4_000), compact=compact)
            return await agent.arun("Read them all.")

        assert assert_honest(anyio.run(main)).stop == "completed"
        assert threads
        assert threading.current_thread().name not in threads

    def test_a_cancel_while_it_sums_up_ends_the_run(self) -> None:
        def agent() -> Agent:
            limits = Limits(context_tokens=4_000)
            return Agent(model=Reader(20), tools=[fetch], limits=limits, compact=lambda messages: "Read.")

        script = ScriptDriver(agent())
        script.run("Read them all.")
        acts = [(n, effect.acts) for n, effect in enumerate(script.effects) if isinstance(effect, Act)]
        place = next(n for n, [act] in acts if act.call.name == "compact")
        result = assert_honest(ScriptDriver(agent(), signals={place: [Cancel()]}).run("Read them all."))
        assert result.stop == "cancelled"

    def test_a_compact_function_that_hangs_is_given_60_seconds_and_then_passed_over(self) -> None:
        limits = Limits(context_tokens=4_000)
        plan = Agent(model=Reader(20), tools=[fetch], limits=limits, compact=lambda _: "Read.").plan("Go.")
        loop = converse(plan, Recorder(Header(plan.run_id, None, 0.0, {})))
        effect, at, hung = next(loop), 0.0, list[str]()
        with pytest.raises(StopIteration) as end:
            while True:
                value: Any = None
                if isinstance(effect, Ask):
                    answered = len(effect.request.messages)
                    said = Call(f"c{answered}", "fetch", f'{{"n": {answered}}}')
                    value = Reply("All read.") if hung else Reply("", (said,), finish=Finish.CALLS)
                elif isinstance(effect, Act) and effect.acts[0].call.name == "compact":
                    assert effect.deadline == at + 60
                    at = effect.deadline
                    hung.append(effect.acts[0].call.id)
                    value = [Timeout(call_id=hung[-1], tool="compact", cap_s=60.0, hung=True)]
                elif isinstance(effect, Act):
                    value = [Success(call_id=act.call.id, tool="fetch", content="word " * 200) for act in effect.acts]
                effect = loop.send(Answer(value, at).received)
        result: Result = end.value.value
        assert (result.stop, result.text, result.hung, len(hung)) == ("completed", "All read.", 1, 1)

    def test_what_it_does_to_the_messages_stays_its_own(self) -> None:
        def compact(messages: Sequence[Message]) -> None:
            for message in messages:
                message.content = "gone"
                (message.payload or {}).clear()

        result = run(Reader(20), Limits(context_tokens=4_000), compact=compact)
        assert result.stop == "completed"
        assert not [message for message in result.messages if message.content == "gone"]

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), BaseException("odd")], ids=repr)
    def test_a_compact_function_that_raises_anything_ends_nothing(self, error: BaseException) -> None:
        def compact(messages: Sequence[Message]) -> str:
            raise error

        assert run(Reader(20), Limits(context_tokens=4_000), compact=compact).stop == "completed"

    def test_a_compact_option_that_is_no_function_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="agent, compact"):
            Agent(model=Reader(1), compact="gpt")  # pyright: ignore[reportArgumentType]


def test_calls_are_as_many_as_without_eliding() -> None:
    lines = [call("fetch", n=n) for n in range(20)]
    model = ScriptedModel(*[line.using(None) for line in lines], say("All read."))
    result = assert_honest(
        ScriptDriver(Agent(model=model, tools=[fetch], limits=Limits(context_tokens=3_000))).run("Go.")
    )
    assert (result.stop, len(result.tool_results)) == ("completed", 20)


PAGE = "The governor keeps the engine at its speed, whatever the load is. " * 40
"""About 600 tokens for tokenizers of today, 900 by the nearer estimate, and 1,800 by the upper one."""


def talk(pages: int) -> list[dict[str, str]]:
    """Return a conversation with so many long replies, and a task."""
    said = [{"role": role, "content": PAGE} for _ in range(pages) for role in ("user", "assistant")]
    return [*said, {"role": "user", "content": "Go on."}]


@pytest.mark.parametrize("told", [0.35, 0.0])
def test_a_long_conversation_is_not_shortened_because_its_upper_estimate_is_too_long(told: float) -> None:
    model = Reader(2, told=told)
    agent = Agent(model=model, tools=[fetch], limits=Limits(context_tokens=20_000))
    result = assert_honest(ScriptDriver(agent).run(talk(10)))
    assert (result.stop, elisions(result)) == ("completed", [])
    asked = [event.estimated_tokens for event in result.events if isinstance(event, ModelRequested)]
    assert estimate_request_tokens(model.requests[0]) > 30_000
    assert all(tokens <= 20_000 for tokens in asked)


def test_what_is_too_long_by_the_nearer_estimate_is_shortened_no_more_than_it_must() -> None:
    model = Reader(1, told=0.35)
    agent = Agent(model=model, tools=[fetch], limits=Limits(context_tokens=14_000))
    result = assert_honest(ScriptDriver(agent).run(talk(10)))
    assert (result.stop, len(elisions(result))) == ("completed", 1)
    assert 20_000 < estimate_request_tokens(model.requests[0]) <= 28_000


def test_a_task_that_is_too_long_by_any_estimate_is_refused_before_a_request() -> None:
    agent = Agent(model=Reader(1), tools=[fetch], limits=Limits(context_tokens=2_000))
    result = assert_honest(ScriptDriver(agent).run(PAGE * 10))
    assert (result.stop, result.requests, result.flags) == ("budget", 0, ("max_context_tokens_reached",))


def test_a_first_request_that_is_repeated_is_not_shortened_either() -> None:
    model = Reader(1, told=0.35)
    failing = [Retryable("busy", after=0.1)]
    ask = model.ask

    async def ask_twice(request: Request, tell: object, /) -> Reply:
        if failing:
            raise failing.pop()
        return await ask(request, tell)

    model.ask = ask_twice
    agent = Agent(model=model, tools=[fetch], limits=Limits(context_tokens=20_000))
    result = assert_honest(ScriptDriver(agent).run(talk(10)))
    assert (result.stop, result.requests, elisions(result)) == ("completed", 3, [])
