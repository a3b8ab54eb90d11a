"""Questions to a person, and their answers.

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
from ._internal.jsonable import parse_json_value
from .errors import ConfigError, quote_value

_MAX_AMOUNT = 1e15
"""Largest valid amount, in any unit. A larger one is a mistake."""


class About(StrEnum):
    """Subject of a question."""

    CALL = "call"
    """May this call be made?"""
    LIMIT = "limit"
    """May the run have more than its limits allow?"""
    RUN = "run"
    """May the run continue? Rules ask this."""
    CLIENT_TOOL = "client_tool"
    """What is the result of this call? The caller of the run makes it, and answers with its result."""


@dataclass(frozen=True, slots=True)
class Question:
    """Question to a person."""

    id: str
    """Key of the answer: the call's id, or the budget's name with a number."""
    text: str
    about: About = About.CALL
    tool: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the call. Sensitive ones are hidden, unless a client tool needs them."""
    budget: str | None = None
    amount: float | None = None
    """Amount that a plain yes adds to the budget, in its unit. None if the question is not about a budget."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Answer of a person. `approved` is None while the question is open."""

    approved: bool | None
    text: str = ""
    """Reason of the answer, or the answer itself if a tool asks."""
    arguments: Mapping[str, Any] | None = None
    """Arguments that replace those of the call. None keeps them."""
    amount: float | None = None
    """Amount to add to the budget. None means the amount of the question."""


def allow(text: str = "") -> Verdict:
    """Return a yes; `text` is the answer if a tool asks for one."""
    validation.check_type("allow", text, str)
    return Verdict(True, text)


def deny(reason: str = "") -> Verdict:
    """Return a no; the model sees the reason."""
    validation.check_type("deny", reason, str)
    return Verdict(False, reason)


def edit(text: str = "", /, **arguments: Any) -> Verdict:
    """Return a yes with other arguments, all of them: `edit(path="other.txt")`."""
    validation.check_type("edit", text, str)
    return Verdict(True, text, arguments)


def extend(amount: float, text: str = "") -> Verdict:
    """Return a yes that adds `amount` to the budget."""
    if not _is_amount(amount):
        raise ConfigError("extend", amount, "a number above 0")
    return Verdict(True, text, None, amount)


ApproverAnswer = Verdict | bool | None
"""Answer of an approver: a Verdict, True, False, or None. None leaves the question open and pauses the run."""

Approver = Callable[[Question], ApproverAnswer | Awaitable[ApproverAnswer]]
"""Function that answers one question at a time. It may be async, or block, because it runs in its own thread. An
exception means no, and so does a missing answer after the agent's `approver_seconds`. The wait does not count as the
run's time."""


def to_verdict(answer: object) -> Verdict:
    """Convert an approver's answer; an invalid answer means no."""
    if answer is None or isinstance(answer, bool):
        return Verdict(answer)
    return answer if isinstance(answer, Verdict) and _is_valid(answer) else _reject_answer(answer)


def _is_valid(verdict: Verdict) -> bool:
    # A wrong part would otherwise show up only when the call is made.
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
        False, f"the approver returned {quote_value(answer)}; expected allow(), deny(), edit(), extend(), True or False"
    )


def parse_answers(answers: object, questions: Mapping[str, Question]) -> dict[str, Verdict]:
    """Check answers by question id and convert them.

    Raises ConfigError for an unknown id or an invalid answer, before the run is resumed.
    """
    if not isinstance(answers, Mapping):
        raise ConfigError(
            "resume, answers", answers, "a mapping of question ids to answers, such as {'call-0': allow()}"
        )
    verdicts: dict[str, Verdict] = {}
    for key, answer in cast("Mapping[object, object]", answers).items():
        if key not in questions:
            raise ConfigError(
                "resume, answers", key, f"the id of an open question: {', '.join(questions) or 'there are none'}"
            )
        is_result = questions[str(key)].about is About.CLIENT_TOOL
        verdicts[str(key)] = (_parse_result if is_result else _parse_answer)(f"resume, answers[{key!r}]", answer)
    return verdicts


def _parse_answer(where: str, answer: object) -> Verdict:
    verdict = Verdict(answer) if isinstance(answer, bool) else answer
    if not isinstance(verdict, Verdict) or verdict.approved is None or not _is_valid(verdict):
        raise ConfigError(where, answer, "allow(), deny(), edit(), extend(), True or False")
    return verdict


def _parse_result(where: str, answer: object) -> Verdict:
    """Parse the result of a client tool: a JSON value, `allow` with its JSON text, or `deny`."""
    if not isinstance(answer, Verdict):
        return Verdict(True, json.dumps(parse_json_value(where, answer), ensure_ascii=False))
    if answer.approved is False and _is_valid(answer):
        return answer
    if answer != Verdict(True, answer.text) or not _is_json(answer.text):
        raise ConfigError(where, answer, "the result as a JSON value, allow() with the result as JSON text, or deny()")
    return answer


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


_TERMINAL_LOCK = Lock()
"""Makes runs that ask at the same time take turns."""
_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
ANSWER_HINTS = {
    About.CALL: 'y, n, or e {"argument": ...}; text after y or n is passed on',
    About.LIMIT: "y, n, or the amount to add",
    About.RUN: "y or n; text after n is passed on",
    About.CLIENT_TOOL: "y and the result as JSON, or n",
}
"""Answers that `parse_answer_line` understands."""


def ask_on_terminal(question: Question, ask: Callable[[str], str] | None = None) -> Verdict | None:
    """Ask the question on the terminal and return the answer.

    Returns None at the end of input. The question then stays open and the run pauses. `ask` prints a text and returns
    the typed line, as `input` does.
    """
    with _TERMINAL_LOCK:
        prompt = f"{question.text} ({ANSWER_HINTS[question.about]}) "
        while True:
            try:
                line = (ask or _read_line)(escape_unprintable(prompt))
            except EOFError:
                return None
            verdict = parse_answer_line(line, question.about)
            if verdict is not None:
                return verdict
            prompt = f"Please answer: {ANSWER_HINTS[question.about]} "


def _read_line(prompt: str) -> str:
    try:
        return input(prompt)
    except EOFError:
        sys.stdout.write("\n")
        raise


def escape_unprintable(text: str) -> str:
    r"""Escape every unprintable character, including newlines.

    The text may come from a model, a tool or a file.

    >>> escape_unprintable("all\x1b[2J gone")
    'all\\x1b[2J gone'
    """
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else _escape(character) for character in text)


def escape_control_characters(text: str) -> str:
    r"""Escape control characters except newline and tab.

    They could control the terminal or reverse the text direction.

    >>> escape_control_characters("a:\n\tb\x1b[2J")
    'a:\n\tb\\x1b[2J'
    """
    return _CONTROL_CHARACTERS.sub(lambda match: _escape(match[0]), text.replace("\r\n", "\n"))


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def parse_answer_line(line: str, about: About) -> Verdict | None:
    """Parse a typed answer; return None if it is unclear.

    >>> parse_answer_line("n not on a Friday", About.CALL)
    Verdict(approved=False, text='not on a Friday', arguments=None, amount=None)
    """
    word, _, rest = line.strip().partition(" ")
    match word.lower():
        case "y" | "yes" if about is About.CLIENT_TOOL and not _is_json(rest):
            return None
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
