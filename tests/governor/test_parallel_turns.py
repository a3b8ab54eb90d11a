"""Turns of several conversations at once on one envelope, from threads and tasks."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest
import trio

from flyball import ConfigError, Deadline, Limits, Reserve, TokenPrice, TurnBudget, govern
from flyball.errors import UsageError
from flyball.event import Event
from flyball.testing import ManualClock

USED = {"input_tokens": 40, "output_tokens": 10}


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work` in threads that start together, and raise their first error."""
    errors: list[BaseException] = []
    barrier = Barrier(count)

    def start(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=start, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]


class TestBeginning:
    def test_two_conversations_have_turns_at_the_same_time(self) -> None:
        with govern(Limits(turns=3, tokens=10_000)) as run:
            first = run.begin_turn("a", max_output_tokens=100)
            second = run.begin_turn("b", max_output_tokens=200)
            assert first
            assert second
            assert (first.conversation, first.number, first.max_output_tokens) == ("a", 1, 100)
            assert (second.conversation, second.number, second.max_output_tokens) == ("b", 2, 200)
            assert run.envelope.budgets["tokens"].held == 2_000 + 300
            second.settle(USED)
            first.settle(USED)
            first.end()
            second.end()
            second.end()
            run.complete("both")
        result = run.result()
        assert (result.stop, result.turns, result.requests, result.usage.total) == ("completed", 2, 2, 100)
        assert result.budgets["tokens"].held == 0
        events = [(event.kind, event.turn) for event in result.events if event.kind.startswith("turn_")]
        assert events == [("turn_started", 1), ("turn_started", 2), ("turn_ended", 1), ("turn_ended", 2)]

    def test_a_refused_turn_is_none_and_the_reason_of_the_run(self) -> None:
        with govern(Limits(turns=1)) as run:
            turn = run.begin_turn()
            assert turn
            turn.end()
            assert run.begin_turn() is None
        assert (run.result().stop, run.result().flags) == ("budget", ("max_agent_iterations_reached",))

    def test_one_conversation_may_be_refused_while_another_goes_on(self) -> None:
        with govern(Limits(turns=9, tokens=1_000)) as run:
            assert run.begin_turn("long", input_tokens=900) is None
            turn = run.begin_turn("short", input_tokens=10)
            assert turn
            assert turn.max_output_tokens == 790
            turn.end()
        assert (run.result().turns, run.result().flags) == (1, ("max_tokens_reached",))

    def test_input_above_the_context_is_refused(self) -> None:
        with govern(Limits(context_tokens=100)) as run:
            assert run.begin_turn(input_tokens=101) is None
        assert run.result().flags == ("max_context_tokens_reached",)

    def test_an_unsettled_turn_counts_its_reservation_when_it_ends_or_the_run_does(self) -> None:
        with govern(Limits(turns=9, tokens=10_000)) as run:
            first = run.begin_turn("a", input_tokens=50, max_output_tokens=100)
            second = run.begin_turn("b", input_tokens=50, max_output_tokens=300)
            assert first
            assert second
            first.end()
        result = run.result()
        assert (result.budgets["tokens"].used, result.estimated_requests, result.turns) == (500, 2, 2)

    def test_a_turn_may_make_several_requests_and_expect_their_input(self) -> None:
        with govern(Limits(turns=9, tokens=10_000), max_output_tokens=100) as run:
            turn = run.begin_turn()
            assert turn
            assert turn.expect(500)
            assert run.envelope.budgets["tokens"].held == 2_000 + 600
            turn.settle(USED)
            assert turn.max_output_tokens == 100
            turn.settle(None)
            assert not turn.expect(9_000)
            assert turn.max_output_tokens == 0
            turn.end()
        assert run.result().budgets["tokens"].used == 50 + 100

    def test_no_turn_begins_after_a_cancel_or_the_end(self) -> None:
        with govern(Limits(turns=9)) as run:
            run.cancel()
            assert run.begin_turn() is None
        assert run.begin_turn() is None
        assert run.result().stop == "cancelled"

    def test_a_loop_and_parallel_turns_do_not_mix(self) -> None:
        with govern(Limits(turns=9)) as run:
            next(run)
            with pytest.raises(UsageError, match="begin_turn"):
                run.begin_turn()

    def test_a_turn_of_a_loop_may_be_ended_early(self) -> None:
        with govern(Limits(turns=2)) as run:
            for turn in run:
                turn.settle(USED)
                turn.end()
                turn.end()
        assert (run.result().turns, run.result().requests) == (2, 3)

    def test_events_reach_the_sink_at_once_from_any_thread(self) -> None:
        seen: list[Event] = []
        with govern(Limits(turns=9), sinks=[seen.append]) as run:
            in_threads(3, lambda number: (run.begin_turn(number) or pytest.fail("it was refused")).end())
            assert Counter(event.kind for event in seen)["turn_ended"] == 3
        assert [event.seq for event in seen] == list(range(len(seen)))


