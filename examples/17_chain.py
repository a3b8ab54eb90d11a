"""Two services: a planner whose child is a researcher at another service. The chain between them is signed and counted.

Prints:
    planner: completed: Governors have two balls.
      researcher: completed: Two balls, says the book. (3 turns at the other service)
    tokens of both: 75
    the researcher was called at depth 1, by planner@planner.example
    a stranger: 401 token_refused
    a forged chain: 401 chain_signature_required
    too deep a chain: 429 chain_depth_exceeded
"""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import httpx2
import uvicorn

from flyball import Agent, Limits, tool
from flyball.chain import Chain, Keys, current
from flyball.serve import chat_app, remote_agent
from flyball.testing import ScriptedModel, call, say

KEYS, TOKEN = Keys("a secret that both services know"), "the-planner-s-token"
called_by: list[str] = []


@tool(poll=True)
def open_book(page: int) -> str:
    """Open a book."""
    caller = current()
    if caller is not None and not called_by:
        called_by.append(f"at depth {caller.depth}, by {caller.path[-1]}")
    return "Two balls."


@contextmanager
def served(app: Any) -> Generator[str]:
    """The app on a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


researcher = Agent(
    name="researcher",
    model=ScriptedModel(call("open_book", page=1), call("open_book", page=2), say("Two balls, says the book.")),
    tools=[open_book],
    limits=Limits(turns=8),
)
library = Chain(name="researcher", host="library.example", keys=KEYS)

with served(chat_app(researcher, token=lambda token: token == TOKEN, chain=library)) as url:
    planner = Agent(
        name="planner",
        model=ScriptedModel(
            call("delegate", tasks=[{"child": "researcher", "goal": "How many balls has a governor?"}]),
            say("Governors have two balls."),
        ),
        children=[
            remote_agent(
                url,
                name="researcher",
                description="Looks things up in books.",
                token=TOKEN,
                limits=Limits(turns=5, seconds=30),
                chain=Chain(name="planner", host="planner.example", keys=KEYS),
            )
        ],
    )
    result = planner.run("Tell me about governors.")
    print(f"planner: {result.stop}: {result.text}")
    for child in result.children:
        print(f"  researcher: {child.stop}: {child.text} ({child.turns} turns at the other service)")
    print("tokens of both:", result.usage_with_children.total)
    print("the researcher was called", called_by[0])

    def refused(what: str, headers: dict[str, str]) -> None:
        """What somebody else is told."""
        answer = httpx2.post(f"{url}/chat", json={"message": "Hello?"}, headers=headers)
        print(f"{what}: {answer.status_code} {answer.json()['code']}")

    good = {"authorization": f"Bearer {TOKEN}"}
    deep = Chain(name="planner", host="planner.example", keys=KEYS, ceiling=1).headers()
    refused("a stranger", {"authorization": "Bearer guessed"})
    refused("a forged chain", {**good, "x-flyball-chain-depth": "0"})
    refused("too deep a chain", {**good, **deep})
