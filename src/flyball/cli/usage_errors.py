"""Errors of typer about options and arguments, in the words of all other errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..errors import UsageError, quote_value, suggest_names

_EXPECTED = {
    "int_parsing": "a whole number", "int_from_float": "a whole number", "float_parsing": "a number",
    "finite_number": "a number",
}  # fmt: skip
"""Expected value by pydantic's type of error."""
_BOUNDS = {"ge": "{} or more", "gt": "more than {}", "le": "at most {}", "lt": "less than {}"}


def convert_usage_error(error: Any, command: str) -> UsageError | None:
    """Convert typer's exception to an error of ours; None if it is only the help.

    `command` is what the user typed, such as `flyball run`, if typer does not know.
    """
    kind = type(error).__name__
    if kind == "NoArgsIsHelpError":
        return None
    context = getattr(error, "ctx", None)
    path = command if context is None else context.command_path
    text = _describe(kind, error)
    return UsageError(f"{text} See {path} --help" if text.endswith("?") else f"{text}; see {path} --help")


def _describe(kind: str, error: Any) -> str:
    message = str(error.format_message())
    match kind:
        case "MissingParameter":
            return f"{_get_name(error.param)} is missing"
        case "BadParameter" if error.param is not None:
            return f"{_get_name(error.param)}: {_describe_value(error)}"
        case "NoSuchOption":
            names = suggest_names(error.option_name, error.possibilities or ())
            return f"there is no option {error.option_name}{_suggest(names)}"
        case "BadOptionUsage":
            return f"{error.option_name} {'takes no value' if 'not take' in message else 'needs a value'}"
        case _ if message.startswith("No such command"):
            _, name, *rest = message.split("'")
            return f"there is no command {quote_value(name)}{_suggest(rest[1::2])}"
        case _ if message.startswith("Got unexpected extra argument"):
            words = message.partition("(s) (")[2].removesuffix(")")
            return f"unexpected {'arguments' if ' ' in words else 'argument'}: {words}"
        case _:
            return message[:1].lower() + message[1:].rstrip(".")


def _get_name(parameter: Any) -> str:
    """Return the name as it is typed: the long option, or the name in the usage line."""
    if parameter.param_type_name == "option":
        return str(max(parameter.opts, key=len))
    return str(parameter.metavar or parameter.name.upper())


def _describe_value(error: Any) -> str:
    details: Any = next(iter(error.__cause__.errors()), None) if hasattr(error.__cause__, "errors") else None
    if details is None:
        return str(error.message).rstrip(".")
    return f"found {quote_value(details['input'])}; expected {_describe_expected(details)}"


def _describe_expected(details: Any) -> str:
    for name, bound in details.get("ctx", {}).items():
        if name in _BOUNDS:
            return _BOUNDS[name].format(f"{bound:g}")
    choices = details["msg"].rstrip(".").partition(" is not one of ")[2]
    return _EXPECTED.get(details["type"]) or choices.replace("'", "").replace(", ", " or ") or details["msg"]


def _suggest(names: Iterable[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""
