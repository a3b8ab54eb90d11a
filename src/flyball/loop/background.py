"""Child runs in the background: their results reach the loop as signals, and the model in a message or by `collect`.

The run ends when they have ended, or cancels them and tells so.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from .stopping import check_end, is_over

COLLECT = "collect"
"""Name of the tool that waits for child runs."""
_CLOSING_S = 5.0
"""Seconds that cancelled child runs have to end."""


def settle_received(run: RunState, background: BackgroundRuns) -> None:
    """Settle child runs that have ended."""
    received, background.received = background.received, []
    for done in received:
        task = background.open.pop(done.run_id, None)
        if task is not None:
            end_child(run, task, done.result)
            run.children = [*run.children, done.result]
            background.ended[task.handle] = task, done.result
            background.unread.append(task.handle)


def continue_turns(run: RunState, background: BackgroundRuns, step: ContinueReason | End) -> Flow[ContinueReason | End]:
    """Return the next step after a turn.

    Before the model's last answer counts, all child runs end, and the model reads their results. A run that a tool or a
    policy has completed does not wait.
    """
    settle_received(run, background)
    is_last_answer = isinstance(step, End) and step.stop is Stop.COMPLETED and not run.progress.calls
    is_last_answer = is_last_answer and not run.spec.behaviour.single_turn
    if isinstance(step, End) and not is_last_answer:
        return step
    if is_last_answer and background.open:
        end = yield from _wait(run, background, tuple(background.open), run.budget.work_at)
        if end is not None:
            return end
    if not background.unread:
        return step
    _add_results(run, background)
    return ContinueReason.STEERED if is_last_answer else step


def close_background(run: RunState, background: BackgroundRuns, end: End) -> Flow[None]:
    """Cancel child runs that are open when the run ends. The report reads what became of them."""
    settle_received(run, background)
    if background.open:
        background.cancelled = (*background.cancelled, *background.open)
        yield from flush(run)
        yield from run.perform(Wait(run.clock.at + _CLOSING_S, tuple(background.open), cancel=True))
        settle_received(run, background)
        abandon_open(run, background)
    if background.unread and end.stop not in (Stop.COMPLETED, Stop.PAUSED):
        _add_results(run, background)


def abandon_open(run: RunState, background: BackgroundRuns) -> None:
    """Give child runs without a result one: they did not end in time. Their whole reservation counts as used."""
    for task in tuple(background.open.values()):
        background.cancelled = tuple(dict.fromkeys((*background.cancelled, task.run_id)))
        result = Result(stop=Stop.CANCELLED, stopped_by="parent", run_id=task.run_id)
        background.received.append(ChildDone(task.run_id, result))
    settle_received(run, background)


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
    until = run.budget.work_at if seconds is None else min(run.budget.work_at, run.clock.at + seconds)
    waited = tuple(task.run_id for task in asked if task.run_id in background.open)
    if waited:
        yield from _wait(run, background, waited, until)
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


def _wait(run: RunState, background: BackgroundRuns, runs: tuple[str, ...], until: float) -> Flow[End | None]:
    """Wait until these child runs have ended. Return the end of the run if it must end meanwhile."""
    yield from flush(run)
    while (
        not is_over(run) and run.clock.at < until and (open_runs := tuple(id for id in runs if id in background.open))
    ):
        before = run.clock.at
        yield from run.perform(Wait(until, open_runs))
        settle_received(run, background)
        if run.signals.has_stop or (run.clock.at == before and len(open_runs) == len(background.open)):
            break
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
