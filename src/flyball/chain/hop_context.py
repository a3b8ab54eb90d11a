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
LONGEST = 8_192
"""Characters of a value; ten agents with the longest names need half of that."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""Strict, because a name is told to models: no sentence fits into it."""
HOST = re.compile(r"[A-Za-z0-9.:_\[\]-]{0,253}")
ROOT = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PLACE = re.compile(rf"{NAME.pattern}(@{HOST.pattern})?")
_MOST_HOPS, _MOST_AMOUNT, _MOST_SECONDS = 999_999, 2**63 - 1, 1e12
_LONGEST_PATH = 64


def place(name: str, host: str) -> str:
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

    def sealed(self, keys: Keys | None) -> str:
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
    def of(cls, value: str) -> SignedContext:
        """Take a value apart; ValueError where it is none."""
        parts = value.split(".")
        if len(parts) != 4 or parts[0] != VERSION or not parts[2] or bool(parts[1]) != bool(parts[3]):
            raise ValueError(f"expected {VERSION}.KEY_ID.PAYLOAD.SIGNATURE")
        return cls(parts[1], parts[2], parts[3])

    def distrust(self, keys: Keys | None, required: bool) -> RefusalCode | None:
        """Why it is not to be believed; None where it is signed well, or need not be signed."""
        if not self.signature:
            return RefusalCode.UNSIGNED if required else None
        if keys is None:  # nobody here can tell, and what nobody vouches for can only narrow
            return None
        text = f"{VERSION}.{self.key_id}.{self.payload}".encode()
        return None if keys.accepts(self.key_id, text, self.signature.encode()) else RefusalCode.FORGED

    def opened(self) -> HopContext:
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
        if context.path[-1] != place(context.agent, context.host) or len(context.path) > context.depth + 1:
            raise ValueError("the payload's path does not end with its agent, or has more agents than hops")
        return context


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


_JSON = json.JSONDecoder(parse_constant=_refuse)
"""Ours knows no infinity, and makes nothing anew for each value."""


def _text(pattern: re.Pattern[str]) -> Callable[[object], bool]:
    return lambda found: isinstance(found, str) and pattern.fullmatch(found) is not None


def _whole(least: int, most: int) -> Callable[[object], bool]:
    return lambda found: type(found) is int and least <= found <= most


def _amount(found: object) -> bool:
    return found is None or (type(found) is int and 0 <= found <= _MOST_AMOUNT)


def _seconds(found: object) -> bool:
    return type(found) in (int, float) and 0 <= cast("float", found) <= _MOST_SECONDS


_is_place = _text(_PLACE)


def _path(found: object) -> bool:
    if not isinstance(found, list):
        return False
    places = cast("list[object]", found)
    return 0 < len(places) <= _LONGEST_PATH and all(map(_is_place, places))


_FIELDS: dict[str, Callable[[object], bool]] = {
    "agent": _text(NAME),
    "host": _text(HOST),
    "root": _text(ROOT),
    "depth": _whole(0, _MOST_HOPS),
    "ceiling": _whole(1, _MOST_HOPS),
    "path": _path,
    "seconds": lambda found: found is None or _seconds(found),
    "turns": _amount,
    "tokens": _amount,
    "usd": _amount,
    "expires": _seconds,
}
"""The payload's fields, all of them always there, and what each must be."""
