"""What a service tells those it calls: its own depth, and never more than was left to it."""

from collections.abc import Callable
from typing import Any

import pytest

from flyball import ConfigError, Limits, SettingError
from flyball.chain import Caller, Chain, ChainRefusal, current, headers, serving
from flyball.testing import ManualClock

Making = Callable[..., Chain]


def arrived(chain: Chain, sent: dict[str, str]) -> Caller:
    found = chain.check(sent)
    assert isinstance(found, Caller), found
    return found


def test_the_top_of_a_chain_sends_depth_0_a_fresh_root_and_itself(service: Making) -> None:
    a, b = service("a"), service("b")
    first, second = arrived(b, a.headers()), arrived(b, a.headers())
    assert (first.depth, first.path, first.left, first.remaining_s) == (1, ("a@a.example",), {}, float("inf"))
    assert len(first.root) == 32
    assert first.root != second.root
    assert a.headers()["X-Flyball-Chain-Depth"] == "0"


def test_all_calls_of_one_request_belong_to_one_chain(service: Making) -> None:
    a, b = service("a"), service("b")
    top = arrived(a, {})
    with serving(top, a):
        roots = {a.headers()["X-Flyball-Chain-Root"], headers()["X-Flyball-Chain-Root"], arrived(b, headers()).root}
    assert roots == {top.root}


def test_each_hop_sends_its_own_depth_and_the_path_grows(service: Making) -> None:
    a, b, c = service("a"), service("b"), service("c")
    with serving(arrived(b, a.headers()), b):
        sent = headers()
    found = arrived(c, sent)
    assert sent["X-Flyball-Chain-Depth"] == "1"
    assert (found.depth, found.agent, found.path) == (2, "b", ("a@a.example", "b@b.example"))
    with serving(found, c):
        assert "chain_depth_exceeded" in str(service("d").check(headers()))


def test_a_hop_leaves_with_no_more_than_it_came_with(service: Making) -> None:
    clock = ManualClock()
    a, b, c = (service(name, clock=clock, ceiling=most) for name, most in (("a", 4), ("b", 8), ("c", 9)))
    given = Limits(turns=10, tokens=1_000, usd=1, seconds=60).open(clock=clock, grace=False)
    came = arrived(b, a.headers(within=given))
    clock.move(20)
    roomy = Limits(turns=90, tokens=10**9, usd=50, seconds=3_600).open(clock=clock, grace=False)
    with serving(came, b):
        went = arrived(c, b.headers(within=roomy))
    assert went.left == {"turns": 10, "tokens": 1_000, "usd": 10**9}
    assert went.remaining_s == pytest.approx(40)
    assert (came.ceiling, went.ceiling) == (4, 4)
    with serving(came, b):
        tight = Limits(turns=2, seconds=5).open(clock=clock, grace=False)
        narrowed = arrived(c, b.headers(within=tight))
    assert narrowed.left == {"turns": 2, "tokens": 1_000, "usd": 10**9}
    assert narrowed.remaining_s == pytest.approx(5)


def test_what_was_used_is_not_sent_on(service: Making) -> None:
    a, b, c = service("a"), service("b"), service("c")
    came = arrived(b, a.headers(within=Limits(turns=10).open()))
    assert came.envelope is not None
    assert came.envelope.claim(turns=4)
    with serving(came, b):
        assert arrived(c, headers()).left == {"turns": 6}


def test_outside_of_a_request_nobody_is_current(service: Making) -> None:
    assert current() is None
    caller = arrived(service("b"), service("a").headers())
    with serving(caller):
        assert current() is caller
    assert current() is None


def test_a_service_is_who_the_settings_say_where_the_code_says_nothing() -> None:
    chain = Chain(settings={"chain": {"name": "planner", "host": "planner.example:8080"}})
    assert (chain.name, chain.host, chain.keys, chain.require_signature) == (
        "planner", "planner.example:8080", None, False
    )  # fmt: skip
    assert "planner@planner.example:8080" in repr(chain)


def test_two_services_that_nobody_has_named_are_two_and_a_circle_through_one_is_still_seen() -> None:
    one, other = Chain(settings={}), Chain(settings={})
    caller = other.check(one.headers())
    assert isinstance(caller, Caller)
    assert caller.agent.startswith("agent-")
    with serving(caller, other):
        found = one.check(headers())
    assert isinstance(found, ChainRefusal)
    assert found.code == "chain_cycle_detected"


@pytest.mark.parametrize(
    ("options", "where", "found"),
    [
        ({"name": "two words"}, "chain, name", "two words"),
        ({"name": ""}, "chain, name", ""),
        ({"host": "a/b"}, "chain, host", "a/b"),
        ({"require_signature": True}, "chain, require_signature", True),
        ({"compat": "other"}, "chain, compat", "other"),
        ({"valid_s": 0}, "chain, valid_s", 0),
        ({"valid_s": None}, "chain, valid_s", None),
        ({"valid_s": 1e13}, "chain, valid_s", 1e13),
        ({"ceiling": "three"}, "chain_depth", "three"),
    ],
)
def test_an_option_of_a_chain_that_cannot_be_used_is_refused_at_once(
    options: dict[str, Any], where: str, found: object
) -> None:
    with pytest.raises(ConfigError, match=where) as caught:
        Chain(settings={}, **options)
    assert caught.value.found == found


def test_texts_of_refused_options_of_a_chain_are_as_stored(snapshot: Callable[..., None]) -> None:
    wrong: dict[str, Any] = {"name": {"name": "two words"}, "keys": {"require_signature": True}}
    for name, options in wrong.items():
        with pytest.raises(ConfigError) as caught:
            Chain(settings={}, **options)
        snapshot(caught.value, name)


@pytest.mark.parametrize(
    "settings",
    [
        {"chain.name": "two words"},
        {"chain.host": 5},
        {"chain.require_signature": "perhaps"},
        {"chain.require_signature": True},
    ],
)
def test_a_setting_that_cannot_be_used_is_named(settings: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        Chain(settings=settings)


def test_a_setting_may_say_that_no_signature_is_required() -> None:
    settings = {"chain.key": "a key that is long enough", "chain.require_signature": "false"}
    assert Chain(settings=settings).require_signature is False
