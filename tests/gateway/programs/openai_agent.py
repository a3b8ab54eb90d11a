# pyright: basic
"""An endless tool loop on the openai SDK, as a user would write it. It knows nothing of Flyball."""

import sys
from typing import Any

from openai import OpenAI

client = OpenAI()
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": PARAMETERS}}]
TOOLS: Any = [{"type": "function", "name": "add", "description": "Add.", "parameters": PARAMETERS, "strict": False}]


def chat() -> str:
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        reply = client.chat.completions.create(model="gpt-4o", messages=messages, tools=CHAT_TOOLS)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]


def stream() -> str:
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        text, calls = "", dict[int, dict[str, Any]]()
        for chunk in client.chat.completions.create(model="gpt-4o", messages=messages, tools=CHAT_TOOLS, stream=True):
            delta = chunk.choices[0].delta  # a chunk without choices would end the program
            text += delta.content or ""
            for piece in delta.tool_calls or ():
                call = calls.setdefault(piece.index, {"id": piece.id, "name": "", "arguments": ""})
                assert piece.function is not None
                call["name"] += piece.function.name or ""
                call["arguments"] += piece.function.arguments or ""
        if not calls:
            return text
        messages.append(
            {
                "role": "assistant",
                "content": text or None,
                "tool_calls": [
                    {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                    for c in calls.values()
                ],
            }
        )
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "1"} for call in calls.values()]


def schema() -> str:
    answer: Any = {
        "type": "json_schema",
        "json_schema": {
            "name": "answer",
            "strict": True,
            "schema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
                "additionalProperties": False,
            },
        },
    }
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        reply = client.chat.completions.create(
            model="gpt-4o", messages=messages, tools=CHAT_TOOLS, response_format=answer
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            return message.content or ""
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]


def trimmed() -> str:
    """Keep only the first message and the newest turn, as programs do that save tokens."""
    first: Any = {"role": "user", "content": "Count for ever."}
    rest: list[Any] = []
    while True:
        reply = client.chat.completions.create(model="gpt-4o", messages=[first, *rest], tools=CHAT_TOOLS)
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content or ""
        results = [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]
        rest = [message.model_dump(exclude_none=True), *results]


def responses() -> str:
    items: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        reply = client.responses.create(model="gpt-4o", input=items, tools=TOOLS)
        items += [item.model_dump(exclude_none=True) for item in reply.output]
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return reply.output_text
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "1"} for call in calls]


def responses_stream() -> str:
    items: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        with client.responses.stream(model="gpt-4o", input=items, tools=TOOLS) as events:
            for _ in events:
                pass
            reply = events.get_final_response()
        items += [item.model_dump(exclude_none=True, exclude={"parsed_arguments", "parsed"}) for item in reply.output]
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return reply.output_text
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "1"} for call in calls]


def state() -> str:
    """Leave the history at the provider."""
    previous: Any = None
    items: Any = "Count for ever."
    while True:
        reply = client.responses.create(model="gpt-4o", input=items, tools=TOOLS, previous_response_id=previous)
        calls = [item for item in reply.output if item.type == "function_call"]
        if not calls:
            return reply.output_text
        previous = reply.id
        items = [{"type": "function_call_output", "call_id": call.call_id, "output": "1"} for call in calls]


print(globals()[sys.argv[1]]())
