# pyright: basic
"""An endless tool loop on the anthropic SDK, as a user would write it. It knows nothing of Flyball."""

import sys
from typing import Any

from anthropic import Anthropic, APIStatusError

client = Anthropic()
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS: Any = [{"name": "add", "description": "Add.", "input_schema": SCHEMA}]
MODEL = "claude-sonnet-4-5"


def loop(**options: Any) -> str:
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        if options.get("streams"):
            with client.messages.stream(model=MODEL, max_tokens=2_000, messages=messages, tools=TOOLS) as events:
                reply: Any = events.get_final_message()
        else:
            reply = client.messages.create(
                model=MODEL, max_tokens=options.get("max_tokens", 2_000), messages=messages, tools=TOOLS,
                **options.get("extra", {}),
            )  # fmt: skip
        messages.append({"role": "assistant", "content": [block.model_dump() for block in reply.content]})
        calls = [block for block in reply.content if block.type == "tool_use"]
        if not calls:
            return "".join(block.text for block in reply.content if block.type == "text")
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "1"} for call in calls]
        messages.append({"role": "user", "content": results})


def whole() -> str:
    return loop()


def stream() -> str:
    return loop(streams=True)


def thinking() -> str:
    return loop(max_tokens=20_000, extra={"thinking": {"type": "enabled", "budget_tokens": 10_000}})


def unknown() -> str:
    global MODEL
    MODEL = "claude-of-the-future"
    try:
        return loop()
    except APIStatusError as error:
        return str(error)


def cached() -> str:
    return loop(extra={"system": [{"type": "text", "text": "Count.", "cache_control": {"type": "ephemeral"}}]})


print(globals()[sys.argv[1]]())
