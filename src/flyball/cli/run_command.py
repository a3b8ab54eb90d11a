"""Execution of a run for `flyball run` and `flyball resume`.

It shows the run, asks for approvals, handles Ctrl-C, stores the run and prints its result.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from threading import Lock, current_thread, main_thread
from types import FrameType
from typing import TYPE_CHECKING

import typer

from ..errors import ResumeError, UsageError, format_for_command
from ..event import AskedPerson, Event, RunStarted
from ..history.record import result_to_dict, save_last_record
from ..person import About, Approver, Question, Verdict, allow, escape_control_characters
from ..result import Stop
from .live import JsonLinesView, Lines, Live, RunView, SilentView
from .output import EXIT_CODES, USER_ERRORS, exit_with_error, print_line, print_raw
from .quiet_terminal import restore_echo
from .run_config import RunConfig
from .run_ending import print_ending
from .saved_config import build_start_metadata
from .store_option import StoreLocation
from .wrapping import wrap_line

if TYPE_CHECKING:
    from rich.console import Console

    from ..agent.agent import Agent
    from ..agent.run import Run
    from ..result import Result
    from ..store import Store

_CURSOR = "\x1b[?25h"
"""Escape sequence that shows the cursor again after the live view hid it."""


@dataclass(frozen=True, slots=True)
class OutputMode:
    """Amount and format of output."""

    quiet: bool = False
    as_json: bool = False
    as_jsonl: bool = False

    def build_view(self) -> RunView:
        """Build the view of the running run, or exit if options contradict."""
        if self.as_json and self.as_jsonl:
            raise exit_with_error(UsageError("use --json or --jsonl, not both"))
        if self.as_jsonl:
            return JsonLinesView()
        return SilentView() if self.quiet else _build_view()


def make_error_console() -> Console:
    """Return a console for standard error."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def _build_view() -> RunView:
    console = make_error_console()
    return Live(console) if sys.stderr.isatty() and not console.is_dumb_terminal else Lines(console)


def execute_run(
    config: RunConfig, start_run: Callable[[Agent], Run], output_mode: OutputMode, store: Store | None
) -> None:
    """Run to the end and exit with the code of its stop reason."""
    result = _run_to_end(config, start_run, output_mode, store)
    stored = _is_persistent(store) and result.store_error is None
    with suppress(BrokenPipeError):  # the exit code still tells why it ended
        _save_record(result, stored)
        if not output_mode.as_jsonl:
            _print_result(result, output_mode, stored)
    raise typer.Exit(EXIT_CODES[result.stop])


def _run_to_end(
    config: RunConfig, start_run: Callable[[Agent], Run], output_mode: OutputMode, store: Store | None
) -> Result:
    view = output_mode.build_view()
    try:
        approver = build_approver(config.yes, view)
        sinks = [approver.receive_event] if isinstance(approver, TerminalApprover) else []
        agent = config.build_agent([view.watch], approver, sinks, store, build_start_metadata(config))
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    for warning in config.list_clamps():
        print_line(warning, head="warning  ", err=True)
    address = getattr(agent.model, "address", None)
    if address is not None and not output_mode.quiet:  # the prompt goes there
        print_line(address, head="asks     ", err=True)
    with view, start_interruptible(lambda: start_run(agent)) as run:
        try:
            _show_events(run, view)
            return run.result()
        except ResumeError as error:  # raised only when the run reads its journal
            raise exit_with_error(error) from None


def _show_events(run: Run, view: RunView) -> None:
    """Show every event; cancel the run if the output is closed."""
    for event in run:
        try:
            view.show(event)
        except BrokenPipeError:
            run.cancel("a closed pipe")
            view = SilentView()


def _print_result(result: Result, output_mode: OutputMode, stored: bool) -> None:
    if output_mode.as_json:
        print_raw(json.dumps(result_to_dict(result, stored), indent=2))
        return
    text = result.text if result.output is None else json.dumps(result.output, ensure_ascii=False)
    if text:
        _print_answer(escape_control_characters(text.rstrip("\n")))
    if not output_mode.quiet:
        print_ending(result, stored, make_error_console())


def _print_answer(text: str) -> None:
    """Print the answer; on a terminal its lines are wrapped between words."""
    if not sys.stdout.isatty():
        print_raw(text)
        return
    columns = shutil.get_terminal_size().columns
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        print_raw("\n".join(wrap_line(line[:indent], line[indent:], columns)))


