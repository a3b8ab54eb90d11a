"""Every error that Flyball raises, in one tree.

    FlyballError
    ├── ConfigError (ValueError)     a value passed in code is invalid
    │   ├── ResumeError              a run cannot be resumed from its recorded state
    │   ├── ConfigErrors             several values of one input are invalid
    │   ├── SettingError             a value from the environment or a settings file is invalid
    │   ├── TomlError                a file is not readable TOML
    │   └── UsageError               a call is wrong, or comes at the wrong time
    │       ├── Ungoverned           a program would go around the gateway
    │       └── UntrustedSettings    a settings file of a project does more than lower limits
    ├── ArgumentError (ValueError)   a model called a tool with invalid arguments
    ├── CallClosed                   a tool tried to write after its call had ended
    ├── CommandFailed                a command that a tool ran did not succeed
    ├── AmountError (ValueError)     an amount to claim, refund, hold or settle is not an int, or too small
    ├── BudgetExceeded               a budget refused `spend()` or `hold()`
    ├── DeadlineExceeded (TimeoutError)  a deadline has passed, or was cancelled
    ├── DelegationPaused             a tool delegated while the caller had paused child runs
    ├── MessageError (ValueError)    a message has an unknown shape
    ├── ModelError                   a model did not answer a request
    │   ├── ContextTooLong           the conversation is too long for the model
    │   └── Retryable                the same request may succeed later
    ├── ExternalError                an external system failed
    │   ├── FetchRefused             a page was not fetched, or is not readable
    │   ├── FileRefused              a path is outside a tool's root folder, or of the wrong kind
    │   ├── SourceError              a source of tools, such as an MCP server, is unavailable
    │   │   └── RemoteError          a remote agent returned no result
    │   │       └── RemoteRefused    a remote agent refused, and ran nothing
    │   └── StoreError               a store cannot write or read
    │       ├── SessionBusy          a session cannot be deleted while a run holds it
    │       └── StaleFence           a write was rejected because its lease is no longer held
    ├── RuleError                    an expression of a rule cannot be evaluated
    ├── RunStopped                   a run did not complete; only `Result.raise_for_stop()` raises it
    ├── ToolFailed                   a tool of an external source reported a failure
    └── UnknownName (KeyError)       no object of that kind has that name
        ├── UnknownBudget            no budget of that name is registered
        └── UnknownTool              no tool of that name is offered

Each error takes data and builds its own message from it. Its `code` is stable. HTTP statuses and exit codes are
derived from the code by the server and the CLI.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from .unit import Unit


class FlyballError(Exception):
    """Base class of all errors that Flyball raises on purpose."""

    code: ClassVar[str] = "flyball_error"
    command_text: str | None = None
    """The message with options of the command line instead of Python. None if it names neither."""


class ConfigError(FlyballError, ValueError):
    """Invalid value passed in code."""

    code = "config_invalid"

    def __init__(self, where: str, found: object, expected: str) -> None:
        super().__init__(where, found, expected)
        self.where = where
        self.found = found
        self.expected = expected

    def __str__(self) -> str:
        return f"{self.where}: found {quote_value(self.found)}; expected {self.expected}"


class ConfigErrors(ConfigError):
    """Several invalid values of one input.

    `errors` has one error per value; the message lists them all.
    """

    code = "config_mistakes"

    def __init__(self, errors: tuple[ConfigError, ...]) -> None:
        super().__init__(errors[0].where, errors[0].found, errors[0].expected)
        self.args = (errors,)
        self.errors = errors

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


class SettingError(ConfigError):
    """Invalid value from the environment or a settings file.

    `where` is the key. `source` is the variable, or the file and line, that has the value.
    """

    code = "setting_invalid"

    def __init__(self, key: str, source: str, found: object, expected: str) -> None:
        super().__init__(key, found, expected)
        self.args = (key, source, found, expected)
        self.source = source

    def __str__(self) -> str:
        return f"{self.where} ({self.source}): found {quote_value(self.found)}; expected {self.expected}"


class TomlError(ConfigError):
    """File that is not readable TOML.

    `where` is its path, with the line if that is known. If the fault is not a value in the file, `reason` says what is
    wrong, and `found` is None.
    """

    code = "toml_invalid"

    def __init__(self, where: str, found: object = None, expected: str = "", *, reason: str = "") -> None:
        super().__init__(where, found, expected)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}" if self.reason else super().__str__()


class UsageError(ConfigError):
    """Call that is wrong, or comes at the wrong time.

    The message is a sentence that says what to do instead. No single value is at fault, so `found` is None.
    """

    code = "usage_error"

    def __init__(self, message: str, *, command_text: str | None = None) -> None:
        super().__init__("", None, "")
        self.args = (message,)
        self.message, self.command_text = message, command_text

    def __str__(self) -> str:
        return self.message


class UntrustedSettings(UsageError):
    """Settings file in a project that does more than lower limits, and that the user has not trusted."""

    code = "untrusted_settings"


class Ungoverned(UsageError):
    """Program that would ask its model provider without the gateway, so that no limit would hold."""

    code = "not_governed"


class ResumeError(ConfigError):
    """Run that cannot be resumed from its recorded state.

    `where` names the run. `reason` says why, and what to do instead. No value is at fault, so `found` is None.
    """

    code = "resume_refused"

    def __init__(self, where: str, reason: str, *, command_reason: str | None = None) -> None:
        super().__init__(where, None, "")
        self.args = (where, reason)
        self.reason = reason
        self.command_text = None if command_reason is None else f"{where} cannot be resumed: {command_reason}"

    def __str__(self) -> str:
        return f"{self.where} cannot be resumed: {self.reason}"


class AmountError(FlyballError, ValueError):
    """Amount that is not an int of at least `least`."""

    code = "amount_invalid"

    def __init__(self, budget: str, found: object, least: int = 1) -> None:
        super().__init__(budget, found, least)
        self.budget = budget
        self.found = found
        self.least = least

    def __str__(self) -> str:
        found = quote_value(self.found)
        return f"budget {self.budget!r}: found the amount {found}; expected an int of at least {self.least}"


class DelegationPaused(FlyballError):
    """Raised by `ctx.delegate` while the caller of the run has paused child runs."""

    code = "delegation_paused"

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by

    def __str__(self) -> str:
        return f"no child run may start now: {self.by} has paused them"


class BudgetExceeded(FlyballError):
    """Raised by `spend()` and `hold()` when a budget refuses.

    `budget` names the budget, or parent budget, that had too little left.
    """

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
        asked, remaining, ceiling = map(self.unit.show, (self.asked, self.remaining, self.ceiling))
        return f"budget {self.budget!r}: asked for {asked}, but {remaining} of {ceiling} is left"


class DeadlineExceeded(FlyballError, TimeoutError):
    """Raised by a check of a deadline that has passed, or was cancelled."""

    code = "deadline_exceeded"

    def __init__(self, cancelled: bool = False) -> None:
        super().__init__(cancelled)
        self.cancelled = cancelled

    def __str__(self) -> str:
        return "the deadline was cancelled" if self.cancelled else "the deadline has passed"


class MessageError(FlyballError, ValueError):
    """Message of an unknown shape.

    `index` is its position in the list, `field` the part that is wrong.
    """

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
    """Expression of a rule that cannot be evaluated.

    `reason` says why; `words` is the failing part of the expression.
    """

    code = "rule_failed"

    def __init__(self, reason: str, words: str = "") -> None:
        super().__init__(reason, words)
        self.reason = reason
        self.words = words

    def __str__(self) -> str:
        return f"{self.reason} (in {truncate(self.words, 100)})" if self.words else self.reason


class RunStopped(FlyballError):
    """Run that did not complete.

    Only `Result.raise_for_stop()` raises it. `result` is the full result.
    """

    code = "run_stopped"

    def __init__(self, stop: str, explanation: str, result: object) -> None:
        super().__init__(stop, explanation, result)
        self.stop = stop
        self.explanation = explanation
        self.result = result

    def __str__(self) -> str:
        return self.explanation


class ModelError(FlyballError):
    """Model request that failed and would fail again.

    `message` is the provider's text. `began` is True if the provider may have begun to answer, so that tokens may be
    spent.
    """

    code = "model_failed"

    def __init__(self, message: str, *, began: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.began = began

    def __str__(self) -> str:
        return self.message


class ContextTooLong(ModelError):
    """Conversation that is too long for the model."""

    code = "context_too_long"


class Retryable(ModelError):
    """Model request that may succeed later.

    `after` is the number of seconds to wait first. None means that the provider gave none.
    """

    code = "model_unavailable"

    def __init__(self, message: str, after: float | None = None, *, began: bool = False) -> None:
        super().__init__(message, began=began)
        self.args = (message, after)
        self.after = after


class ArgumentError(FlyballError, ValueError):
    """Invalid arguments in a model's tool call.

    `problems` lists every mistake, worded for the model.
    """

    code = "arguments_invalid"

    def __init__(self, tool: str, problems: tuple[str, ...]) -> None:
        super().__init__(tool, problems)
        self.tool = tool
        self.problems = problems

    def __str__(self) -> str:
        return f"the arguments of {self.tool} are wrong: {'; '.join(self.problems)}"


class ExternalError(FlyballError):
    """Failure of an external system.

    `where` names the system. `reason` says why it failed and what to do.
    """

    code = "outside_failed"

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(where, reason)
        self.where = where
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.where}: {self.reason}"


class SourceError(ExternalError):
    """Source of tools that is unavailable.

    `reason` includes the source's own message.
    """

    code = "source_failed"


class RemoteError(SourceError):
    """Remote agent that returned no result.

    `began` is True if it may have run something.
    """

    code = "remote_failed"

    def __init__(self, where: str, reason: str, *, began: bool = True) -> None:
        super().__init__(where, reason)
        self.began = began


class RemoteRefused(RemoteError):
    """Remote agent that refused, and ran nothing.

    `reason` has the HTTP status and the agent's code and message.
    """

    code = "remote_refused"


class StoreError(ExternalError):
    """Store that cannot write or read."""

    code = "store_failed"


class SessionBusy(StoreError):
    """Session that cannot be deleted while a run holds it."""

    code = "session_busy"


class StaleFence(StoreError):
    """Rejected write of a lease that is no longer held.

    Nothing was written: another holder has the lease now, or it was released.
    """

    code = "fence_stale"


class ToolFailed(FlyballError):
    """Failure reported by a tool of an external source.

    `message` is the tool's text.
    """

    code = "tool_failed"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class CallClosed(FlyballError):
    """Raised when a tool writes after its call has ended.

    `end` says how the call ended.
    """

    code = "call_closed"

    def __init__(self, end: str) -> None:
        super().__init__(end)
        self.end = end

    def __str__(self) -> str:
        return f"the call has ended ({self.end}); nothing more can be written for it"


class CommandFailed(FlyballError):
    """Command that did not succeed.

    `end` says how it ended; `output` is the text it wrote.
    """

    code = "command_failed"

    def __init__(self, end: str, output: str) -> None:
        super().__init__(end, output)
        self.end = end
        self.output = output

    def __str__(self) -> str:
        return f"{self.end}\n{self.output}" if self.output else self.end


class FetchRefused(ExternalError):
    """Page that was not fetched, or is not readable."""

    code = "fetch_refused"

    def __str__(self) -> str:
        return f"{quote_value(self.where)}: {self.reason}"


class FileRefused(ExternalError):
    """Path that is outside a tool's root folder, or of the wrong kind."""

    code = "file_refused"

    def __str__(self) -> str:
        return f"{quote_value(self.where)}: {self.reason}"


