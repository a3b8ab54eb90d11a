import logging
from threading import Event as Flag

import pytest

from flyball import buffered, logged
from flyball.event import Delta, Event, Header, ToolReported, TurnEnded, TurnStarted
from flyball.recorder import Recorder

HEADER = Header("r1")


def test_events_are_numbered_and_stamped_with_time_and_turn() -> None:
    recorder = Recorder(HEADER)
    recorder.emit(TurnStarted)
    recorder.at, recorder.turn = 1.5, 2
    recorder.emit(TurnEnded)
    assert [(event.seq, event.at, event.turn) for event in recorder.events] == [(0, 0.0, 0), (1, 1.5, 2)]


def test_a_delta_is_passed_on_and_not_kept() -> None:
    seen: list[Event] = []
    recorder = Recorder(HEADER, [seen.append])
    recorder.stream(Delta, "he")
    recorder.emit(TurnEnded)
    assert [event.kind for event in seen] == ["delta", "turn_ended"]
    assert [event.kind for event in recorder.events] == ["turn_ended"]


def test_streamed_events_are_counted_apart_so_that_each_number_is_unique() -> None:
    seen: list[Event] = []
    recorder = Recorder(HEADER, [seen.append])
    recorder.emit(TurnStarted)
    recorder.stream(Delta, "he")
    recorder.stream(ToolReported, "call-0", "look", "half")
    recorder.emit(TurnEnded)
    assert [event.seq for event in seen] == [0, -1, -2, 1]
    assert [event.seq for event in recorder.events] == [0, 1]


def test_only_the_newest_are_kept_and_the_others_counted() -> None:
    recorder = Recorder(HEADER, events_kept=20)
    for _ in range(100):
        recorder.emit(TurnStarted)
    assert 18 <= len(recorder.events) <= 20
    assert recorder.events[-1].seq == 99
    assert recorder.dropped == 100 - len(recorder.events)
    assert [event.seq for event in recorder.events] == list(range(100 - len(recorder.events), 100))


def test_a_recorder_may_keep_no_events() -> None:
    recorder = Recorder(HEADER, events_kept=0)
    recorder.emit(TurnStarted)
    assert (recorder.events, recorder.dropped) == ([], 1)


def test_a_sink_that_raises_is_counted_and_the_others_are_called() -> None:
    seen: list[Event] = []

    def broken(_: Event) -> None:
        raise ZeroDivisionError

    recorder = Recorder(HEADER, [broken, seen.append])
    recorder.emit(TurnStarted)
    recorder.emit(TurnEnded)
    assert (recorder.sink_errors, len(seen)) == (2, 2)


def test_a_log_has_each_event_whole_with_the_callers_metadata(caplog: pytest.LogCaptureFixture) -> None:
    header = Header("r1", "s1", 0.0, {"job_id": 7})
    with caplog.at_level(logging.INFO, "my.agents"):
        Recorder(header, [logged(logging.getLogger("my.agents"))]).emit(TurnStarted)
        Recorder(header, [logged(logging.getLogger("my.agents"), logging.DEBUG)]).emit(TurnEnded)
    [record] = caplog.records
    assert record.getMessage() == "turn_started (run r1)"
    assert record.__dict__["flyball"]["metadata"] == {"job_id": 7}


class TestBuffered:
    def test_a_slow_sink_gets_everything_in_order_and_the_run_does_not_wait(self) -> None:
        gate, seen = Flag(), list[int]()

        def slow(event: Event) -> None:
            assert gate.wait(60)
            seen.append(event.seq)

        with buffered(slow) as sink:
            recorder = Recorder(HEADER, [sink])
            for _ in range(50):
                recorder.emit(TurnStarted)
            assert seen == []
            gate.set()
        assert seen == list(range(50))
        assert (sink.dropped, sink.errors) == (0, 0)

    def test_a_full_queue_drops_and_counts(self) -> None:
        gate, started = Flag(), Flag()

        def stuck(_: Event) -> None:
            started.set()
            assert gate.wait(60)

        sink = buffered(stuck, size=2)
        recorder = Recorder(HEADER, [sink])
        recorder.emit(TurnStarted)
        assert started.wait(60)
        for _ in range(5):
            recorder.emit(TurnStarted)
        assert sink.dropped == 3
        assert sink.close(seconds=0.01) is False
        gate.set()
        assert sink.close(seconds=60) is True

    def test_what_comes_after_the_end_is_dropped_and_counted(self) -> None:
        seen: list[Event] = []
        sink = buffered(seen.append)
        assert sink.close()
        sink(TurnStarted(0, 0.0, 0, HEADER))
        assert (seen, sink.dropped) == ([], 1)

    def test_what_the_sink_raises_is_counted_and_the_next_still_comes(self) -> None:
        seen: list[int] = []

        def sometimes(event: Event) -> None:
            if event.seq == 0:
                raise ZeroDivisionError
            seen.append(event.seq)

        with buffered(sometimes) as sink:
            recorder = Recorder(HEADER, [sink])
            for _ in range(3):
                recorder.emit(TurnStarted)
        assert (seen, sink.errors) == ([1, 2], 1)


@pytest.mark.parametrize("kept", [1, 7, 10_000])
def test_dropping_never_loses_count(kept: int) -> None:
    recorder = Recorder(HEADER, events_kept=kept)
    for _ in range(200):
        recorder.emit(TurnStarted)
    assert len(recorder.events) <= kept
    assert recorder.dropped + len(recorder.events) == 200


def test_a_long_run_drops_its_oldest_events_in_each_turn() -> None:
    recorder = Recorder(HEADER, events_kept=10)
    for turn in range(1, 100):
        recorder.start_turn(turn)
        recorder.emit(TurnStarted)
        recorder.emit(TurnEnded)
        assert recorder.seq == 2 * turn
        assert 2 * turn - recorder.dropped <= 10 + 2
    assert [event.seq for event in recorder.events] == list(range(recorder.dropped, 198))


def test_events_without_sinks_count_for_the_numbers_that_later_sinks_see() -> None:
    seen: list[int] = []
    recorder = Recorder(HEADER)
    recorder.emit(TurnStarted)

    def note(event: Event) -> None:
        seen.append(event.seq)

    recorder.sinks = (note,)
    recorder.emit(TurnEnded)
    recorder.skip_to(10)
    recorder.emit(TurnStarted)
    assert seen == [1, 10]
    assert (recorder.seq, recorder.loop_event_count) == (11, 3)


def test_events_are_read_from_a_number_on_also_after_numbers_were_skipped() -> None:
    recorder = Recorder(HEADER)
    recorder.emit(TurnStarted)
    recorder.emit(TurnEnded)
    assert [event.kind for event in recorder.read_since(1)] == ["turn_ended"]
    recorder.skip_to(10)  # a run that is resumed in another process
    recorder.emit(TurnStarted)
    assert [event.kind for event in recorder.read_since(10)] == ["turn_started"]
    assert [event.kind for event in recorder.read_since(0)] == ["turn_started", "turn_ended", "turn_started"]
