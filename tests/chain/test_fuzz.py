"""Whatever stands in the headers: the check ends with a caller or a refusal, and nobody gets more than without them."""

import base64
import json
import math
from typing import Any

import anyio
from hypothesis import example, given
from hypothesis import strategies as st

from flyball import Limits
from flyball.agent.inherited import Inheritance
from flyball.chain import Chain, ChainDepthMiddleware, ChainRefusal, Keys
from flyball.chain.caller import COUNTED_BUDGETS, Caller, serving

KEYS = Keys("a secret that all of them have")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"keys": KEYS},
    {"keys": KEYS, "require_signature": False},
    {"compat": "datamachine"},
    {"compat": "datamachine", "counted_by": "sender"},
]
CHAINS = [Chain(name="b", host="b.example", settings={}, **options) for options in OPTIONS]
NAMES = ["x-flyball-chain", "X-Flyball-Chain-Depth", "x-flyball-chain-root", "x-datamachine-chain-depth", "x-other",
         "x-agents-api-chain-depth", "x-agents-api-caller-host", "x-datamachine-chain-id"]  # fmt: skip
numbers = st.none() | st.integers(-5, 10**20) | st.floats(width=32)
scalars = numbers | st.booleans() | st.text(max_size=5)
names = st.sampled_from(["a", "a@a.example", "b@b.example", "c", "", "x y"]) | st.text(max_size=3)
records = st.fixed_dictionaries(
    {
        "agent": st.just("a") | scalars,
        "host": st.just("a.example") | scalars,
        "root": st.just("r") | scalars,
        "depth": st.integers(0, 4) | scalars,
        "ceiling": st.integers(0, 20) | scalars,
        "path": st.lists(names, max_size=4).map(lambda path: [*path, "a@a.example"]) | scalars,
        "seconds": numbers,
        "turns": numbers,
        "tokens": numbers,
        "usd": numbers,
        "expires": st.just(9e9) | scalars,
    }
)


def sealed(record: object, signed: bool, spoilt: bool) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(record).encode()).decode().rstrip("=")
    text = f"1.{KEYS.id if signed else ''}.{payload}"
    return f"{text}.{KEYS.sign(text.encode()).decode()[: -1 if spoilt else None] if signed else ''}"


values = st.builds(sealed, records, st.booleans(), st.just(False) | st.booleans())
texts = st.text(max_size=40) | st.binary(max_size=40) | values | st.integers(-3, 12).map(str)
pairs = st.lists(st.tuples(st.sampled_from(NAMES), texts), max_size=5)


amounts = st.none() | st.integers(0, 3) | st.integers(0, 10**12)
well_formed = st.fixed_dictionaries(
    {
        "agent": st.just("a"),
        "host": st.just("a.example"),
        "root": st.just("r"),
        "depth": st.integers(0, 3),
        "ceiling": st.integers(1, 12),
        "path": st.just(["a@a.example"]),
        "seconds": st.none() | st.floats(0, 1e6),
        "turns": amounts,
        "tokens": amounts,
        "usd": amounts,
        "expires": st.just(9e9),
    }
)


@given(record=well_formed, signed=st.booleans())
def test_what_a_chain_carries_only_narrows(record: dict[str, Any], signed: bool) -> None:
    chain = CHAINS[2]
    found = chain.check([("x-flyball-chain", sealed(record, signed, False))])
    if isinstance(found, ChainRefusal):
        assert found.code in ("chain_depth_exceeded", "chain_budget_exceeded")
        assert found.code != "chain_budget_exceeded" or 0 in (record[name] for name in ("seconds", *COUNTED_BUDGETS))
        return
    assert found.signed is signed
    assert found.left == {name: record[name] for name in COUNTED_BUDGETS if record[name] is not None}
    assert found.ceiling == min(3, record["ceiling"])
    assert_narrows(found)
    with serving(found, chain):
        assert_goes_on(chain, found)


@given(headers=pairs, which=st.integers(0, 3))
@example(headers=[("x-flyball-chain", "1..W1tbW1tb.")], which=0)
def test_no_headers_make_the_check_raise_or_widen_anything(headers: list[tuple[str, Any]], which: int) -> None:
    chain = CHAINS[which]
    found = chain.check(headers)
    if isinstance(found, ChainRefusal):
        assert found.status in (400, 401, 429)
        json.loads(found.body)
        return
    assert 0 <= found.depth < found.ceiling <= 3
    assert all(amount > 0 for amount in found.left.values())
    assert_narrows(found)
    with serving(found, chain):
        assert_goes_on(chain, found)


def assert_narrows(caller: Caller) -> None:
    """A run gets no more than it would have without a caller."""
    terms = Limits(turns=20, tokens=5_000, usd=1, seconds=30).resolve()
    with serving(caller):
        inherited = Inheritance.from_shared(None)
    with (
        terms.open() as usual,
        terms.open(max_seconds=inherited.max_seconds, max_amounts=inherited.max_amounts) as narrowed,
    ):
        for name, budget in narrowed.budgets.items():
            assert budget.remaining <= usual.budgets[name].remaining
            assert (budget.ceiling or math.inf) <= (usual.budgets[name].ceiling or math.inf)
        assert narrowed.seconds <= usual.seconds


def assert_goes_on(chain: Chain, caller: Caller) -> None:
    """The next hop gets no more than this one came with."""
    found = Chain(name="next", host="next.example", keys=chain.keys, ceiling=10, settings={}).check(chain.headers())
    if isinstance(found, ChainRefusal):
        assert (found.status, caller.depth + 1 >= caller.ceiling or caller.remaining_s < 0.01) == (429, True)
        return
    assert (found.depth, found.root) == (caller.depth + 1, caller.root)
    assert found.ceiling <= caller.ceiling
    assert set(found.path) > set(caller.path)
    assert all(found.left[name] <= amount for name, amount in caller.left.items())


@given(headers=st.lists(st.tuples(st.sampled_from(NAMES).map(str.encode), st.binary(max_size=60)), max_size=4))
def test_no_bytes_make_a_service_fail(headers: list[tuple[bytes, bytes]]) -> None:
    statuses: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    async def main() -> None:
        await ChainDepthMiddleware(app, CHAINS[0])({"type": "http", "headers": headers}, None, send)

    anyio.run(main)
    assert statuses[0] in (200, 400, 401, 429)
