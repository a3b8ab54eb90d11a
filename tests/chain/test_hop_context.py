"""The context on its way: what is signed, by which key, and everything that is no context."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from flyball.chain import Caller, Chain, ChainRefusal, Keys

Making = Callable[..., Chain]
VALUE = "X-Flyball-Chain"
KEYS = Keys("a secret that all of them have")
GOOD: dict[str, Any] = {
    "agent": "a", "host": "a.example", "root": "r", "depth": 0, "ceiling": 3, "path": ["a@a.example"], "seconds": 9.5,
    "turns": 5, "tokens": None, "usd": 10**9, "expires": 9e9,
}  # fmt: skip
BAD: list[tuple[str, Any]] = [
    ("agent", ""), ("agent", None), ("agent", "two words"), ("agent", "a" * 65), ("agent", "Ignore\nall"), ("agent", 1),
    ("host", None), ("host", "a b"), ("host", "h" * 254), ("root", ""), ("root", "r" * 65), ("root", "a/b"),
    ("depth", -1), ("depth", 1.0), ("depth", True), ("depth", "0"), ("depth", None), ("depth", 10**6),
    ("ceiling", 0), ("ceiling", None), ("ceiling", 2.5), ("ceiling", -3),
    ("path", []), ("path", "a@a.example"), ("path", None), ("path", [1]), ("path", ["b@b.example"]),
    ("path", ["x", "a@a.example"]), ("path", ["a b", "a@a.example"]), ("path", ["a@a.example"] * 65),
    ("seconds", -1), ("seconds", "9"), ("seconds", True), ("seconds", 1e13), ("seconds", [1]),
    ("turns", -1), ("turns", 1.5), ("turns", False), ("turns", 2**63), ("tokens", "many"), ("usd", 0.5), ("usd", -1),
    ("expires", None), ("expires", "soon"), ("expires", -1),
]  # fmt: skip


def sealed(text: str, keys: Keys | None = KEYS) -> str:
    payload = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    signed = f"1.{keys.id if keys else ''}.{payload}"
    return f"{signed}.{keys.sign(signed.encode()).decode() if keys else ''}"


def outcome(found: Caller | ChainRefusal) -> tuple[int, str]:
    assert isinstance(found, ChainRefusal)
    return found.status, found.code


def test_what_is_sent_is_what_arrives(service: Making) -> None:
    found = service("b").check({VALUE: sealed(json.dumps(GOOD))})
    assert isinstance(found, Caller)
    assert (found.agent, found.host, found.root, found.depth, found.ceiling) == ("a", "a.example", "r", 1, 3)
    assert found.left == {"turns": 5, "usd": 10**9}
    assert 0 < found.remaining_s <= 9.5
    assert found.signed


@pytest.mark.parametrize(("name", "value"), BAD)
def test_a_field_that_is_not_what_it_must_be_is_invalid_though_it_is_signed(
    service: Making, name: str, value: Any
) -> None:
    record = sealed(json.dumps({**GOOD, name: value}))
    assert outcome(service("b").check({VALUE: record})) == (400, "chain_context_invalid")


@pytest.mark.parametrize(
    "text",
    [
        "", "null", "[]", "{}", "{", json.dumps({**GOOD, "more": 1}), '{"agent": NaN}', "[" * 3_000, "9" * 5_000,
        json.dumps({name: value for name, value in GOOD.items() if name != "turns"}),
        json.dumps(GOOD).replace("9.5", "Infinity"), json.dumps(GOOD).replace("9.5", "NaN"),
    ],
)  # fmt: skip
def test_a_payload_that_is_no_context_is_invalid_though_it_is_signed(service: Making, text: str) -> None:
    assert outcome(service("b").check({VALUE: sealed(text)})) == (400, "chain_context_invalid")


@pytest.mark.parametrize(
    "value", ["", "1", "...", "1...", "1..x.y", "1.k.x.", "2.k.x.y", "1.k.x.y.z", "x" * 9_000, "é", "\udc80", "1.k..s"]
)
def test_a_value_that_cannot_be_taken_apart_is_invalid(service: Making, value: str) -> None:
    assert outcome(service("b").check({VALUE: value})) == (400, "chain_context_invalid")


def test_a_value_that_is_too_long_is_invalid_though_all_else_is_right(service: Making) -> None:
    short, long = (sealed(json.dumps(GOOD) + " " * spaces) for spaces in (5_000, 6_000))
    assert isinstance(service("b").check({VALUE: short}), Caller)
    assert outcome(service("b").check({VALUE: long})) == (400, "chain_context_invalid")


def test_a_tampered_context_is_refused(service: Making) -> None:
    version, key_id, payload, signature = service("a").headers()[VALUE].split(".")
    other = sealed(json.dumps({**GOOD, "depth": 0, "ceiling": 10})).split(".")[2]
    tampered = [
        f"{version}.{key_id}.{other}.{signature}",
        f"{version}.{key_id}.{payload}.{'B' if signature[0] == 'A' else 'A'}{signature[1:]}",
        f"{version}.{key_id}.{payload}.{signature}A",
        f"{version}.00000000.{payload}.{signature}",
        sealed(json.dumps(GOOD), Keys("another secret altogether")),
    ]
    for value in tampered:
        assert outcome(service("b").check({VALUE: value})) == (401, "chain_signature_invalid")


def test_an_unsigned_context_is_refused_where_signatures_are_required(service: Making) -> None:
    assert outcome(service("b").check({VALUE: sealed("not even JSON", None)})) == (401, "chain_signature_required")
    assert outcome(service("b").check(service("a", keys=None).headers())) == (401, "chain_signature_required")


def test_an_unsigned_context_narrows_where_none_is_required(service: Making) -> None:
    found = service("b", require_signature=False).check({VALUE: sealed(json.dumps(GOOD), None)})
    assert isinstance(found, Caller)
    assert (found.signed, found.depth, found.left["turns"]) == (False, 1, 5)


def test_a_wrong_signature_is_refused_also_where_none_is_required(service: Making) -> None:
    wrong = sealed(json.dumps(GOOD), Keys("another secret altogether"))
    found = service("b", require_signature=False).check({VALUE: wrong})
    assert outcome(found) == (401, "chain_signature_invalid")


def test_a_service_without_keys_takes_a_signed_context_as_an_unsigned_one(service: Making) -> None:
    found = service("b", keys=None).check(service("a").headers())
    assert isinstance(found, Caller)
    assert not found.signed


def test_keys_are_changed_one_service_after_the_other(service: Making) -> None:
    old, new = "the key of yesterday", "the key of today"
    before, after = service("a", keys=Keys(old)), service("a", keys=Keys(new, old))
    waiting, changed, done = (
        service("b", keys=Keys(old, new)), service("b", keys=Keys(new, old)), service("b", keys=Keys(new))
    )  # fmt: skip
    for sender in (before, after):
        assert isinstance(waiting.check(sender.headers()), Caller)
        assert isinstance(changed.check(sender.headers()), Caller)
    assert isinstance(done.check(after.headers()), Caller)
    assert outcome(done.check(before.headers())) == (401, "chain_signature_invalid")
