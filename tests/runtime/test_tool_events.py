"""ToolEvents: reports and late results of tools, from any thread."""

from collections.abc import Callable
from threading import get_ident
from types import SimpleNamespace
from typing import Any, cast

from flyball.budget.deadline import SYSTEM
from flyball.event import Event, Header
from flyball.loop.effects import Late
from flyball.recorder import Recorder
from flyball.runtime import SignalQueue
from flyball.runtime.effect_journal import NULL_JOURNAL
from flyball.runtime.timer import RunTimer
from flyball.runtime.tool_events import ToolEvents

CALL = cast(
    "Any",
    SimpleNamespace(call=SimpleNamespace(id="c"), tool=SimpleNamespace(name="add"), idempotency_key="{}:c".format),
)


class Run:
    """Events of a run, and callbacks that wait for its event loop."""

    def __init__(self, parent: SignalQueue | None = None) -> None:
        self.seen: list[Event] = []
        self.soon: list[Callable[[], object]] = []
        self.signals = SignalQueue()
        recorder = Recorder(Header("run"), [self.seen.append])
        self.events = ToolEvents("run", recorder, self.signals, RunTimer(SYSTEM), NULL_JOURNAL, parent)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.seen]


def test_a_report_from_the_runs_own_thread_is_emitted_at_once() -> None:
    run = Run()
    run.events.bind_thread(run.soon.append, get_ident())
    run.events.on_report(CALL, "half")
    assert (run.kinds, run.soon) == (["tool_reported"], [])


def test_a_report_from_another_thread_is_emitted_in_the_event_loop() -> None:
    run = Run()
    run.events.bind_thread(run.soon.append, get_ident() + 1)
    run.events.on_report(CALL, "half")
    assert run.kinds == []
    run.soon[0]()
    assert run.kinds == ["tool_reported"]


def test_a_report_to_a_closed_event_loop_is_dropped() -> None:
    def closed(callback: object) -> None:
        raise RuntimeError("closed")

    run = Run()
    run.events.bind_thread(closed, 0)
    run.events.on_report(CALL, "half")
    assert run.kinds == []


def test_nothing_is_emitted_after_the_end() -> None:
    run = Run()
    run.events.on_text("a")
    run.signals.ended = True
    run.events.on_text("b")
    assert run.kinds == ["delta"]


def test_a_late_result_is_signalled_to_the_run_and_after_its_end_to_its_parent() -> None:
    parent = SignalQueue()
    run = Run(parent)
    run.events.on_late_result(CALL)
    assert (run.signals.pending, parent.pending) == ((Late("c", "add"),), ())
    run.signals.ended = True
    run.events.on_late_result(CALL)
    assert parent.pending == (Late("run:c", "add", own=False),)