class UnknownName(FlyballError, KeyError):
    """Name that no object of its kind has.

    `known` lists the names that exist.
    """

    code = "name_unknown"
    missing: ClassVar[str] = "there is no"
    others: ClassVar[str] = "known names:"

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(name, known)
        self.name = name
        self.known = known

    def __str__(self) -> str:
        similar = suggest_names(str(self.name), self.known)
        listed = ", ".join(sorted(self.known)) or "none"
        hint = f"did you mean {' or '.join(similar)}?" if similar else f"{self.others} {listed}"
        return f"{self.missing} {quote_value(self.name)}; {hint}"


class UnknownBudget(UnknownName):
    """Name that no registered budget has."""

    code = "budget_unknown"
    missing, others = "there is no budget", "registered budgets:"


class UnknownTool(UnknownName):
    """Name that no offered tool has."""

    code = "tool_unknown"
    missing, others = "there is no tool", "offered tools:"


_LONGEST_NAME = 100
"""Characters. A longer name is not a typing mistake, and the cost of a comparison grows with both lengths."""


MAX_MESSAGE_CHARACTERS = 10_000
"""Maximum length of an error's message in results and events. Exceptions of foreign code may have any length."""


def truncate(text: str, max_chars: int) -> str:
    """Return a text, cut after `max_chars` characters."""
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def quote_value(value: object) -> str:
    """Return the repr of a value, shortened for an error message."""
    try:
        text = repr(value)
    except Exception:  # an int of thousands of digits, or a broken __repr__, must not hide the error
        text = f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text):,} characters)"


