# pyright: basic
"""Stand-ins for known command lines: each finds its address as the real one does, and loops.

Usage: coding_cli.py NAME ARGUMENT...

One that finds no address asks DIRECT_URL, as the real one would ask its provider. Prints its last text.
"""

import json
import os
import re
import sys
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ARGUMENTS: list[str] = []
ENV: dict[str, str] = {}
HOME = Path()
URLS: list[str] = []
"""Addresses that were asked."""
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def option(name: str) -> str | None:
    return ARGUMENTS[ARGUMENTS.index(name) + 1] if name in ARGUMENTS else None


def read(path: Path | str | None) -> Any:
    return json.loads(Path(path).read_text()) if path and Path(path).is_file() else {}


def direct(version: str = "") -> str:
    return ENV["DIRECT_URL"] + version


def send(url: str, body: Any, headers: dict[str, str]) -> Any:
    sent = {"content-type": "application/json", **headers}
    URLS.append(url)
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), sent), timeout=50) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.code} {url} {error.read().decode()}")


def chat(url: str, key: str, **headers: str) -> str:
    messages: list[Any] = [{"role": "user", "content": "Count."}]
    tools = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": PARAMETERS}}]
    while True:
        body = {"model": "gpt-4o", "messages": messages, "tools": tools}
        message = send(f"{url}/chat/completions", body, {"authorization": f"Bearer {key}", **headers})["choices"][0][
            "message"
        ]
        calls = message.get("tool_calls") or ()
        messages += [message, *({"role": "tool", "tool_call_id": call["id"], "content": "1"} for call in calls)]
        if not calls:
            return message["content"]


