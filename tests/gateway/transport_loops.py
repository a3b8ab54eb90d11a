"""Endless tool loops over clients of httpx and httpx2, and transports for the tests' servers."""

from typing import Any

from flyball import Limits
from flyball.gateway import transport
from flyball.testing.server import ModelServer

REPORT = "The report: the task is not finished."
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": PARAMETERS}}]
ONCE: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Once."}], "max_tokens": 50}
STREAM = ONCE | {"stream": True}


def govern(server: ModelServer, limits: Limits | None = None, **options: Any) -> transport:
    """Return a transport to which this server is OpenAI."""
    upstreams = {"openai": f"{server.url}/v1"}
    return transport(limits or Limits(turns=3), upstreams=options.pop("upstreams", upstreams), **options)


def build_body(messages: list[Any]) -> dict[str, Any]:
    return {"model": "gpt-4o", "messages": messages, "tools": TOOLS, "max_tokens": 50}


def read_answer(reply: dict[str, Any], messages: list[Any]) -> str | None:
    """Add a reply and the results of its calls. Returns the answer, or None if the loop goes on."""
    if "choices" not in reply:
        return str(reply["error"]["message"])
    message = reply["choices"][0]["message"]
    messages.append(message)
    messages += [{"role": "tool", "tool_call_id": call["id"], "content": "1"} for call in message.get("tool_calls", ())]
    return None if message.get("tool_calls") else message["content"]


def loop(client: Any, server: ModelServer, task: str = "Count for ever.") -> str:
    """Call tools until there is an answer, with a sync client of either library."""
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        reply = client.post(f"{server.url}/v1/chat/completions", json=build_body(messages), timeout=30).json()
        answer = read_answer(reply, messages)
        if answer is not None:
            return answer


async def aloop(client: Any, server: ModelServer, task: str = "Count for ever.") -> str:
    """Call tools until there is an answer, with an async client of either library."""
    messages: list[Any] = [{"role": "user", "content": task}]
    while True:
        response = await client.post(f"{server.url}/v1/chat/completions", json=build_body(messages), timeout=30)
        answer = read_answer(response.json(), messages)
        if answer is not None:
            return answer
