"""The part that all adapters have, with models and replies of Flyball's own in place of a framework's."""

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pytest

from flyball import IterationBudgetRegistry, Limits, TokenPrice, Usage
from flyball.adapters import AdapterOptions
from flyball.adapters.framework_run import FrameworkRun
from flyball.adapters.frameworks import Framework
from flyball.adapters.model_port import AskedModel, Edits, name_model, parse_usage
from flyball.errors import UsageError
from flyball.event import ToolEnded
from flyball.request import Call, Finish, Reply

NOTHING = Framework("Nothing", "nothing", "nothing", "1", "2")
USED = Usage(100, 20)
CALLING = Reply("", (Call("c1", "add", {"a": 1}),), USED, Finish.CALLS)


@dataclass
class Port:
    """Model that calls a tool until it is asked for the report."""

    reply: Callable[[Edits], Reply] = lambda edits: Reply("The report.", (), USED) if edits.is_last else CALLING
    edits: list[Edits] = field(default_factory=list[Edits])

    def send(self, edits: Edits) -> Reply:
        self.edits.append(edits)
        return self.reply(edits)

    def read(self, reply: Reply) -> Reply:
        return reply

    def count_server_calls(self, reply: Reply) -> int:
        return 0

    def make(self, text: str, original: Reply | None) -> Reply:
        return Reply(text)

    def drop_calls(self, reply: Reply, call_ids: Collection[str]) -> Reply:
        return replace(reply, calls=tuple(call for call in reply.calls if call.id not in call_ids))


def ask_for_ever(run: FrameworkRun, port: Port, key: str = "one", asked: AskedModel | None = None) -> list[Reply]:
    """Do what a framework does: ask, call the tools, and ask again until there is no call."""
    asked, replies = asked or AskedModel(model="openai:gpt-4o", input_bytes=400, tools=("add",)), list[Reply]()
    while not replies or replies[-1].calls:
        assert len(replies) < 50
        results = {call.id: "2" for reply in replies for call in reply.calls}
        replies.append(run.ask(run.conversations.find(key), replace(asked, results=results), port))
    return replies


def open_run(limits: Limits, **options: object) -> FrameworkRun:
    return FrameworkRun(replace(AdapterOptions(limits), **options), NOTHING)  # pyright: ignore[reportArgumentType]


def test_a_conversation_has_its_turns_and_then_one_report() -> None:
    port = Port()
    with open_run(Limits(turns=3)) as run:
        replies = ask_for_ever(run, port)
        again = run.ask(run.conversations.find("one"), AskedModel(model="m", input_bytes=1), port)
        run.complete(replies[-1].text)
    assert [bool(reply.calls) for reply in replies] == [True, True, True, False]
    assert [edits.is_last for edits in port.edits] == [False, False, False, True]
    assert "last request" in port.edits[-1].texts[-1]
    assert again.text.endswith("The report was given before.")
    result = run.result
    assert (result.stop, result.turns, result.requests, result.text) == ("budget", 3, 4, "The report.")
    ended = [event.status for event in result.events if isinstance(event, ToolEnded)]
    assert ended == ["done", "done", "done"]


def test_a_loop_that_ignores_the_end_of_its_conversation_gets_an_error() -> None:
    port, asked, replies = Port(), AskedModel(model="m", input_bytes=1), list[Reply]()
    with pytest.raises(UsageError, match="continued after 10 replies"), open_run(Limits(turns=2)) as run:
        while len(replies) < 50:
            replies.append(run.ask(run.conversations.find("one"), asked, port))
    assert (len(replies), len(port.edits)) == (13, 3)


def test_a_conversation_that_begins_after_the_limit_is_not_asked() -> None:
    port = Port()
    with open_run(Limits(turns=1)) as run:
        ask_for_ever(run, port)
        made = ask_for_ever(run, port, "two")
    assert made[0].text.startswith("Stopped by flyball before this conversation began: Maximum agent iterations (1)")
    assert len(port.edits) == 2


