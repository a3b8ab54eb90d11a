"""Three services on this machine, each an agent that delegates to the next: A to B, B to C, and C to A again."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from flyball import Agent, Limits, TokenPrice
from flyball.chain import Caller, Chain, ChainDepthMiddleware, Keys
from flyball.result import Stop
from flyball.serve import chat_app, remote_agent
from flyball.testing import Line, ScriptedModel, call, say

BOUND_S = 60.0
OLD, NEW = "the old secret of all three services", "the new secret of all three services"
ALIKE = (Keys(NEW),) * 3


@dataclass
class Service:
    """An agent that delegates to the next service, and what it is called with."""

    name: str
    app: Any = None
    url: str = ""
    chain: Any = None
    heard: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The headers of each request."""
    began: threading.Event = field(default_factory=threading.Event)
    ends: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, "str | None"]])
    ended: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            self.heard.append({name.decode(): value.decode() for name, value in scope["headers"]})
        await self.app(scope, receive, send)

    def watch(self, event: Any) -> None:
        """The sink of its agent: own runs only."""
        if event.kind == "model_requested":
            self.began.set()
        if event.kind == "run_ended" and event.header.parent_run_id is None:
            self.ends.append((event.stop, event.stopped_by))
            self.ended.set()

    def caller(self, n: int = 0) -> Caller:
        """Who has called with the n-th request, as the service sees it."""
        found = self.chain.check(self.heard[n])
        assert isinstance(found, Caller)
        return found


def model(*lines: Line) -> ScriptedModel:
    return ScriptedModel.looping(*lines, grace=say("That is all."), price=TokenPrice(input=1, output=2))


def ask(service: Service, **headers: str) -> httpx2.Response:
    return httpx2.post(f"{service.url}/chat", json={"message": "Go."}, headers=headers, timeout=BOUND_S)


class Port:
    """A server of this module, for whatever service a test puts behind it."""

    def __init__(self) -> None:
        self.service: Service | None = None
        self.url = ""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        assert self.service is not None
        await self.service(scope, receive, send)


@pytest.fixture(scope="module")
def ports(served: Callable[..., Any]) -> Generator[list[Port]]:
    """Three servers for all tests, as their start and end take longer than most tests."""
    with ExitStack() as stack:
        ports = [Port() for _ in range(3)]
        for port in ports:
            port.url = stack.enter_context(served(port))
        yield ports


@pytest.fixture
def three(ports: list[Port]) -> Callable[..., list[Service]]:
    """Makes the three services; `keys` are each one's, and `last` is what C's model says."""

    def start(ceiling: int = 10, keys: Any = ALIKE, last: Line | None = None) -> list[Service]:
        services = [Service(name, url=port.url) for name, port in zip("abc", ports, strict=True)]
        for n, service in enumerate(services):
            following = services[(n + 1) % 3]
            chain = Chain(name=service.name, host="here", keys=keys[n], ceiling=ceiling, settings={})
            lines = [
                call("delegate", tasks=[{"child": following.name, "goal": "Go on."}]),
                say(f"{service.name} did."),
            ]
            agent = Agent(
                name=service.name,
                model=model(*([last] if last is not None and service.name == "c" else lines)),
                children=[remote_agent(following.url, name=following.name)],
                max_output_tokens=50,
                sinks=[service.watch],
            )
            service.chain, service.app = chain, chat_app(agent, chain=chain)
            ports[n].service = service
        return services

    return start


def test_a_circle_is_refused_where_it_closes_and_all_costs_come_home(three: Callable[..., list[Service]]) -> None:
    a, b, c = three()
    record = ask(a).json()
    [of_b] = record["children"]
    [of_c] = of_b["children"]
    assert [record["text"], of_b["text"], of_c["text"]] == ["a did.", "b did.", "c did."]
    [denied] = of_c["tool_execution_results"]
    assert (denied["status"], denied["reason"]) == ("denied", "refused")
    assert "429 chain_cycle_detected" in denied["text"]
    costs = [one["cost_usd"]["scripted"] for one in (record, of_b, of_c)]
    assert record["cost_usd_with_children"] == {"scripted": pytest.approx(sum(costs))}
    assert all(cost > 0 for cost in costs)
    assert [len(a.heard), len(b.heard), len(c.heard)] == [2, 1, 1]


