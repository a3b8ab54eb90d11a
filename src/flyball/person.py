"""A person in the loop: what is asked, and what may be answered.

>>> from flyball.person import allow, deny, edit, extend
>>> deny("Not on a Friday.")
Verdict(approved=False, text='Not on a Friday.', arguments=None, amount=None)
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from threading import Lock
from typing import Any, cast

from ._internal import validation
from .errors import ConfigError, quote_value

_MAX_AMOUNT = 1e15
"""More than this of anything is a mistake."""


class About(StrEnum):
    """What a question is about."""

    CALL = "call"
    """May this call be made?"""
    LIMIT = "limit"
    """May the run have more than its limits allow?"""
    RUN = "run"
    """May the run go on? A rule asks."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a person is asked."""

    id: str
    """The call's id, or the budget's name with a number: under this an answer is given."""
    text: str
    about: About = About.CALL
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Of the call; those that are sensitive are hidden."""
    budget: str | None = None
    amount: float | None = None
    """What a plain yes gives of the budget, in its own unit."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a person said; `approved` is None where nobody has said anything yet."""

    approved: bool | None
    text: str = ""
    """The reason; or the answer, to a tool that asks."""
    arguments: Mapping[str, Any] | None = None
    """Make the call with these instead."""
    amount: float | None = None
    """Give so much more of the budget."""


def allow(text: str = "") -> Verdict:
    """Yes; `text` is the answer where a tool asks for one."""
    validation.check_type("allow", text, str)
    return Verdict(True, text)


def deny(reason: str = "") -> Verdict:
    """No; the model is told why."""
    validation.check_type("deny", reason, str)
    return Verdict(False, reason)


def edit(text: str = "", /, **arguments: Any) -> Verdict:
    """Yes, but with these arguments, all of them: `edit(path="other.txt")`."""
    validation.check_type("edit", text, str)
    return Verdict(True, text, arguments)


def extend(amount: float, text: str = "") -> Verdict:
    """Yes: so much more of the budget that was asked about."""
    if not _is_amount(amount):
        raise ConfigError("extend", amount, "how much more, above 0")
    return Verdict(True, text, None, amount)


ApproverAnswer = Verdict | bool | None
"""What an approver may give: a Verdict, True, False, or None to leave the question open; then the run pauses."""

Approver = Callable[[Question], ApproverAnswer | Awaitable[ApproverAnswer]]
"""Is asked, one question at a time. It may block (it runs in a thread of its own) or be async. What it raises means no,
and so does no answer within the agent's `approver_seconds`. The wait takes nothing of the run's time."""


def to_verdict(answer: object) -> Verdict:
    """What an approver gave, as a verdict; what cannot be understood means no."""
    if answer is None or isinstance(answer, bool):
        return Verdict(answer)
    return answer if isinstance(answer, Verdict) and _is_valid(answer) else _reject_answer(answer)


def _is_valid(verdict: Verdict) -> bool:
    """Whether each part is what it must be: one that is not would be found out when the call is made already."""
    parts: tuple[Any, ...] = (verdict.approved, verdict.text, verdict.arguments, verdict.amount)
    approved, text, arguments, amount = parts
    return (
        (approved is None or isinstance(approved, bool))
        and isinstance(text, str)
        and (arguments is None or _has_text_keys(arguments))
        and (amount is None or _is_amount(amount))
    )


def _has_text_keys(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(name, str) for name in cast("Mapping[object, Any]", value))


def _is_amount(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 < value < _MAX_AMOUNT


def _reject_answer(answer: object) -> Verdict:
    if inspect.iscoroutine(answer):
        answer.close()
    return Verdict(
        False, f"the approver gave {quote_value(answer)}; expected allow(), deny(), edit(), extend(), True or False"
    )


def parse_answers(answers: object, questions: Mapping[str, Question]) -> dict[str, Verdict]:
    """What was answered to which question; anything else is refused before a run goes on with it."""
    if not isinstance(answers, Mapping):
        raise ConfigError("resume, answers", answers, "answers by the question's id, such as {'call-0': allow()}")
    verdicts: dict[str, Verdict] = {}
    for key, said in cast("Mapping[object, object]", answers).items():
        if key not in questions:
            raise ConfigError("resume, answers", key, f"the id of an open question: {', '.join(questions)}")
        verdict = Verdict(said) if isinstance(said, bool) else said
        if not isinstance(verdict, Verdict) or verdict.approved is None or not _is_valid(verdict):
            raise ConfigError(f"resume, answers[{key!r}]", said, "allow(), deny(), edit(), extend(), True or False")
        verdicts[str(key)] = verdict
    return verdicts


_TERMINAL_LOCK = Lock()
"""Runs that ask at the same time take turns."""
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_ANSWER_HINTS = {
    About.CALL: 'y, n, or e {"argument": ...}; words behind y or n are passed on',
    About.LIMIT: "y, n, or how much more",
    About.RUN: "y or n; words behind n are passed on",
}


def ask_on_terminal(question: Question, ask: Callable[[str], str] | None = None) -> Verdict | None:
    """Print the question and read the answer; where nobody can answer (end of input), it stays open: the run pauses.

    `ask` prints a text and gives the line that was typed, as `input` does.
    """
    with _TERMINAL_LOCK:
        prompt = f"{question.text} ({_ANSWER_HINTS[question.about]}) "
        while True:
            try:
                line = (ask or _read_line)(escape_unprintable(prompt))
            except EOFError:
                return None
            verdict = parse_answer_line(line, question.about)
            if verdict is not None:
                return verdict
            prompt = f"Please answer: {_ANSWER_HINTS[question.about]} "


def _read_line(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        sys.stdout.write("\n")
        raise


def escape_unprintable(text: str) -> str:
    r"""One line in which all that cannot be seen is shown, not sent: a model, a tool or a file may have written it.

    >>> escape_unprintable("all\x1b[2J gone")
    'all\\x1b[2J gone'
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _escape(one) for one in text)


def escape_control_characters(text: str) -> str:
    r"""A text as it is, with its lines, tabs and emoji, but for what would steer a terminal or turn its letters round.

    >>> escape_control_characters("a:\n\tb\x1b[2J")
    'a:\n\tb\\x1b[2J'
    """
    return _CONTROL_CHARACTERS.sub(lambda found: _escape(found[0]), text.replace("\r\n", "\n"))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def parse_answer_line(line: str, about: About) -> Verdict | None:
    """What a line means; None where that is not clear.

    >>> parse_answer_line("n not on a Friday", About.CALL)
    Verdict(approved=False, text='not on a Friday', arguments=None, amount=None)
    """
    word, _, rest = line.strip().partition(" ")
    match word.lower():
        case "y" | "yes":
            return allow(rest.strip())
        case "n" | "no":
            return deny(rest.strip())
        case "e" | "edit" if about is About.CALL:
            return _parse_edit(rest)
        case _:
            return _parse_extension(line) if about is About.LIMIT else None


def _parse_edit(text: str) -> Verdict | None:
    try:
        arguments: Any = json.loads(text)
        return edit(**arguments)
    except (TypeError, ValueError, RecursionError):
        return None


def _parse_extension(text: str) -> Verdict | None:
    try:
        return extend(float(text))
    except (ValueError, ConfigError):
        return None
