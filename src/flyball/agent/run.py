"""Handle of a run in progress: watch, steer, extend, cancel and await it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, Generic, Self

import anyio
from anyio.abc import TaskGroup

from .._internal import validation
from .._internal.type_variables import Output
from .._internal.workers import PRIVATE_LOOP
from ..budget.budget import IterationBudget
from ..errors import ConfigError, FlyballError, UnknownBudget, UsageError
from ..event import Event
from ..loop.effects import Cancel, Extend, PauseChildren, Signal, Steer
from ..result import Result
from ..runtime import RunDriver, Runner

_CLOSING_S = 5.0
_LONGEST_SLEEP_S = 0.25
"""A signal that arrives just before a thread sleeps does not wake it: Ctrl-C would wait for the next event."""


class Stream:
    """Events of a run for the iterators of its handle, including text deltas that are not recorded.

    It has no lock: Ctrl-C can leave the `with` block of a Condition without releasing it, and the thread of all runs
    would then wait forever. Instead, a reader first adds a waiter and then looks for events. The writer first adds the
    event and then notifies the waiters.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._ended = False
        self._waiters: list[Callable[[], object]] = []
        self._end_waiters: list[Callable[[], object]] = []

    def __call__(self, event: Event) -> None:
        """Add an event. The stream is a sink, called on the run's own thread."""
        self._events.append(event)
        _notify(self._waiters)

    def end(self) -> None:
        """Mark the end of the events."""
        self._ended = True
        _notify(self._waiters)
        _notify(self._end_waiters)

    def wait(self, seconds: float) -> bool:
        """Wait for the end, at most this long. Return False if it has not come."""
        bell = SimpleQueue[None]()
        ring = partial(bell.put, None)
        self._end_waiters.append(ring)
        if not self._ended:
            _wait_for_bell(bell, seconds)
        with contextlib.suppress(ValueError):  # it was notified
            self._end_waiters.remove(ring)
        return self._ended

    def __iter__(self) -> Iterator[Event]:
        seen = 0
        while True:
            while seen < len(self._events):
                seen += 1
                yield self._events[seen - 1]
            if self._ended and seen == len(self._events):
                return
            bell = SimpleQueue[None]()
            self._waiters.append(partial(bell.put, None))
            if seen == len(self._events) and not self._ended:
                _wait_for_bell(bell)

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate in the event loop that the run is in."""
        return _EventIterator(self._next)

    async def _next(self, seen: int) -> Event:
        while seen == len(self._events):
            if self._ended:
                raise StopAsyncIteration
            bell = anyio.Event()
            self._waiters.append(bell.set)
            await bell.wait()
        return self._events[seen]


def _wait_for_bell(bell: SimpleQueue[None], seconds: float = inf) -> None:
    until = monotonic() + seconds
    while (left := until - monotonic()) > 0:
        with contextlib.suppress(Empty):
            bell.get(timeout=min(left, _LONGEST_SLEEP_S))
            return


def _notify(waiters: list[Callable[[], object]]) -> None:
    while waiters:
        waiters.pop()()


class _EventIterator:
    """Iterator over events. An unfinished async generator would need to be closed, in trio by hand."""

    def __init__(self, next_: Callable[[int], Awaitable[Event]]) -> None:
        self._next = next_
        self._seen = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await self._next(self._seen)
        self._seen += 1
        return event


class ChildRun:
    """Child run in progress, from `run.children`.

    Its methods affect only this child run, not its siblings or its parent.
    """

    def __init__(self, driver: Runner) -> None:
        self._driver = driver

    @property
    def run_id(self) -> str:
        """Id of the child run, which its events also have."""
        return self._driver.recorder.header.run_id

    @property
    def agent(self) -> str:
        """Name of the agent that runs."""
        return self._driver.agent

    @property
    def children(self) -> tuple[ChildRun, ...]:
        """Child runs of this child run that are in progress."""
        return tuple([ChildRun(driver) for driver in list(self._driver.children.values())])

    def steer(self, text: str) -> bool:
        """Send a text to the model. Return False if that is not possible, as for a remote agent."""
        return self._driver.signals.send(Steer(validation.check_text("run, steer", text)))

    def pause_children(self, by: str = "caller") -> bool:
        """Start no more child runs below this one; see `Run.pause_children`."""
        return send_to_tree(self._driver, _build_pause(True, by))

    def resume_children(self, by: str = "caller") -> bool:
        """Let child runs start again."""
        return send_to_tree(self._driver, _build_pause(False, by))

    def cancel(self, by: str = "caller") -> bool:
        """Cancel the child run. Its parent gets the work done so far."""
        return self._driver.signals.send(Cancel(validation.check_text("run, cancelled by", by)))

    def __repr__(self) -> str:
        return f"<ChildRun {self.agent}: {self.run_id}>"


def send_to_tree(driver: Runner, signal: Signal) -> bool:
    """Send a signal to a run and to all runs in progress below it. Return False if it is too late for the run."""
    is_sent = driver.signals.send(signal)
    for child in list(driver.children.values()):
        send_to_tree(child, signal)
    return is_sent


def _build_pause(paused: bool, by: str) -> PauseChildren:
    return PauseChildren(paused, validation.check_text("run, children paused by", by))


def build_extension(
    ceilings: Mapping[str, IterationBudget], seconds: float, by: str, amounts: Mapping[str, float]
) -> Extend:
    """Return the signal that raises ceilings or adds seconds. Raises UnknownBudget."""
    counted = dict[str, int]()
    for name, amount in amounts.items():
        if name not in ceilings:
            raise UnknownBudget(name, (*ceilings, "seconds"))
        counted[name] = int(validation.parse_amount(f"run, extend {name}", amount, ceilings[name].unit))
        validation.check_amount(name, counted[name])
    added = validation.parse_duration("run, extend by seconds", seconds)
    if added == inf:
        raise ConfigError("run, extend by seconds", seconds, "a finite number of seconds")
    return Extend(counted, added, validation.check_text("run, extended by", by))


class Run(Generic[Output]):
    """Handle of a run.

    `agent.start(task)` runs it on Flyball's own event loop, `async with agent.open(task)` in the current one. `steer`,
    `extend` and `cancel` may be called from any thread; they return False if the run has already ended. Leaving the
    `with` block before the end cancels the run.
    """

    def __init__(self, make: Callable[[Stream], RunDriver]) -> None:
        self._stream = Stream()
        self._driver = make(self._stream)
        self._pid = os.getpid()
        self._started = False
        self._tasks: TaskGroup | None = None
        self._done: anyio.Event | None = None
        self._error: BaseException | None = None
        self._waited_for_close = False
        """True once Ctrl-C has waited for the run to close."""

    @property
    def run_id(self) -> str:
        """Id of the run, which every event also has."""
        return self._driver.recorder.header.run_id

    @property
    def ended(self) -> bool:
        """True once the run has ended."""
        return self._driver.signals.ended

    @property
    def children(self) -> tuple[ChildRun, ...]:
        """Child runs in progress. Each can be steered or cancelled on its own."""
        return ChildRun(self._driver).children

    def steer(self, text: str) -> bool:
        """Send a text to the model. It is added after the results of the current turn."""
        return self._send(Steer(validation.check_text("run, steer", text)))

    def extend(self, *, seconds: float = 0.0, by: str = "caller", **amounts: float) -> bool:
        """Raise ceilings, as in `extend(turns=10, usd=0.5)`, up to the registry's maximum. `seconds` adds time.

        Requests and calls in progress keep their deadline.
        """
        return self._send(build_extension(self._driver.ceilings, seconds, by, amounts))

    def cancel(self, by: str = "caller") -> bool:
        """Cancel the run: interrupt what is in progress, and keep the work done so far."""
        return self._send(Cancel(validation.check_text("run, cancelled by", by)))

    def pause_children(self, by: str = "caller") -> bool:
        """Start no more child runs, in the whole tree. Those in progress continue.

        Calls of `delegate` are denied, `ctx.delegate` raises DelegationPaused, and child runs that wait for their turn
        wait until `resume_children`, or until their call ends.
        """
        self._refuse_in_a_forked_child()
        return not self._driver.recorder.ended and send_to_tree(self._driver, _build_pause(True, by))

    def resume_children(self, by: str = "caller") -> bool:
        """Let child runs start again."""
        self._refuse_in_a_forked_child()
        return not self._driver.recorder.ended and send_to_tree(self._driver, _build_pause(False, by))

    def _send(self, signal: Signal) -> bool:
        self._refuse_in_a_forked_child()
        return not self._driver.recorder.ended and self._driver.signals.send(signal)

    def begin(self) -> Self:
        """Start the run on Flyball's own event loop."""
        self._started = True
        try:
            PRIVATE_LOOP.start(self._drive_on_private_loop)
        except KeyboardInterrupt as interrupt:
            self._handle_interrupt(interrupt)
            raise
        return self

    def through(self) -> Result[Output]:
        """Start the run and wait for its result. Ctrl-C at any point works as in `result`."""
        try:
            return self.begin().result()
        except KeyboardInterrupt as interrupt:
            self._handle_interrupt(interrupt)
            raise

    async def _drive_on_private_loop(self) -> None:
        try:
            await self._drive()
        except BaseException as error:  # it would end the event loop of all runs
            self._error = error

    async def _drive(self) -> None:
        try:
            await self._driver.drive()
        except Exception as error:
            self._error = error
        finally:
            self._stream.end()

    def result(self, timeout: float | None = None) -> Result[Output]:
        """Wait for the result.

        Raises TimeoutError after `timeout` seconds; the run continues. Ctrl-C cancels the run and waits up to 5
        seconds, or until the next Ctrl-C, for it to close. The KeyboardInterrupt then has the partial result as its
        attribute `result`, or None if the run has not closed.
        """
        self._check_sync("`await run.aresult()`")
        longest = validation.parse_duration("run, result's timeout", timeout)
        try:
            if not self._stream.wait(longest):
                raise TimeoutError(f"the run is still in progress after {timeout:g} s")
            return self._get_result()
        except KeyboardInterrupt as interrupt:
            self._handle_interrupt(interrupt)
            raise

    def __iter__(self) -> Iterator[Event]:
        """Yield every event from the first to `run_ended`, as it happens."""
        self._check_sync("`async for event in run`")
        try:
            yield from self._stream
        except KeyboardInterrupt as interrupt:
            self._handle_interrupt(interrupt)
            raise

    def _handle_interrupt(self, interrupt: KeyboardInterrupt) -> None:
        """Cancel the run, once, and attach the result to the interrupt."""
        if not self._started or hasattr(interrupt, "result"):
            return
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C ends the wait
            self._waited_for_close = True
            self.cancel("ctrl-c")
            self._stream.wait(_CLOSING_S)
        interrupt.result = self._driver.result  # pyright: ignore[reportAttributeAccessIssue]

    def _check_sync(self, instead: str, for_opened: str = "") -> None:
        self._refuse_in_a_forked_child()
        PRIVATE_LOOP.raise_if_inside(f"`await agent.arun(...)`, or {instead}")
        if not self._started:
            raise UsageError(f"this run was opened with `async with`; use {for_opened or instead}")

    def _refuse_in_a_forked_child(self) -> None:
        if self._pid != os.getpid():
            raise UsageError("this run was started before the fork; start a new run in the child process")

    def __enter__(self) -> Self:
        self._check_sync("`async with`", "`with agent.start(...)`")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._check_sync("`async with`", "`with agent.start(...)`")
        if isinstance(error, KeyboardInterrupt):
            self._handle_interrupt(error)
        if self._waited_for_close:
            return
        if not self.ended:
            self.cancel("left")
        self._stream.wait(_CLOSING_S)

    async def aresult(self) -> Result[Output]:
        """Wait for the result in the current event loop."""
        done = self._check_async()
        await done.wait()
        return self._get_result()

    def _get_result(self) -> Result[Output]:
        if self._error is not None or self._driver.result is None:
            raise self._error or FlyballError("internal error: the run ended without a result; please report this")
        return self._driver.result

    def __aiter__(self) -> AsyncIterator[Event]:
        """Yield every event from the first to `run_ended`, as it happens."""
        self._check_async()
        return aiter(self._stream)

    def _check_async(self) -> anyio.Event:
        self._refuse_in_a_forked_child()
        if self._done is None:
            raise UsageError("this run is not open; use `async with agent.open(...) as run`")
        return self._done

    async def __aenter__(self) -> Self:
        if self._done is not None or self._started:
            raise UsageError("this run has already started; open a new one with `agent.open(...)`")
        self._done = anyio.Event()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._drive_here, self._done)
        return self

    async def _drive_here(self, done: anyio.Event) -> None:
        try:
            await self._drive()
        finally:
            done.set()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        assert self._tasks is not None
        if not self.ended:
            self.cancel("left")
        await self._tasks.__aexit__(None, None, None)
