"""The context: what one hop tells the next, and the one header value that carries it, signed.

1.KEY_ID.PAYLOAD.SIGNATURE        the payload is JSON, in base64; key id and signature are empty where nobody signs
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
"""Characters of a value; ten agents with the longest names need half of that."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Strict, because a name is told to models: no sentence fits into it."""
HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]{0,253}")
ROOT = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_ADDRESS = re.compile(rf"{NAME.pattern}(@{HOST.pattern})?")
_MAX_HOPS, _MAX_AMOUNT, _MAX_SECONDS = 999_999, 2**63 - 1, 1e12
_MAX_PATH = 64


def format_address(name: str, host: str) -> str:
    """How an agent is called on the path of a chain."""
    return f"{name}@{host}" if host else name


@dataclass(slots=True, kw_only=True)
class HopContext:
    """What one hop tells the next. None is no limit, or nothing known."""

    root: str
    depth: int
    """The sender's own: the receiver is one deeper."""
    ceiling: int | None = None
    agent: str = ""
    host: str = ""
    path: tuple[str, ...] = ()
    seconds: float | None = None
    """Seconds left when it was sent; a number of them, so that clocks need not agree."""
    turns: int | None = None
    tokens: int | None = None
    usd: int | None = None
    """Billionths of a dollar."""
    expires: float | None = None
    """Seconds since the epoch."""

    def to_header(self, keys: Keys | None) -> str:
        """The header value."""
        record = {name: getattr(self, name) for name in _FIELDS}
        payload = urlsafe_b64encode(json.dumps(record, separators=(",", ":")).encode()).rstrip(b"=").decode()
        text = f"{VERSION}.{keys.id if keys else ''}.{payload}"
        return f"{text}.{keys.sign(text.encode()).decode() if keys else ''}"


@dataclass(slots=True)
class SignedContext:
    """A header value that was taken apart, but not yet believed."""

    key_id: str
    payload: str
    signature: str

    @classmethod
    def parse(cls, value: str) -> SignedContext:
        """Take a value apart; ValueError where it is none."""
        parts = value.split(".")
        if len(parts) != 4 or parts[0] != VERSION or not parts[2] or bool(parts[1]) != bool(parts[3]):
            raise ValueError(f"expected {VERSION}.KEY_ID.PAYLOAD.SIGNATURE")
        return cls(parts[1], parts[2], parts[3])

    def check_signature(self, keys: Keys | None, required: bool) -> RefusalCode | None:
        """Why it is not to be believed; None where it is signed well, or need not be signed."""
        if not self.signature:
            return RefusalCode.UNSIGNED if required else None
        if keys is None:  # nobody here can tell, and what nobody vouches for can only narrow
            return None
        text = f"{VERSION}.{self.key_id}.{self.payload}".encode()
        return None if keys.accepts(self.key_id, text, self.signature.encode()) else RefusalCode.FORGED

    def decode(self) -> HopContext:
        """The context in it; ValueError where it is none."""
        try:
            padded = self.payload.replace("-", "+").replace("_", "/") + "=" * (-len(self.payload) % 4)
            record = _JSON.decode(a2b_base64(padded, strict_mode=True).decode())
        except (ValueError, RecursionError):
            raise ValueError("the payload is no JSON in base64") from None
        if not isinstance(record, dict) or cast("dict[str, Any]", record).keys() != _FIELDS.keys():
            raise ValueError(f"the payload must have exactly the fields {', '.join(_FIELDS)}")
        fields = cast("dict[str, Any]", record)
        for name, fits in _FIELDS.items():
            if not fits(fields[name]):
                raise ValueError(f"the payload's {name} is not what it must be")
        fields["path"] = tuple(fields["path"])
        context = HopContext(**fields)
        if context.path[-1] != format_address(context.agent, context.host) or len(context.path) > context.depth + 1:
            raise ValueError("the payload's path does not end with its agent, or has more agents than hops")
        return context


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


_JSON = json.JSONDecoder(parse_constant=_reject_constant)
"""Ours knows no infinity, and makes nothing anew for each value."""


def _matches(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda found: isinstance(found, str) and pattern.fullmatch(found) is not None


def _is_int_between(min_value: int, max_value: int) -> Callable[[object], bool]:
    return lambda found: type(found) is int and min_value <= found <= max_value


def _is_amount(found: object) -> bool:
    return found is None or (type(found) is int and 0 <= found <= _MAX_AMOUNT)


def _is_seconds(found: object) -> bool:
    return type(found) in (int, float) and 0 <= cast("float", found) <= _MAX_SECONDS


_is_address = _matches(_ADDRESS)


def _is_path(found: object) -> bool:
    if not isinstance(found, list):
        return False
    places = cast("list[object]", found)
    return 0 < len(places) <= _MAX_PATH and all(map(_is_address, places))


_FIELDS: dict[str, Callable[[object], bool]] = {
    "agent": _matches(NAME),
    "host": _matches(HOST),
    "root": _matches(ROOT),
    "depth": _is_int_between(0, _MAX_HOPS),
    "ceiling": _is_int_between(1, _MAX_HOPS),
    "path": _is_path,
    "seconds": lambda found: found is None or _is_seconds(found),
    "turns": _is_amount,
    "tokens": _is_amount,
    "usd": _is_amount,
    "expires": _is_seconds,
}
"""The payload's fields, all of them always there, and what each must be."""
