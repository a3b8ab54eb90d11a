"""Errors for failed requests: retry later, send less, or give up."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

from .._internal.text import redact
from ..errors import ContextTooLong, ModelError, Retryable, truncate

_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
_RETRYABLE_KINDS = frozenset(
    {
        "overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error", "rate_limit_exceeded",
        "server_is_overloaded", "slow_down",
    }
)  # fmt: skip
_TOO_LARGE = 413
_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum (context|prompt)|(prompt|input|request|conversation) is too long"
    r"|too many (input )?tokens|reduce the length|exceeds? the (available |model'?s )?context"
    r"|input token count|inputs?`? tokens \+",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content_filter|_policy(_violation)?$")
"""Codes of errors with which a provider's filter blocks a request or a reply."""
_FILTERED_WORDS = re.compile(r"content (filtering|management) policy", re.IGNORECASE)
_RETRY_DELAY = re.compile(rb'"retryDelay":\s{0,20}"(\d{1,9}(?:\.\d{1,9})?)s"')
_MAX_CAUSES = 20
_MAX_MESSAGE_LENGTH = 500
_MAX_KIND_LENGTH = 200
_MAX_PARSED_LENGTH = 1_000_000
"""Maximum characters of an error that are parsed. The rest is cut off first."""


class Filtered(ModelError):
    """Raised when the provider's filter blocks a request or a reply and the provider reports that as an error."""


def is_unreachable(error: BaseException) -> bool:
    """Check whether no server answers at the address: the connection is refused, or the host has no address.

    Retrying does not help then. The reason is among the causes of a client's error.
    """
    causes: list[BaseException | None] = [error]
    for cause in causes:  # grows while it is read
        if isinstance(cause, ConnectionRefusedError):
            return True
        if isinstance(cause, socket.gaierror):
            return cause.errno != socket.EAI_AGAIN
        if isinstance(cause, BaseExceptionGroup):
            return all(map(is_unreachable, cast("BaseExceptionGroup[Any]", cause).exceptions))
        if cause is not None and len(causes) < _MAX_CAUSES:
            causes.append(cause.__cause__ or cause.__context__)
    return False


def is_retryable_status(status: int) -> bool:
    """Check whether a request that got this HTTP status may succeed later."""
    return status in _RETRYABLE_STATUSES or status >= 500


def error_from_response(
    host: str, status: int, headers: Mapping[str, str], body: bytes, hint: str = "", secrets: Sequence[str] = ()
) -> ModelError:
    """Return the error for an HTTP status other than success.

    Its message has the provider's words, without the secrets.
    """
    kind, words = parse_error_body(body, secrets)
    message = f"{host} answered {status}: {words or 'no message'}"
    if is_retryable_status(status):
        after = parse_retry_after(headers)
        return Retryable(message, _find_retry_delay(body) if after is None else after)
    if status == _TOO_LARGE or (status == 400 and is_too_long(kind, words)):
        return ContextTooLong(message)
    if status < 500 and is_filtered(kind, words):
        return Filtered(message)
    if 300 <= status < 400:
        return ModelError(f"{message}. Redirects are not followed, because they would pass on the key: correct the URL")
    return ModelError(message + hint)


def error_from_stream(host: str, error: Mapping[str, Any], secrets: Sequence[str] = ()) -> ModelError:
    """Return the error for a failure inside a stream, without the secrets."""
    kind, words = _parse_error_object(error, secrets)
    message = f"{host} stopped the reply: {words or kind or 'no reason given'}"
    code = error.get("code")
    is_temporary = kind in _RETRYABLE_KINDS or (isinstance(code, int) and (code in _RETRYABLE_STATUSES or code >= 500))
    if is_temporary or not (kind or words):
        return Retryable(message)
    if is_too_long(kind, words):
        return ContextTooLong(message)
    return Filtered(message) if is_filtered(kind, words) else ModelError(message)


def parse_error_body(body: bytes, secrets: Sequence[str] = ()) -> tuple[str, str]:
    """Return kind and message of an error body.

    Of a body that is not JSON it returns the beginning as the message.
    """
    text = body[: 4 * _MAX_PARSED_LENGTH].decode("utf-8", "replace").strip()
    try:
        data: object = json.loads(text)
    except (ValueError, RecursionError):
        return "", redact_and_shorten(_without_tags(_start(text, secrets)), secrets)
    while isinstance(data, list) and data:  # one provider puts its error into a list
        data = cast("list[object]", data)[0]
    if not isinstance(data, dict):
        return "", redact_and_shorten(text, secrets)
    fields = cast("dict[str, Any]", data)
    error = fields.get("error")
    kind, words = _parse_error_object(cast("dict[str, Any]", error) if isinstance(error, dict) else fields, secrets)
    if isinstance(error, str):
        words = words or error
    return kind, redact_and_shorten(words or text, secrets)


def _parse_error_object(error: Mapping[str, Any], secrets: Sequence[str]) -> tuple[str, str]:
    """Return kind and message of an error object.

    The kind is the code if that is a text, because it says more than the type.
    """
    kinds = [value for key in ("code", "type", "status") if isinstance(value := error.get(key), str)]
    words = [value for key in ("message", "detail") if isinstance(value := error.get(key), str)]
    return (kinds or [""])[0][:_MAX_KIND_LENGTH], redact_and_shorten((words or [""])[0], secrets)


def _find_retry_delay(body: bytes) -> float | None:
    """Return the seconds to wait that Gemini writes into the body."""
    match = _RETRY_DELAY.search(body[:_MAX_PARSED_LENGTH])
    return float(match[1]) if match else None


def is_too_long(kind: str, message: str) -> bool:
    """Check whether an error of this kind and message says that the conversation is too long for the model."""
    return bool(_TOO_LONG.search(kind) or _TOO_LONG.search(message))


def is_filtered(kind: str, message: str) -> bool:
    """Check whether an error of this kind and message comes from the provider's filter.

    >>> is_filtered("misalignment_policy_violation", "Blocked."), is_filtered("invalid_api_key", "Check our policy.")
    (True, False)
    """
    return bool(_FILTERED.search(kind) or _FILTERED_WORDS.search(message))


def redact_and_shorten(text: str, secrets: Sequence[str], max_length: int = _MAX_MESSAGE_LENGTH) -> str:
    """Return the text on one line, without secrets, cut to `max_length`.

    Secrets are removed before the cut: part of a secret would not be recognised.
    """
    return truncate(" ".join(_start(text, secrets).split()), max_length)


def _start(text: str, secrets: Sequence[str]) -> str:
    """Return the start of a text without the secrets.

    A secret at the cut is removed as a whole.
    """
    if len(text) <= _MAX_PARSED_LENGTH:
        return redact(text, secrets)
    longest = max(map(len, secrets), default=0)
    hidden = redact(text[: _MAX_PARSED_LENGTH + longest], secrets)
    return hidden[: len(hidden) - longest]


def _without_tags(text: str) -> str:
    """Replace each tag by a space.

    The text after the last `>` is not searched: each `<` in it would cost a scan to the end of the text.
    """
    end = text.rfind(">") + 1
    return re.sub(r"<[^>]*>", " ", text[:end]) + text[end:]


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that the provider asks to wait.

    The header has seconds, milliseconds (`retry-after-ms`) or a date.
    """
    for header, unit in (("retry-after-ms", 1_000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers[header]) / unit
        except (KeyError, ValueError):
            continue
        if 0 <= seconds < float("inf"):
            return seconds
    try:
        when = parsedate_to_datetime(headers.get("retry-after", ""))
    except ValueError:
        return None
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())