class TestGrace:
    def test_each_conversation_that_had_a_turn_gets_one_report(self) -> None:
        with govern(Limits(turns=2, tokens=10_000)) as run:
            for name in "ab":
                turn = run.begin_turn(name, max_output_tokens=10)
                assert turn
                assert run.enter_grace(name) is None  # no limit was reached yet
                turn.settle(USED)
                turn.end()
            assert run.begin_turn("a") is None
            graces = [run.enter_grace(name) for name in ("a", "a", "b", "unknown")]
            assert [grace is not None for grace in graces] == [True, False, True, False]
            assert graces[0]
            assert graces[2]
            assert graces[0].grace
            assert not graces[0].claim_tool("x")
            graces[0].settle(USED)
            graces[0].end()
            run.complete("report")
        result = run.result()
        assert (result.stop, result.text, result.turns, result.requests) == ("budget", "report", 2, 4)
        kinds = Counter(event.kind for event in result.events)
        assert kinds["grace_started"] == kinds["grace_ended"] == 2

    def test_the_text_of_one_report_leaves_those_of_other_conversations(self) -> None:
        with govern(Limits(turns=2)) as run:
            for name in "ab":
                turn = run.begin_turn(name)
                assert turn
                turn.end()
            assert run.begin_turn("a") is None
            for name in "ab":
                grace = run.enter_grace(name)
                assert grace, name
                run.complete(f"report of {name}")
                grace.end()
        assert (run.result().stop, run.result().text) == ("budget", "report of b")

    def test_reports_share_the_reserve(self) -> None:
        with govern(Limits(turns=3, tokens=1_000, reserve=Reserve(tokens=300))) as run:
            for name in "abc":
                turn = run.begin_turn(name)
                assert turn
                turn.settle({"input_tokens": 0, "output_tokens": 200})
                turn.end()
            assert run.begin_turn("a") is None
            graces = [run.enter_grace(name, input_tokens=0) for name in "abc"]
            assert [grace and grace.max_output_tokens for grace in graces] == [133, 133, 134]
        assert run.result().budgets["tokens"].used == 1_000

    def test_work_cannot_use_the_reserve_while_conversations_report(self) -> None:
        with govern(Limits(turns=9, tokens=1_000, reserve=Reserve(tokens=300))) as run:
            for name in "ab":
                turn = run.begin_turn(name, input_tokens=0, max_output_tokens=100)
                assert turn
                turn.end()
            assert run.begin_turn("a", input_tokens=600) is None
            grace = run.enter_grace("a", input_tokens=10, max_output_tokens=40)
            assert grace
            assert grace.max_output_tokens == 40
            grace.settle(USED)
            work = run.begin_turn("b", input_tokens=0)
            assert work
            assert work.max_output_tokens == 500 - 50
            run.complete()

    def test_without_grace_there_is_none(self) -> None:
        with govern(Limits(turns=1), grace=False) as run:
            turn = run.begin_turn("a")
            assert turn
            turn.end()
            assert (run.begin_turn("a"), run.enter_grace("a")) == (None, None)

    def test_a_halt_decides_about_reports(self) -> None:
        for grace in (True, False):
            with govern(Limits(turns=9)) as run:
                turn = run.begin_turn("a")
                assert turn
                turn.end()
                run.halt("me", grace=grace)
                assert run.begin_turn("a") is None
                assert (run.enter_grace("a") is not None) is grace
            assert run.result().stop == "halted"

    def test_after_the_time_for_work_a_report_has_the_rest_of_the_time(self) -> None:
        clock = ManualClock()
        with govern(Limits(seconds=100), clock=clock) as run:
            turn = run.begin_turn("a")
            assert turn
            clock.move(86)
            turn.end()
            assert run.begin_turn("a") is None
            grace = run.enter_grace("a")
            assert grace
            assert grace.remaining_s() == 14
        assert (run.result().stop, run.result().flags) == ("deadline", ("max_seconds_reached",))


