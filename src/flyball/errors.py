"""Every error Flyball raises, in one tree.

    FlyballError
    ├── ConfigError (ValueError)     a value given in code cannot be used
    │   ├── ResumeError              a run cannot go on from where it was left
    │   ├── ConfigErrors             several values of one input cannot be used
    │   ├── SettingError             a value given by the environment or a file cannot be used
    │   └── TomlError                a file cannot be read as TOML
    ├── ArgumentError (ValueError)   a model called a tool with arguments that do not fit
    ├── CallClosed                   a tool wants to write, but its call was declared dead
    ├── CommandFailed                a command that a tool has run did not end well
    ├── AmountError (ValueError)     an amount to claim, refund, hold or settle is no whole number, or too small
    ├── BudgetExceeded               a loud claim (spend, hold) was refused
    ├── DeadlineExceeded (TimeoutError)  a loud look at a deadline found it past
    ├── MessageError (ValueError)    a message has a shape that nobody knows
    ├── ModelError                   a model did not answer a request
    │   ├── ContextTooLong           the conversation is too long for the model
    │   └── Retryable                the same request may succeed later
    ├── ExternalError                an external system failed
    │   ├── FetchRefused             a page is not fetched, or is none that can be read
    │   ├── FileRefused              a path of a toolbox tool is not below its root, or not what it must be
    │   ├── SourceError              a source of tools, such as an MCP server, cannot be had, or is gone
    │   │   └── RemoteError          a remote agent did not answer with the result of a run
    │   │       └── RemoteRefused    it said no, and nothing was run
    │   └── StoreError               a store cannot keep, or give back, what it is asked to
    │       ├── SessionBusy          a session is not deleted while a run holds it
    │       └── StaleFence           a write is refused: somebody else has the lease since, or it was given back
    ├── RuleError                    an expression of a rule cannot be worked out with the data at hand
    ├── RunStopped                   a run did not complete, and its caller asked to be told so
    ├── ToolFailed                   a tool of such a source says that it failed
    └── UnknownName (KeyError)       nothing of that kind has that name
        ├── UnknownBudget            no budget of that name is registered
        └── UnknownTool              no tool of that name is offered

An error takes data and writes its own message: what was found, where, and what would be right. Its `code` is stable;
HTTP statuses and exit codes are made from it at the edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from .unit import Unit

_LONGEST_NAME = 100
"""Characters. A longer name is no typing mistake, and comparing two takes time that grows with both."""


def quote_value(value: object) -> str:
    """A value as an error message quotes it: its repr, cut where it would bury the message."""
    try:
        text = repr(value)
    except Exception:  # a number of thousands of digits, or an object that is broken: the message must still be told
        text = f"<a {type(value).__name__} that cannot be shown>"
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text):,} characters)"


def suggest_names(name: str, known: Iterable[str], cutoff: float = 0.7) -> list[str]:
    """The known names that somebody who wrote `name` may have meant, nearest first."""
    from difflib import get_close_matches  # only a mistake pays for the import

    if len(name) > _LONGEST_NAME:
        return []
    meant = {other.lower(): other for other in known if len(other) <= _LONGEST_NAME}
    return [meant[near] for near in get_close_matches(name.lower(), list(meant), n=3, cutoff=cutoff)]


class FlyballError(Exception):
    """The base of every error that Flyball raises on purpose."""

    code: ClassVar[str] = "flyball_error"


class ConfigError(FlyballError, ValueError):
    """A value given in code cannot be used."""

    code = "config_invalid"

    def __init__(self, where: str, found: object, expected: str) -> None:
        super().__init__(where, found, expected)
        self.where = where
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.where}: found {quote_value(self.found)}; expected {self.expected}"


class ConfigErrors(ConfigError):
    """Several values of one input cannot be used; `errors` has them all, and the message tells them all."""

    code = "config_mistakes"

    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        super().__init__(errors[0].where, errors[0].found, errors[0].expected)
        self.args = (errors,)
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


class SettingError(ConfigError):
    """A value given by the environment or a settings file cannot be used.

    `where` is the key, `source` the variable or the file and line that gave the value.
    """

    code = "setting_invalid"

    def __init__(self, key: str, source: str, found: object, expected: str) -> None:
        super().__init__(key, found, expected)
        self.args = (key, source, found, expected)
        self.source = source

    def __str__(self) -> str:
        return f"{self.where} ({self.source}): found {quote_value(self.found)}; expected {self.expected}"


class TomlError(ConfigError):
    """A file cannot be read as TOML; `where` is its path, with the line where that is known."""

    code = "toml_invalid"


class ResumeError(ConfigError):
    """A run cannot go on from where it was left."""

    code = "resume_refused"


class AmountError(FlyballError, ValueError):
    """An amount is not a whole number of at least `least`."""

    code = "amount_invalid"

    def __init__(self, budget: str, found: object, least: int = 1) -> None:
        super().__init__(budget, found, least)
        self.budget = budget
        self.found = found
        self.least = least

    def __str__(self) -> str:
        found = quote_value(self.found)
        return f"budget {self.budget!r}: found the amount {found}; expected an int of at least {self.least}"


class BudgetExceeded(FlyballError):
    """A loud claim was refused; the budget named here is the one that refused it, perhaps an ancestor."""

    code = "budget_exceeded"

    def __init__(
        self, budget: str, asked: int, remaining: int | float, ceiling: int | None, unit: Unit = Unit.COUNT
    ) -> None:
        super().__init__(budget, asked, remaining, ceiling, unit)
        self.budget = budget
        self.asked = asked
        self.remaining = remaining
        self.ceiling = ceiling
        self.unit = unit

    def __str__(self) -> str:
        asked, left, ceiling = map(self.unit.show, (self.asked, self.remaining, self.ceiling))
        return f"budget {self.budget!r}: asked for {asked}, but {left} of {ceiling} is left"


class DeadlineExceeded(FlyballError, TimeoutError):
    """A loud look at a deadline found it past, or cancelled."""

    code = "deadline_exceeded"

    def __init__(self, cancelled: bool = False) -> None:
        super().__init__(cancelled)
        self.cancelled = cancelled

    def __str__(self) -> str:
        return "the deadline was cancelled" if self.cancelled else "the deadline is past"


class MessageError(FlyballError, ValueError):
    """A message has a shape that nobody knows; `index` is its place in the list, `field` the part that is wrong."""

    code = "message_invalid"

    def __init__(self, index: int, field: str, found: object, expected: str) -> None:
        super().__init__(index, field, found, expected)
        self.index = index
        self.field = field
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"messages[{self.index}].{self.field}: found {quote_value(self.found)}; expected {self.expected}"


class RuleError(FlyballError):
    """An expression of a rule cannot be worked out with the data at hand; `words` are the part of it that cannot."""

    code = "rule_failed"

    def __init__(self, reason: str, words: str = "") -> None:
        super().__init__(reason, words)
        self.reason = reason
        self.words = words

    def __str__(self) -> str:
        words = self.words if len(self.words) <= 100 else f"{self.words[:100]}…"
        return f"{self.reason} (in {words})" if words else self.reason


class RunStopped(FlyballError):
    """A run did not complete; raised only by `Result.raise_for_stop()`. `result` has all there is."""

    code = "run_stopped"

    def __init__(self, stop: str, explanation: str, result: object) -> None:
        super().__init__(stop, explanation, result)
        self.stop = stop
        self.explanation = explanation
        self.result = result

    def __str__(self) -> str:
        return self.explanation


class ModelError(FlyballError):
    """A model did not answer a request, and asking again would not help; `message` has the provider's words.

    `began` says that it may have begun to answer, so that tokens may be spent.
    """

    code = "model_failed"

    def __init__(self, message: str, *, began: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.began = began

    def __str__(self) -> str:
        return self.message


class ContextTooLong(ModelError):
    """The conversation is too long for the model."""

    code = "context_too_long"


class Retryable(ModelError):
    """The same request may succeed later, where `after` is given not sooner than in so many seconds."""

    code = "model_unavailable"

    def __init__(self, message: str, after: float | None = None, *, began: bool = False) -> None:
        super().__init__(message, began=began)
        self.args = (message, after)
        self.after = after


class ArgumentError(FlyballError, ValueError):
    """A model called a tool with arguments that do not fit; `problems` lists every mistake, in words for the model."""

    code = "arguments_invalid"

    def __init__(self, tool: str, problems: tuple[str, ...]) -> None:
        super().__init__(tool, problems)
        self.tool = tool
        self.problems = problems

    def __str__(self) -> str:
        return f"the arguments of {self.tool} are wrong: {'; '.join(self.problems)}"


class ExternalError(FlyballError):
    """Something outside of this program does not do its part; `where` names it, `reason` says why and what to do."""

    code = "outside_failed"

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class SourceError(ExternalError):
    """A source of tools cannot be had, or is gone; `reason` has its own words too."""

    code = "source_failed"


class RemoteError(SourceError):
    """A remote agent, which is a source of work, gave no result; `began` says that it may have run something."""

    code = "remote_failed"

    def __init__(self, where: str, reason: str, *, began: bool = True) -> None:
        super().__init__(where, reason)
        self.began = began


class RemoteRefused(RemoteError):
    """It said no, and nothing was run; `reason` has HTTP's status, and the code and words that it gave."""

    code = "remote_refused"


