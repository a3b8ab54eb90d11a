from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis.strategies import integers, ip_addresses

from flyball.errors import ConfigError
from flyball.toolbox.public_address import Address, AddressPolicy, is_disguised, is_public

FOURS = ip_addresses(v=4)


@given(ip_addresses() | ip_addresses(network="0.0.0.0/3") | ip_addresses(network="2000::/5"))
def test_a_public_address_is_nothing_else(address: Address) -> None:
    if is_public(address):
        assert address.is_global
        special = ("private", "loopback", "link_local", "multicast", "reserved", "unspecified")
        assert [name for name in special if getattr(address, f"is_{name}")] == []


@given(FOURS)
def test_an_old_address_in_the_form_of_a_new_one_is_never_public(address: IPv4Address) -> None:
    number = int(address)
    disguises = {
        "mapped": (0xFFFF << 32) | number,
        "compatible": number,
        "translated": (0xFFFF << 48) | number,
        "NAT64": (0x64FF9B << 96) | number,
        "local NAT64": (0x64FF9B0001 << 80) | number,
        "6to4": (0x2002 << 112) | (number << 80) | 1,
        "Teredo": (0x20010000 << 96) | (number ^ 0xFFFFFFFF),
        "Teredo's server": (0x20010000 << 96) | (number << 64),
    }
    assert [name for name, disguise in disguises.items() if is_public(IPv6Address(disguise))] == []


@given(FOURS, integers(0, 3))
def test_unusual_forms_of_an_address_are_seen_through(address: IPv4Address, dots: int) -> None:
    octets = list(address.packed)
    last = int.from_bytes(address.packed[dots:], "big")
    for form in ("{}", "{:#x}", "0{:o}"):
        host = ".".join([*(form.format(octet) for octet in octets[:dots]), form.format(last)])
        assert is_disguised(host) or ip_address(host) == address


@pytest.mark.parametrize(
    "host", ["0x7f.1", "127.1", "2130706433", "0177.0.0.1", "0x7F000001", "1.2.3.4.5", "0x", "256.1.1.1"]
)
def test_a_number_in_a_strange_form_is_disguised(host: str) -> None:
    assert is_disguised(host)


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1", "::1", "a.b0x7", "x1", "1.com", "fe80::1"])
def test_names_and_usual_forms_of_addresses_are_not_disguised(host: str) -> None:
    assert not is_disguised(host)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.0.1",
        "169.254.169.254", "172.16.0.1",
        "172.31.255.255", "192.0.0.1", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
        "198.51.100.1", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:8.8.8.8", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1",
        "2001::1", "2001:1::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "3fff::1", "4000::1", "5f00::1",
        "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%lo", "fec0::1", "ff02::1",
    ],
)  # fmt: skip
def test_what_is_not_public_is_closed_unless_it_is_allowed(address: str) -> None:
    assert AddressPolicy().filter_allowed([address]) == []
    assert AddressPolicy([address.partition("%")[0]]).filter_allowed([address]) == [address]


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "9.9.9.9", "100.63.255.255", "172.32.0.1", "2606:4700::1111", "2a00::1"]
)
def test_what_is_public_is_open(address: str) -> None:
    assert AddressPolicy().filter_allowed([address]) == [address]


def test_a_network_opens_what_is_in_it_and_nothing_else() -> None:
    guard = AddressPolicy(["10.1.0.0/16", "::1"])
    asked = ["10.1.2.3", "10.2.0.1", "::1", "::2", "127.0.0.1", "::ffff:10.1.2.3", "no address", ""]
    assert guard.filter_allowed(asked) == ["10.1.2.3", "::1"]


@pytest.mark.parametrize("allow", [["localhost"], ["10.0.0.1/8"], ["300.1.1.1"], "127.0.0.1"])
def test_what_is_no_address_cannot_be_allowed(allow: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        AddressPolicy(allow)
    assert caught.value.where == "fetch, allow"