def _save_record(result: Result, stored: bool) -> None:
    """Save the record for `flyball why`, or warn."""
    try:
        save_last_record(result, stored)
    except OSError as error:
        print_line(f"this run is not saved for flyball why: {error}", head="flyball: ", err=True)


@contextmanager
def open_run_store(uri: str | None) -> Generator[Store | None]:
    """Open the store of a run; yields None if runs are not kept."""
    try:
        store = _open_store(StoreLocation.resolve(uri))
    except USER_ERRORS as error:
        raise exit_with_error(error) from None
    with nullcontext() if store is None else store:
        yield store


def _open_store(location: StoreLocation) -> Store | None:
    """Open the store.

    If the default store cannot be opened, warn and return None: that is no reason not to run.
    """
    if location.is_disabled:
        return None
    try:
        return location.open()
    except USER_ERRORS as error:
        if not location.is_default:
            raise
        print_line(f"this run is not stored: {format_for_command(error)}", head="flyball: ", err=True)
        return None


def _is_persistent(store: Store | None) -> bool:
    """Check whether the store outlives this process."""
    from ..store import MemoryStore

    return store is not None and not isinstance(store, MemoryStore)


@contextmanager
def start_interruptible(start: Callable[[], Run]) -> Generator[Run]:
    """Start a run, and cancel it on the first Ctrl-C; the next one exits at once.

    The second handler stays in place after the block.
    """
    if current_thread() is not main_thread():  # signals arrive in the main thread only
        yield _start(start)
        return
    run: Run | None = None
    interrupted = False

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, _exit_at_once)
        if run is not None:
            run.cancel("Ctrl-C")

    previous_handler = signal.signal(signal.SIGINT, interrupt)
    try:
        run = _start(start)
        if interrupted:  # while it started
            run.cancel("Ctrl-C")
        yield run
    finally:
        if not interrupted:
            signal.signal(signal.SIGINT, previous_handler)


def _start(start: Callable[[], Run]) -> Run:
    try:
        return start()
    except USER_ERRORS as error:
        raise exit_with_error(error) from None


def _exit_at_once(_signal: int, _frame: FrameType | None) -> None:
    """Exit without cleanup, which could hang too.

    Programs of tools die with their parent.
    """
    show_cursor = _CURSOR if sys.stderr.isatty() else ""
    restore_echo()
    with suppress(OSError):  # standard error is closed
        os.write(2, f"{show_cursor}\nflyball: stopped at once; the end of the run may not be stored\n".encode())
    os._exit(EXIT_CODES[Stop.CANCELLED])


def build_approver(approve_all: bool, view: RunView) -> Approver | None:
    """Return the approver of calls.

    None if no person can be asked: a run that must ask then pauses.
    """
    if approve_all:
        return lambda question: allow() if question.about is About.CALL else None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return TerminalApprover(view)


class TerminalApprover:
    """Approver that asks on the terminal, one question at a time.

    Questions of children carry the child's name.
    """

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._lock = Lock()
        self._names: dict[str, str] = {}
        self._askers: dict[tuple[str, str], str] = {}

    def receive_event(self, event: Event) -> None:
        """Record which run asks what.

        As a sink it sees the event before the question comes.
        """
        header = event.header
        if isinstance(event, RunStarted) and header.parent_run_id is not None:
            self._names[header.run_id] = event.agent or ""
        elif isinstance(event, AskedPerson):
            self._askers[event.question_id, event.text] = self._names.get(header.run_id, "")

    def __call__(self, question: Question) -> Verdict | None:
        from ..person import ask_on_terminal

        name = self._askers.get((question.id, question.text))
        if name:
            question = replace(question, text=f"{name}: {question.text}")
        with self._lock, self._view.pause_output():
            return ask_on_terminal(question, _read_line)


def _read_line(prompt: str) -> str:
    """Read a line like `input`, with the prompt on standard error.

    Standard output may be redirected. The lock of `sys.stdin` is not taken: if it is still held when the program ends
    after Ctrl-C, Python aborts.
    """
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(sys.stdin.fileno(), 4096)
        if not chunk:
            sys.stderr.write("\n")
            raise EOFError
        line += chunk
    return line.decode(errors="replace")