def test_each_hop_is_deeper_and_has_less_time_and_budget(three: Callable[..., list[Service]]) -> None:
    a, b, c = three()
    record = ask(a).json()
    callers = [a.caller(), b.caller(), c.caller()]
    assert [one.depth for one in callers] == [0, 1, 2]
    assert [one.path for one in callers] == [(), ("a@here",), ("a@here", "b@here")]
    assert b.caller().root == c.caller().root
    seconds = [
        next(event for event in run["events"] if event["event"] == "run_started")["limits"]["remaining_s"]
        for run in (record, record["children"][0], record["children"][0]["children"][0])
    ]
    assert seconds[0] > seconds[1] > seconds[2]
    assert b.caller().remaining_s > c.caller().remaining_s
    assert b.caller().left["turns"] > c.caller().left["turns"] > 0


def test_a_chain_that_is_too_deep_is_refused(three: Callable[..., list[Service]]) -> None:
    a, _, _ = three(ceiling=2)
    record = ask(a).json()
    [denied] = record["children"][0]["tool_execution_results"]
    assert "429 chain_depth_exceeded" in denied["text"]
    assert record["children"][0]["text"] == "b did."


def test_a_cancel_of_the_first_reaches_the_last(three: Callable[..., list[Service]]) -> None:
    a, b, c = three(last=say("Never.").after(600.0))
    with httpx2.stream(
        "POST", f"{a.url}/chat", json={"message": "Go."}, headers={"accept": "text/event-stream"}, timeout=BOUND_S
    ) as response:
        assert response.status_code == 200
        assert c.began.wait(BOUND_S)
    for service in (a, b, c):
        assert service.ended.wait(BOUND_S)
        assert service.ends == [("cancelled", "client")]


def test_a_context_that_was_tampered_with_is_refused(three: Callable[..., list[Service]]) -> None:
    a, b, _ = three()
    ask(a)
    names = [name for name in b.heard[0] if name.startswith("x-flyball-chain")]
    sent = {name: b.heard[0][name] for name in names}
    assert ask(b, **sent).status_code == 200
    value = sent["x-flyball-chain"]
    for place in range(0, len(value), 29):
        other = "A" if value[place] != "A" else "B"
        refused = ask(b, **{**sent, "x-flyball-chain": f"{value[:place]}{other}{value[place + 1 :]}"})
        assert refused.status_code in (400, 401)
        assert refused.json()["code"].startswith("chain_")
    assert ask(b, **{**sent, "x-flyball-chain-depth": "0", "x-flyball-chain": ""}).status_code in (400, 401)
    assert ask(b, **{"x-flyball-chain-depth": "0"}).status_code == 401


@pytest.mark.parametrize(
    ("of_a", "of_b", "stop"),
    [
        (Keys(OLD), Keys(NEW, OLD), Stop.COMPLETED),  # b has changed over first
        (Keys(NEW, OLD), Keys(NEW, OLD), Stop.COMPLETED),
        (Keys(NEW, OLD), Keys(NEW), Stop.COMPLETED),  # and all have
        (Keys(OLD), Keys(NEW), Stop.FAILED),  # a was forgotten
        (None, Keys(NEW), Stop.FAILED),
    ],
)
def test_keys_are_changed_over_without_a_gap(
    three: Callable[..., list[Service]], of_a: Keys | None, of_b: Keys, stop: Stop
) -> None:
    a, _, _ = three(keys=(of_a, of_b, of_b), last=say("Here."))
    record = ask(a).json()
    assert record["children"][0]["stop"] == stop
    assert record["completed"]
    if stop is Stop.FAILED:
        assert "(401 chain_signature_" in record["tool_execution_results"][0]["text"]
    assert OLD not in json.dumps(record)
    assert NEW not in json.dumps(record)


def test_the_middleware_around_the_app_does_the_same_as_its_option(served: Callable[..., Any]) -> None:
    app = chat_app(Agent(model=model(say("Hi."))))
    with served(ChainDepthMiddleware(app, Chain(name="a", host="here", ceiling=1, settings={}))) as url:
        top = httpx2.post(f"{url}/chat", json={"message": "Go."}, timeout=BOUND_S)
        below = httpx2.post(
            f"{url}/chat", json={"message": "Go."}, headers={"x-flyball-chain-depth": "0"}, timeout=BOUND_S
        )
    assert top.json()["text"] == "Hi."
    assert (below.status_code, below.json()["code"]) == (429, "chain_depth_exceeded")


def test_money_that_a_chain_leaves_and_nobody_can_hold_is_refused(served: Callable[..., Any]) -> None:
    chain = Chain(name="a", host="here", settings={})
    unpriced = Agent(model=ScriptedModel(say("Hi.")))
    app = chat_app(unpriced, chain=Chain(name="b", host="here", settings={}))
    with served(app) as url, Limits(usd=1).open() as within:
        headers = chain.headers(within)
        refused = httpx2.post(f"{url}/chat", json={"message": "Go."}, headers=headers, timeout=BOUND_S)
    assert (refused.status_code, refused.json()["code"]) == (422, "limit_not_held")
