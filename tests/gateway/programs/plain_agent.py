# pyright: basic
"""Endless tool loops on the standard library only, so that they start fast. Usage: plain_agent.py MODE [NUMBER].

Prints one line of JSON: the texts of the answers, and the statuses of all replies.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

URL, KEY = os.environ["OPENAI_BASE_URL"], os.environ.get("OPENAI_API_KEY", "")
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": PARAMETERS}}]
statuses: list[int] = []


def send(body: dict[str, Any], path: str = "/chat/completions", **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"authorization": f"Bearer {KEY}", "content-type": "application/json", **headers}
    request = urllib.request.Request(f"{URL}{path}", data, sent)
    try:
        with urllib.request.urlopen(request, timeout=50) as response:
            statuses.append(response.status)
            return json.loads(response.read())
    except urllib.error.HTTPError as error:
        statuses.append(error.code)
        return json.loads(error.read())


def loop(task: str = "Count for ever.", stubborn: int = 0, **options: Any) -> str:
    """Call tools until there is an answer; a stubborn program goes on that many times."""
    messages: list[Any] = [{"role": "user", "content": task}]
    text = ""
    while True:
        reply = send({"model": "gpt-4o", "messages": messages, "tools": TOOLS, **options})
        if "choices" not in reply:
            return f"{text} error: {reply['error']['message']}"
        message = reply["choices"][0]["message"]
        text = message.get("content") or text
        messages.append(message)
        calls = message.get("tool_calls") or ()
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "1"} for call in calls]
        if not calls:
            if stubborn <= 0:
                return text
            stubborn -= 1
            messages.append({"role": "user", "content": "Go on."})


def stream() -> str:
    """Call tools over a stream of chat completions."""
    messages: list[Any] = [{"role": "user", "content": "Count for ever."}]
    while True:
        body = json.dumps({"model": "gpt-4o", "messages": messages, "tools": TOOLS, "stream": True}).encode()
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        request = urllib.request.Request(f"{URL}/chat/completions", body, headers)
        text, calls = "", []
        with urllib.request.urlopen(request, timeout=50) as response:
            statuses.append(response.status)
            for line in response:
                data = line.decode().removeprefix("data: ").strip()
                deltas = [choice["delta"] for choice in json.loads(data)["choices"]] if data.startswith("{") else []
                text += "".join(delta.get("content") or "" for delta in deltas)
                calls += [call["id"] for delta in deltas for call in delta.get("tool_calls") or () if call.get("id")]
        if not calls:
            return text
        made = [{"id": call, "type": "function", "function": {"name": "add", "arguments": "{}"}} for call in calls]
        messages.append({"role": "assistant", "content": text, "tool_calls": made})
        messages += [{"role": "tool", "tool_call_id": call, "content": "1"} for call in calls]


def gemini(stream: bool) -> str:
    """Call tools over the API of Gemini."""
    declared = [{"functionDeclarations": [{"name": "add", "description": "Add.", "parameters": PARAMETERS}]}]
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Count for ever."}]}]
    action = "streamGenerateContent?alt=sse" if stream else "generateContent"
    while True:
        data = json.dumps({"contents": contents, "tools": declared}).encode()
        headers = {"x-goog-api-key": os.environ["GEMINI_API_KEY"], "content-type": "application/json"}
        url = f"{os.environ['GOOGLE_GEMINI_BASE_URL']}/v1beta/models/gemini-2.5-flash:{action}"
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=50) as response:
            statuses.append(response.status)
            text = response.read().decode()
        chunks = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
        replies = [json.loads(chunk) for chunk in (chunks if stream else [text])]
        parts = [part for reply in replies for part in reply["candidates"][0]["content"].get("parts", ())]
        contents.append({"role": "model", "parts": parts})
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if not calls:
            return "".join(part.get("text", "") for part in parts)
        results = [{"functionResponse": {"name": call["name"], "response": {"output": 1}}} for call in calls]
        contents.append({"role": "user", "parts": results})


def many(count: int, same: bool) -> list[str]:
    answers: list[str] = []
    tasks = ["Count for ever." if same else f"Count for ever, {number}." for number in range(count)]
    threads = [threading.Thread(target=lambda task=task: answers.append(loop(task))) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def chat(count: int) -> list[str]:
    """Send further messages of a user in one conversation, each after the answer to the one before."""
    messages: list[Any] = []
    answers: list[str] = []
    for number in range(count):
        messages.append({"role": "user", "content": f"Task {number}."})
        calls: Any = True
        while calls:
            message = send({"model": "gpt-4o", "messages": messages, "tools": TOOLS})["choices"][0]["message"]
            messages.append(message)
            calls = message.get("tool_calls") or ()
            messages += [{"role": "tool", "tool_call_id": call["id"], "content": "1"} for call in calls]
        answers.append(message["content"])
        if number + 1 < count:
            time.sleep(float(os.environ.get("PAUSE_S", "0")))
    return answers


def main() -> list[str]:
    mode, number = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0
    if mode == "loop":
        return [loop(max_tokens=number)] if number else [loop()]
    if mode == "stream":
        return [stream()]
    if mode == "stubborn":
        return [loop(stubborn=number)]
    if mode == "chat":
        return chat(number)
    if mode in ("gemini", "gemini_stream"):
        return [gemini(mode == "gemini_stream")]
    if mode == "many":
        return many(number, same=False)
    if mode == "same":
        return many(number, same=True)
    if mode == "shots":  # a new conversation each time
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Once."}]}
        return [json.dumps(send(body)) for _ in range(number)]
    if mode == "idle":  # a request too many, and then nothing
        task = {"model": "gpt-4o", "messages": [{"role": "user", "content": "Once."}]}
        for _ in range(2):
            send(task)
        time.sleep(60)
    raise SystemExit(f"unknown mode {mode}")


print(json.dumps({"answers": main(), "statuses": statuses}))
