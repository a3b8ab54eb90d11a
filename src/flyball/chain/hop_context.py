"""Context that a hop sends to the next one, as a single signed header value.

1.KEY_ID.PAYLOAD.SIGNATURE

The payload is JSON in base64. Key id and signature are empty in an unsigned value.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from .keys import Keys
from .refusal import RefusalCode

VERSION = "1"
MAX_LENGTH = 8_192
"""Characters of a header value. Ten agents with the longest names need half of that."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Strict, because models see the names: a name cannot contain a sentence."""
HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]{0,253}")
ROOT = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_ADDRESS = re.compile(rf"{NAME.pattern}(@{HOST.pattern})?")
_MAX_HOPS, _MAX_AMOUNT, _MAX_SECONDS = 999_999, 2**63 - 1, 1e12
_MAX_PATH = 64


def format_address(name: str, host: str) -> str:
    """Return the address of an agent on the path of a chain."""
    return f"{name}@{host}" if host else name


@dataclass(slots=True, kw_only=True)
class HopContext:
    """Data that one hop sends to the next. None means no limit, or unknown."""

    root: str
    depth: int
    """Depth of the sender; the receiver is one deeper."""
    ceiling: int | None = None
    agent: str = ""
    host: str = ""
    path: tuple[str, ...] = ()
    seconds: float | None = None
    """Seconds left when it was sent. A duration, so that clocks need not agree."""
    turns: int | None = None
    tokens: int | None = None
    usd: int | None = None
    """Billionths of a dollar."""
    expires: float | None = None
    """Expiry in seconds since the epoch."""

    def to_header(self, keys: Keys | None) -> str:
        """Encode the context as a header value, signed if there are keys."""
        record = {name: getattr(self, name) for name in _FIELDS}
        payload = urlsafe_b64encode(json.dumps(record, separators=(",", ":")).encode()).rstrip(b"=").decode()
        text = f"{VERSION}.{keys.id if keys else ''}.{payload}"
        return f"{text}.{keys.sign(text.encode()).decode() if keys else ''}"


@dataclass(slots=True)
class SignedContext:
    """Parts of a header value whose signature is not verified yet."""

    key_id: str
    payload: str
    signature: str

    @classmethod
    def parse(cls, value: str) -> SignedContext:
        """Split a header value; raise ValueError if it is malformed."""
        parts = value.split(".")
        if len(parts) != 4 or parts[0] != VERSION or not parts[2] or bool(parts[1]) != bool(parts[3]):
            raise ValueError(f"expected {VERSION}.KEY_ID.PAYLOAD.SIGNATURE")
        return cls(parts[1], parts[2], parts[3])

    def check_signature(self, keys: Keys | None, required: bool) -> RefusalCode | None:
        """Return why the signature is not accepted, or None.

        None means that it is valid, or that no signature is required.
        """
        if not self.signature:
            return RefusalCode.UNSIGNED if required else None
        if keys is None:  # cannot verify; an unverified context can only narrow the limits
            return None
        text = f"{VERSION}.{self.key_id}.{self.payload}".encode()
        return None if keys.accepts(self.key_id, text, self.signature.encode()) else RefusalCode.FORGED

    def decode(self) -> HopContext:
        """Decode the payload; raise ValueError if it is invalid."""
        try:
            padded = self.payload.replace("-", "+").replace("_", "/") + "=" * (-len(self.payload) % 4)
            record = _JSON.decode(a2b_base64(padded, strict_mode=True).decode())
        except (ValueError, RecursionError):
            raise ValueError("the payload is not JSON in base64") from None
        if not isinstance(record, dict) or cast("dict[str, Any]", record).keys() != _FIELDS.keys():
            raise ValueError(f"the payload must have exactly the fields {', '.join(_FIELDS)}")
        fields = cast("dict[str, Any]", record)
        for name, is_valid in _FIELDS.items():
            if not is_valid(fields[name]):
                raise ValueError(f"the payload has an invalid {name}")
        fields["path"] = tuple(fields["path"])
        context = HopContext(**fields)
        if context.path[-1] != format_address(context.agent, context.host) or len(context.path) > context.depth + 1:
            raise ValueError("the payload's path does not end with its agent, or has more agents than hops")
        return context


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


_JSON = json.JSONDecoder(parse_constant=_reject_constant)
"""Decoder that rejects NaN and infinity; `json.loads` with options would create one per call."""


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and pattern.fullmatch(value) is not None


def _is_int_between(min_value: int, max_value: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and min_value <= value <= max_value


def _is_amount(value: object) -> bool:
    return value is None or (type(value) is int and 0 <= value <= _MAX_AMOUNT)


def _is_seconds(value: object) -> bool:
    return type(value) in (int, float) and 0 <= cast("float", value) <= _MAX_SECONDS


_is_address = _matches(_ADDRESS)


def _is_path(value: object) -> bool:
    if not isinstance(value, list):
        return False
    addresses = cast("list[object]", value)
    return 0 < len(addresses) <= _MAX_PATH and all(map(_is_address, addresses))


_FIELDS: dict[str, Callable[[object], bool]] = {
    "agent": _matches(NAME),
    "host": _matches(HOST),
    "root": _matches(ROOT),
    "depth": _is_int_between(0, _MAX_HOPS),
    "ceiling": _is_int_between(1, _MAX_HOPS),
    "path": _is_path,
    "seconds": lambda value: value is None or _is_seconds(value),
    "turns": _is_amount,
    "tokens": _is_amount,
    "usd": _is_amount,
    "expires": _is_seconds,
}
"""Validators of the payload's fields; every field is always present."""
