"""Govern a loop in the style of the OpenAI client: turns, tokens, calls and a report, in ten lines of your own loop.

Prints:
    turn 1: the model wants search, and gets it
    turn 2: the model wants search, and gets it
    turn 3: the model wants search, which is refused
    the report: I searched twice and found nothing.
    It reached a limit: Maximum agent iterations (3) reached.
    flags: ('max_tool_calls_reached', 'max_agent_iterations_reached')
"""

from typing import Any

import flyball
from flyball import Limits


class Client:
    """Stands for a client you have; it always wants one more search, unless it may not use tools."""

    def create(self, messages: list[Any], max_tokens: int | None, timeout: float, tools: bool) -> dict[str, Any]:
        """Answer like a chat completion."""
        usage = {"prompt_tokens": 20 * len(messages), "completion_tokens": 12}
        if not tools:
            return {"usage": usage, "text": "I searched twice and found nothing.", "call": None}
        return {"usage": usage, "text": "", "call": "search"}


client, messages = Client(), ["Find the lost sock."]
with flyball.govern(Limits(turns=3, tool_calls=2, tokens=10_000, seconds=60)) as run:
    for turn in run:
        reply = client.create(messages, turn.max_output_tokens, turn.remaining_s(), tools=not turn.grace)
        turn.settle(reply["usage"])
        if turn.grace:
            run.complete(reply["text"])
        elif reply["call"]:
            allowed = turn.claim_tool(reply["call"])
            print(f"turn {turn.number}: the model wants search, {'and gets it' if allowed else 'which is refused'}")
            messages.append("nothing there" if allowed else "no more searches")
        else:
            run.complete(reply["text"])

result = run.result()
print(f"the report: {result.text}")
print(result.explain().partition(". ")[0] + ".")
print(f"flags: {result.flags}")
