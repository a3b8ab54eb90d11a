import sys

import litellm

MODELS = {"chat": "gpt-4o", "messages": "anthropic/claude-sonnet-4-5"}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": PARAMETERS}}]
messages = [{"role": "user", "content": "Count for ever."}]
while True:
    message = litellm.completion(model=MODELS[sys.argv[1]], messages=messages, tools=TOOLS).choices[0].message
    messages.append(message.model_dump(exclude_none=True))
    if not message.tool_calls:
        break
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "1"} for call in message.tool_calls]
print(message.content)
