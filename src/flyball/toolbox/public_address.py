"""Address policy of `fetch`: public Internet addresses, and explicitly allowed ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from ..errors import ConfigError

Address = IPv4Address | IPv6Address

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host for a port. Called once per connection. May raise OSError."""

_BLOCKED_IPV4 = [
    ip_network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
        "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
        "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
]  # fmt: skip
"""This network, private, carrier-grade NAT, loopback, link-local, protocols, 6to4 relays, benchmarks, examples,
multicast, reserved."""
_PUBLIC_IPV6 = ip_network("2000::/3")
"""Global unicast. Other IPv6 addresses are local, or contain an IPv4 address (mapped, NAT64)."""
_BLOCKED_IPV6 = [ip_network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]
"""Protocols (such as Teredo, which contains an IPv4 address), examples, 6to4 (which contains one, too), examples."""


class AddressPolicy:
    """Policy that allows public addresses and those in `allow`."""

    def __init__(self, allow: Iterable[str] = ()) -> None:
        if isinstance(allow, str):
            raise ConfigError("fetch, allow", allow, "a list of addresses")
        self._allowed = [_parse_network(text) for text in allow]

    def allows(self, address: Address) -> bool:
        """Check whether connections to an address are allowed."""
        return is_public(address) or any(address in network for network in self._allowed)

    def filter_allowed(self, addresses: Iterable[str]) -> list[str]:
        """Return the allowed addresses in order.

        Texts that are no addresses are dropped.
        """
        return [text for text in addresses if (address := parse_address(text)) is not None and self.allows(address)]


def is_public(address: Address) -> bool:
    """Check whether an address is registered as globally reachable.

    >>> [is_public(ip_address(one)) for one in ("9.9.9.9", "10.0.0.1", "2620:fe::fe", "::ffff:9.9.9.9")]
    [True, False, True, False]
    """
    if isinstance(address, IPv4Address):
        is_open = not any(address in network for network in _BLOCKED_IPV4)
    else:
        is_open = address in _PUBLIC_IPV6 and not any(address in network for network in _BLOCKED_IPV6)
    return is_open and address.is_global


def parse_address(host: str) -> Address | None:
    """Parse an address in its usual form.

    Return None for a host name.
    """
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_disguised(host: str) -> bool:
    """Check whether a host is an address in an unusual form.

    Only some programs understand forms such as `0x7f.1`, `2130706433` and `0177.0.0.1`.

    >>> [is_disguised(host) for host in ("0x7f.1", "2130706433", "127.0.0.1", "example.com", "1.example.com")]
    [True, True, False, False, False]
    """
    last = host.rpartition(".")[2].lower()
    is_number = last.isdigit() or (last.startswith("0x") and all(letter in "0123456789abcdef" for letter in last[2:]))
    return is_number and parse_address(host) is None


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text)
    except ValueError:
        raise ConfigError("fetch, allow", text, "an address or a network, such as 127.0.0.1 or 10.0.0.0/8") from None
