"""A shop whose process is killed twice, each time between an effect and its record; another one goes on.

The bank knows a payment by its key, so `charge` may be made again. The post knows nothing, so `send` may not: the model
is told that nobody knows what came of it, and looks.

Prints:
    process 1 was killed
    process 2 was killed
    process 3: completed: The letter is in the box, and paid.
      charge: done: paid 30
      send: failed: the process ended during the call. It is not known whether the call had an effect
      look: done: 1 letter in the box
    the bank was asked 2 times, with 1 key
    4 turns, 4 requests, 3 tool calls
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

from flyball import Agent, Result, tool
from flyball.outcome import Failure
from flyball.store import open_store
from flyball.testing import ScriptedModel, call, say
from flyball.tools import ToolContext

SHOP, RUN = "sqlite:///shop.db", "order-7"
BANK, BOX = Path("bank.txt"), Path("box.txt")


def power_fails(*, once_in: str) -> None:
    """End this process as `kill -9` does, when it is here for the first time."""
    if not Path(once_in).exists():
        Path(once_in).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@tool(idempotent=True)
def charge(amount: int, ctx: ToolContext) -> str:
    """Have the bank take an amount; it takes one with the same key once."""
    with BANK.open("a") as book:
        book.write(f"{ctx.idempotency_key}\n")
    power_fails(once_in="charge")
    return f"paid {amount}"


@tool
def send(letter: str) -> str:
    """Put a letter into the box."""
    with BOX.open("a") as box:
        box.write(f"{letter}\n")
    power_fails(once_in="send")
    return "sent"


@tool
def look() -> str:
    """Look into the box."""
    return f"{len(BOX.read_text().splitlines())} letter in the box"


def work() -> Result:
    """Begin the order, or go on with it."""
    script = (call("charge", amount=30), call("send", letter="Dear Ann"), call("look"))
    with open_store(SHOP) as store:
        model = ScriptedModel(*script, say("The letter is in the box, and paid."))
        shop = Agent(model=model, tools=[charge, send, look], store=store)
        return shop.run("Order 7.", run_id=RUN) if store.runs.get(RUN) is None else shop.resume(RUN)


def main() -> None:
    process = 1
    while subprocess.run([sys.executable, __file__, "work"], check=False).returncode == -signal.SIGKILL:
        print(f"process {process} was killed", flush=True)
        process += 1
    keys = BANK.read_text().splitlines()
    print(f"the bank was asked {len(keys)} times, with {len(set(keys))} key")
    with open_store(SHOP) as store:
        entry = store.runs.get(RUN)
    assert entry is not None
    assert entry.finish is not None
    record = entry.finish.record or {}
    calls = record["budgets"]["tool_calls"]["used"]
    print(f"{record['turns']} turns, {record['requests']} requests, {calls} tool calls")


def show(result: Result) -> None:
    print(f"process 3: {result.stop}: {result.text}")
    for outcome in result.tool_results:
        text = outcome.error if isinstance(outcome, Failure) else outcome.text
        print(f"  {outcome.tool}: {outcome.status}: {text}")


if __name__ == "__main__":
    if sys.argv[1:] == ["work"]:
        show(work())
    else:
        main()
