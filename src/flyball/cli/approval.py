"""Who approves calls: nobody is asked with --yes, else the person at the terminal, where there is one."""

from __future__ import annotations

import os
import sys

from ..person import About, Approver, Question, Verdict, allow
from .view import View


def approver_for(yes: bool, view: View) -> Approver | None:
    """Whoever answers; None where nobody can, and a run that must ask pauses."""
    if yes:
        return lambda question: allow() if question.about is About.CALL else None
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    def ask(question: Question) -> Verdict | None:
        from ..terminal import ask_on_terminal

        with view.aside():
            return ask_on_terminal(question, _typed)

    return ask


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
