"""What a governed loop tells while it runs."""

from threading import Thread, get_ident

import pytest

from flyball import Limits, Result, govern
from flyball.event import BudgetRefused, Event, GraceEnded, GraceStarted, RunEnded, RunStarted
from flyball.governor.turn import Turn
from flyball.testing import ManualClock

USED = {"input_tokens": 40, "output_tokens": 10}


def kinds(result: Result) -> list[str]:
    return [event.kind for event in result.events]


class TestEvents:
    def test_every_pair_closes_and_there_is_one_end(self) -> None:
        with govern(Limits(turns=2), metadata={"job_id": 7}, session_id="s1", run_id="r1") as run:
            for turn in run:
                turn.settle(USED)
        result = run.result()
        assert kinds(result) == [
            "run_started",
            "turn_started",
            "turn_ended",
            "turn_started",
            "turn_ended",
            "budget_refused",
            "grace_started",
            "grace_ended",
            "run_ended",
        ]
        assert [event.seq for event in result.events] == list(range(9))
        assert {event.header.run_id for event in result.events} == {"r1"}
        assert result.events[0].to_dict()["metadata"] == {"job_id": 7}
        assert (result.run_id, result.session_id, result.metadata) == ("r1", "s1", {"job_id": 7})
        first, last = result.events[0], result.events[-1]
        assert isinstance(first, RunStarted)
        assert first.limits["steps_max"] == 2
        assert isinstance(last, RunEnded)
        assert (last.stop, last.turns, last.requests) == ("budget", 2, 3)

    def test_the_last_event_tells_the_whole_end(self) -> None:
        with govern(Limits(tool_calls=0)) as run:
            next(run).claim_tool("x")
        last = run.result().events[-1]
        assert isinstance(last, RunEnded)
        assert (last.stop, last.stopped_by, last.flags) == ("halted", "caller", ("max_tool_calls_reached",))

    def test_the_grace_turn_tells_why_it_came_and_whether_it_reported(self) -> None:
        for text, limits, reason in (("", Limits(turns=1), "budget"), ("done", Limits(seconds=100), "deadline")):
            clock = ManualClock()
            with govern(limits, clock=clock) as run:
                for turn in run:
                    clock.move(0 if turn.grace else 90)
                    if turn.grace:
                        run.complete(text)
            [started, ended] = [event for event in run.result().events if isinstance(event, GraceStarted | GraceEnded)]
            assert isinstance(started, GraceStarted)
            assert isinstance(ended, GraceEnded)
            assert (started.reason, ended.reported) == (reason, bool(text))

    def test_each_event_knows_its_turn(self) -> None:
        with govern(Limits(turns=2)) as run:
            for _turn in run:
                pass
        assert [event.turn for event in run.result().events] == [0, 1, 1, 2, 2, 2, 2, 2, 2]

    def test_no_more_are_kept_than_asked_for(self) -> None:
        with govern(Limits(turns=50), events_kept=10) as run:
            for _turn in run:
                pass
        result = run.result()
        assert len(result.events) <= 10
        assert len(result.events) + result.events_dropped == 1 + 2 * 50 + 1 + 1 + 2 + 1

    def test_a_refusal_that_nobody_told_is_told_when_the_turn_ends(self) -> None:
        with govern(Limits(reflections=0)) as run:
            assert not next(run).envelope.claim_reflection()
            run.complete()
        assert kinds(run.result()) == ["run_started", "turn_started", "budget_refused", "turn_ended", "run_ended"]

    def test_sinks_are_called_on_the_thread_of_the_loop_and_nothing_comes_after_the_end(self) -> None:
        seen: list[tuple[int, str]] = []
        with govern(Limits(tool_calls=0), sinks=[lambda event: seen.append((get_ident(), event.kind))]) as run:
            turn = next(run)
            worker = Thread(target=turn.claim_tool, args=("x",))
            worker.start()
            worker.join(60)
            run.complete()
        turn.claim_tool("y")
        assert {thread for thread, _ in seen} == {get_ident()}
        assert [kind for _, kind in seen][-1] == "run_ended"
        assert [kind for _, kind in seen].count("budget_refused") == 1

    def test_a_sink_may_look_at_the_run_it_is_told_about(self) -> None:
        turns: list[Turn] = []

        def curious(event: Event) -> None:
            if event.kind == "budget_refused":
                turns[0].claim_tool("again")

        with govern(Limits(tool_calls=0), sinks=[curious]) as run:
            turns.append(next(run))
            turns[0].claim_tool("x")
            run.complete()
        assert kinds(run.result()).count("budget_refused") == 1

    def test_a_sink_may_halt_the_run_at_its_first_event(self) -> None:
        runs: list[govern] = []

        def stop(event: Event) -> None:
            if event.kind == "run_started":
                runs[0].halt("sink")

        runs.append(govern(Limits(turns=2), sinks=[stop]))
        with runs[0] as run:
            assert list(run) == []
        assert (run.result().stop, run.result().stopped_by, run.result().sink_errors) == ("halted", "sink", 0)

    def test_a_sink_that_fails_the_run_at_its_last_event_is_too_late(self) -> None:
        runs: list[govern] = []

        def fail(event: Event) -> None:
            if event.kind == "run_ended":
                runs[0].fail("too late")

        runs.append(govern(Limits(turns=2), sinks=[fail]))
        with runs[0] as run:
            run.complete("done")
        assert (run.result().stop, run.result().error, run.result().sink_errors) == ("completed", None, 0)

    def test_what_the_caller_changes_later_does_not_change_the_past(self) -> None:
        metadata = {"job": 1}
        with govern(Limits(turns=1), metadata=metadata) as run:
            metadata["job"] = 2
        assert run.result().metadata == {"job": 1}
        assert run.result().events[0].to_dict()["metadata"] == {"job": 1}

    def test_waiting_for_a_person_is_told_and_is_not_counted(self) -> None:
        clock = ManualClock()
        with govern(Limits(seconds=100), clock=clock) as run:
            turn = next(run)
            clock.move(500)
            run.postpone(500, "approval")
            assert turn.remaining_s() == 85.0
            run.complete()
        assert "postponed" in kinds(run.result())
        assert run.result().seconds == 0.0

    def test_events_end_as_they_should_when_the_loop_raises(self) -> None:
        run = govern(Limits(turns=2))
        with pytest.raises(ZeroDivisionError), run:
            for _turn in run:
                _ = 1 / 0
        assert kinds(run.result()) == ["run_started", "turn_started", "turn_ended", "run_ended"]

    def test_each_budget_is_refused_once(self) -> None:
        with govern(Limits(tool_calls=0)) as run:
            for turn in run:
                for _ in range(5):
                    turn.claim_tool("search")
                run.complete()
        refusals = [event for event in run.result().events if isinstance(event, BudgetRefused)]
        assert [(event.budget, event.flag) for event in refusals] == [("tool_calls", "max_tool_calls_reached")]

    def test_sinks_are_called_and_may_fail(self) -> None:
        seen: list[Event] = []

        def broken(_: Event) -> None:
            raise ZeroDivisionError

        with govern(Limits(turns=1), sinks=[broken, seen.append]) as run:
            for _turn in run:
                pass
        assert run.result().sink_errors == len(seen) == len(run.result().events)

    def test_times_are_those_of_the_run(self) -> None:
        clock = ManualClock(now=500.0)
        with govern(Limits(turns=1), clock=clock) as run:
            for _turn in run:
                clock.move(2)
        assert [event.at for event in run.result().events] == [0, 0, 2, 2, 2, 4, 4]

    def test_claims_from_many_threads_are_recorded_one_at_a_time(self) -> None:
        with govern(Limits(tool_calls=50)) as run:
            for turn in run:
                workers = [Thread(target=lambda: [turn.claim_tool("x") for _ in range(20)]) for _ in range(8)]  # noqa: B023
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join(60)
                run.complete()
        result = run.result()
        assert result.budgets["tool_calls"].used == 50
        assert [event.seq for event in result.events] == list(range(len(result.events)))
