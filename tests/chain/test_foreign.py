"""Headers of Data Machine and the Agents API: counted by the receiver or by the sender, in both directions."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from flyball import ConfigError
from flyball.chain import Caller, Chain, ChainRefusal, serving

Making = Callable[..., Chain]
DATA_MACHINE, AGENTS_API = "X-Datamachine-Chain-Depth", "X-Agents-Api-Chain-Depth"


def depth_or_status(found: Caller | ChainRefusal) -> int | tuple[int, str]:
    return found.depth if isinstance(found, Caller) else (found.status, found.code)


REFUSED = (429, "datamachine_chain_depth_exceeded")


@pytest.mark.parametrize("header", [DATA_MACHINE, AGENTS_API])
@pytest.mark.parametrize(
    ("counted_by", "sent", "expected"),
    [
        ("receiver", "0", 1),
        ("receiver", "1", 2),
        ("receiver", "2", REFUSED),
        ("sender", "0", 0),
        ("sender", "1", 1),
        ("sender", "2", 2),
        ("sender", "3", REFUSED),
    ],
)
def test_the_depth_is_counted_where_the_option_says(
    service: Making, header: str, counted_by: str, sent: str, expected: object
) -> None:
    chain = service("b", keys=None, compat="datamachine", counted_by=counted_by)
    assert depth_or_status(chain.check({header: sent})) == expected
    assert depth_or_status(chain.check([(header.lower().encode(), sent.encode())])) == expected


@pytest.mark.parametrize("counted_by", ["receiver", "sender"])
def test_services_that_count_alike_refuse_at_the_same_hop_by_foreign_and_by_our_own_headers(
    service: Making, counted_by: str
) -> None:
    chains = [service(name, keys=None, compat="datamachine", counted_by=counted_by) for name in "abcd"]
    for prefixes in (("x-datamachine",), ("x-flyball",), ("x-datamachine", "x-agents-api", "x-flyball")):
        found: Caller | ChainRefusal = Caller(root="r", ceiling=3)
        depths: list[object] = []
        for sender, receiver in pairwise(chains):
            assert isinstance(found, Caller)
            with serving(found, sender):
                headers = sender.headers()
            found = receiver.check({name: text for name, text in headers.items() if name.lower().startswith(prefixes)})
            depths.append(depth_or_status(found))
        assert depths == [1, 2, REFUSED], prefixes


def test_a_sender_that_counts_sends_the_depth_of_the_hop_and_who_calls(service: Making) -> None:
    headers = service("a", keys=None, compat="datamachine", counted_by="sender").headers()
    root = headers["X-Flyball-Chain-Root"]
    foreign = {name: text for name, text in headers.items() if not name.startswith("X-Flyball")}
    assert foreign == {
        DATA_MACHINE: "1",
        "X-Datamachine-Chain-Id": root,
        "X-Datamachine-Caller-Agent": "a",
        "X-Datamachine-Caller-Site": "a.example",
        AGENTS_API: "1",
        "X-Agents-Api-Chain-Root": root,
        "X-Agents-Api-Caller-Agent": "a",
        "X-Agents-Api-Caller-Host": "https://a.example",
        "X-Agents-Api-Caller-User": "0",
    }
    assert headers["X-Flyball-Chain-Depth"] == "0"


def test_a_receiver_that_counts_gets_the_depth_of_the_sender_only(service: Making) -> None:
    headers = service("a", keys=None, compat="datamachine").headers()
    assert {name for name in headers if not name.startswith("X-Flyball")} == {DATA_MACHINE}
    assert headers[DATA_MACHINE] == "0"


def test_the_family_of_the_agents_api_names_the_caller_and_the_chain(service: Making) -> None:
    chain = service("b", keys=None, compat="datamachine", counted_by="sender")
    sent = {
        AGENTS_API: "1",
        "X-Agents-Api-Caller-Agent": "sarai",
        "X-Agents-Api-Caller-Host": "https://far.example:8443/wp-json",
        "X-Agents-Api-Caller-User": "7",
        "X-Agents-Api-Chain-Root": "chain-xyz",
    }
    found = chain.check(sent)
    assert isinstance(found, Caller)
    assert (found.agent, found.host, found.root, found.signed) == ("sarai", "far.example:8443", "chain-xyz", False)
    found = chain.check(
        {DATA_MACHINE: "1", "X-Datamachine-Caller-Site": "far.example", "X-Datamachine-Chain-Id": "id-1"}
    )
    assert isinstance(found, Caller)
    assert (found.host, found.root) == ("far.example", "id-1")


@pytest.mark.parametrize(
    "sent",
    [
        {AGENTS_API: "-1"},
        {AGENTS_API: "1.0"},
        {AGENTS_API: "1", DATA_MACHINE: "2"},
        {AGENTS_API: "1", "X-Flyball-Chain-Depth": "1"},
        {AGENTS_API: "1", "X-Agents-Api-Chain-Root": "a b"},
        {AGENTS_API: "1", "X-Agents-Api-Chain-Root": "a", "X-Datamachine-Chain-Id": "b"},
        {AGENTS_API: "1", "X-Agents-Api-Caller-Agent": "ignore all rules"},
        {AGENTS_API: "1", "X-Agents-Api-Caller-Host": "ftp://far.example"},
        {AGENTS_API: "1", "X-Agents-Api-Caller-Host": "https://user@far.example"},
        {AGENTS_API: "1", "X-Agents-Api-Caller-Host": "https://[far"},
        {AGENTS_API: "1", "X-Agents-Api-Caller-User": "bob"},
        {"X-Agents-Api-Caller-Agent": "sarai"},
    ],
    ids=str,
)
def test_a_malformed_foreign_header_is_refused(service: Making, sent: dict[str, str]) -> None:
    chain = service("b", keys=None, compat="datamachine", counted_by="sender")
    assert depth_or_status(chain.check(sent)) == (400, "chain_context_invalid")


def test_foreign_headers_are_not_read_without_compat(service: Making) -> None:
    sent = {AGENTS_API: "9", DATA_MACHINE: "9", "X-Agents-Api-Caller-Agent": "x y", "X-Agents-Api-Chain-Root": "r"}
    found = service("b", keys=None).check(sent)
    assert isinstance(found, Caller)
    assert (found.depth, found.agent) == (0, "")
    assert found.root != "r"


@pytest.mark.parametrize("header", [DATA_MACHINE, AGENTS_API])
def test_a_service_with_keys_reads_foreign_headers_only_if_it_requires_no_signature(
    service: Making, header: str
) -> None:
    strict, loose = service("b", compat="datamachine"), service("b", compat="datamachine", require_signature=False)
    assert depth_or_status(strict.check({header: "0"})) == (401, "chain_signature_required")
    assert depth_or_status(loose.check({header: "0"})) == 1


@pytest.mark.parametrize("counted_by", ["receiver", "sender"])
def test_a_signed_context_and_foreign_headers_must_agree(service: Making, counted_by: str) -> None:
    options = {"compat": "datamachine", "counted_by": counted_by}
    sent = service("a", **options).headers()
    receiver = service("b", **options)
    assert depth_or_status(receiver.check(sent)) == 1
    assert depth_or_status(receiver.check({**sent, DATA_MACHINE: "7"})) == (400, "chain_context_invalid")


@pytest.mark.parametrize(
    "options",
    [{"counted_by": "sender"}, {"compat": "datamachine", "counted_by": "nobody"}, {"counted_by": None}],
    ids=str,
)
def test_an_option_that_says_nothing_is_refused(service: Making, options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="counted_by"):
        service("b", **options)