class TestWaiting:
    def test_a_claim_waits_for_units_that_others_only_hold(self) -> None:
        with govern(Limits(turns=9, tokens=1_000)) as run:
            first = run.begin_turn("a", input_tokens=0)
            assert first
            assert first.max_output_tokens == 800
            got: list[int | None] = []

            def begin() -> None:
                turn = run.begin_turn("b", input_tokens=0)
                got.append(turn and turn.max_output_tokens)

            waiter = Thread(target=begin, daemon=True)
            waiter.start()
            time.sleep(0.05)
            assert got == []
            first.settle({"input_tokens": 100, "output_tokens": 100})
            waiter.join(60)
            assert got == [600]
            run.complete()
        assert run.result().completed

    def test_a_claim_above_the_ceiling_is_refused_at_once(self) -> None:
        with govern(Limits(turns=9, tokens=1_000)) as run:
            assert run.begin_turn("a")
            assert run.begin_turn("b", input_tokens=800) is None
        assert run.result().flags == ("max_tokens_reached",)

    def test_a_claim_that_waits_ends_with_the_time_for_work(self) -> None:
        clock = ManualClock()
        with govern(Limits(seconds=100, tokens=1_000), clock=clock) as run:
            assert run.begin_turn("a")
            got: list[Any] = []
            waiter = Thread(target=lambda: got.append(run.begin_turn("b")), daemon=True)
            waiter.start()
            time.sleep(0.02)
            clock.move(86)
            waiter.join(60)
            assert got == [None]
        assert (run.result().stop, run.result().flags) == ("deadline", ("max_seconds_reached",))

    def test_a_claim_that_waits_ends_with_a_cancel(self) -> None:
        with govern(Limits(tokens=1_000)) as run:
            assert run.begin_turn("a")
            got: list[Any] = []
            waiter = Thread(target=lambda: got.append(run.begin_turn("b")), daemon=True)
            waiter.start()
            run.cancel()
            waiter.join(60)
            assert got == [None]

    def test_a_sync_claim_that_would_block_the_event_loop_names_the_async_one(self) -> None:
        async def begin_twice() -> None:
            with govern(Limits(tokens=1_000)) as run:
                assert run.begin_turn("a")
                with pytest.raises(UsageError, match="abegin_turn"):
                    run.begin_turn("b")

        asyncio.run(begin_twice())
        trio.run(begin_twice)

    @pytest.mark.parametrize("backend", ["asyncio", "trio"])
    def test_tasks_wait_without_blocking_the_event_loop(self, backend: str) -> None:
        outputs: list[int | None] = []

        async def work(run: govern, name: str, pause: Callable[[float], Any]) -> None:
            turn = await run.abegin_turn(name, input_tokens=0)
            assert turn
            outputs.append(turn.max_output_tokens)
            await pause(0.02)
            turn.settle({"input_tokens": 50, "output_tokens": 50})
            turn.end()

        async def in_asyncio() -> None:
            async with asyncio.timeout(60), govern(Limits(turns=9, tokens=1_000)) as run:
                await asyncio.gather(*[work(run, name, asyncio.sleep) for name in "abc"])
                run.complete()

        async def in_trio() -> None:
            with trio.fail_after(60):
                async with govern(Limits(turns=9, tokens=1_000)) as run:
                    async with trio.open_nursery() as nursery:
                        for name in "abc":
                            nursery.start_soon(work, run, name, trio.sleep)
                    run.complete()

        if backend == "asyncio":
            asyncio.run(in_asyncio())
        else:
            trio.run(in_trio)
        assert outputs == [800, 700, 600]