def format_with_code(error: object) -> str:
    """Return an error's sentence for a terminal or a log, followed by its code in brackets if it has one."""
    return f"{error} [{error.code}]" if isinstance(error, FlyballError) else str(error)


def format_for_command(error: object) -> str:
    """Return an error as the command line prints it: with options instead of Python, and with its code."""
    text = getattr(error, "command_text", None)
    return format_with_code(error) if text is None else f"{text} [{getattr(error, 'code', '')}]"


def describe_error(error: BaseException | str) -> dict[str, str]:
    """Return an error as a result carries it: code, kind and message, which is cut if it is very long."""
    try:
        message = truncate(str(error), MAX_MESSAGE_CHARACTERS)
    except Exception:  # a failing __str__ must not lose the result
        message = "an error that cannot be shown"
    if isinstance(error, FlyballError):
        code = error.code
    else:
        code = "exception" if isinstance(error, BaseException) else "failed"
    return {"code": code, "kind": type(error).__name__, "message": message}


def suggest_names(name: str, known: Iterable[str], cutoff: float = 0.7) -> list[str]:
    """Return up to three known names similar to `name`, nearest first."""
    from difflib import get_close_matches  # imported only when a name is wrong

    if len(name) > _LONGEST_NAME:
        return []
    by_lower_name = {other.lower(): other for other in known if len(other) <= _LONGEST_NAME}
    return [by_lower_name[match] for match in get_close_matches(name.lower(), list(by_lower_name), n=3, cutoff=cutoff)]


if not TYPE_CHECKING:  # else a type checker accepts any name

    def __getattr__(name: str) -> object:
        from ._deprecated import find_old_name

        return globals().setdefault(name, find_old_name(__name__, name))