def messages(url: str, key: str, **headers: str) -> str:
    history: list[Any] = [{"role": "user", "content": "Count."}]
    tools = [{"name": "add", "description": "Add.", "input_schema": PARAMETERS}]
    while True:
        body = {"model": "claude-sonnet-4-5", "max_tokens": 32_000, "messages": history, "tools": tools}
        content = send(f"{url}/messages", body, {"x-api-key": key, **headers})["content"]
        calls = [block for block in content if block["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "1"} for call in calls]
        history += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
        if not calls:
            return "".join(block.get("text", "") for block in content)


def responses(url: str, key: str, **headers: str) -> str:
    items: list[Any] = [{"role": "user", "content": "Count."}]
    tools = [{"type": "function", "name": "add", "description": "Add.", "parameters": PARAMETERS}]
    while True:
        body = {"model": "gpt-5.1", "input": items, "tools": tools}
        output = send(f"{url}/responses", body, {"authorization": f"Bearer {key}", **headers})["output"]
        calls = [item for item in output if item["type"] == "function_call"]
        items += [
            *output,
            *({"type": "function_call_output", "call_id": call["call_id"], "output": "1"} for call in calls),
        ]
        if not calls:
            return "".join(part["text"] for item in output for part in item.get("content", ()))


def gemini(url: str, key: str) -> str:
    contents: list[Any] = [{"role": "user", "parts": [{"text": "Count."}]}]
    tools = [{"functionDeclarations": [{"name": "add", "description": "Add.", "parameters": PARAMETERS}]}]
    while True:
        path = "/v1beta/models/gemini-2.5-flash:generateContent"
        reply = send(f"{url}{path}", {"contents": contents, "tools": tools}, {"x-goog-api-key": key})
        parts = reply["candidates"][0]["content"]["parts"]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        results = [{"functionResponse": {"name": call["name"], "response": {"output": 1}}} for call in calls]
        contents += [{"role": "model", "parts": parts}, {"role": "user", "parts": results}]
        if not calls:
            return "".join(part.get("text", "") for part in parts)


def claude() -> str:
    """Its settings' `env` beats the environment, and --settings beats that."""
    env = dict(ENV)
    for path in (HOME / ".claude/settings.json", option("--settings")):
        env |= read(path).get("env", {})
    lines = env.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines()
    headers = dict(line.split(": ", 1) for line in lines)
    login = read(HOME / ".claude/.credentials.json")
    if "ANTHROPIC_API_KEY" not in env and login:
        headers |= {"authorization": f"Bearer {login['claudeAiOauth']['accessToken']}"}
        return messages(env.get("ANTHROPIC_BASE_URL", direct()) + "/v1", "", **headers)
    return messages(env.get("ANTHROPIC_BASE_URL", direct()) + "/v1", env["ANTHROPIC_API_KEY"], **headers)


def codex() -> str:
    """It knows no address from the environment, only -c and config.toml."""
    home = Path(ENV.get("CODEX_HOME", HOME / ".codex"))
    is_read = (home / "config.toml").is_file() and "--ignore-user-config" not in ARGUMENTS
    config = tomllib.loads((home / "config.toml").read_text()) if is_read else {}
    for index, word in enumerate(ARGUMENTS):
        if word == "-c":
            key, _, value = ARGUMENTS[index + 1].partition("=")
            config |= {key: value.strip('"')}
    key = ENV.get("CODEX_API_KEY") or read(home / "auth.json").get("OPENAI_API_KEY")
    provider = config.get("model_provider", "openai")
    if provider == "openai":
        return responses(config.get("openai_base_url", direct("/v1")), key)
    table = config["model_providers"][provider]
    return responses(config.get(f"model_providers.{provider}.base_url", table["base_url"]), ENV[table["env_key"]])


def opencode() -> str:
    """Its config's baseURL beats the variables, and OPENCODE_CONFIG_CONTENT beats that. It has no /v1 of its own."""
    config = read(HOME / ".config/opencode/opencode.json")
    content = json.loads(ENV.get("OPENCODE_CONFIG_CONTENT", "{}"))
    options = (content or config).get("provider", {}).get("anthropic", {}).get("options", {})
    logins = read(HOME / ".local/share/opencode/auth.json")
    key = options.get("apiKey") or logins.get("anthropic", {}).get("key") or ENV["ANTHROPIC_API_KEY"]
    return messages(options.get("baseURL", direct("/v1")), key, **options.get("headers", {}))


def gemini_cli() -> str:
    settings = read(Path(ENV.get("GEMINI_CLI_HOME", HOME)) / ".gemini/settings.json")
    if settings.get("security", {}).get("auth", {}).get("selectedType") != "gemini-api-key":
        sys.exit(41)
    env = dict(ENV)
    dotenv = HOME / ".gemini/.env"
    for line in dotenv.read_text().splitlines() if dotenv.is_file() else ():
        env.setdefault(*line.split("=", 1))
    return gemini(env.get("GOOGLE_GEMINI_BASE_URL", direct()), env["GEMINI_API_KEY"])


def copilot() -> str:
    return responses(ENV.get("COPILOT_PROVIDER_BASE_URL", direct("/v1")), ENV.get("COPILOT_PROVIDER_API_KEY", ""))


def qwen() -> str:
    if option("--auth-type") != "openai" or any(name in ENV for name in ("HTTPS_PROXY", "https_proxy")):
        return chat(direct("/v1"), "login")
    return chat(option("--openai-base-url") or ENV["OPENAI_BASE_URL"], ENV["OPENAI_API_KEY"])


def cn() -> str:
    text = Path(option("--config") or HOME / ".continue/config.yaml").read_text()
    found = {name: re.search(rf"{name}: *(\S+)", text) for name in ("apiBase", "apiKey")}
    headers = re.search(r"headers: *(\{.*?\})", text)
    key = found["apiKey"][1] if found["apiKey"] else ""
    url = found["apiBase"][1] if found["apiBase"] else direct("/v1/")
    return messages(url.rstrip("/"), key, **json.loads(headers[1]) if headers else {})


def pi() -> str:
    folder = Path(ENV.get("PI_CODING_AGENT_DIR", HOME / ".pi/agent"))
    entry = read(folder / "models.json").get("providers", {}).get("anthropic", {})
    key = read(folder / "auth.json").get("anthropic", {}).get("key") or ENV["ANTHROPIC_API_KEY"]
    (folder / "sessions.txt").write_text("a session")
    return messages(entry.get("baseUrl", direct()) + "/v1", key, **entry.get("headers", {}))


def cline() -> str:
    if ENV.get("CLINE_SESSION_BACKEND_MODE") != "local":
        return responses(direct("/v1"), "key of its hub, which runs already")
    path = Path(ENV.get("CLINE_PROVIDER_SETTINGS_PATH", HOME / ".cline/data/settings/providers.json"))
    if (folder := option("--data-dir")) is not None:
        path = Path(folder) / "settings/providers.json"
    stored = read(path)
    settings = stored["providers"][stored["lastUsedProvider"]]["settings"]
    return responses(settings.get("baseUrl", direct("/v1")), option("-k") or settings["apiKey"])


def mini() -> str:
    return chat(ENV.get("OPENAI_BASE_URL", direct("/v1")), ENV["OPENAI_API_KEY"])


def llm() -> str:
    folder = Path(ENV.get("LLM_USER_PATH", HOME / ".config/io.datasette.llm"))
    return chat(
        ENV.get("OPENAI_BASE_URL", direct("/v1")), read(folder / "keys.json").get("openai") or ENV["OPENAI_API_KEY"]
    )


PROGRAMS = {
    "claude": claude,
    "codex": codex,
    "opencode": opencode,
    "gemini": gemini_cli,
    "copilot": copilot,
    "qwen": qwen,
    "cn": cn,
    "pi": pi,
    "cline": cline,
    "mini": mini,
    "interpreter": mini,
    "aider": mini,
    "llm": llm,
}


def run(name: str, arguments: list[str], environment: dict[str, str]) -> str:
    """Run a stand-in in this process, as if it were started with these."""
    global ARGUMENTS, ENV, HOME
    ARGUMENTS, ENV, HOME = arguments, environment, Path(environment["HOME"])
    return PROGRAMS[name]()


if __name__ == "__main__":
    print(run(sys.argv[1], sys.argv[2:], dict(os.environ)))