class Tally:
    """Own account of what the workers of a run did."""

    def __init__(self) -> None:
        self.turns: list[int] = []
        self.tokens: list[int] = []
        self.graces: list[int] = []

    def work(self, run: govern, conversation: int, draw: random.Random) -> None:
        while True:
            turn = run.begin_turn(conversation, input_tokens=draw.randint(0, 30), max_output_tokens=draw.randint(1, 60))
            if turn is None:
                break
            self.turns.append(turn.number)
            self.use(turn, draw)
        grace = run.enter_grace(conversation)
        if grace is not None:
            self.graces.append(conversation)
            self.use(grace, draw)

    def use(self, turn: Any, draw: random.Random) -> None:
        tokens, output = turn.envelope.budgets["tokens"], turn.max_output_tokens
        with turn.envelope.lock:
            assert tokens.ceiling is None or tokens.used + tokens.held <= tokens.ceiling
        used = {"input_tokens": 0, "output_tokens": draw.randint(1, output)}
        if draw.random() < 0.3:
            time.sleep(0.001)
        turn.settle(used)
        self.tokens.append(used["output_tokens"])
        turn.end()


@pytest.mark.parametrize("limits", [Limits(turns=400, tokens=8_000), Limits(turns=60, tokens=None)])
def test_many_threads_and_tasks_count_exactly_once(limits: Limits) -> None:
    tally = Tally()
    with govern(limits, max_output_tokens=60) as run:

        async def task(number: int) -> None:
            draw = random.Random(number)
            while (turn := await run.abegin_turn(number, max_output_tokens=draw.randint(1, 60))) is not None:
                tally.turns.append(turn.number)
                await asyncio.sleep(0)
                tally.use(turn, draw)
            grace = await run.aenter_grace(number)
            if grace is not None:
                tally.graces.append(number)
                tally.use(grace, draw)

        async def tasks(first: int) -> None:
            async with asyncio.timeout(100):
                await asyncio.gather(*[task(first + number) for number in range(8)])

        def work(number: int) -> None:
            if number < 12:
                tally.work(run, number, random.Random(number))
            else:
                asyncio.run(tasks(100 * number))

        in_threads(14, work)
        run.complete("done")
    result = run.result()
    turns, tokens = result.budgets["turns"], result.budgets["tokens"]
    assert sorted(tally.turns) == list(range(1, len(tally.turns) + 1))
    assert (turns.used, turns.held, result.turns) == (len(tally.turns), 0, len(tally.turns))
    assert (tokens.used, tokens.held, result.usage.total) == (sum(tally.tokens), 0, sum(tally.tokens))
    assert result.requests == len(tally.turns) + len(tally.graces)
    assert max(Counter(tally.graces).values()) == 1
    assert result.stop == "budget"
    kinds = Counter(event.kind for event in result.events)
    assert kinds["turn_started"] == kinds["turn_ended"] == len(tally.turns)
    assert kinds["grace_started"] == kinds["grace_ended"] == len(tally.graces)
    assert [event.seq for event in result.events] == list(range(result.events_dropped, len(result.events)))


