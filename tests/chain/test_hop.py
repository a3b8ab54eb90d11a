"""Whether a hop is served: the depth table, and everything that is refused, with its status and code."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest

from flyball import TurnBudget
from flyball.chain import Caller, Chain, ChainRefusal, Keys
from flyball.testing import ManualClock

Making = Callable[..., Chain]
DEPTH, ROOT, VALUE = "X-Flyball-Chain-Depth", "X-Flyball-Chain-Root", "X-Flyball-Chain"
TABLE = [
    (3, None, 0), (3, 0, 1), (3, 1, 2), (3, 2, "refused"), (3, 3, "refused"), (3, 999_999, "refused"),
    (1, None, 0), (1, 0, "refused"), (1, 1, "refused"),
    (10, 8, 9), (10, 9, "refused"), (99, 8, 9), (99, 9, "refused"), (0, None, 0), (0, 0, "refused"),
]  # fmt: skip
"""Ceiling, depth in the header, and which hop that is; a ceiling outside 1 to 10 is clamped."""


def unsealed(value: str) -> dict[str, Any]:
    payload = value.split(".")[2]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))


def resealed(record: object, keys: Keys | None = None, *, words: str | None = None) -> str:
    text = json.dumps(record) if words is None else words
    payload = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    text = f"1.{keys.id if keys else ''}.{payload}"
    return f"{text}.{keys.sign(text.encode()).decode() if keys else ''}"


def outcome(found: Caller | ChainRefusal) -> tuple[int, str]:
    assert isinstance(found, ChainRefusal)
    return found.status, found.code


@pytest.mark.parametrize(("ceiling", "sent", "hop"), TABLE)
def test_the_receiver_counts_the_hop_and_reaching_the_ceiling_refuses(
    service: Making, ceiling: int, sent: int | None, hop: int | str
) -> None:
    chain = service("b", keys=None, ceiling=ceiling)
    found = chain.check({} if sent is None else {DEPTH: str(sent)})
    if hop == "refused":
        assert sent is not None
        assert outcome(found) == (429, "chain_depth_exceeded")
        assert isinstance(found, ChainRefusal)
        assert (found.depth, found.ceiling) == (sent + 1, min(10, max(1, ceiling)))
    else:
        assert isinstance(found, Caller)
        assert found.depth == hop


def test_the_ceiling_is_the_setting_where_the_code_gives_none(service: Making) -> None:
    chain = service("b", keys=None, settings={"max_chain_depth": 2})
    assert isinstance(chain.check({DEPTH: "0"}), Caller)
    assert outcome(chain.check({DEPTH: "1"})) == (429, "chain_depth_exceeded")


def test_a_lower_ceiling_above_holds_below(service: Making) -> None:
    sent = service("a", ceiling=2).headers()
    found = service("b", ceiling=9).check(sent)
    assert isinstance(found, Caller)
    assert (found.depth, found.ceiling) == (1, 2)
    assert outcome(service("b", ceiling=9).check(service("a", ceiling=1).headers())) == (429, "chain_depth_exceeded")


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "-1", "+1", "1.0", "0x1", "one", "1,2", "00", "01", "1_0", "٣", "1" * 7, "1" * 9_000, "\x00"],
)
def test_a_depth_that_is_no_plain_number_is_invalid(service: Making, text: str) -> None:
    chain = service("b", keys=None)
    assert outcome(chain.check({DEPTH: text})) == (400, "chain_context_invalid")
    assert outcome(chain.check([(DEPTH.lower().encode(), text.encode())])) == (400, "chain_context_invalid")


@pytest.mark.parametrize("name", [DEPTH, ROOT, VALUE])
def test_a_header_that_is_there_twice_is_invalid(service: Making, name: str) -> None:
    sent = service("a").headers()
    pairs = [*sent.items(), (name.upper(), sent[name])]
    assert outcome(service("b").check(pairs)) == (400, "chain_context_invalid")


@pytest.mark.parametrize(
    ("name", "text"), [(DEPTH, "1"), (DEPTH, "x"), (ROOT, "another"), (ROOT, ""), (ROOT, "a b"), (ROOT, "r" * 65)]
)
def test_a_plain_header_that_disagrees_with_the_signed_one_is_invalid(service: Making, name: str, text: str) -> None:
    assert outcome(service("b").check({**service("a").headers(), name: text})) == (400, "chain_context_invalid")


def test_the_signed_value_needs_no_plain_headers(service: Making) -> None:
    sent = service("a").headers()
    found = service("b").check({VALUE: sent[VALUE]})
    assert isinstance(found, Caller)
    assert (found.agent, found.host, found.depth, found.path) == ("a", "a.example", 1, ("a@a.example",))
    assert found.signed


def test_a_root_without_a_depth_is_invalid(service: Making) -> None:
    assert outcome(service("b", keys=None).check({ROOT: "r"})) == (400, "chain_context_invalid")


@pytest.mark.parametrize("sent", [{DEPTH: "0"}, {ROOT: "r"}, {DEPTH: "nonsense"}, {DEPTH: "7"}])
def test_plain_headers_alone_are_not_believed_where_signatures_are_required(
    service: Making, sent: dict[str, str]
) -> None:
    assert outcome(service("b").check(sent)) == (401, "chain_signature_required")


def test_an_agent_that_is_on_the_path_already_is_a_cycle(service: Making) -> None:
    found = service("a").check(service("a").headers())
    assert outcome(found) == (429, "chain_cycle_detected")
    assert isinstance(found, ChainRefusal)
    assert "a@a.example -> a@a.example" in found.message


def test_agents_of_one_name_on_two_hosts_are_two(service: Making) -> None:
    other = Chain(name="a", host="elsewhere.example", keys=service("a").keys, settings={})
    assert isinstance(other.check(service("a").headers()), Caller)


@pytest.mark.parametrize("name", ["seconds", "turns", "tokens", "usd"])
def test_a_chain_with_nothing_left_is_refused(service: Making, name: str) -> None:
    chain = service("a")
    record = {**unsealed(chain.headers()[VALUE]), name: 0}
    found = service("b").check({VALUE: resealed(record, chain.keys)})
    assert outcome(found) == (429, "chain_budget_exceeded")
    assert isinstance(found, ChainRefusal)
    assert name in found.message


def test_an_expired_context_is_refused_and_small_differences_of_clocks_are_not(service: Making) -> None:
    clock = ManualClock()
    sent = service("a", clock=clock, valid_s=10).headers()
    receiver = service("b", clock=clock)
    clock.jump(39)
    assert isinstance(receiver.check(sent), Caller)
    clock.jump(2)
    assert outcome(receiver.check(sent)) == (401, "chain_context_expired")


def test_seconds_are_relative_so_that_clocks_need_not_agree(service: Making) -> None:
    here, there = ManualClock(), ManualClock(now=5_000.0)
    envelope = TurnBudget.create(timeout_s=20, clock=here)
    found = service("b", clock=there).check(service("a", clock=here).headers(within=envelope))
    assert isinstance(found, Caller)
    assert found.remaining_s == pytest.approx(20)
    there.move(5)
    assert found.remaining_s == pytest.approx(15)


def test_the_refusal_is_the_body_that_is_sent(service: Making, snapshot: Callable[..., None]) -> None:
    found = service("b", keys=None).check({DEPTH: "2", ROOT: "the-root"})
    assert isinstance(found, ChainRefusal)
    body = json.loads(found.body)
    snapshot(body.pop("message"))
    assert body == {
        "code": "chain_depth_exceeded",
        "data": {"status": 429, "chain_depth": 3, "ceiling": 3, "chain_root": "the-root"},
    }
    assert "retry-after" not in found.headers


def test_compatible_with_datamachine_are_header_and_code(service: Making) -> None:
    chain = service("b", keys=None, compat="datamachine")
    assert isinstance(chain.check({}), Caller)
    assert isinstance(chain.check({"X-Datamachine-Chain-Depth": "1"}), Caller)
    assert outcome(chain.check({"X-Datamachine-Chain-Depth": "2"})) == (429, "datamachine_chain_depth_exceeded")
    assert chain.headers()["X-Datamachine-Chain-Depth"] == "0"


def test_compatible_services_hear_our_own_headers_too(service: Making) -> None:
    chain = service("b", keys=None, compat="datamachine")
    assert outcome(chain.check({DEPTH: "2"})) == (429, "datamachine_chain_depth_exceeded")
    both = {DEPTH: "0", "X-Datamachine-Chain-Depth": "1"}
    assert outcome(chain.check(both)) == (400, "chain_context_invalid")
    signed = {**service("a", keys=None).headers(), "X-Datamachine-Chain-Depth": "1"}
    assert outcome(chain.check(signed)) == (400, "chain_context_invalid")


def test_others_do_not_hear_the_header_of_datamachine(service: Making) -> None:
    found = service("b", keys=None).check({"X-Datamachine-Chain-Depth": "7"})
    assert isinstance(found, Caller)
    assert found.depth == 0