class StoreError(ExternalError):
    """A store cannot keep, or give back, what it is asked to."""

    code = "store_failed"


class SessionBusy(StoreError):
    """A session is not deleted while a run holds it."""

    code = "session_busy"


class StaleFence(StoreError):
    """A write is refused, and nothing was written: somebody else has the lease since, or it was given back."""

    code = "fence_stale"


class ToolFailed(FlyballError):
    """A tool of a source says that it failed; `message` has its words."""

    code = "tool_failed"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class CallClosed(FlyballError):
    """A tool is about to write outside, but its call was declared dead; `end` tells how."""

    code = "call_closed"

    def __init__(self, end: str) -> None:
        super().__init__(end)
        self.end = end

    def __str__(self) -> str:
        return f"the call is over ({self.end}); nothing may be written for it any more"


class CommandFailed(FlyballError):
    """A command ended otherwise than it should, `end` tells how; `output` is what it had written."""

    code = "command_failed"

    def __init__(self, end: str, output: str) -> None:
        super().__init__(end, output)
        self.end = end
        self.output = output

    def __str__(self) -> str:
        return f"{self.end}\n{self.output}" if self.output else self.end


class FetchRefused(ExternalError):
    """A page is not fetched, or what came is none that can be read."""

    code = "fetch_refused"

    def __str__(self) -> str:
        return f"{quote_value(self.where)}: {self.reason}"


class FileRefused(ExternalError):
    """A file or folder is not opened: it is not below the root of the tool, or not what it must be."""

    code = "file_refused"

    def __str__(self) -> str:
        return f"{quote_value(self.where)}: {self.reason}"


class UnknownName(FlyballError, KeyError):
    """Nothing of that kind has that name; `known` are those that do."""

    code = "name_unknown"
    missing: ClassVar[str] = "nothing is known as"
    others: ClassVar[str] = "known are"

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        near = suggest_names(str(self.name), self.known)
        listed = ", ".join(sorted(self.known)) or "none"
        hint = f"did you mean {' or '.join(near)}?" if near else f"{self.others} {listed}"
        return f"{self.missing} {quote_value(self.name)}; {hint}"


class UnknownBudget(UnknownName):
    """No budget of that name is registered."""

    code = "budget_unknown"
    missing, others = "no budget is registered as", "registered are"


class UnknownTool(UnknownName):
    """No tool of that name is offered."""

    code = "tool_unknown"
    missing, others = "there is no tool", "offered are"


def __getattr__(name: str) -> object:
    from ._deprecated import find_old_name

    return globals().setdefault(name, find_old_name(__name__, name))
