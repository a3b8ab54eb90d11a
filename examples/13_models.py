"""A real model over HTTP: `python examples/13_models.py anthropic:claude-opus-5`, with the key in the environment.

Without a name it asks a server on this machine, which is busy once and then breaks off in the middle of a reply.

Prints:
    turn 1   the model is asked
             it answered 429: One moment, please.
             it is asked again
             it calls weather(city='Köln')
    turn 2   the model is asked
             it did not complete the reply: peer closed connection without sending complete message body
             it is asked again
             It is 17 °C in Köln.
    completed, 4 requests
"""

import sys
from contextlib import ExitStack

from flyball import Agent, Limits, tool
from flyball.event import Event, ModelReplied, ModelRequested, Retried, ToolStarted
from flyball.testing import ModelServer, call, say, sent, status

SCRIPT = (
    status(429, "One moment, please.", headers={"Retry-After": "0.1"}),
    call("weather", city="Köln"),
    sent(say("").streaming("It ", "is ", "17 ", "°C"), "cut", events=4),
    say("It is 17 °C in Köln."),
)


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"17 °C in {city}"


def tell(event: Event) -> None:
    match event:
        case ModelRequested(attempt=1):
            print(f"turn {event.turn}   the model is asked")
        case ModelReplied(error=str(error)):
            print(f"         it {error.partition(' ')[2].partition(' (')[0]}")
        case Retried():
            print("         it is asked again")
        case ToolStarted():
            print(f"         it calls {event.tool}(city={(event.arguments or {}).get('city')!r})")
        case _:
            pass


def main() -> None:
    with ExitStack() as stack:
        name = sys.argv[1] if len(sys.argv) > 1 else ""
        if not name:
            name = f"{stack.enter_context(ModelServer(*SCRIPT)).url}/v1#qwen3"
        agent = Agent(model=name, tools=[weather], limits=Limits(turns=5, tokens=50_000, seconds=120), sinks=[tell])
        result = agent.run("How warm is it in Köln?")
    print(f"         {result.text}")
    print(f"{result.stop}, {result.requests} requests")


if __name__ == "__main__":
    main()
