"""pi."""

from __future__ import annotations

from pathlib import Path

from .launch import KnownProgram, Launch, SideRequest
from .settings_files import Json, get_nested, get_table

_VARIABLE = "PI_CODING_AGENT_DIR"
_PROVIDERS = {
    "anthropic": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_KEY"),
    "google": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
}

_OTHERS = (
    "amazon-bedrock", "ant-ling", "azure-openai-responses", "baseten", "cerebras", "cloudflare-ai-gateway",
    "cloudflare-workers-ai", "deepseek", "fireworks", "github-copilot", "google-vertex", "groq", "huggingface",
    "kimi-coding", "meta", "minimax", "minimax-cn", "mistral", "moonshotai", "moonshotai-cn", "nvidia", "openai-codex",
    "opencode", "opencode-go", "openrouter", "qwen-token-plan", "qwen-token-plan-cn", "qwen-token-plan-individual",
    "together", "vercel-ai-gateway", "xai", "xiaomi", "xiaomi-token-plan-ams", "xiaomi-token-plan-cn",
    "xiaomi-token-plan-sgp", "zai", "zai-coding-cn",
)  # fmt: skip
"""Providers that it has besides. Their addresses lead to the gateway too, which refuses them."""

_LOGINS_WITH_ADDRESS = frozenset({"github-copilot", "radius"})
"""Logins that bring an address, which beats the one in models.json."""


def _find_folder(launch: Launch) -> Path:
    return launch.find_folder(_VARIABLE, ".pi", "agent")


def _prepare(launch: Launch) -> None:
    folder = _find_folder(launch)
    logins, models = launch.read_json(folder / "auth.json"), launch.read_json(folder / "models.json")
    for name, (address, variable) in _PROVIDERS.items():
        url = get_nested(models, "providers", name, "baseUrl")
        if isinstance(url, str):
            launch.environment[address] = url
        key = get_nested(logins, name, "key")
        if isinstance(key, str) and key and not key.startswith("!"):
            launch.environment[variable] = launch.environment.get(key, key)  # it may be the name of a variable
    provider = _find_provider(launch)
    if provider is not None and provider not in _PROVIDERS:
        raise launch.refuse(
            f"its provider {provider!r} is asked without the gateway",
            f"use --provider with one of {', '.join(_PROVIDERS)}",
        )
    launch.is_plan = get_nested(logins, provider or "anthropic", "type") == "oauth"


def _find_provider(launch: Launch) -> str | None:
    model = launch.get_option("--model")
    named = model.partition("/")[0] if model and "/" in model else None
    settings = launch.read_json(_find_folder(launch) / "settings.json")
    project = launch.read_json(launch.folder / ".pi" / "settings.json")
    default = project.get("defaultProvider") or settings.get("defaultProvider")
    return launch.get_option("--provider") or named or (str(default) if default else None)


def _point(launch: Launch) -> None:
    folder = _find_folder(launch)
    models, logins = launch.read_json(folder / "models.json"), launch.read_json(folder / "auth.json")
    providers = get_table(models, "providers")
    kept = {name: login for name, login in logins.items() if name not in _LOGINS_WITH_ADDRESS}
    for name in {*_OTHERS, *providers} - _PROVIDERS.keys():
        providers[name] = _move(get_table(providers, name), f"{launch.addresses['anthropic'].root}/{name}")
    for name, (_, variable) in _PROVIDERS.items():
        address = launch.addresses[name]
        url = address.url if name == "anthropic" else address.versioned_url
        entry: Json = get_table(providers, name)
        headers = get_table(entry, "headers") | address.headers
        providers[name] = _move(entry, url) | {"headers": headers}
        stand_in = launch.governed.get(variable)
        if stand_in and "apiKey" in entry:
            providers[name]["apiKey"] = stand_in
        if stand_in and get_nested(logins, name, "key"):
            kept[name] = {**logins[name], "key": stand_in}
    files: dict[str, Json] = {"models.json": models | {"providers": providers}}
    if kept != logins:
        files["auth.json"] = kept
    copy = launch.mirror(folder, files)
    launch.set(_VARIABLE, str(copy))
    launch.changes.append(f"{_VARIABLE} names a temporary copy of its folder with the addresses in models.json")


def _move(entry: Json, url: str) -> Json:
    """Return the entry of a provider with another address, which its models have too."""
    models = [{**model, "baseUrl": url} if "baseUrl" in model else model for model in entry.get("models", ())]
    return entry | {"baseUrl": url} | ({"models": models} if models else {})


PI = KnownProgram(
    name="pi",
    title="pi",
    version="0.87.1",
    wires=("messages", "responses"),
    example='pi --provider anthropic -p "fix the failing test"',
    enforced="all limits, with Anthropic, OpenAI and Google",
    pointed_by="a temporary copy of its folder, with the addresses in models.json",
    escapes=(
        "other providers are refused before the start, or by the gateway",
        "providers that an extension adds are not seen",
    ),
    packages=("@mariozechner/pi-coding-agent", "@earendil-works/pi-coding-agent"),
    prepare=_prepare,
    point=_point,
    side_requests=(
        SideRequest(
            name="compaction",
            agents=("",),  # it sends the user agents of several libraries
            text="You are a context summarization assistant.",
            is_compaction=True,
        ),
    ),
)