class TestSharedBudgets:
    def test_claims_of_a_loop_also_count_in_the_shared_budget(self) -> None:
        shared = TurnBudget.of({"turns": 3, "tokens": 10_000}, Deadline.after(60), prefix="team_")
        with govern(Limits(turns=9, tool_calls=9), within=shared) as run:
            for turn in run:
                assert turn.claim_tool("x") is not turn.grace
                turn.settle(USED)
        result = run.result()
        assert (result.stop, result.turns, result.flags) == ("budget", 3, ("max_team_turns_reached",))
        assert (shared.budgets["turns"].used, shared.budgets["tokens"].used) == (3, 200)
        assert (shared.budgets["tokens"].held, shared.budgets["tool_calls"].used) == (0, 3)

    def test_an_async_loop_counts_there_too(self) -> None:
        shared = TurnBudget.of({"turns": 2}, Deadline.after(60))

        async def loop() -> None:
            async with govern(Limits(turns=9), within=shared) as run:
                async for turn in run:
                    turn.settle(USED)

        asyncio.run(loop())
        assert shared.budgets["turns"].used == 2

    def test_a_tool_call_is_refused_by_the_shared_budget(self) -> None:
        shared = TurnBudget.of({"tool_calls": 1}, Deadline.after(60), prefix="team_")
        with govern(Limits(tool_calls=9), within=shared) as run:
            turn = next(run)
            assert [turn.claim_tool("x"), turn.claim_tool("x")] == [True, False]
            run.complete()
        assert run.result().budgets["tool_calls"].used == 1
        assert run.result().flags == ("max_team_tool_calls_reached",)

    def test_the_deadline_of_the_shared_budget_ends_the_run(self) -> None:
        clock = ManualClock()
        shared = TurnBudget.of({}, Deadline.after(10, clock))
        with govern(Limits(turns=9), within=shared, clock=clock) as run:
            for turn in run:
                turn.settle(USED)
                clock.move(9)
        assert (run.result().stop, run.result().turns) == ("deadline", 1)

    def test_a_money_limit_that_is_shared_needs_a_price(self) -> None:
        shared = TurnBudget.of({"usd": 10**9}, Deadline.after(60))
        with pytest.raises(ConfigError, match="without a price"):
            govern(within=shared).__enter__()

    def test_money_is_reserved_and_settled_in_both(self) -> None:
        shared = TurnBudget.of({"usd": 10**9}, Deadline.after(60))
        with govern(Limits(turns=2), within=shared, price=TokenPrice(input=1_000, output=1_000)) as run:
            for turn in run:
                assert turn.max_output_tokens
                turn.settle({"input_tokens": 10, "output_tokens": 10})
        assert run.result().budgets["usd"].used == shared.budgets["usd"].used == 60 * 10**6
        assert shared.budgets["usd"].held == 0

    def test_a_refunded_turn_returns_to_the_shared_budget(self) -> None:
        shared = TurnBudget.of({"turns": 2}, Deadline.after(60))
        with govern(Limits(turns=9), within=shared) as run:
            next(run).refund("cheap_round")
            run.complete()
        assert shared.budgets["turns"].used == 0

    def test_several_runs_never_pass_the_shared_ceiling_and_it_recounts(self) -> None:
        shared = TurnBudget.of({"turns": 100, "tokens": 6_000}, Deadline.after(100))
        tallies = [Tally() for _ in range(6)]

        def work(number: int) -> None:
            with govern(Limits(turns=50), within=shared, max_output_tokens=60) as run:
                tallies[number].work(run, 0, random.Random(number))
                run.complete()
            assert run.result().usage.total == sum(tallies[number].tokens)

        in_threads(6, work)
        turns, tokens = shared.budgets["turns"], shared.budgets["tokens"]
        assert turns.used == sum(len(tally.turns) for tally in tallies) <= 100
        assert tokens.used == sum(sum(tally.tokens) for tally in tallies) <= 6_000
        assert (turns.held, tokens.held) == (0, 0)

    def test_something_else_than_a_budget_is_an_error(self) -> None:
        with pytest.raises(ConfigError, match="govern, within"):
            govern(within=5)  # pyright: ignore[reportArgumentType]
