"""Who approves calls: nobody is asked with --yes, else the person at the terminal, where there is one."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from threading import Lock

from ..event import AskedPerson, Event, RunStarted
from ..person import About, Approver, Question, Verdict, allow
from .live import View


def approver_for(yes: bool, view: View) -> Approver | None:
    """Whoever answers; None where nobody can, and a run that must ask pauses."""
    if yes:
        return lambda question: allow() if question.about is About.CALL else None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return Desk(view)


class Desk:
    """The person at the terminal: is asked one thing at a time, and told which child wants to know it."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._turn = Lock()
        self._names: dict[str, str] = {}
        self._askers: dict[tuple[str, str], str] = {}

    def hear(self, event: Event) -> None:
        """Learn who asks what; a sink, so that it is known before the question comes."""
        header = event.header
        if isinstance(event, RunStarted) and header.parent_run_id is not None:
            self._names[header.run_id] = event.agent or ""
        elif isinstance(event, AskedPerson):
            self._askers[event.question_id, event.text] = self._names.get(header.run_id, "")

    def __call__(self, question: Question) -> Verdict | None:
        """Ask, and wait for the answer."""
        from ..terminal import ask_on_terminal

        name = self._askers.get((question.id, question.text))
        if name:
            question = replace(question, text=f"{name}: {question.text}")
        with self._turn, self._view.aside():
            return ask_on_terminal(question, _typed)


def _typed(prompt: str) -> str:
    """Like `input`, but on standard error, as the answer's stream may lead elsewhere.

    And without the lock of `sys.stdin`: who holds it when the program ends, because nobody typed anything before
    Ctrl-C, makes Python abort.
    """
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 4096)
        if not piece:
            sys.stderr.write("\n")
            raise EOFError
        line += piece
    return line.decode(errors="replace")
