"""Asking on the terminal: an approver for programs in front of which somebody sits."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from threading import Lock
from typing import Any

from .errors import ConfigError
from .person import About, Question, Verdict, allow, deny, edit, extend

_TURN = Lock()
"""Runs that ask at the same time take turns."""
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_HOW = {
    About.CALL: 'y, n, or e {"argument": ...}; words behind y or n are passed on',
    About.LIMIT: "y, n, or how much more",
    About.RUN: "y or n; words behind n are passed on",
}


def ask_on_terminal(question: Question, ask: Callable[[str], str] | None = None) -> Verdict | None:
    """Print the question and read the answer; where nobody can answer (end of input), it stays open: the run pauses.

    `ask` prints a text and gives the line that was typed, as `input` does.
    """
    with _TURN:
        prompt = f"{question.text} ({_HOW[question.about]}) "
        while True:
            try:
                line = (ask or _input)(visible(prompt))
            except EOFError:
                return None
            verdict = read(line, question.about)
            if verdict is not None:
                return verdict
            prompt = f"Please answer: {_HOW[question.about]} "


def _input(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        sys.stdout.write("\n")
        raise


def visible(text: str) -> str:
    r"""One line in which all that cannot be seen is shown, not sent: a model, a tool or a file may have written it.

    >>> visible("all\x1b[2J gone")
    'all\\x1b[2J gone'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def harmless(text: str) -> str:
    r"""A text as it is, with its lines, tabs and emoji, but for what would steer a terminal or turn its letters round.

    >>> harmless("a:\n\tb\x1b[2J")
    'a:\n\tb\\x1b[2J'
    """
    return _STEERING.sub(lambda found: _escaped(found[0]), text.replace("\r\n", "\n"))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def read(line: str, about: About) -> Verdict | None:
    """What a line means; None where that is not clear.

    >>> read("n not on a Friday", About.CALL)
    Verdict(approved=False, text='not on a Friday', arguments=None, amount=None)
    """
    word, _, rest = line.strip().partition(" ")
    match word.lower():
        case "y" | "yes":
            return allow(rest.strip())
        case "n" | "no":
            return deny(rest.strip())
        case "e" | "edit" if about is About.CALL:
            return _edited(rest)
        case _:
            return _extended(line) if about is About.LIMIT else None


def _edited(text: str) -> Verdict | None:
    try:
        arguments: Any = json.loads(text)
        return edit(**arguments)
    except (TypeError, ValueError, RecursionError):
        return None


def _extended(text: str) -> Verdict | None:
    try:
        return extend(float(text))
    except (ValueError, ConfigError):
        return None
