import asyncio
import gc
import math
import weakref
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from flyball import ConfigError, Deadline, DeadlineToken, IterationBudgetRegistry, Limits, Result, TurnBudget, govern
from flyball.errors import UsageError
from flyball.testing import ManualClock

USED = {"input_tokens": 40, "output_tokens": 10}


class TestTheLoop:
    def test_after_the_last_turn_comes_one_for_the_report(self) -> None:
        graces: list[bool] = []
        with govern(Limits(turns=3, tokens=5_000, seconds=60)) as run:
            for turn in run:
                graces.append(turn.grace)
                turn.settle(USED)
                if turn.grace:
                    run.complete("what was done")
        result = run.result()
        assert graces == [False, False, False, True]
        assert (result.stop, result.completed, result.text) == ("budget", False, "what was done")
        assert (result.turns, result.requests) == (3, 4)
        assert result.flags == ("max_agent_iterations_reached",)
        assert result.flags == ("max_agent_iterations_reached",)
        assert "(3)" in str(result.warning)
        assert result.usage.total == 200
        assert result.budgets["tokens"].used == 200
        assert result.to_dict()["max_turns_reached"] is True

    def test_an_answer_of_none_is_no_text(self) -> None:
        with govern(Limits(turns=2)) as run:
            for turn in run:
                turn.settle(USED)
                run.complete(None)
        assert (run.result().stop, run.result().text) == ("completed", "")

    def test_a_loop_that_completes_is_completed_even_on_its_last_turn(self) -> None:
        with govern(Limits(turns=2)) as run:
            for turn in run:
                if turn.number == 2:
                    run.complete("42")
        result = run.result()
        assert (result.stop, result.text, result.flags, result.turns, result.requests) == ("completed", "42", (), 2, 2)

    def test_without_grace_there_is_no_last_turn(self) -> None:
        with govern(Limits(turns=2), grace=False) as run:
            graces = [turn.grace for turn in run]
        assert graces == [False, False]
        assert run.result().stop == "budget"

    def test_leaving_by_break_is_halted_by_the_caller(self) -> None:
        with govern(Limits(turns=5)) as run:
            for _turn in run:
                break
        result = run.result()
        assert (result.stop, result.stopped_by, result.turns) == ("halted", "caller", 1)

    def test_leaving_by_break_in_the_grace_turn_keeps_the_reason(self) -> None:
        with govern(Limits(turns=1)) as run:
            for turn in run:
                if turn.grace:
                    break
        assert run.result().stop == "budget"

    def test_an_exception_is_a_failed_result_and_goes_on(self) -> None:
        run = govern(Limits(turns=5))
        with pytest.raises(ZeroDivisionError), run:
            for _turn in run:
                _ = 1 / 0
        result = run.result()
        assert result.stop == "failed"
        assert result.error == {"code": "exception", "kind": "ZeroDivisionError", "message": "division by zero"}

    @pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
    def test_an_interruption_is_a_cancelled_result_and_goes_on(self, error: type[BaseException]) -> None:
        run = govern(Limits(turns=5))
        with pytest.raises(error), run:
            for _turn in run:
                raise error
        assert run.result().stop == "cancelled"

    def test_an_exit_of_the_program_is_a_failed_run(self) -> None:
        run = govern(Limits(turns=5))
        with pytest.raises(SystemExit), run:
            for _turn in run:
                raise SystemExit(3)
        assert run.result().stop == "failed"

    def test_an_error_that_cannot_be_shown_does_not_lose_the_result(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ZeroDivisionError

        run = govern(Limits(turns=5))
        with pytest.raises(Mute), run:
            for _turn in run:
                raise Mute
        assert (run.result().error or {})["kind"] == "Mute"

    def test_the_worse_reason_wins(self) -> None:
        run = govern(Limits(turns=5))
        with pytest.raises(ZeroDivisionError), run:
            for _turn in run:
                run.complete("42")
                _ = 1 / 0
        assert (run.result().stop, run.result().text) == ("failed", "42")

    def test_a_loop_may_say_that_it_failed(self) -> None:
        with govern(Limits(turns=5)) as run:
            for _turn in run:
                run.fail("no disk")
        result = run.result()
        assert (result.stop, result.turns) == ("failed", 1)
        assert result.error == {"code": "failed", "kind": "str", "message": "no disk"}
        with govern(Limits(turns=5)) as run:
            for _turn in run:
                run.fail(ConfigError("here", 1, "2"))
        assert (run.result().error or {})["code"] == "config_invalid"

    def test_a_cancel_from_another_thread_ends_it_at_the_next_turn(self) -> None:
        reached: list[bool] = []
        with govern(Limits(turns=5)) as run:
            for turn in run:
                canceller = Thread(target=lambda: reached.append(run.cancel()))
                canceller.start()
                canceller.join(60)
                assert not turn.grace
        assert reached == [True]
        assert (run.result().stop, run.result().turns) == ("cancelled", 1)
        assert run.cancel() is False

    def test_a_loop_that_never_ran_is_halted(self) -> None:
        with govern(Limits(turns=5)) as run:
            pass
        assert (run.result().stop, run.result().requests) == ("halted", 0)


class TestTime:
    def test_when_the_time_for_work_is_over_there_is_time_for_the_report(self) -> None:
        clock = ManualClock()
        seen: list[tuple[bool, float]] = []
        with govern(Limits(seconds=100), clock=clock) as run:
            for turn in run:
                seen.append((turn.grace, turn.remaining_s()))
                clock.move(50)
        assert seen == [(False, 85.0), (False, 35.0)]
        assert (run.result().stop, run.result().flags) == ("deadline", ("max_seconds_reached",))
        assert run.result().flags == ("max_seconds_reached",)
        assert "(100 s)" in str(run.result().warning)

    def test_the_grace_turn_sees_the_hard_deadline(self) -> None:
        clock = ManualClock()
        seen: list[tuple[bool, float]] = []
        with govern(Limits(seconds=100), clock=clock) as run:
            for turn in run:
                seen.append((turn.grace, turn.deadline.remaining))
                clock.move(90 if not turn.grace else 5)
        assert seen == [(False, 85.0), (True, 10.0)]
        assert run.result().seconds == 95.0

    def test_a_tool_gets_a_token_that_ends_with_the_work(self) -> None:
        with govern(Limits(seconds=100), clock=ManualClock()) as run:
            for turn in run:
                assert DeadlineToken.from_budget(turn.envelope, 200).remaining_s() == 85.0
                run.complete()
        assert run.result().completed


class TestMistakes:
    def test_the_result_of_a_run_in_progress_is_refused_and_the_run_goes_on(self) -> None:
        with govern(Limits(turns=2)) as run:
            with pytest.raises(UsageError):
                run.result()
            for turn in run:
                with pytest.raises(ConfigError):
                    run.result()
                if turn.number == 2:
                    run.complete()
        result = run.result()
        assert (result.stop, result.turns) == ("completed", 2)
        assert [event.kind for event in result.events].count("run_ended") == 1

    def test_a_run_that_has_ended_cannot_be_entered_again_and_keeps_its_result(self) -> None:
        with govern(Limits(turns=1)) as run:
            pass
        result = run.result()
        with pytest.raises(ConfigError, match=r"govern\("):
            run.__enter__()
        assert run.result() == result

    def test_a_run_is_entered_first(self) -> None:
        with pytest.raises(ConfigError, match="with govern"):
            next(govern(Limits(turns=1)))

    @pytest.mark.parametrize(
        "arguments",
        [
            {"limits": 5},
            {"max_output_tokens": "5"},
            {"max_output_tokens": True},
            {"events_kept": "x"},
            {"sinks": None},
            {"price": 3},
            {"metadata": 3},
        ],
    )
    def test_a_wrong_argument_is_told_and_nothing_leaks(self, arguments: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=f"govern, {next(iter(arguments))}"):
            govern(**arguments)

    def test_the_last_error_counts(self) -> None:
        with govern(Limits(turns=1)) as run:
            run.fail("first")
            run.fail("second")
        assert (run.result().error or {})["message"] == "second"

    def test_a_run_that_is_cancelled_before_it_is_open_has_no_turn(self) -> None:
        run = govern(Limits(turns=2))
        assert run.cancel()
        with run:
            assert list(run) == []
        assert (run.result().stop, run.result().turns, run.cancel()) == ("cancelled", 0, False)

    def test_a_run_that_fails_before_it_is_open_has_no_turn(self) -> None:
        run = govern(Limits(turns=2))
        run.fail("no key")
        with run:
            assert list(run) == []
        assert (run.result().stop, (run.result().error or {})["message"]) == ("failed", "no key")

    def test_a_run_that_has_ended_is_freed_without_the_garbage_collector(self) -> None:
        with govern(Limits(turns=2, tokens=1_000)) as run:
            for turn in run:
                turn.settle(USED)
        turn, freed = None, weakref.ref(run)
        gc.disable()
        try:
            del run
            assert freed() is None
        finally:
            gc.enable()

    def test_settings_reach_it_through_its_registry(self) -> None:
        registry = IterationBudgetRegistry(settings={"max_iterations": 2})
        with govern(registry=registry) as run:
            turns = sum(not turn.grace for turn in run)
        assert turns == 2


def test_the_async_doors_do_the_same() -> None:
    async def loop() -> Result:
        async with govern(Limits(turns=2, tokens=1_000)) as run:
            async for turn in run:
                turn.settle(USED)
        return run.result()

    result = asyncio.run(loop())
    assert (result.stop, result.turns, result.requests) == ("budget", 2, 3)


def test_a_cancelled_task_is_a_cancelled_run() -> None:
    runs: list[govern] = []

    async def loop() -> None:
        async with govern(Limits(turns=2)) as run:
            runs.append(run)
            async for _turn in run:
                await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(loop())
        async with asyncio.timeout(60):
            while not runs or not runs[0].envelope.budgets["turns"].used:
                await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert runs[0].result().stop == "cancelled"
    assert math.isfinite(runs[0].result().seconds)


def test_the_docs_list_every_option() -> None:
    page = (Path(__file__).parents[2] / "docs" / "govern.md").read_text()
    table = page.partition("## Options")[2]
    assert [field.name for field in fields(govern) if f"`{field.name}`" not in table] == []


def settle_once(run: govern) -> None:
    for turn in run:
        if not turn.grace:
            turn.settle({"input_tokens": 5_000, "output_tokens": 500})


def expect_much(run: govern) -> None:
    assert not next(run).expect(9_000)
    run.halt("test")


def begin_long(run: govern) -> None:
    assert run.begin_turn("a", input_tokens=9_000) is None


@pytest.mark.parametrize(
    ("use", "used", "estimated"),
    [(settle_once, "5,500", "5,000"), (expect_much, "0", "9,000"), (begin_long, "0", "9,000")],
)
def test_a_refusal_by_tokens_tells_what_is_used_reserved_and_estimated(
    use: Callable[[govern], None], used: str, estimated: str
) -> None:
    with govern(Limits(tokens=10_000)) as run:
        use(run)
        (refusal,) = run.envelope.refusals
    assert refusal.warning == (
        f"Maximum tokens (10,000) reached: {used} used, 2,000 reserved for the report, and the next request has an "
        f"estimated {estimated} input tokens."
    )


def test_the_explanation_of_a_refusal_without_an_own_budget_names_what_would_help() -> None:
    with govern(Limits(context_tokens=100)) as run:
        assert run.begin_turn(input_tokens=101) is None
    assert "Limits(context_tokens=200)" in run.result().explain()
    shared = TurnBudget.of({"turns": 1}, Deadline.after(60), prefix="team_")
    with govern(within=shared) as run:
        for _ in run:
            pass
    assert "Limits(turns=…) of the shared budget" in run.result().explain()
