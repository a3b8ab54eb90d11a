"""Govern a loop through the HTTP client of its library: neither the loop nor the library knows of Flyball.

Prints:
    I counted to 3.
    It reached a limit: Maximum agent iterations (3) reached.
    conversation 1: 3 turns, 4 requests, $0.0027
    a request after the end: PermissionDeniedError
"""

from typing import Any

from openai import OpenAI, PermissionDeniedError

import flyball.gateway
from flyball import Limits
from flyball.testing.server import LoopingProvider

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}]


def count(client: OpenAI) -> str | None:
    """Call tools until there is an answer, which this model never gives by itself."""
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        message = client.chat.completions.create(model="gpt-4o", messages=messages, tools=TOOLS).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]


with LoopingProvider(report="I counted to 3.") as provider:  # stands for OpenAI, so that the example needs no key
    url = f"{provider.url}/v1"
    with flyball.gateway.transport(Limits(turns=3, usd=0.50), upstreams={"openai": url}) as governed:
        client = OpenAI(base_url=url, api_key="sk-example", http_client=governed.http_client())
        print(count(client))
    print(governed.result.explain().partition(". ")[0] + ".")
    for chat in governed.result.state["conversations"]:
        print(f"{chat['name']}: {chat['turns']} turns, {chat['requests']} requests, ${chat['cost_usd']:.4f}")
    try:
        count(client)
    except PermissionDeniedError as error:
        print("a request after the end:", type(error).__name__)