def test_threads_draw_on_the_same_budgets_and_each_has_its_report() -> None:
    ports = [Port() for _ in range(8)]
    with open_run(Limits(turns=20, tokens=20_000)) as run:

        def ask(port: Port) -> None:
            ask_for_ever(run, port, f"conversation {id(port)}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, ports))
        run.complete("Done.")
    work = sum(not edits.is_last for port in ports for edits in port.edits)
    reports = [sum(edits.is_last for edits in port.edits) for port in ports]
    begun = [bool(port.edits) for port in ports]
    assert work == 20
    assert reports == [int(one) for one in begun]
    assert run.result.usage.total == 120 * (work + sum(reports)) <= 20_000


def test_tasks_wait_for_tokens_that_others_hold_and_the_ceiling_holds() -> None:
    async def ask(run: FrameworkRun, number: int) -> int:
        port, asked = AsyncPort(), AskedModel(model="openai:gpt-4o", input_bytes=400, max_output_tokens=500)
        for _ in range(50):
            reply = await run.aask(run.conversations.find(number), asked, port)
            if not reply.calls:
                return len(port.edits)
        raise AssertionError("it does not end")

    class AsyncPort(Port):
        async def send(self, edits: Edits) -> Reply:  # pyright: ignore[reportIncompatibleMethodOverride]
            await asyncio.sleep(0)
            return super().send(edits)

    async def main() -> FrameworkRun:
        with open_run(Limits(tokens=12_000)) as run:
            requests = await asyncio.gather(*(ask(run, number) for number in range(10)))
            assert sum(requests) > 20
        return run

    result = asyncio.run(main()).result
    assert result.budgets["tokens"].used <= 12_000
    assert sum(one["reported"] for one in result.state["conversations"]) == 10


def test_calls_beyond_the_limit_are_left_out_and_the_next_request_is_the_last() -> None:
    three = Reply("", tuple(Call(f"c{n}", "add", "{}") for n in range(3)), USED, Finish.CALLS)
    port = Port(lambda edits: Reply("The report.", (), USED) if edits.is_last else three)
    with open_run(Limits(tool_calls=2)) as run:
        replies = ask_for_ever(run, port)
    assert [len(reply.calls) for reply in replies] == [2, 0]
    assert (replies[-1].text, run.result.budgets["tool_calls"].used) == ("The report.", 2)


def test_an_agent_that_may_make_no_call_reports_after_its_model_asked_for_one() -> None:
    port = Port(lambda edits: Reply("The report.", (), USED) if edits.is_last else CALLING)
    with open_run(Limits(tool_calls=0)) as run:
        replies = ask_for_ever(run, port)
    assert [(reply.text, reply.calls) for reply in replies][-1] == ("The report.", ())
    assert (run.result.turns, run.result.flags) == (1, ("max_tool_calls_reached",))


def test_the_final_tool_and_handoffs_are_no_tool_calls() -> None:
    final = Reply("", (Call("f", "final_result", "{}"), Call("h", "hand_over", "{}")), USED, Finish.CALLS)
    asked = AskedModel(model="m", input_bytes=1, final_tool="final_result", handoffs=("hand_over",), tools=("add",))
    with open_run(Limits(tool_calls=0)) as run:
        reply = run.ask(run.conversations.find(1), asked, Port(lambda edits: final))
    assert reply == final
    assert run.result.budgets["tool_calls"].used == 0


@pytest.mark.parametrize("text", ["", "Calling."])
def test_a_last_reply_that_calls_a_tool_is_replaced(text: str) -> None:
    port = Port(lambda edits: replace(CALLING, text=text))
    with open_run(Limits(turns=1)) as run:
        replies = ask_for_ever(run, port)
    assert replies[-1].text == text or replies[-1].text.startswith("Stopped by flyball: Maximum agent iterations (1)")


def test_a_hung_model_becomes_the_last_request() -> None:
    released = threading.Event()

    def hang(edits: Edits) -> Reply:
        if not edits.is_last:
            released.wait(30)
        return Reply("The report.", (), USED)

    with open_run(Limits(seconds=0.5)) as run:
        replies = ask_for_ever(run, Port(hang))
    released.set()
    assert (replies[-1].text, run.result.stop) == ("The report.", "deadline")
    assert run.result.estimated_requests == 1


def test_a_model_that_never_answers_gets_a_report_that_no_model_wrote() -> None:
    released = threading.Event()

    def hang(edits: Edits) -> Reply:
        released.wait(30)
        return Reply("late")

    with open_run(Limits(seconds=0.4)) as run:
        replies = ask_for_ever(run, Port(hang))
    released.set()
    assert replies[-1].text.startswith("Stopped by flyball: Maximum seconds")


def test_an_error_of_the_model_is_raised_with_its_code_in_the_result() -> None:
    def refuse(edits: Edits) -> Reply:
        raise ValueError("no such model")

    with pytest.raises(ValueError, match="no such model"), open_run(Limits(turns=3)) as run:
        ask_for_ever(run, Port(refuse))
    error = run.result.error
    assert error is not None
    assert (run.result.stop, error["code"], error["message"]) == ("failed", "model_failed", "ValueError: no such model")


@pytest.mark.parametrize(
    ("status", "message", "code"),
    [
        (400, "This model's maximum context length is 8,192 tokens.", "context_too_long"),
        (503, "Overloaded.", "model_unavailable"),
        (401, "Wrong key.", "model_failed"),
    ],
)
def test_an_error_of_the_provider_has_the_code_of_its_kind(status: int, message: str, code: str) -> None:
    class Refused(Exception):
        status_code = status

    def refuse(edits: Edits) -> Reply:
        raise Refused(message)

    with pytest.raises(Refused), open_run(Limits(retries=0)) as run:
        ask_for_ever(run, Port(refuse))
    error = run.result.error
    assert error is not None
    assert (error["code"], error["message"]) == (code, f"Refused: {message}")


def test_a_framework_that_retries_for_ever_ends_at_the_limit_of_retries() -> None:
    class Busy(Exception):
        status_code = 404

    def refuse(edits: Edits) -> Reply:
        raise Busy

    port = Port(refuse)
    with open_run(Limits(turns=10, retries=2)) as run:
        for _ in range(3):
            with pytest.raises(Busy):
                ask_for_ever(run, port)
        made = ask_for_ever(run, port)
    assert (len(port.edits), run.result.turns, "max_retries_reached" in run.result.flags) == (3, 0, True)
    assert made[0].text.startswith("Stopped by flyball")


def test_a_price_that_is_not_known_is_refused_before_the_request() -> None:
    port, asked = Port(), AskedModel(model="openai:mystery-1", input_bytes=4)
    with (
        pytest.raises(UsageError, match=r"price of openai:mystery-1 is not known.*\$1\.00"),
        open_run(Limits(usd=1)) as run,
    ):
        run.ask(run.conversations.find(1), asked, port)
    assert port.edits == []
    with open_run(Limits(usd=1), unpriced="tokens_only") as run:
        run.ask(run.conversations.find(1), asked, port)
    assert run.result.unpriced == ("mystery-1",)
    with open_run(Limits(usd=1), price=TokenPrice(input=1, output=2)) as run:
        run.ask(run.conversations.find(1), asked, port)
    assert run.result.cost == {"mystery-1": 140_000}


def test_a_run_inside_a_run_draws_on_both_and_is_a_level_deeper() -> None:
    port = Port()
    with open_run(Limits(turns=4, depth=1)) as outer:
        ask = outer.conversations.find("outer")
        outer.ask(ask, AskedModel(model="m", input_bytes=4), port)
        with open_run(Limits(turns=2)) as inner:
            ask_for_ever(inner, port)
            with open_run(Limits()) as third:
                [refused] = ask_for_ever(third, port)
        outer.complete("Done.")
    assert (inner.result.turns, outer.result.budgets["turns"].used) == (2, 3)
    assert (inner.result.stop, outer.result.stop, third.result.stop) == ("budget", "completed", "budget")
    assert "depth" in refused.text
    assert third.result.requests == 0


@pytest.mark.parametrize(
    ("limits", "used"),
    [(Limits(turns=3), "turns"), (Limits(tool_calls=3), "tool_calls"), (Limits(tokens=2_500), "tokens")],
)
def test_a_run_draws_on_all_runs_around_it(limits: Limits, used: str) -> None:
    with open_run(Limits(turns=40, tokens=50_000)) as outer, open_run(limits) as middle, open_run(Limits()) as inner:
        ask_for_ever(inner, Port())
    budget = middle.result.budgets[used]
    assert (inner.result.stop, inner.result.text) == ("budget", "")
    assert 0 < budget.used <= (budget.ceiling or 0)
    assert outer.result.budgets[used].used == budget.used == inner.result.budgets[used].used
    assert outer.result.budgets["tokens"].used == inner.result.usage.total
    assert all(not run.envelope.reserved("tokens") for run in (inner, middle, outer))


def test_a_run_is_independent_of_one_that_has_ended_and_of_another_budget() -> None:
    with open_run(Limits(turns=1)) as outer:
        context = threading.Event()
        outer.close()
        with open_run(Limits(turns=5)) as inner:
            ask_for_ever(inner, Port())
        context.set()
    assert inner.result.turns == 5


def test_cancelled_runs_make_no_more_requests() -> None:
    port = Port()
    with open_run(Limits(turns=5)) as run:
        conversation = run.conversations.find(1)
        run.ask(conversation, AskedModel(model="m", input_bytes=4), port)
        assert run.cancel()
        made = run.ask(conversation, AskedModel(model="m", input_bytes=4), port)
    assert (made.text.startswith("Stopped by flyball: The run was cancelled."), len(port.edits)) == (True, 1)
    assert run.result.stop == "cancelled"


def test_conversations_are_found_by_the_calls_in_their_history() -> None:
    conversations = open_run(Limits()).conversations
    first, second = conversations.add("a"), conversations.add("b")
    conversations.remember_calls(first, "a", ["c1", "c2"])
    conversations.remember_calls(second, "b", ["c1"])
    assert conversations.find_by_calls("a", iter(["x", "c1"])) is first
    assert conversations.find_by_calls("b", ["c1"]) is second
    assert conversations.find_by_calls("c", ["c2"]) is first
    assert conversations.find_by_calls("a", ["x"]) is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "unknown"),
        ("gpt-4o", "openai:gpt-4o"),
        ("azure/gpt-4o", "azure:gpt-4o"),
        ("litellm/anthropic/claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
    ],
)
def test_names_of_models_have_their_provider(name: str | None, expected: str) -> None:
    assert name_model(name) == expected


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": -1, "output_tokens": 2}, {"input_tokens": 0}, "lots", 7])
def test_a_usage_without_meaning_is_none(usage: object) -> None:
    assert parse_usage(usage) is None


def test_a_long_input_is_left_to_the_framework_unless_a_limit_is_set() -> None:
    long = AskedModel(model="openai:gpt-4.1", input_bytes=2_000_000, tools=("add",))
    answer = Port(lambda _: Reply("Done.", (), Usage(400_000, 20)))
    with open_run(Limits(turns=3)) as run:
        assert run.ask(run.conversations.find("one"), long, answer).text == "Done."
    for settings in ({"max_context_tokens": 300_000}, {"clamp.max_context_tokens": 300_000}):
        with open_run(Limits(turns=3), registry=IterationBudgetRegistry(settings=settings)) as run:
            run.ask(run.conversations.find("one"), long, answer)
        assert run.result.flags == ("max_context_tokens_reached",)
    with open_run(Limits(turns=3, context_tokens=300_000)) as run:
        run.ask(run.conversations.find("one"), long, answer)
    assert run.result.flags == ("max_context_tokens_reached",)
    assert len(answer.edits) == 1
