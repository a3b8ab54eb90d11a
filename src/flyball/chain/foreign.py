"""Chain headers of Data Machine and of the Agents API, read and written beside ours.

They carry no signature, so a service that requires signatures does not accept a call that has only these.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import quote_value
from .hop_context import HOST, NAME, ROOT, HopContext

DEPTH = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
DEPTH_EXPECTED = "a whole number from 0 to 999999"
ROOT_EXPECTED = "1 to 64 letters, digits, or . _ : -"
_USER = re.compile(r"[0-9]{1,20}", re.ASCII)
_SELF = "self"
"""Host of a caller that is no remote service."""

_DEPTHS = ("x-datamachine-chain-depth", "x-agents-api-chain-depth")
_ROOTS = ("x-datamachine-chain-id", "x-agents-api-chain-root")
_AGENTS = ("x-datamachine-caller-agent", "x-agents-api-caller-agent")
_HOSTS = ("x-datamachine-caller-site", "x-agents-api-caller-host")
_USERS = ("x-agents-api-caller-user",)
NAMES = frozenset({*_DEPTHS, *_ROOTS, *_AGENTS, *_HOSTS, *_USERS})
"""Names of the headers, in lower case."""


@dataclass(frozen=True, slots=True)
class ForeignHeaders:
    """Reader and writer of these headers.

    Data Machine as documented sends its own depth, and the receiver counts the hop. Installations count at the sender:
    there the header has the depth of the hop itself.
    """

    is_counted_by_sender: bool = False

    def find_problem(self, headers: Mapping[str, str]) -> str | None:
        """Return the first malformed header as an error text, or None."""
        for name, text in headers.items():
            expected = _find_expected(name, text)
            if expected is not None:
                return f"{name}: found {quote_value(text)}; expected {expected}"
        for group in (_ROOTS, _AGENTS):
            if len({headers[name] for name in group if name in headers}) > 1:
                return f"{group[0]}: found another value than in {group[1]}; send one"
        return None

    def read_depths(self, headers: Mapping[str, str]) -> dict[str, int]:
        """Return the depth of the sender by header. It is -1 at the top of a chain that the sender counts."""
        return {name: int(headers[name]) - self.is_counted_by_sender for name in _DEPTHS if name in headers}

    def read_root(self, headers: Mapping[str, str]) -> str | None:
        """Return the id of the chain, or None."""
        return _pick(headers, _ROOTS)

    def read_context(self, headers: Mapping[str, str], root: str, depth: int) -> HopContext:
        """Return the context of a call that has only plain headers."""
        host = _parse_host(_pick(headers, _HOSTS) or "") or ""
        return HopContext(root=root, depth=depth, agent=_pick(headers, _AGENTS) or "", host=host)

    def build(self, context: HopContext) -> dict[str, str]:
        """Return the headers for a call to another service."""
        if not self.is_counted_by_sender:
            return {"X-Datamachine-Chain-Depth": str(context.depth)}
        depth = str(context.depth + 1)
        headers = {
            "X-Datamachine-Chain-Depth": depth,
            "X-Datamachine-Chain-Id": context.root,
            "X-Datamachine-Caller-Agent": context.agent,
            "X-Datamachine-Caller-Site": context.host,
        }
        if context.host:  # the Agents API refuses a chained call without a remote host
            headers |= {
                "X-Agents-Api-Chain-Depth": depth,
                "X-Agents-Api-Chain-Root": context.root,
                "X-Agents-Api-Caller-Agent": context.agent,
                "X-Agents-Api-Caller-Host": f"https://{context.host}",
                "X-Agents-Api-Caller-User": "0",
            }
        return headers


def _find_expected(name: str, text: str) -> str | None:
    """Describe what a header should have. None if it has it, or is none of these."""
    if name in _DEPTHS:
        return None if DEPTH.fullmatch(text) else DEPTH_EXPECTED
    if name in _ROOTS:
        return None if ROOT.fullmatch(text) else ROOT_EXPECTED
    if name in _AGENTS:
        return None if not text or NAME.fullmatch(text) else "at most 64 letters, digits, or . _ -"
    if name in _HOSTS:
        return None if _parse_host(text) is not None else "a host, or its URL"
    return None if name not in _USERS or _USER.fullmatch(text) else "the number of a user, or 0"


def _parse_host(text: str) -> str | None:
    """Return the host of a URL or a plain host. Empty for `self`, None if it is neither."""
    if text == _SELF:
        return ""
    try:
        url = urlsplit(text) if "://" in text else None
    except ValueError:
        return None
    if url is not None and (url.scheme not in ("http", "https") or not url.netloc or "@" in url.netloc):
        return None
    host = text if url is None else url.netloc
    return host if HOST.fullmatch(host) else None


def _pick(headers: Mapping[str, str], names: Iterable[str]) -> str | None:
    return next((headers[name] for name in names if headers.get(name)), None)
