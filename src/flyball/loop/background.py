"""Child runs in the background: their results reach the loop as signals, and the model in a message or by `collect`.

The run ends when they have ended, or cancels them and tells so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from ..event import ToolStarted
from ..outcome import Failure, Outcome, Success
from ..result import Result, Stop
from .background_runs import BackgroundRuns
from .child_report import format_results, to_row
from .child_task import ChildTask
from .children import end_child
from .effects import ChildDone, Flow, Wait
from .ending import ContinueReason, End
from .plan import Prepared
from .shared_budget import flush
from .state import RunState
from .stopping import check_end

COLLECT = "collect"
"""Name of the tool that waits for child runs."""
_CLOSING_S = 5.0
"""Seconds that cancelled child runs have to end."""


def settle_received(run: RunState, background: BackgroundRuns, *, is_closing: bool = False) -> None:
    """Settle child runs that have ended. `is_closing` says that the end of the run cancels those that have not."""
    received, background.received = background.received, []
    for done in received:
        task = background.open.pop(done.run_id, None)
        if task is not None:
            end_child(run, task, done.result)
            run.repetition.forget_reads()
            run.children = [*run.children, done.result]
            background.ended[task.handle] = task, done.result
            background.unread.append(task.handle)
            if is_closing and done.result.stop is Stop.CANCELLED:
                background.cancelled = (*background.cancelled, done.run_id)


def defer_answer(run: RunState, background: BackgroundRuns) -> bool:
    """Return True if the model's last answer does not count yet: there are child runs whose results it has not read."""
    settle_received(run, background)
    background.answer_waits = bool(background.open or background.unread) and not run.spec.behaviour.single_turn
    return background.answer_waits


def continue_turns(run: RunState, background: BackgroundRuns, step: ContinueReason | End) -> Flow[ContinueReason | End]:
    """Return the next step after a turn. If an answer was deferred, all child runs end, and the model reads them."""
    settle_received(run, background)
    answer_waits, background.answer_waits = background.answer_waits, False
    if isinstance(step, End):
        return step
    if answer_waits:
        end = yield from _wait(run, background, tuple(background.open))
        if end is not None:
            return end
    if background.unread:
        _add_results(run, background)
    if not answer_waits:
        return step
    run.add_steered()
    return ContinueReason.STEERED


def close_background(run: RunState, background: BackgroundRuns, end: End) -> Flow[None]:
    """Cancel child runs that are open when the run ends. The report reads what became of them."""
    settle_received(run, background)
    if background.open:
        yield from flush(run)
        yield from run.perform(Wait(run.clock.at + _CLOSING_S, tuple(background.open), cancel=True))
        abandon_open(run, background)
    if background.unread and end.stop not in (Stop.COMPLETED, Stop.PAUSED):
        _add_results(run, background)


def abandon_open(run: RunState, background: BackgroundRuns) -> None:
    """Give child runs without a result one: they did not end in time. Their whole reservation counts as used."""
    settle_received(run, background, is_closing=True)
    for task in background.open.values():
        result = Result(stop=Stop.CANCELLED, stopped_by="parent", run_id=task.run_id)
        background.received.append(ChildDone(task.run_id, result))
    settle_received(run, background, is_closing=True)


def collect_results(run: RunState, background: BackgroundRuns, prepared: Prepared) -> Flow[Outcome]:
    """Return the outcome of a claimed call of `collect`: the results of child runs, after a wait for them."""
    call, values, started_at = prepared.call, prepared.values, run.clock.at
    run.recorder.emit(ToolStarted, call.id, call.name, prepared.redacted_arguments)
    settle_received(run, background)
    asked: list[ChildTask] = []
    for handle in values["runs"] or [*background.unread, *(task.handle for task in background.open.values())]:
        task = background.find(handle)
        if task is None:
            known = [*background.ended, *(task.handle for task in background.open.values())]
            error = f"no child run {handle!r} works in the background; known are {', '.join(known) or 'none'}"
            return Failure(call_id=call.id, tool=call.name, kind="UnknownRun", error=error)
        asked.append(task)
    seconds = values["seconds"]
    until = inf if seconds is None else run.clock.at + seconds
    yield from _wait(run, background, tuple(task.run_id for task in asked), until)
    done = [background.ended[task.handle] for task in asked if task.handle in background.ended]
    background.unread = [handle for handle in background.unread if handle not in {task.handle for task, _ in done}]
    still = [f"- {task.handle}: {task.spec.name}" for task in asked if task.run_id in background.open]
    parts = [_format(done)] if done else []
    parts += ["\n".join(["Still in progress:", *still])] if still else []
    return Success(
        call_id=call.id,
        tool=call.name,
        seconds=run.clock.at - started_at,
        content="\n\n".join(parts) or "No child run works in the background.",
        value=[to_row(task, result) for task, result in done],
    )


def _wait(run: RunState, background: BackgroundRuns, runs: Sequence[str], until: float = inf) -> Flow[End | None]:
    """Wait until these child runs have ended. Return the end of the run if it must end meanwhile."""
    while True:
        end, open_runs = check_end(run), tuple(run_id for run_id in runs if run_id in background.open)
        last = min(until, run.budget.work_at)  # which may have been extended
        if end is not None or not open_runs or run.clock.at >= last:
            return end
        yield from flush(run)
        before = run.clock.at, len(background.open)
        yield from run.perform(Wait(last, open_runs))
        settle_received(run, background)
        if before == (run.clock.at, len(background.open)):  # the driver does not know them
            return check_end(run)


def _add_results(run: RunState, background: BackgroundRuns) -> None:
    """Tell the model the results that it has not read."""
    unread, background.unread = background.unread, []
    text = _format([background.ended[handle] for handle in unread])
    run.messages.add_user_text(f"Results of agents in the background:\n\n{text}")
    run.repetition.reset()


def _format(done: Sequence[tuple[ChildTask, Result]]) -> str:
    handles = ", ".join(task.handle for task, _ in done)
    return f"({handles})\n{format_results([task for task, _ in done], [result for _, result in done])}"
