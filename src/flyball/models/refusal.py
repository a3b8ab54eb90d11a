"""What an answer that is no reply means: ask again later, send less, or give up."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, cast

from ..errors import ContextTooLong, ModelError, Retryable

_PASSING = frozenset({408, 409, 425, 429})
_MOST_WORDS = 500
_TOO_LARGE = 413
_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size|limit)|maximum (context|prompt)|(prompt|input|request|conversation) is too long"
    r"|too many (input )?tokens|reduce the length|exceeds? the (available |model'?s )?context",
    re.IGNORECASE,
)
_PASSING_KINDS = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error", "server_error"})


def refused(who: str, status: int, headers: Mapping[str, str], body: bytes, hint: str = "") -> ModelError:
    """The error for an HTTP status that is no success; it has the provider's words."""
    kind, words = words_of(body)
    message = f"{who} answered {status}: {words or 'nothing more'}"
    if status in _PASSING or status >= 500:
        return Retryable(message, _retry_after(headers))
    if status == _TOO_LARGE or (status == 400 and _is_too_long(kind, words)):
        return ContextTooLong(message)
    if 300 <= status < 400:
        return ModelError(f"{message}. It sends us elsewhere, where we do not follow with a key: correct the url")
    return ModelError(message + hint)


def broken_off(who: str, error: Mapping[str, Any]) -> ModelError:
    """The error that a provider told inside a stream that had begun well."""
    kind, words = _told(error)
    message = f"{who} broke off: {words or kind or 'it did not say why'}"
    code = error.get("code")
    passing = kind in _PASSING_KINDS or (isinstance(code, int) and (code in _PASSING or code >= 500))
    if passing or not (kind or words):
        return Retryable(message)
    return ContextTooLong(message) if _is_too_long(kind, words) else ModelError(message)


def words_of(body: bytes) -> tuple[str, str]:
    """The kind and the words of an error as providers write them; of whatever else, its beginning."""
    text = body.decode("utf-8", "replace").strip()
    try:
        data: object = json.loads(text)
    except (ValueError, RecursionError):
        return "", _short(re.sub(r"<[^>]*>", " ", text))
    while isinstance(data, list) and data:  # one provider puts its error into a list
        data = cast("list[object]", data)[0]
    if not isinstance(data, dict):
        return "", _short(text)
    fields = cast("dict[str, Any]", data)
    error = fields.get("error")
    kind, words = _told(cast("dict[str, Any]", error) if isinstance(error, dict) else fields)
    if isinstance(error, str):
        words = words or error
    return kind, _short(words or text)


def _told(error: Mapping[str, Any]) -> tuple[str, str]:
    """Kind (its code, where that is a word, tells more than its type) and words of an error object."""
    kinds = [value for key in ("code", "type", "status") if isinstance(value := error.get(key), str)]
    words = [value for key in ("message", "detail") if isinstance(value := error.get(key), str)]
    return (kinds or [""])[0], _short((words or [""])[0])


def _is_too_long(kind: str, words: str) -> bool:
    return bool(_TOO_LONG.search(kind) or _TOO_LONG.search(words))


def _short(words: str) -> str:
    words = " ".join(words.split())
    return words if len(words) <= _MOST_WORDS else f"{words[:_MOST_WORDS]}…"


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the provider asks us to wait: a number, in one header of milliseconds, or a date."""
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
