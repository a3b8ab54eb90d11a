"""Bounded tools in a loop of your own: a call that works, one that is wrong, one that hangs, one too many.

Prints:
    done: 7
    denied: Not run (validation): the arguments of add are wrong: b: missing
    timed_out: the model is told that nobody knows
    denied: Not run (budget): no tool calls are left
"""

import threading

from flyball import Limits
from flyball.request import Call
from flyball.tools import BoundedToolExecutor, tool


@tool(effects="read")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(timeout=0.05)
def hang() -> None:
    """Never come back."""
    threading.Event().wait()


with Limits(tool_calls=2).open() as envelope:
    executor = BoundedToolExecutor([add, hang], envelope=envelope)
    calls = [
        Call("1", "add", '{"a": 3, "b": 4}'),
        Call("2", "add", '{"a": 3}'),
        Call("3", "hang", ""),
        Call("4", "add", '{"a": 1, "b": 1}'),
    ]
    for outcome in executor.execute(*calls):
        known = "not known" not in outcome.text
        print(f"{outcome.status}: {outcome.text if known else 'the model is told that nobody knows'}")
