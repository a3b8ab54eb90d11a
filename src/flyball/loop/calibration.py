"""Nearer estimates of a request's tokens, calibrated by what each model's provider reports.

The estimate of `request.py` is an upper bound for any text, and about three times too high for English. It decides
unless it leaves little room: then a request that would fit is not refused because of it. The nearer estimate counts
words, and is scaled by what the provider reported for earlier requests.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any

from .._internal.jsonable import to_json_text
from ..message import Message
from ..request import MESSAGE_OVERHEAD_TOKENS, Request, estimate_message_tokens, estimate_tokens, estimate_tools_tokens

UNKNOWN_SCALE = 1.25
"""Factor before anything was reported. It covers prose, code, JSON, numbers and ids; docs/money.md has a table."""
ENOUGH_OUTPUT_TOKENS = 4_096
"""Tokens. An estimate that leaves so much for the reply needs no nearer one."""
_MARGIN = 1.1
_LOWEST, _HIGHEST = 0.4, 2.0
"""Scales that a tokenizer can have. Anything else is no report about the text."""
_MIN_REPORTED = 200
"""Tokens. Less is mostly what a provider adds to a request."""
_KEPT_REPORTS = 16
_FAKES = (None, "flyball")
"""Providers of scripted models."""
_PIECE = re.compile(r"[A-Za-z0-9]+|[^\sA-Za-z0-9\x80-\U0010ffff]|[\x80-\U0010ffff]+|\s+")
_VOWELS = re.compile(r"[aeiouyAEIOUY]")
_CONSONANTS = re.compile(r"[b-df-hj-np-tv-xz]{5}", re.I)
_MAX_WORD = 14


def estimate_likely_tokens(text: str) -> int:
    """Return about how many tokens a text has: words by their letters, everything else nearly as the upper bound.

    >>> text = "The governor keeps the engine at its speed, whatever the load."
    >>> estimate_likely_tokens(text), estimate_tokens(text)
    (18, 43)
    """
    return int(sum(map(_weigh, _PIECE.findall(text)))) + 1


def _weigh(piece: str) -> float:
    first = piece[0]
    if first.isspace():
        return 0.0 if piece == " " else 1.0  # a single space is part of the next word
    if not first.isascii():
        return 0.75 * len(piece.encode("utf-8", "replace"))
    if not piece.isalpha():
        return float(len(piece))  # digits, ids and punctuation
    if len(piece) <= 3:
        return 1.0
    capitals = sum(map(str.isupper, piece))
    is_word = len(piece) <= _MAX_WORD and capitals <= 2 and not _CONSONANTS.search(piece)
    if is_word and len(_VOWELS.findall(piece)) / len(piece) >= 0.2:
        return max(1.0, 0.3 * len(piece))
    return 0.65 * len(piece) + 0.35 * capitals


class LikelyTokens:
    """Likely tokens of the requests of one run. Counts each message once."""

    __slots__ = ("_count", "_messages", "_reported", "_requested", "_scale", "_tokens")

    def __init__(self, scale: float) -> None:
        """Start with the scale of the provider."""
        self._scale = scale
        self._messages: Sequence[Message] = ()
        self._count = self._tokens = 0
        self._requested = 0
        """Likely tokens of the last request, without scale. 0 if they were not counted."""
        self._reported: tuple[int, int] | None = None
        """Likely tokens of a request, and what the provider reported for it."""

    def estimate(self, request: Request, messages: Sequence[Message], provider: str | None) -> int:
        """Return the nearer estimate of a request that shows these messages."""
        self._requested = self._count_request(request, messages, provider)
        if self._reported is not None:  # a fact is better than an estimate
            before, reported = self._reported
            return reported + int((self._requested - before) * UNKNOWN_SCALE) + 1
        return int(self._requested * self._scale) + 1

    def _count_request(self, request: Request, messages: Sequence[Message], provider: str | None) -> int:
        tokens = sum(map(estimate_likely_tokens, [request.instructions or "", *request.notices]))
        if request.tools or request.output_schema:
            upper = estimate_tools_tokens(request.tools, request.output_schema, provider)
            described = to_json_text(
                [*request.tools, request.output_schema] if request.output_schema else request.tools
            )
            tokens += upper - estimate_tokens(described) + estimate_likely_tokens(described)
        if messages is not self._messages or len(messages) < self._count:  # the conversation was shortened
            self._messages, self._count, self._tokens, self._reported = messages, 0, 0, None
        self._tokens += sum(map(_estimate_message, messages[self._count :]))
        self._count = len(messages)
        return tokens + self._tokens

    def forget(self) -> None:
        """Forget the last request, which is not made."""
        self._requested = 0

    def note(self, provider: str | None, model: str, reported: int) -> None:
        """Note the input that the provider reported for the last request."""
        requested, self._requested = self._requested, 0
        if not requested:
            return
        self._reported = requested, reported
        if reported >= _MIN_REPORTED and _LOWEST <= reported / requested <= _HIGHEST:
            CALIBRATION.note(provider, model, reported / requested)


def _estimate_message(message: Message) -> int:
    payload = message.payload or {}
    if "part" in payload or payload.get("parts"):
        return estimate_message_tokens(message)
    tokens = estimate_likely_tokens(message.content) + MESSAGE_OVERHEAD_TOKENS // 2
    if "arguments" in payload:
        tokens += _estimate_call(payload)
    return tokens


def _estimate_call(payload: Mapping[str, Any]) -> int:
    arguments = payload["arguments"]
    text = arguments if isinstance(arguments, str) else to_json_text(arguments)
    return estimate_likely_tokens(str(payload.get("name") or "")) + estimate_likely_tokens(text)


class Calibration:
    """Scales that providers reported in this process, by provider and model. Thread-safe."""

    def __init__(self) -> None:
        self._scales: dict[tuple[str | None, str], deque[float]] = {}
        self._lock = Lock()

    def note(self, provider: str | None, model: str, scale: float) -> None:
        """Note a scale that was reported. A fake has no tokenizer, so it is not calibrated."""
        if provider in _FAKES:
            return
        with self._lock:
            self._scales.setdefault((provider, model), deque(maxlen=_KEPT_REPORTS)).append(scale)

    def find_scale(self, provider: str | None, model: str) -> float:
        """Return the factor for a model: the highest of the last reports, with a margin."""
        scales = self._scales.get((provider, model))
        if not scales:
            return UNKNOWN_SCALE
        with self._lock:
            return max(scales) * _MARGIN


CALIBRATION = Calibration()
"""Scales of this process. A run reads them when it is planned, and its journal has what it read."""
