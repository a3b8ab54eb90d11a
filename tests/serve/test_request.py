"""What bodies ask for: whatever they are, they are understood or refused."""

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flyball.budget.deadline import SYSTEM
from flyball.serve.asgi import Problem
from flyball.serve.request import LIMITS, ChatRequest, parse_request

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "system", "x"]), "content": JSON}
)
BODY = st.fixed_dictionaries(
    {},
    optional={
        "message": st.text() | JSON,
        "messages": st.lists(MESSAGE | JSON, max_size=3) | JSON,
        "session": st.text(max_size=5) | JSON,
        "metadata": JSON,
        "limits": st.dictionaries(st.sampled_from([*LIMITS, "x"]), JSON, max_size=3) | JSON,
    },
)


@given(
    st.binary() | BODY.map(lambda body: json.dumps(body).encode()) | JSON.map(lambda body: json.dumps(body).encode())
)
def test_a_body_is_understood_or_refused_and_never_anything_else(body: bytes) -> None:
    found = parse_request(body)
    if isinstance(found, Problem):
        assert found.status in (400, 422)
        assert found.message
    else:
        assert found.messages
        assert all(amount > 0 for amount in found.limits.values())
        found.build_envelope(math.inf, SYSTEM)


def test_without_limits_there_is_no_envelope() -> None:
    wish = ChatRequest(messages=["Go."])
    assert wish.build_envelope(math.inf, SYSTEM) is None
    bounded = wish.build_envelope(5.0, SYSTEM)
    assert bounded is not None
    assert bounded.seconds == 5.0


def test_the_shorter_of_two_times_counts() -> None:
    limits: dict[str, Any] = {"seconds": 3.0, "turns": 2}
    envelope = ChatRequest(messages=["Go."], limits=limits).build_envelope(5.0, SYSTEM)
    assert envelope is not None
    assert (envelope.seconds, envelope.budgets["turns"].ceiling, envelope.budgets["usd"].ceiling) == (3.0, 2, None)
